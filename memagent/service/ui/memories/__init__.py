"""The pages of memories: the list, one memory, and changes that wait for review."""

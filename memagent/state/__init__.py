"""The state of one memory: what each journal entry does to it, and the rules an op must pass."""

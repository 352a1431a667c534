"""The proof of what a journal says: noted ends, rewritten payloads, and a search of its files."""

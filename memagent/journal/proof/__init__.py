<<<<<<< HEAD
"""The proof of what a journal says: noted ends, rewritten payloads, and a search of its files."""
=======
"""What proves that a log is whole: the audit, noted tips, redactions, a search of files."""
>>>>>>> main

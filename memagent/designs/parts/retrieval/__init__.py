"""Retrievers over the search of a memory bank."""

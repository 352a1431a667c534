"""Indexers and retrievers of the event graph."""

"""Retrievers that search the memories; those of the event graph are in `parts.graph`."""

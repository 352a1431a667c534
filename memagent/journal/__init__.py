"""Stores: the journal (in memory and in SQL), the embedding cache, the exact vector
index and the event graph's networkx view.

Import the module you need; nothing is re-exported here, so SQLAlchemy and networkx load
only for those who use them.
"""

"""The journal in memory and in SQL, with its cache of vectors.

Import the module you need; nothing is re-exported here, so SQLAlchemy and networkx load
only for those who use them.
"""

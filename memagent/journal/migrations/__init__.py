"""Alembic's revisions of the journal's schema.

Loaded only for a database that is not at the newest one.
"""

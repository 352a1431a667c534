"""Alembic's revisions of the journal's schema.

Loaded only for a database that is not at the newest one, as is what makes a new one.
"""

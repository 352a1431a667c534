"""Alembic's revisions of the service's own tables.

Loaded only for a database that is not at the newest one.
"""

"""Alembic's entry for the service's tables.

It differs from the journal's `migrations/env.py` in metadata and version table.
"""

from __future__ import annotations

from alembic import context

from memagent.service.data.tables import VERSION_TABLE, metadata, shared

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=[metadata, shared],
    version_table=VERSION_TABLE,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()

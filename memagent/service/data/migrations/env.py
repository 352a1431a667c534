"""Alembic's entry for the service's tables; see the journal's `migrations/env.py`, of
which this is the twin with its own version table.
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

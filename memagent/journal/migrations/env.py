"""Alembic's entry: run the revisions on the connection that `upgrade.py` configured.

All revisions run in one transaction.
"""

from __future__ import annotations

from alembic import context

from memagent.journal.migrations.schema import metadata
from memagent.journal.revision import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,  # also on SQLite: our connections begin their transactions themselves
)
with context.begin_transaction():
    context.run_migrations()

"""Making and migrating the schema: the one use of SQLAlchemy in the journal.

Each is one transaction, so a crash leaves the old state or the new. Loaded only for a
database that has no tables yet or older ones.
"""

from __future__ import annotations

from sqlalchemy import Connection, Engine, event, insert
from sqlalchemy.exc import DBAPIError

from memagent.core import crash_points
from memagent.journal.backend import Backend
from memagent.journal.migrations.schema import meta, metadata, version
from memagent.journal.revision import FORMAT, SCHEMA_REVISION
from memagent.journal.schema_state import SchemaState, schema_state


def begin_with(engine: Engine, statement: str) -> None:
    """Begin every transaction of an engine with a statement, since its driver begins none."""

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:  # pyright: ignore[reportUnusedFunction]
        connection.exec_driver_sql(statement)


def make_schema(backend: Backend) -> None:
    """Create or migrate the schema where needed.

    The caller holds the writer's lock where there is one. Raises as `schema_state` does.
    """
    try:
        # From `begin` on no other process makes or migrates; one may have done so just now.
        with backend.writing_engine().connect() as connection, connection.begin():
            driver = connection.connection.driver_connection
            assert driver is not None
            state = schema_state(driver, backend)
            if state is SchemaState.EMPTY:
                _create(connection)
                crash_points.reach("schema.created")
            elif state is SchemaState.OLDER:
                _migrate(connection)
                crash_points.reach("schema.migrated")
    except DBAPIError as exc:
        cause = exc.orig if isinstance(exc.orig, Exception) else exc
        raise backend.error(cause, "opening") from exc


def _create(connection: Connection) -> None:
    metadata.create_all(connection)
    version.create(connection)
    connection.execute(insert(version).values(version_num=SCHEMA_REVISION))
    connection.execute(insert(meta).values(key="format", value=FORMAT))


def _migrate(connection: Connection) -> None:
    from memagent.journal.migrations.upgrade import upgrade_to_head

    upgrade_to_head(connection)

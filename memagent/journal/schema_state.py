"""Bringing a database to the schema of this version: create, migrate, or refuse it.

Whatever is refused has not been written to. Making and migrating are one transaction
each, so a crash leaves the old state or the new.
"""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import Connection, insert, inspect, select
from sqlalchemy.exc import DBAPIError

from memagent.core import crash_points
from memagent.core.errors import StoreError
from memagent.journal.backend import Backend, corrupt
from memagent.journal.schema import (
    FORMAT,
    GUESTS,
    KNOWN_REVISIONS,
    SCHEMA_REVISION,
    VERSION_TABLE,
    meta,
    metadata,
    version,
)


class SchemaState(StrEnum):
    """The state of a database."""

    EMPTY = "empty"
    """It has no tables yet."""
    OLDER = "older"
    """It is ours, of an earlier revision."""
    CURRENT = "current"


def schema_state(connection: Connection, place: str) -> SchemaState:
    """Return the state of the database.

    Raises `StoreCorrupt` when it is not a memagent store and `StoreError` when it is a
    newer one.
    """
    tables = [name for name in inspect(connection).get_table_names() if not name.startswith(GUESTS)]
    if not tables:
        return SchemaState.EMPTY
    if VERSION_TABLE not in tables:
        raise corrupt(place, f"not a memagent store (it holds {', '.join(sorted(tables)[:5])})")
    revision = connection.execute(select(version.c.version_num)).scalar()
    if revision is not None and revision not in KNOWN_REVISIONS:
        raise StoreError(
            f"{place} was written by a newer memagent (schema revision {revision}); this "
            f"version knows revisions up to {SCHEMA_REVISION}: "
            "install the newer version"
        )
    if revision != SCHEMA_REVISION:
        return SchemaState.OLDER
    missing = set(metadata.tables) - set(tables)
    if missing:
        raise corrupt(place, f"tables are missing: {', '.join(sorted(missing))}")
    stored = connection.execute(select(meta.c.value).where(meta.c.key == "format")).scalar()
    if stored != FORMAT:
        raise corrupt(place, f"its format is {stored!r}, not {FORMAT!r}")
    return SchemaState.CURRENT


def prepare_schema(backend: Backend) -> None:
    """Create or migrate the schema where needed.

    The caller holds the writer's lock where there is one. Raises as `schema_state` does.
    """
    try:
        with backend.writing_engine().connect() as connection:
            state = schema_state(connection, backend.name)
            connection.commit()
            if state is SchemaState.CURRENT:
                return
            with (
                connection.begin()
            ):  # from here on no other process makes or migrates; one may have done so just now
                state = schema_state(connection, backend.name)
                if state is SchemaState.EMPTY:
                    _create(connection)
                    crash_points.reach("schema.created")
                elif state is SchemaState.OLDER:
                    _migrate(connection)
                    crash_points.reach("schema.migrated")
    except DBAPIError as exc:
        raise backend.error(exc, "opening") from exc


def _create(connection: Connection) -> None:
    metadata.create_all(connection)
    version.create(connection)
    connection.execute(insert(version).values(version_num=SCHEMA_REVISION))
    connection.execute(insert(meta).values(key="format", value=FORMAT))


def _migrate(connection: Connection) -> None:
    from memagent.journal.migrations.upgrade import upgrade_to_head

    upgrade_to_head(connection)

"""Telling the state of a database's schema: absent, older, current, or not ours.

Whatever is refused has not been written to.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from memagent.core.errors import StoreError
from memagent.journal.backend import Backend, DriverConnection, ReadConnection, corrupt
from memagent.journal.revision import (
    FORMAT,
    GUESTS,
    KNOWN_REVISIONS,
    SCHEMA_REVISION,
    TABLES,
    VERSION_TABLE,
)

_NUMBER: Final = int(FORMAT.partition("/")[2])


class SchemaState(StrEnum):
    """The state of a database."""

    EMPTY = "empty"
    """It has no tables yet."""
    OLDER = "older"
    """It is ours, of an earlier revision."""
    CURRENT = "current"


def schema_state(connection: ReadConnection | DriverConnection, backend: Backend) -> SchemaState:
    """Return the state of the database.

    Raises `StoreCorrupt` when it is not a memagent store and `StoreError` when it is a
    newer one.
    """
    place = backend.name
    every = [name for (name,) in connection.execute(backend.table_names).fetchall()]
    tables = [name for name in every if not name.startswith(GUESTS)]
    if not tables:
        return SchemaState.EMPTY
    if VERSION_TABLE not in tables:
        raise corrupt(place, f"not a memagent store (it holds {', '.join(sorted(tables)[:5])})")
    row = connection.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchone()
    if row is not None and row[0] not in KNOWN_REVISIONS:
        raise StoreError(
            f"{place} was written by a newer memagent (schema revision {row[0]}); this "
            f"version knows revisions up to {SCHEMA_REVISION}: "
            "install the newer version"
        )
    if row is None or row[0] != SCHEMA_REVISION:
        return SchemaState.OLDER
    missing = TABLES - set(tables)
    if missing:
        raise corrupt(place, f"tables are missing: {', '.join(sorted(missing))}")
    row = connection.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
    stored = None if row is None else row[0]
    known, _, number = str(stored).partition("/")
    if FORMAT.startswith(f"{known}/") and number.isdigit() and int(number) > _NUMBER:
        raise StoreError(
            f"{place} was written by a newer memagent (format {stored}); this version knows "
            f"{FORMAT}: install the newer version"
        )
    if stored != FORMAT:
        raise corrupt(place, f"its format is {stored!r}, not {FORMAT!r}")
    return SchemaState.CURRENT

"""Snapshots of memories: a name and a digest for a sequence of the journal."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row

from memagent.client.wire import SnapshotInfo
from memagent.core.records import Scope
from memagent.journal.rows import from_microseconds, to_microseconds
from memagent.service.data.database import ServiceDatabase
from memagent.service.data.tables import snapshots


class SnapshotTable:
    """The rows of the snapshots. Thread-safe; calls block."""

    def __init__(self, database: ServiceDatabase) -> None:
        self._database = database

    def add(self, scope: Scope, info: SnapshotInfo) -> SnapshotInfo:
        """Store a snapshot; return the stored one when its id is known."""
        row = info.model_dump(exclude={"created_at"})
        row |= {"scope": scope.model_dump_json(), "created_us": to_microseconds(info.created_at)}

        def work(db: Connection) -> SnapshotInfo:
            if self._database.insert(db, snapshots, row):
                return info
            return _info(db.execute(snapshots.select().where(snapshots.c.id == info.id)).one())

        return self._database.run(work)

    def of(self, scope: Scope) -> list[SnapshotInfo]:
        """Return a scope's snapshots, oldest first."""
        mine = snapshots.select().where(snapshots.c.scope == scope.model_dump_json())
        ordered = mine.order_by(snapshots.c.created_us, snapshots.c.id)
        return [_info(row) for row in self._database.rows(ordered)]


def _info(row: Row[Any]) -> SnapshotInfo:
    names = ("id", "name", "digest", "seq", "items")
    return SnapshotInfo(
        **{name: getattr(row, name) for name in names}, created_at=from_microseconds(row.created_us)
    )

"""The service's own tables: API keys, jobs, snapshots, leases, and the service's secret.

They lie in a small file beside a SQLite store and beside the journal's tables on
PostgreSQL (`backends`). The tables hold no text of any user: jobs name sessions,
snapshots name sequences of the journal, keys are kept as HMACs (`tables` tells of the
one exception). Each table has its own class (`JobTable`, `KeyRing`, `LeaseTable`,
`SnapshotTable`) over `ServiceDatabase.run`. Every call is short and blocks; the service
makes them in threads. All raise `StoreError`s.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, Select, Table
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from memagent.journal.postgres.backend import PostgresBackend
from memagent.service.data.backends import PostgresTables, SqliteTables
from memagent.service.data.tables import meta

T = TypeVar("T")


class ServiceDatabase:
    """The database of the service. Thread-safe.

    A SQLite file (a path), a PostgreSQL server (its URL or backend), or memory (None).
    """

    def __init__(self, place: Path | str | PostgresBackend | None) -> None:
        server = PostgresBackend(place) if isinstance(place, str) else place
        self._backend = (
            PostgresTables(server) if isinstance(server, PostgresBackend) else SqliteTables(server)
        )
        # Whether other workers use the database too.
        self.shared = self._backend.shared
        # SQL for the database's own clock, in microseconds since 1970.
        self.now = self._backend.now
        try:
            with self._translated("opening"):
                self._backend.prepare()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connections; a transaction of another thread ends first."""
        self._backend.close()

    def run(
        self, work: Callable[[Connection], T], *, owners: Sequence[str] = (), durable: bool = True
    ) -> T:
        """Run a function in one transaction and return its result.

        The transaction is begun again, once, when its connection had died. It sees the
        stored responses of `owners` alone. Without `durable` the commit does not wait
        for the disk: use that for what a crash of the server may take back.
        """
        with self._translated("using"):
            try:
                with self._backend.transaction(owners, durable=durable) as db:
                    return work(db)
            except DBAPIError as exc:
                if not self._backend.worth_another_try(exc):
                    raise
            with self._backend.transaction(owners, durable=durable) as db:
                return work(db)

    def rows(self, query: Select[*tuple[Any, ...]]) -> Sequence[Row[*tuple[Any, ...]]]:
        """Return all rows of a query."""
        return self.run(lambda db: db.execute(query).all())

    def insert(self, db: Connection, table: Table, row: Mapping[str, Any]) -> bool:
        """Insert a row unless its key exists; return whether it was inserted."""
        statement = self._backend.insert(table).values(**row).on_conflict_do_nothing()
        return db.execute(statement).rowcount > 0

    def secret(self) -> bytes:
        """Return the 32 bytes that keys are hashed and cursors signed with; made once."""

        def work(db: Connection) -> str:
            self.insert(db, meta, {"key": "secret", "value": secrets.token_hex(32)})
            return db.execute(meta.select().where(meta.c.key == "secret")).one().value

        return bytes.fromhex(self.run(work))

    def scrub(self) -> None:
        """Take deleted rows out of the files, the write-ahead log included."""
        with self._translated("scrubbing"):
            self._backend.scrub()

    def scrub_responses(self) -> None:
        """Free the space of deleted responses."""
        with self._translated("scrubbing"):
            self._backend.scrub_responses()

    @contextmanager
    def _translated(self, doing: str) -> Generator[None]:
        try:
            yield
        except SQLAlchemyError as exc:
            raise self._backend.error(exc, doing) from exc

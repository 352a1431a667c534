"""The journal in PostgreSQL: one log, written by any number of processes and machines.

An append takes the advisory lock of its scope, is decided against what is there, and is
acknowledged after the server has made it durable. Every read asks for the end of the
log first, so a process sees what another one has acknowledged. While the server is away
every call raises `StoreUnavailable`, which is retryable, and the next call after its
return works. The surprise: `StoreUnavailable` may say that it is unknown whether the
entries were written, where the server was lost in the very commit and did not come
back. Repeat such a request with its idempotency key.
"""

from __future__ import annotations

from contextlib import closing

from memagent.core.errors import ConfigError, InputError, StoreError
from memagent.journal.backend import ReadConnection
from memagent.journal.database import DatabaseJournal
from memagent.journal.postgres.backend import PostgresBackend, Scrub
from memagent.journal.postgres.engine import refuse_transaction_pooling
from memagent.journal.proof.tips import NO_SEAL, Seal
from memagent.journal.rows import system_clock
from memagent.protocols import Clock

_MOST_CONNECTIONS = 64


class PostgresJournal(DatabaseJournal):
    """A `Journal` in the database at a `postgresql://` URL.

    Its tables are made when they do not exist.

    `pool` is how many connections a process keeps for reading at most; one more writes.
    `scrub` says what follows an erasure: `"vacuum"` frees the space, `"rewrite"` writes
    the tables anew without what was erased and shuts others out meanwhile. `seal` names
    the file on this machine that notes the ends of logs, and the key of the notes;
    without a file nothing is noted.

    Opening raises `StoreUnavailable` (no server; not `retryable` where it will not let
    us in or has no such database), `StoreReadOnly` (a standby, or no right to make
    tables), `StoreCorrupt` (not a memagent store), `StoreError` (written by a newer
    memagent), `MissingExtra` without psycopg and `ConfigError` (also for a pooler in
    transaction mode).
    """

    def __init__(
        self,
        url: str,
        *,
        read_only: bool = False,
        pool: int = 4,
        scrub: Scrub = "vacuum",
        clock: Clock = system_clock,
        seal: Seal = NO_SEAL,
    ) -> None:
        if not 1 <= pool <= _MOST_CONNECTIONS:
            raise ConfigError(
                f"pool={pool}: a process keeps 1 to {_MOST_CONNECTIONS} connections for reading"
            )
        if seal.key is not None and seal.tips is None:
            raise ConfigError("key_file signs the notes of where logs end: name their file as tips")
        refuse_transaction_pooling(url)
        backend = PostgresBackend(url, pool, scrub, tips=seal.tips, key=seal.key)
        super().__init__(backend, read_only=read_only, clock=clock)
        if read_only and not self._reader.ready():
            self.close()
            raise StoreError(
                f"there is no memory at {self.place}; it is made when it is first opened for "
                "writing"
            )

    def compare_tips(self) -> list[str]:
        """Return where the server and the ends noted on this machine disagree; blocks.

        [] where the settings name no `tips`. A log that other machines wrote alone is not
        noted here, and not told.
        """
        self._check()
        backend = self._backend
        assert isinstance(backend, PostgresBackend)
        book = backend.book
        if book is None:
            return []
        if not book.path.exists():
            return [f"{book.path} is missing, though the settings name it"]
        return self._reader.compare_tips(book)

    def note_ends(self) -> int:
        """Note the ends of all logs anew, as the server has them now; return how many.

        Raises `InputError` where the settings name no `tips`.
        """
        self._check()
        backend = self._backend
        assert isinstance(backend, PostgresBackend)
        if backend.book is None:
            raise InputError("name a file as `tips` of the store's settings to note ends there")
        with closing(backend.connect()) as connection:
            ends = backend.ends(connection)
        backend.book.rewrite(ends)
        return len(ends)

    def examine(self) -> tuple[dict[str, str], list[str]]:
        """Return facts about the server, and what is wrong with how it is used.

        Blocks; raises `StoreError`s.
        """
        self._check()
        return self._reader.ask(_examined)


def _examined(connection: ReadConnection) -> tuple[dict[str, str], list[str]]:
    version, role, unbound, size, used, most = connection.execute(
        "SELECT current_setting('server_version'), current_user, r.rolsuper OR r.rolbypassrls, "
        "pg_database_size(current_database()), "
        "(SELECT count(*) FROM pg_stat_activity), current_setting('max_connections')::int FROM "
        "pg_roles r WHERE r.rolname = current_user"
    ).fetchone()
    facts = {
        "version": version,
        "role": role,
        "database_bytes": str(size),
        "connections": f"{used} of {most}",
    }
    wrong = (
        [f"role {role} is not bound by row-level security; connect as an ordinary role"]
        if unbound
        else []
    )
    wrong += [
        f"the server runs with {name} off: a power cut may lose or tear what was acknowledged"
        for name in ("fsync", "full_page_writes")
        if connection.execute(f"SHOW {name}").fetchone() != ("on",)
    ]
    return facts, wrong

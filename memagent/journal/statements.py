"""The journal's SQL, as text that goes to the driver.

Statements that read are the same for every database and have `?` for each parameter.
Those that write differ: where `arrays` is set, a statement for many rows takes one array
a column, so that a group of any size is one round trip. The surprise: nothing here is
built by SQLAlchemy, which only makes and migrates the tables. Importing it took a quarter
of the processor time of a command.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from memagent.journal.rows import ERASED, NAMELESS, REDACTED

SCRUB_KEY: Final = "scrub"
"""Key of the `meta` row that says that an erasure has still to be made good on disk."""
ERASURE_KEY: Final = "erasure"
"""Key of the `meta` row that holds the mark of the last erasure."""
COLUMNS: Final[Mapping[str, Mapping[str, str]]] = {
    "journal": {
        "scope_id": "integer",
        "seq": "bigint",
        "kind": "varchar",
        "recorded_us": "bigint",
        "payload_digest": "bytea",
        "chain": "bytea",
    },
    "payloads": {"scope_id": "integer", "seq": "bigint", "salt": "bytea", "body": "bytea"},
    "idempotency": {
        "scope_id": "integer",
        "key": "varchar",
        "body_digest": "varchar",
        "response_json": "text",
        "created_us": "bigint",
    },
    "embeddings": {
        "embedder": "varchar",
        "digest": "varchar",
        "dim": "integer",
        "vector": "bytea",
        "crc": "bigint",
    },
}
"""Columns of the tables that many rows are written to at once, with PostgreSQL's types."""
_MOVED: Final = {
    "user_id": "text",
    "agent_id": "text",
    "run_id": "text",
    "head": "bigint",
    "chain": "bytea",
    "recorded_us": "bigint",
}

# -- reading ---------------------------------------------------------------------------

_LOG: Final = "journal JOIN scopes ON scopes.id = journal.scope_id"
_WORDS: Final = "payloads ON payloads.scope_id = journal.scope_id AND payloads.seq = journal.seq"

SELECT_SCOPES: Final = (
    "SELECT user_id, agent_id, run_id FROM scopes "
    f"WHERE head > 0 AND substr(user_id, 1, 1) <> '{NAMELESS}'"
)
SELECT_ERASED: Final = (
    f"SELECT digest FROM scopes WHERE head > 0 AND substr(user_id, 1, 1) = '{NAMELESS}'"
)
SELECT_PAGE: Final = (
    "SELECT journal.seq, journal.recorded_us, payloads.body, scopes.head, payloads.salt, "
    f"journal.payload_digest, journal.kind, journal.chain FROM {_LOG} LEFT JOIN {_WORDS} "
    "WHERE scopes.digest = ? AND journal.seq > ? ORDER BY journal.seq LIMIT ?"
)
"""Rows after a sequence; the body is NULL where it was erased."""
SELECT_LAST_ERASURE: Final = (
    f"SELECT coalesce(max(journal.seq), 0) FROM {_LOG} "
    f"WHERE scopes.digest = ? AND journal.kind = '{ERASED}'"
)
SELECT_REDACTIONS: Final = (
    f"SELECT payloads.body, payloads.salt, journal.payload_digest FROM {_LOG} JOIN {_WORDS} "
    f"WHERE scopes.digest = ? AND journal.kind = '{REDACTED}' ORDER BY journal.seq"
)
SELECT_LAST_FORGETTING: Final = (
    f"SELECT coalesce(max(journal.seq), 0) FROM {_LOG} "
    f"WHERE scopes.digest = ? AND journal.kind IN ('{ERASED}', '{REDACTED}')"
)
"""The last entry after which nothing that was derived before may be used."""
SELECT_CHAIN: Final = (
    f"SELECT journal.chain FROM {_LOG} WHERE scopes.digest = ? AND journal.seq = ?"
)
SELECT_RESPONSE: Final = (
    "SELECT body_digest, response_json FROM idempotency "
    "JOIN scopes ON scopes.id = idempotency.scope_id "
    "WHERE scopes.digest = ? AND idempotency.key = ?"
)
SELECT_META: Final = "SELECT value FROM meta WHERE key = ?"


def select_vectors(count: int) -> str:
    """Make the statement that reads vectors; takes an embedder and `count` digests."""
    return (
        "SELECT digest, dim, vector, crc FROM embeddings "
        f"WHERE embedder = ? AND digest IN ({', '.join('?' * count)})"
    )


# -- writing ---------------------------------------------------------------------------


class Statements:
    """The text of the writer's statements, with `mark` for each parameter.

    `arrays` as the module says; it speaks PostgreSQL then.
    """

    def __init__(self, mark: str, *, arrays: bool = False) -> None:
        self._mark, self._arrays = mark, arrays
        self.tip = self._text("SELECT id, head, chain, recorded_us FROM scopes WHERE digest = ?")
        self.head = self._text("SELECT head FROM scopes WHERE digest = ?")
        self.new_scope = self._text(
            "INSERT INTO scopes (digest, user_id, agent_id, run_id, head, chain, recorded_us) "
            "VALUES (?, ?, ?, ?, ?, ?, ?) RETURNING id"
        )
        # Rows of `journal`; as with the next three and `move_head`, for `Backend.write_rows`.
        self.header = self._rows("journal")
        self.payload = self._rows("payloads")
        self.new_response = self._rows("idempotency")
        self.vector = (
            f"{self._rows('embeddings')} ON CONFLICT (embedder, digest) DO UPDATE SET "
            "dim = excluded.dim, vector = excluded.vector, crc = excluded.crc"
        )
        # Rows of (user_id, agent_id, run_id, head, chain, recorded_us, scope, before).
        self.move_head = self._move_heads() if arrays else self._move_head()
        self.response = self._text(
            "SELECT body_digest, response_json FROM idempotency WHERE scope_id = ? AND key = ?"
        )
        self.chain = self._text("SELECT chain FROM journal WHERE scope_id = ? AND seq = ?")
        self.drop_payloads = self._text("DELETE FROM payloads WHERE scope_id = ?")
        self.rewrite_payload = self._text(
            "UPDATE payloads SET salt = ?, body = ? WHERE scope_id = ? AND seq = ?"
        )
        self.drop_responses = self._text("DELETE FROM idempotency WHERE scope_id = ?")
        self.drop_vectors = "TRUNCATE embeddings" if arrays else "DELETE FROM embeddings"
        self.put_meta = self._text(
            "INSERT INTO meta (key, value) VALUES (?, ?) "
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value"
        )
        self.meta_value = self._text(SELECT_META)
        self.scrub_done = self._text("DELETE FROM meta WHERE key = ? AND value = ?")

    def _text(self, statement: str) -> str:
        return statement.replace("?", self._mark)

    def _rows(self, table: str) -> str:
        columns = COLUMNS[table]
        into = f"INSERT INTO {table} ({', '.join(columns)})"
        if self._arrays:
            return f"{into} SELECT * FROM {self._unnested(columns)}"
        return f"{into} VALUES ({', '.join([self._mark] * len(columns))})"

    def _unnested(self, columns: Mapping[str, str]) -> str:
        """Make rows out of one array a column."""
        return f"unnest({', '.join(f'{self._mark}::{kind}[]' for kind in columns.values())})"

    def _move_head(self) -> str:
        changes = ", ".join(f"{name} = ?" for name in _MOVED)
        return self._text(f"UPDATE scopes SET {changes} WHERE id = ? AND head = ?")

    def _move_heads(self) -> str:
        given = _MOVED | {"scope": "integer", "before": "bigint"}
        changes = ", ".join(f"{name} = given.{name}" for name in _MOVED)
        return (
            f"UPDATE scopes SET {changes} "
            f"FROM {self._unnested(given)} AS given({', '.join(given)}) "
            "WHERE scopes.id = given.scope AND scopes.head = given.before"
        )


SQLITE: Final = Statements("?")
POSTGRES: Final = Statements("%s", arrays=True)

"""Stores of every release open: the tables are those that the first release made, and a
revision that is missing is applied once, by a writer.
"""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from journal_kit import every_kind, read_all
from places import ROOT

from memagent.core.errors import StoreError
from memagent.core.records import Scope
from memagent.journal.backend import COLUMNS
from memagent.journal.reader import SCRIPTS, statements_after
from memagent.journal.rows import KNOWN_REVISIONS, SCHEMA_REVISION, TABLES, VERSION_TABLE
from memagent.journal.sqlite import SqlJournal

ANN = Scope(user_id="ann")
FIRST_RELEASE = {
    "embeddings": [
        (0, "embedder", "VARCHAR(256)", 1, None, 1),
        (1, "digest", "VARCHAR(128)", 1, None, 2),
        (2, "dim", "INTEGER", 1, None, 0),
        (3, "vector", "BLOB", 1, None, 0),
        (4, "crc", "BIGINT", 1, None, 0),
        ("sqlite_autoindex_embeddings_1", 1, "pk"),
        (0,),
    ],
    "idempotency": [
        (0, "scope_id", "INTEGER", 1, None, 1),
        (1, "key", "VARCHAR(256)", 1, None, 2),
        (2, "body_digest", "VARCHAR(128)", 1, None, 0),
        (3, "response_json", "TEXT", 1, None, 0),
        (4, "created_us", "BIGINT", 1, None, 0),
        ("sqlite_autoindex_idempotency_1", 1, "pk"),
        (0,),
    ],
    "journal": [
        (0, "scope_id", "INTEGER", 1, None, 1),
        (1, "seq", "BIGINT", 1, None, 2),
        (2, "kind", "VARCHAR(16)", 1, None, 0),
        (3, "recorded_us", "BIGINT", 1, None, 0),
        (4, "payload_digest", "BLOB", 1, None, 0),
        (5, "chain", "BLOB", 1, None, 0),
        ("sqlite_autoindex_journal_1", 1, "pk"),
        (1,),
    ],
    "memagent_version": [
        (0, "version_num", "VARCHAR(32)", 1, None, 1),
        ("sqlite_autoindex_memagent_version_1", 1, "pk"),
        (0,),
    ],
    "meta": [
        (0, "key", "VARCHAR(64)", 1, None, 1),
        (1, "value", "TEXT", 1, None, 0),
        ("sqlite_autoindex_meta_1", 1, "pk"),
        (0,),
    ],
    "payloads": [
        (0, "scope_id", "INTEGER", 1, None, 1),
        (1, "seq", "BIGINT", 1, None, 2),
        (2, "salt", "BLOB", 1, None, 0),
        (3, "body", "BLOB", 1, None, 0),
        ("sqlite_autoindex_payloads_1", 1, "pk"),
        (0,),
    ],
    "scopes": [
        (0, "id", "INTEGER", 1, None, 1),
        (1, "digest", "VARCHAR(64)", 1, None, 0),
        (2, "user_id", "TEXT", 1, None, 0),
        (3, "agent_id", "TEXT", 0, None, 0),
        (4, "run_id", "TEXT", 0, None, 0),
        (5, "head", "BIGINT", 1, None, 0),
        (6, "chain", "BLOB", 1, None, 0),
        (7, "recorded_us", "BIGINT", 1, None, 0),
        ("sqlite_autoindex_scopes_1", 1, "u"),
        (0,),
    ],
}
"""Columns (place, name, type, not null, default, key), indexes, and whether a table has no
row ids, as the first release made them.
"""


def older(path: Path) -> Path:
    """A store from before the first revision."""
    with closing(sqlite3.connect(path)) as database:
        database.execute(
            f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL, "
            f"CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num))"
        )
        database.commit()
    return path


def tables(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Columns, indexes and the lack of row ids by table."""
    with closing(sqlite3.connect(path)) as database:
        names = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        return {
            name: [
                *database.execute(f"PRAGMA table_info({name})"),
                *(row[1:4] for row in database.execute(f"PRAGMA index_list({name})")),
                *database.execute("SELECT wr FROM pragma_table_list(?)", (name,)),
            ]
            for (name,) in database.execute(names).fetchall()
        }


def revisions(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as database:
        return [row[0] for row in database.execute(f"SELECT version_num FROM {VERSION_TABLE}")]


def test_every_revision_has_its_script() -> None:
    assert list(SCRIPTS) == list(KNOWN_REVISIONS) and KNOWN_REVISIONS[-1] == SCHEMA_REVISION


def test_new_and_migrated_stores_have_the_tables_of_the_first_release(tmp_path: Path) -> None:
    for path in (tmp_path / "new.db", older(tmp_path / "old.db")):
        SqlJournal(path).close()
        SqlJournal(path).close()
        assert tables(path) == FIRST_RELEASE
        assert revisions(path) == [SCHEMA_REVISION]


async def test_a_migrated_store_works(tmp_path: Path) -> None:
    with SqlJournal(older(tmp_path / "a % strange?name.db")) as journal:
        rows = await journal.append_many(ANN, every_kind(), expect=0)
        assert await read_all(journal, ANN) == rows


def test_a_reader_does_not_migrate(tmp_path: Path) -> None:
    path = older(tmp_path / "j.db")
    before = path.read_bytes()
    with pytest.raises(StoreError, match="open it once for writing"):
        SqlJournal(path, read_only=True)
    assert path.read_bytes() == before


def test_neither_making_nor_opening_a_store_loads_sqlalchemy(tmp_path: Path) -> None:
    code = (
        "import sys; from memagent.journal.sqlite import SqlJournal\n"
        "for path in sys.argv[1:]: SqlJournal(path).close()\n"
        "print('sqlalchemy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "new.db"), str(older(tmp_path / "old.db"))],
        check=True,
        capture_output=True,
        text=True,
        env=dict(os.environ, PYTHONPATH=str(ROOT)),
    )
    assert done.stdout.splitlines() == ["False"]


def test_the_scripts_name_the_columns_that_the_statements_write() -> None:
    made: dict[str, dict[str, str]] = {}
    for statement in statements_after(None, server=True):
        assert "ROWID" not in statement and "{" not in statement
        found = re.match(r"\s*CREATE TABLE (\w+) \((.*)\)", statement, re.DOTALL)
        if found:
            columns = re.findall(r'(?:^|,)\s*"?([a-z_]+)"? ([A-Z]+)', found[2])
            made[found[1]] = {name: kind.lower() for name, kind in columns}
    assert set(made) == TABLES
    assert {name: made[name] for name in COLUMNS} == COLUMNS

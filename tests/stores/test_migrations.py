"""The schema and its revisions say the same, an older store is brought up to date, and
Alembic is loaded for nothing else.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from journal_kit import every_kind, read_all
from places import ROOT
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateTable

from memagent.core.errors import StoreError
from memagent.core.records import Scope
from memagent.journal.migrations.schema import metadata
from memagent.journal.migrations.upgrade import alembic_config
from memagent.journal.revision import KNOWN_REVISIONS, SCHEMA_REVISION, TABLES, VERSION_TABLE
from memagent.journal.sqlite.engine import writing_engine
from memagent.journal.sqlite.journal import SqlJournal
from memagent.journal.statements import COLUMNS

ANN = Scope(user_id="ann")


def older(path: Path) -> Path:
    """A store from before the first revision."""
    database = sqlite3.connect(path)
    database.execute(
        f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL, CONSTRAINT x PRIMARY KEY (version_num))"
    )
    database.commit()
    database.close()
    return path


def tables(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Columns (place, name, type, not null, default, key) and indexes by table."""
    database = sqlite3.connect(path)
    names = [
        row[0]
        for row in database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        )
    ]
    found = {
        name: [
            *database.execute(f"PRAGMA table_info({name})"),
            *(row[1:4] for row in database.execute(f"PRAGMA index_list({name})")),
            *database.execute("SELECT wr FROM pragma_table_list(?)", (name,)),
        ]
        for name in names
    }
    database.close()
    return found


def test_the_constants_are_alembics_own_head() -> None:
    scripts = ScriptDirectory.from_config(alembic_config())
    assert scripts.get_current_head() == SCHEMA_REVISION
    assert [script.revision for script in scripts.walk_revisions()][::-1] == list(KNOWN_REVISIONS)


def test_a_migrated_store_equals_a_new_one(tmp_path: Path) -> None:
    SqlJournal(tmp_path / "new.db").close()
    SqlJournal(older(tmp_path / "old.db")).close()
    assert tables(tmp_path / "new.db") == tables(tmp_path / "old.db")
    with writing_engine(tmp_path / "old.db").connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSION_TABLE, "compare_type": True}
        )
        assert context.get_current_revision() == SCHEMA_REVISION
        assert compare_metadata(context, metadata) == []


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


def test_revisions_can_be_taken_back(tmp_path: Path) -> None:
    SqlJournal(tmp_path / "j.db").close()
    with writing_engine(tmp_path / "j.db").begin() as connection:
        command.downgrade(alembic_config(connection), "base")
    assert list(tables(tmp_path / "j.db")) == [VERSION_TABLE]
    SqlJournal(tmp_path / "j.db").close()


def test_alembic_is_loaded_only_to_migrate_and_sqlalchemy_only_to_make(tmp_path: Path) -> None:
    code = (
        "import sys; from memagent.journal.sqlite.journal import SqlJournal\n"
        "for path in sys.argv[1:]: SqlJournal(path).close(); "
        "print('sqlalchemy' in sys.modules, 'alembic' in sys.modules)"
    )
    SqlJournal(tmp_path / "there.db").close()
    places = [str(tmp_path / "there.db"), str(tmp_path / "new.db"), str(older(tmp_path / "old.db"))]
    environment = dict(os.environ, PYTHONPATH=str(ROOT))
    done = subprocess.run(
        [sys.executable, "-c", code, *places],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.stdout.splitlines() == ["False False", "True False", "True True"]


def test_nothing_in_the_schema_is_of_sqlite_alone() -> None:
    dialect = postgresql.dialect()
    for table in metadata.sorted_tables:
        assert "ROWID" not in str(CreateTable(table).compile(dialect=dialect))


def test_the_statements_name_the_columns_of_the_schema() -> None:
    assert set(metadata.tables) == TABLES
    dialect = postgresql.dialect()
    for name, columns in COLUMNS.items():
        made = {
            column.name: column.type.compile(dialect=dialect).lower().partition("(")[0]
            for column in metadata.tables[name].columns
        }
        assert columns == made

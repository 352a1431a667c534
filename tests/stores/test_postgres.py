"""What PostgreSQL adds to a journal: walls between users, words that go for good,
moving a database, settings without secrets.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from journal_kit import every_kind, read_all
from places import ROOT
from postgres_kit import PASSWORD, Postgres, in_schema, rows_of
from sqlalchemy import Engine

from memagent.agent import Agent
from memagent.build import load_settings
from memagent.config import AgentSettings, PostgresSettings
from memagent.core.errors import (
    ConfigError,
    InputError,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)
from memagent.core.records import Scope, Session, Turn
from memagent.core.snapshot import Entry, Erased, SessionStored, StatsDelta
from memagent.journal.postgres import (
    PostgresJournal,
    close_pool,
    connect,
    pooled_engine,
    without_password,
)
from memagent.journal.reader import SEEN
from memagent.journal.rows import SCHEMA_REVISION, VERSION_TABLE, scope_digest, scope_key
from memagent.plugins import load

psycopg = pytest.importorskip("psycopg", reason="needs the postgres extra")
ANN, BOB = Scope(user_id="ann"), Scope(user_id="bob")


@pytest.fixture
def url(postgres: Postgres) -> Iterator[str]:
    """An empty schema of the session's server."""
    with postgres.schema() as made:
        yield made


def said(words: str) -> Entry:
    return SessionStored(session=Session(id="s", turns=(Turn(id="t", speaker="A", text=words),)))


def stats(token: str) -> Entry:
    return StatsDelta(updates=((token, None),))


def digest(scope: Scope) -> str:
    return scope_digest(scope_key(scope))


# -- walls -----------------------------------------------------------------------------


async def test_a_transaction_that_names_nobody_sees_nothing(url: str) -> None:
    with PostgresJournal(url) as journal:
        for scope in (ANN, BOB):
            await journal.append(
                scope, said(scope.user_id), expect=0, idempotency=("key", "digest", "{}")
            )
    for table in SEEN:
        assert rows_of(url, f"SELECT * FROM {table}") == [], table
        assert rows_of(url, f"SELECT * FROM {table}", "") == [], table
    for table in ("scopes", "journal", "payloads", "idempotency"):
        assert len(rows_of(url, f"SELECT * FROM {table}", digest(ANN))) == 1, table
        assert len(rows_of(url, f"SELECT * FROM {table}", digest(ANN), digest(BOB))) == 2, table
        shown = 2 if table in ("scopes", "journal") else 0
        assert len(rows_of(url, f"SELECT * FROM {table}", "*")) == shown, (
            f"nobody's words, everybody's names: {table}"
        )
    assert b"bob" in rows_of(url, "SELECT body FROM payloads", digest(BOB))[0][0]


async def test_a_transaction_writes_to_nobody_whom_it_did_not_name(url: str) -> None:
    with PostgresJournal(url) as journal:
        await journal.append(ANN, said("hello"), expect=0)
        await journal.append(BOB, said("hello"), expect=0)
    everyone = rows_of(url, "SELECT id, digest FROM scopes", "*")
    bob = next(number for number, name in everyone if name == digest(BOB))
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        rows_of(
            url, f"INSERT INTO payloads VALUES ({bob}, 9, 'salt', 'body') RETURNING 1", digest(ANN)
        )
    assert rows_of(url, "UPDATE scopes SET head = 7 RETURNING digest", digest(ANN)) == [
        (digest(ANN),)
    ]
    assert (
        rows_of(url, f"DELETE FROM payloads WHERE scope_id = {bob} RETURNING 1", digest(ANN)) == []
    )


def test_a_role_above_the_wall_is_reported(postgres: Postgres, url: str) -> None:
    with PostgresJournal(url) as journal:
        seen, wrong = journal.examine()
        assert (seen["role"], wrong) == ("tester", [])
        assert set(seen) == {"version", "role", "database_bytes", "connections"}
    if postgres.admin_url is not None:
        schema = url.rpartition("options=")[2]
        with PostgresJournal(f"{postgres.admin_url}&options={schema}", read_only=True) as journal:
            assert "not bound by row-level security" in journal.examine()[1][0]


# -- erasing, tampering, moving --------------------------------------------------------


@pytest.mark.parametrize("scrub", ["vacuum", "rewrite"])
def test_erased_words_leave_the_tables(postgres: Postgres, url: str, scrub: Any) -> None:
    mark = f"MARK{os.urandom(8).hex()}"
    ours = postgres.admin_url is not None and postgres.folder is not None

    def pages() -> bytes:
        """The bytes of every table of the server, as they lie on disk."""
        assert postgres.admin_url is not None and postgres.folder is not None
        with psycopg.connect(postgres.admin_url, autocommit=True) as admin:
            admin.execute("CHECKPOINT")
        return b"".join(
            file.read_bytes() for file in (postgres.folder / "base").rglob("*") if file.is_file()
        )

    async def run() -> None:
        with PostgresJournal(url, scrub=scrub) as journal:
            for number in range(30):
                await journal.append(ANN, said(f"{mark} {number}"), expect=number)
                await journal.append(BOB, said(f"OTHER{mark} {number}"), expect=number)
            assert not ours or mark.encode() in pages()
            journal.cache.put_many("e", {"digest": np.ones(4, dtype=np.float32)})
            await journal.append(
                ANN, Erased(), expect=30, idempotency=("key", "digest", '"answer"')
            )
            assert not journal.scrub_due
            assert [row.seq for row in await read_all(journal, ANN)] == [31]
            assert journal.verify(ANN) == journal.verify(BOB) == []
            assert journal.cache.get_many("e", ["digest"]) == {}

    asyncio.run(run())
    assert rows_of(url, "SELECT * FROM meta WHERE key = 'scrub'") == []
    for name in (digest(ANN), digest(BOB)):
        bodies = rows_of(url, "SELECT body FROM payloads", name)
        assert not any(f'"{mark}'.encode() in body for (body,) in bodies)
    if postgres.admin_url is None or postgres.folder is None:
        return
    schema = url.rpartition("search_path%3D")[2]
    with psycopg.connect(postgres.admin_url, autocommit=True) as admin:
        admin.execute("CREATE EXTENSION IF NOT EXISTS pgstattuple")
        dead = admin.execute(
            "SELECT dead_tuple_count FROM pgstattuple(%s)", [f"{schema}.payloads"]
        ).fetchone()
        assert dead == (0,)
        if scrub == "rewrite":
            left = pages().replace(f"OTHER{mark}".encode(), b"*")
            assert b"*" in left
            assert mark.encode() not in left


async def test_vectors_of_another_process_do_not_outlive_an_erasure(url: str) -> None:
    """It made them before the erasure and would write them after it."""

    vector = {"digest": np.ones(4, dtype=np.float32)}
    with PostgresJournal(url, pool=1) as one, PostgresJournal(url, pool=2) as two:
        await one.append(ANN, stats("a"), expect=0)
        two.cache.put_many("e", vector)
        await one.append(ANN, Erased(), expect=1)
        await two.append(BOB, stats("a"), expect=0)
        assert one.cache.get_many("e", ["digest"]) == {}
        two.cache.put_many("e", vector)
        await two.append(BOB, stats("b"), expect=1)
        assert list(one.cache.get_many("e", ["digest"])) == ["digest"]


@pytest.mark.parametrize("end", [close_pool, Engine.dispose])
def test_a_connection_in_use_when_its_pool_ends_closes_on_its_return(
    url: str, end: Callable[[Engine], None]
) -> None:
    """A reader may outlast the store; so may one whose pool was renewed beside it."""
    engine = pooled_engine(partial(connect, url), 2)
    with engine.connect() as used, engine.connect() as idle:
        drivers = [used.connection.driver_connection, idle.connection.driver_connection]
        idle.close()
        end(engine)
        assert [driver.closed for driver in drivers if driver] == [False, True]
    assert all(driver and driver.closed for driver in drivers)
    if end is close_pool:
        with engine.connect() as late:
            drivers.append(late.connection.driver_connection)
        assert all(driver and driver.closed for driver in drivers)


CHANGES = (
    "UPDATE payloads SET body = body || 'x'::bytea WHERE (scope_id, seq) = (SELECT scope_id, seq FROM payloads ORDER BY random() LIMIT 1)",
    "DELETE FROM payloads WHERE (scope_id, seq) = (SELECT scope_id, seq FROM payloads ORDER BY random() LIMIT 1)",
    "UPDATE journal SET kind = kind || 'x' WHERE seq = 3",
    "UPDATE journal SET recorded_us = recorded_us + 1 WHERE seq = 2 AND scope_id = 1",
    "UPDATE journal SET chain = payload_digest WHERE seq = 4",
    "DELETE FROM journal WHERE seq = 5",
    "DELETE FROM journal WHERE seq = 1 AND scope_id = 2",
    "UPDATE scopes SET head = head - 1",
    "UPDATE scopes SET digest = repeat('0', 64) WHERE id = 1",
    "UPDATE scopes SET user_id = 'eve' WHERE id = 2",
    "DELETE FROM scopes WHERE id = 1",
)


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_behind_our_back_is_found(postgres: Postgres, url: str, change: str) -> None:
    if postgres.admin_url is None:
        pytest.skip("needs a superuser, whom no wall stops")
    with PostgresJournal(url) as journal:
        for scope in (ANN, BOB):
            await journal.append_many(scope, every_kind(), expect=0)
        assert journal.verify(ANN) == journal.verify(BOB) == []
        with psycopg.connect(postgres.admin_url) as admin:
            admin.execute(f"SET search_path = {url.rpartition('search_path%3D')[2]}".encode())
            assert admin.execute(change.encode()).rowcount > 0
        found = journal.verify(ANN) + journal.verify(BOB)
        assert found
        assert all(problem.startswith("seq ") for problem in found)


def catalog(url: str) -> list[list[tuple[Any, ...]]]:
    """Columns, keys and policies of a schema."""
    return [
        rows_of(
            url,
            "SELECT table_name, column_name, data_type, is_nullable, character_maximum_length FROM information_schema.columns "
            "WHERE table_schema = current_schema() ORDER BY 1, 2",
        ),
        rows_of(
            url,
            "SELECT tablename, indexdef FROM pg_indexes WHERE schemaname = current_schema() ORDER BY 1, 2",
        ),
        rows_of(
            url,
            "SELECT tablename, policyname, cmd, qual, with_check FROM pg_policies WHERE schemaname = current_schema() ORDER BY 1",
        ),
        rows_of(
            url,
            "SELECT relname, relrowsecurity, relforcerowsecurity FROM pg_class "
            "WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' ORDER BY 1",
        ),
    ]


def test_a_migrated_database_equals_a_new_one(postgres: Postgres) -> None:
    with postgres.schema() as new, postgres.schema() as old:
        PostgresJournal(new).close()
        connect(old).execute(
            f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL, "
            f"CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num))".encode()
        ).connection.close()
        with pytest.raises(StoreError, match="open it once for writing"):
            PostgresJournal(old, read_only=True)
        PostgresJournal(old).close()
        assert rows_of(old, f"SELECT * FROM {VERSION_TABLE}") == [(SCHEMA_REVISION,)]
        strip = [re.sub(r"test_\w{12}", "", str(part)) for part in catalog(new)]
        assert strip == [re.sub(r"test_\w{12}", "", str(part)) for part in catalog(old)]
        assert len(catalog(new)[2]) == len(SEEN)


async def test_a_dump_restores_to_the_same_memory(
    postgres: Postgres, url: str, tmp_path: Path
) -> None:
    if postgres.admin_url is None:
        pytest.skip("needs a role that no wall stops")
    with PostgresJournal(url) as journal:
        rows = await journal.append_many(ANN, every_kind(), expect=0)
    schema = url.rpartition("search_path%3D")[2]
    dump = postgres.program("pg_dump", "-d", postgres.admin_url, "-n", schema, "-Fc").stdout
    file = Path("/tmp") / f"{schema}.dump"
    file.write_bytes(dump)
    try:
        with psycopg.connect(
            without_password(url), password=PASSWORD, autocommit=True
        ) as connection:
            connection.execute(f"DROP SCHEMA {schema} CASCADE".encode())
        file.chmod(0o644)
        postgres.program("pg_restore", "-d", postgres.admin_url, "--exit-on-error", str(file))
    finally:
        file.unlink()
    with PostgresJournal(url) as journal:
        assert await read_all(journal, ANN) == rows
        assert journal.verify(ANN) == []
        await journal.append(BOB, stats("new"), expect=0)
    assert rows_of(url, "SELECT * FROM payloads") == [], "the wall is part of the backup"


# -- places and settings ---------------------------------------------------------------


def test_no_password_is_ever_shown(url: str) -> None:
    assert PASSWORD in url
    settings = AgentSettings(store=PostgresSettings(url=url))
    with PostgresJournal(url) as journal:
        shown = [
            repr(journal),
            repr(journal.backend),
            journal.place,
            repr(settings),
            str(settings),
        ]
    assert "tester@" in shown[0]
    for wrong in (url.replace("tester", "nobody"), url.replace("/tests", "/absent")):
        with pytest.raises(StoreUnavailable) as caught:
            PostgresJournal(wrong)
        shown.append(str(caught.value))
    for bad in (f"postgresql://u:{PASSWORD}@h/d?nonsense=1", f"mysql://u:{PASSWORD}@h/d"):
        with pytest.raises(ConfigError) as caught_bad:
            PostgresJournal(bad)
        shown.append(str(caught_bad.value))
    assert [text for text in shown if PASSWORD in text] == []
    assert (
        without_password("postgresql://u:p%40@h:1/d?password=p&a=b") == "postgresql://u@h:1/d?a=b"
    )


def test_settings_variables_and_paths_lead_to_the_server(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMAGENT_STORE__TYPE", "postgres")
    monkeypatch.setenv("MEMAGENT_STORE__URL", url)
    settings = load_settings()
    assert settings.store == PostgresSettings(url=url)
    with Agent(settings=settings, embedder="hashing") as agent:
        agent.memory.add("Ann's boat is called Heron")
    with Agent(path=url, embedder="hashing") as agent:
        assert [hit.text for hit in agent.search("boat")] == ["Ann's boat is called Heron"]
    with pytest.raises(ConfigError, match="embedded by"):
        Agent(path=url, embedder="static")
    assert load("journals", "postgres") is PostgresJournal


def test_the_command_line_takes_a_server(url: str, tmp_path: Path) -> None:
    def run(*words: str) -> str:
        command = [sys.executable, "-m", "memagent.cli.app", *words]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)} | {"PGPASSWORD": PASSWORD}
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert PASSWORD not in done.stdout + done.stderr
        return done.stdout

    run("init", "--db", url, "--embedder", "hashing")
    written = (tmp_path / "memagent.toml").read_text()
    assert PASSWORD not in written
    assert 'type = "postgres"' in written
    with Agent(path=url, embedder="hashing") as agent:
        agent.memory.add("Ann's boat is called Heron")
    assert "Heron" in run("search", "boat"), (
        "from the settings file, the password from libpq's variable"
    )
    assert "Heron" in run("list", "--db", url)
    report = json.loads(run("doctor", "--json"))
    assert (report["problems"], report["store"]["role"]) == ([], "tester")


@pytest.mark.parametrize("name", ["a\x00b", "\ud800"])
async def test_an_id_that_no_database_holds_is_refused_as_input(url: str, name: str) -> None:
    with PostgresJournal(url) as journal:
        scope = Scope.model_construct(user_id=name, agent_id=None, run_id=None)
        with pytest.raises(InputError):
            await journal.append(scope, stats("a"), expect=0)
        await journal.append(ANN, stats("a"), expect=0)


async def test_a_server_that_takes_no_writes_is_read(url: str) -> None:
    """As a standby does."""
    with PostgresJournal(url) as journal:
        await journal.append(ANN, stats("a"), expect=0)
    standby = url.replace("options=", "options=-cdefault_transaction_read_only%3Don%20")
    with PostgresJournal(standby, read_only=True) as journal:
        assert await journal.head(ANN) == len(await read_all(journal, ANN)) == 1
    with PostgresJournal(standby) as journal, pytest.raises(StoreReadOnly):
        await journal.append(ANN, stats("b"), expect=1)


def test_a_schema_of_others_is_left_alone(postgres: Postgres, url: str) -> None:
    connect(url).execute(b"CREATE TABLE notes (id int)").connection.close()
    with pytest.raises(StoreCorrupt, match="not a memagent store"):
        PostgresJournal(url)
    with pytest.raises(StoreError):
        PostgresJournal(in_schema(postgres.url, "no_such_schema"))
    with postgres.schema() as empty, pytest.raises(StoreError, match="no memory"):
        PostgresJournal(empty, read_only=True)

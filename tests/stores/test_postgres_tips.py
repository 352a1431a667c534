"""A PostgreSQL store: losses that the server does not tell, and a copy taken under writes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line_kit import error_of, run
from journal_kit import read_all
from postgres_kit import Postgres, in_schema

from memagent.core.errors import ConfigError, InputError
from memagent.core.records import Scope, Session, Turn
from memagent.core.snapshot import Erased, SessionStored
from memagent.journal.postgres import PostgresJournal, note_ends
from memagent.journal.proof.audit import NO_SEAL, Seal
from memagent.journal.rows import scope_digest, scope_key

psycopg = pytest.importorskip("psycopg", reason="needs the postgres extra")
ANN, BOB = Scope(user_id="ann"), Scope(user_id="bob")
KEY = b"a secret of the operator"


@pytest.fixture
def url(postgres: Postgres) -> Iterator[str]:
    if postgres.admin_url is None:
        pytest.skip("needs a role that no wall stops")
    with postgres.schema() as place:
        yield place


def said(number: int) -> SessionStored:
    turn = Turn(id=f"t{number}", speaker="A", text=f"number {number}")
    return SessionStored(session=Session(id=f"s{number}", turns=(turn,)))


async def write(journal: PostgresJournal, scope: Scope, rows: int) -> None:
    head = await journal.head(scope)
    for number in range(head, head + rows):
        await journal.append(scope, said(number), expect=number)


def forged(postgres: Postgres, url: str, *statements: str) -> None:
    """Run statements as somebody whom no policy binds."""
    admin = in_schema(str(postgres.admin_url), schema_of(url))
    with psycopg.connect(admin, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def schema_of(url: str) -> str:
    return url.rpartition("search_path%3D")[2]


def cut(scope: Scope, last: int) -> tuple[str, ...]:
    """Take the tail of a log away, and set its tip so that the chain is in order."""
    own = f"(SELECT id FROM scopes WHERE digest = '{scope_digest(scope_key(scope))}')"
    tip = (
        "UPDATE scopes SET (head, chain, recorded_us) = "
        f"(SELECT seq, chain, recorded_us FROM journal WHERE scope_id = scopes.id "
        f"AND seq = {last}) WHERE id = {own}"
    )
    return (
        f"DELETE FROM payloads WHERE scope_id = {own} AND seq > {last}",
        f"DELETE FROM journal WHERE scope_id = {own} AND seq > {last}",
        tip,
    )


def removed(scope: Scope) -> tuple[str, ...]:
    own = f"(SELECT id FROM scopes WHERE digest = '{scope_digest(scope_key(scope))}')"
    tables = ("payloads", "journal")
    return (
        *(f"DELETE FROM {table} WHERE scope_id = {own}" for table in tables),
        f"DELETE FROM scopes WHERE id = {own}",
    )


ATTACKS = {
    "cut": (cut(ANN, 4), "ends at 4; 6 rows were written"),
    "removed": (removed(BOB), "a whole log of 6 rows is missing"),
}


@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "keyed"])
@pytest.mark.parametrize("attack", ATTACKS)
async def test_what_the_chain_cannot_show_is_told(
    postgres: Postgres, url: str, tmp_path: Path, attack: str, key: bytes | None
) -> None:
    seal = Seal(tips=tmp_path / "server.tips", key=key)
    statements, words = ATTACKS[attack]
    with (
        PostgresJournal(url, seal=seal) as one,
        PostgresJournal(f"{url}&application_name=other", seal=seal) as other,
    ):
        for journal in (one, other):  # as two workers of one machine
            for scope in (ANN, BOB):
                await write(journal, scope, 3)
        assert one.compare_tips() == other.compare_tips() == []
        forged(postgres, url, *statements)
        assert [fault for scope in (ANN, BOB) for fault in one.verify(scope)] == []
        assert words in "\n".join(one.compare_tips())
        assert note_ends(one) == 2 - (attack == "removed")
        assert one.compare_tips() == []
        await write(one, ANN, 2)  # into the file that was written anew
        forged(postgres, url, *cut(ANN, 3))
        assert "ends at 3" in "\n".join(one.compare_tips())


async def test_without_the_key_nobody_hides_it(
    postgres: Postgres, url: str, tmp_path: Path
) -> None:
    notes = tmp_path / "server.tips"
    with PostgresJournal(url, seal=Seal(tips=notes, key=KEY)) as journal:
        await write(journal, ANN, 5)
        await journal.append(BOB, said(0), expect=0)
        await journal.append(BOB, Erased(), expect=1)
        assert journal.compare_tips() == [], "an erasure is no loss"
        forged(postgres, url, *cut(ANN, 2))
    with PostgresJournal(url, read_only=True, seal=Seal(tips=notes, key=b"a guess")) as guess:
        note_ends(guess)
    with PostgresJournal(url, read_only=True, seal=Seal(tips=notes, key=KEY)) as journal:
        assert "not signed by the key" in "\n".join(journal.compare_tips())
        notes.unlink()
        assert "is missing" in "\n".join(journal.compare_tips())
    with PostgresJournal(url, seal=NO_SEAL) as journal:
        assert journal.compare_tips() == []
        with pytest.raises(InputError, match="tips"):
            note_ends(journal)
    with pytest.raises(ConfigError, match="tips"):
        PostgresJournal(url, seal=Seal(key=KEY))


def test_doctor_compares_and_seals(
    postgres: Postgres,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seal = Seal(tips=tmp_path / "server.tips")
    with PostgresJournal(url, seal=seal) as journal:
        asyncio.run(write(journal, ANN, 5))
    forged(postgres, url, *cut(ANN, 2))
    monkeypatch.setenv("MEMAGENT_STORE__TYPE", "postgres")
    monkeypatch.setenv("MEMAGENT_STORE__URL", url)
    monkeypatch.setenv("MEMAGENT_STORE__TIPS", str(seal.tips))
    told = run("doctor", "--json")
    assert told.exit_code == 1 and "ends at 2" in told.stdout
    run("doctor", "--seal")
    assert "ends at 2" not in run("doctor", "--json").stdout
    assert "pg_dump" in error_of(run("backup", str(tmp_path / "copy.db")))
    assert not (tmp_path / "copy.db").exists()


def test_a_dump_under_writes_is_whole(postgres: Postgres, url: str) -> None:
    """`pg_dump` copies one moment; what it holds is verified after it was restored."""
    stop, acknowledged = threading.Event(), 0

    def work() -> None:
        nonlocal acknowledged
        with PostgresJournal(url) as journal:
            while not stop.is_set():
                asyncio.run(write(journal, ANN, 1))
                acknowledged += 1

    writer = threading.Thread(target=work)
    writer.start()
    try:
        while acknowledged < 5:
            stop.wait(0.01)
        before, name = acknowledged, schema_of(url)
        dump = postgres.program("pg_dump", "-d", str(postgres.admin_url), "-n", name, "-Fc").stdout
    finally:
        stop.set()
        writer.join()
    file = Path("/tmp") / f"{name}.dump"
    file.write_bytes(dump)
    file.chmod(0o644)
    forged(postgres, url, f"DROP SCHEMA {name} CASCADE")
    try:
        postgres.program("pg_restore", "-d", str(postgres.admin_url), "--exit-on-error", str(file))
    finally:
        file.unlink()
    with PostgresJournal(url, read_only=True) as journal:
        assert before <= len(asyncio.run(read_all(journal, ANN))) <= acknowledged
        assert journal.verify(ANN) == [] and journal.verify_erased() == []

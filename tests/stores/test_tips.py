"""Losses that the database does not tell: a damaged log, a cut tail, a new chain, a gone user."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from journal_kit import read_all

from memagent.core.errors import ConfigError, StoreCorrupt
from memagent.core.records import Scope, Session, Turn
from memagent.core.snapshot import Erased, SessionStored
from memagent.journal.proof.audit import NO_SEAL, Seal, audit_erased
from memagent.journal.rows import first_chain, next_chain, scope_digest, scope_key
from memagent.journal.sqlite import SqlJournal, seal_store
from memagent.journal.sqlite_engine import connect_for_reading

ANN, BOB = Scope(user_id="ann"), Scope(user_id="bob")
KEY = b"a secret of the operator"


def said(number: int) -> SessionStored:
    turn = Turn(id=f"t{number}", speaker="A", text=f"number {number}")
    return SessionStored(session=Session(id=f"s{number}", turns=(turn,)))


def made(path: Path, rows: int = 6, *, seal: Seal = NO_SEAL) -> None:
    """A store of two users, closed properly."""

    async def fill() -> None:
        with SqlJournal(path, seal=seal) as journal:
            for scope in (ANN, BOB):
                for number in range(rows):
                    await journal.append(scope, said(number), expect=number)

    asyncio.run(fill())


def problems(path: Path, seal: Seal = NO_SEAL) -> str:
    with SqlJournal(path, read_only=True, seal=seal) as journal:
        chains = [fault for scope in (ANN, BOB) for fault in journal.verify(scope)]
        assert chains == [], "the chain itself shows nothing"
        return "\n".join(journal.compare_tips())


def changed(path: Path, *statements: tuple[str, tuple[object, ...]]) -> None:
    with sqlite3.connect(path) as database:
        for statement in statements:
            database.execute(*statement)
    database.close()


def scope_id(path: Path, scope: Scope) -> int:
    with sqlite3.connect(path) as database:
        found = database.execute("SELECT id FROM scopes WHERE user_id = ?", (scope.user_id,))
        return found.fetchone()[0]


def cut(path: Path, scope: Scope, last: int) -> None:
    """Take the tail of a log away, and set its tip so that the chain is in order."""
    owner = scope_id(path, scope)
    tip = (
        "UPDATE scopes SET (head, chain, recorded_us) = (SELECT seq, chain, recorded_us FROM"
        " journal WHERE scope_id = ? AND seq = ?) WHERE id = ?"
    )
    changed(
        path,
        ("DELETE FROM journal WHERE scope_id = ? AND seq > ?", (owner, last)),
        ("DELETE FROM payloads WHERE scope_id = ? AND seq > ?", (owner, last)),
        (tip, (owner, last, owner)),
    )


def removed(path: Path, scope: Scope) -> None:
    owner = scope_id(path, scope)
    changed(
        path,
        ("DELETE FROM journal WHERE scope_id = ?", (owner,)),
        ("DELETE FROM payloads WHERE scope_id = ?", (owner,)),
        ("DELETE FROM scopes WHERE id = ?", (owner,)),
    )


def reforged(path: Path, scope: Scope) -> None:
    """Change what a user said, and make digests and chain anew."""
    import hashlib

    owner = scope_id(path, scope)
    key = (scope.user_id, scope.agent_id, scope.run_id)
    chain, last = first_chain(scope_digest(key)), (0, b"", 0)
    with sqlite3.connect(path) as database:
        rows = database.execute(
            "SELECT j.seq, j.kind, j.recorded_us, p.salt, p.body FROM journal j JOIN payloads p"
            " USING (scope_id, seq) WHERE scope_id = ? ORDER BY seq",
            (owner,),
        ).fetchall()
        for seq, kind, at, salt, body in rows:
            body = body.replace(b"number 0", b"number 9")
            digest = hashlib.sha256(salt + body).digest()
            chain = next_chain(chain, seq=seq, kind=kind, recorded_us=at, digest=digest)
            database.execute(
                "UPDATE payloads SET body = ? WHERE scope_id = ? AND seq = ?", (body, owner, seq)
            )
            database.execute(
                "UPDATE journal SET payload_digest = ?, chain = ? WHERE scope_id = ? AND seq = ?",
                (digest, chain, owner, seq),
            )
            last = (seq, chain, at)
        database.execute("UPDATE scopes SET chain = ? WHERE id = ?", (last[1], owner))
    database.close()


ATTACKS = {
    "cut": (lambda path: cut(path, ANN, 4), "ends at 4; 6 rows were written"),
    "removed": (lambda path: removed(path, BOB), "a whole log of 6 rows is missing"),
    "reforged": (lambda path: reforged(path, ANN), "was written anew"),
}


@pytest.mark.parametrize("seal", [Seal(), Seal(key=KEY)], ids=["plain", "keyed"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_what_the_chain_cannot_show_is_told(tmp_path: Path, attack: str, seal: Seal) -> None:
    path = tmp_path / "j.db"
    made(path, seal=seal)
    assert problems(path, seal) == ""
    change, words = ATTACKS[attack]
    change(path)
    assert words in problems(path, seal)


@pytest.mark.parametrize("attack", ATTACKS)
def test_without_the_key_nobody_hides_it(tmp_path: Path, attack: str) -> None:
    """The attacker writes the notes anew too, as well as can be done without the key."""
    path, seal = tmp_path / "j.db", Seal(key=KEY)
    made(path, seal=seal)
    change, _ = ATTACKS[attack]
    change(path)
    seal_store(path, Seal(key=b"a guess at the secret"))
    assert "not signed by the key" in problems(path, seal)
    seal_store(path, Seal())
    assert "not signed by the key" in problems(path, seal)
    with pytest.raises(ConfigError, match="begun without a key"):
        SqlJournal(path, seal=seal)
    path.with_name("j.db.tips").unlink()
    assert "is missing" in problems(path, seal)


def test_a_log_that_nobody_noted_is_told_with_a_key(tmp_path: Path) -> None:
    path, seal = tmp_path / "j.db", Seal(key=KEY)
    made(path, seal=seal)
    copy = tmp_path / "copy.tips"
    shutil.copy(path.with_name("j.db.tips"), copy)

    async def forge() -> None:
        with SqlJournal(path, seal=seal) as journal:
            await journal.append(Scope(user_id="mallory"), said(0), expect=0)

    asyncio.run(forge())
    shutil.copy(copy, path.with_name("j.db.tips"))
    stranger = scope_digest(scope_key(Scope(user_id="mallory")))
    assert problems(path, seal) == f"a log that was never noted appeared (scope {stranger[:12]})"


@pytest.mark.parametrize("rows", [255, 256, 257, 600])
def test_a_long_log_is_audited_to_its_end(tmp_path: Path, rows: int) -> None:
    path = tmp_path / "j.db"

    async def fill() -> None:
        with SqlJournal(path) as journal:
            await journal.append_many(ANN, [said(number) for number in range(rows)], expect=0)

    asyncio.run(fill())
    with SqlJournal(path, read_only=True) as journal:
        assert journal.verify(ANN) == []
    changed(path, ("UPDATE journal SET kind = 'reset' WHERE seq = ?", (rows,)))
    changed(path, ("DELETE FROM journal WHERE seq = 3", ()))
    with SqlJournal(path, read_only=True) as journal:
        told = journal.verify(ANN)
    assert "seq 4: expected 3 here: the log has a gap" in told
    assert "seq 3: a payload without a header" in told
    assert any(line.startswith(f"seq {rows}: ") for line in told)


def test_at_most_twenty_losses_are_told(tmp_path: Path) -> None:
    path = tmp_path / "j.db"

    async def fill() -> None:
        with SqlJournal(path) as journal:
            for number in range(30):
                await journal.append(Scope(user_id=f"user {number:02}"), said(0), expect=0)

    asyncio.run(fill())
    changed(path, ("UPDATE scopes SET chain = zeroblob(32), head = 0", ()))
    with SqlJournal(path, read_only=True) as journal:
        told = journal.compare_tips()
    assert len(told) == 20
    assert set(told) <= {
        f"the log of 'user {number:02}' ends at 0; 1 rows were written" for number in range(30)
    }


def test_an_audit_names_the_first_row_that_is_wrong(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    made(path)
    ann = scope_digest(scope_key(ANN))
    with closing(connect_for_reading(path)) as connection:
        assert audit_erased(connection, "f" * 64) == [f"seq 0: the scope {'f' * 12} is gone"]
        nameless = "seq 0: the scope's row has another name than its digest"
        assert audit_erased(connection, ann) == [nameless], "a user who was not erased"
    for head, first in ((4, 5), (9, 7)):
        changed(path, ("UPDATE scopes SET head = ? WHERE user_id = 'ann'", (head,)))
        with SqlJournal(path, read_only=True) as journal:
            wrong = f"seq {first}: the log ends at 6, its tip says {head}"
            assert wrong in journal.verify(ANN)
    for change in ("chain = zeroblob(32)", "recorded_us = recorded_us + 1"):
        forged = tmp_path / f"{change[:5]}.db"
        made(forged)
        changed(forged, (f"UPDATE scopes SET {change} WHERE user_id = 'ann'", ()))
        with SqlJournal(forged, read_only=True) as journal:
            assert "seq 6: the tip does not match the last header" in journal.verify(ANN)


def test_the_key_is_needed_to_write_but_not_to_read(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    made(path, seal=Seal(key=KEY))
    with pytest.raises(ConfigError, match="begun with a key"):
        SqlJournal(path)
    with SqlJournal(path, read_only=True) as journal:
        assert len(asyncio.run(read_all(journal, ANN))) == 6


def test_the_notes_may_lie_elsewhere(tmp_path: Path) -> None:
    path, away = tmp_path / "j.db", tmp_path / "elsewhere.tips"
    made(path, seal=Seal(tips=away, key=KEY))
    assert away.exists() and not path.with_name("j.db.tips").exists()
    cut(path, ANN, 3)
    assert "ends at 3" in problems(path, Seal(tips=away, key=KEY))


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_write_ahead_log_is_told_when_it_is_opened(tmp_path: Path, seed: int) -> None:
    """As a crash leaves it: the last rows lie in the write-ahead log alone."""
    path, copy = tmp_path / "j.db", tmp_path / "copy"
    copy.mkdir()

    async def crash() -> None:
        with SqlJournal(path) as journal:
            for number in range(8):
                await journal.append(ANN, said(number), expect=number)
            for file in tmp_path.glob("j.db*"):
                shutil.copy(file, copy)

    asyncio.run(crash())
    (copy / "j.db.lock").unlink()
    (copy / "j.db-shm").unlink()
    log = bytearray((copy / "j.db-wal").read_bytes())
    rng = random.Random(seed)
    if seed % 4 == 0:
        log = log[: rng.randrange(len(log) - 4_000)]
    else:
        log[rng.randrange(len(log))] ^= 1 << rng.randrange(8)
    (copy / "j.db-wal").write_bytes(log)
    words = ""
    try:
        with SqlJournal(copy / "j.db") as journal:
            assert len(asyncio.run(read_all(journal, ANN))) == 8, "rows are lost without a word"
    except StoreCorrupt as exc:
        words = str(exc)
    assert not words or any(word in words for word in ("missing", "corrupt", "malformed"))


def test_a_loss_can_be_accepted(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    made(path)
    cut(path, BOB, 4)
    with pytest.raises(StoreCorrupt, match="doctor --seal"):
        SqlJournal(path)
    assert seal_store(path, Seal()) == 2
    with SqlJournal(path) as journal:
        assert len(asyncio.run(read_all(journal, BOB))) == 4


def test_erasures_and_older_stores_are_no_losses(tmp_path: Path) -> None:
    path = tmp_path / "j.db"
    made(path)
    path.with_name("j.db.tips").unlink()

    async def erase() -> None:
        with SqlJournal(path) as journal:
            await journal.append(ANN, Erased(), expect=6)
            await journal.redact(BOB, {2: said(9)}, expect=6)

    asyncio.run(erase())
    assert problems(path) == ""
    with SqlJournal(path):
        pass


def test_a_record_that_was_cut_off_and_a_long_file_do_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memagent.journal.proof.audit._LONG_BYTES", 1_000)
    path = tmp_path / "j.db"
    made(path, 40)
    notes = path.with_name("j.db.tips")
    assert notes.stat().st_size < 2_500
    with notes.open("ab") as file:
        file.write(b"half a record")
    with SqlJournal(path) as journal:
        asyncio.run(journal.append(ANN, said(99), expect=40))
    assert problems(path) == ""

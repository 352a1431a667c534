"""In a store with a key nothing is served or signed that the key has not sealed: checkpoints
forged, swapped or changed while they are open, notes forged, cut or deleted. Cases are
generated; `MEMAGENT_SEAL_MUTATIONS` sets how many bytes are changed.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from checkpoint_kit import ANA, History

from memagent.checkpoints.tables import LayeredMap
from memagent.config import AgentSettings
from memagent.core.answers import Query
from memagent.core.errors import StoreCorrupt
from memagent.core.records import Scope
from memagent.core.snapshot import StatsDelta
from memagent.journal.proof.audit import Seal
from memagent.journal.sqlite import SqlJournal, seal_store
from memagent.opening.open_store import OpenStore

KEY = b"a key of this store, long enough"
SEAL = Seal(key=KEY)
FORGED = 100
MUTATIONS = int(os.environ.get("MEMAGENT_SEAL_MUTATIONS", "200"))
HEADER = struct.Struct("<16sIQQ32s")


def opened(path: Path, *, keyed: bool = True) -> OpenStore:
    key_file = path.with_name("key")
    key_file.write_bytes(KEY)
    place: dict[str, Any] = {"path": path} | ({"key_file": key_file} if keyed else {})
    settings = AgentSettings.model_validate({"store": {"type": "sqlite"} | place})
    return OpenStore.open(settings, embedder="hashing")


async def checkpointed(path: Path, seed: int, *, keyed: bool = True) -> Path:
    path.parent.mkdir(exist_ok=True)
    store = opened(path, keyed=keyed)
    bank = store.bank(ANA)
    await History(seed).write(bank, 20)
    await bank.refresh()
    assert store.checkpoints is not None
    file = store.checkpoints.save(bank)
    store.close()
    return file


def parts(content: bytes) -> tuple[bytes, dict[str, Any], int]:
    _, _, at, length, _ = HEADER.unpack(content[: HEADER.size])
    return content[128:at], json.loads(content[at : at + length]), at


def made(body: bytes, manifest: dict[str, Any], at: int, *, keyed: bool, rng: Random) -> bytes:
    """Put a checkpoint together as well as can be done without the key."""
    for name, (start, length, _) in manifest["sections"].items():
        piece = body[start - 128 : start - 128 + length]
        check = hashlib.sha256(piece).hexdigest() if keyed else zlib.crc32(piece)
        manifest["sections"][name] = (start, length, check)
    text = json.dumps(manifest).encode()
    fields = struct.pack("<IQQ", 1, at, len(text))
    digest = hashlib.sha256(fields + text).digest() if rng.random() < 0.7 else rng.randbytes(32)
    head = HEADER.pack(b"memagent ckpt\r\n\x1a", 1, at, len(text), digest)
    return head.ljust(128, b"\0") + body + text


def forged(content: bytes, rng: Random) -> bytes:
    """Change what a memory says in a checkpoint, and make all checksums anew."""
    body, manifest, at = parts(content)
    start, length, _ = manifest["sections"]["items.values"]
    changed, words = bytearray(body), rng.sample(range(length), k=min(12, length))
    for offset in words:
        place = start - 128 + offset
        if chr(changed[place]).isalpha():
            changed[place] = rng.choice(b"abcdefghij")
    if rng.random() < 0.3:
        manifest["facts"]["sample"] = {"items": [], "nodes": []}
    return made(bytes(changed), manifest, at, keyed=rng.random() < 0.5, rng=rng)


async def test_no_forged_or_swapped_checkpoint_is_served(tmp_path: Path) -> None:
    file = await checkpointed(tmp_path / "m.db", 1)
    shutil.copytree(tmp_path, tmp_path / "plain")
    strangers = [await checkpointed(tmp_path / f"s{n}" / "m.db", n) for n in range(2, 5)]
    (tmp_path / "plain" / "m.db.tips").unlink()
    seal_store(tmp_path / "plain" / "m.db", Seal())
    plain = await checkpointed(tmp_path / "plain" / "m.db", 9, keyed=False)
    content, rng, served = file.read_bytes(), Random(3), 0
    store = opened(tmp_path / "m.db")
    assert isinstance((await store.bank(ANA).sync()).items, LayeredMap)
    digest = (await store.bank(ANA).sync()).digest()
    swaps = [other.read_bytes() for other in (*strangers, plain)]
    for number in range(FORGED):
        case = swaps[number % 10] if number % 10 < len(swaps) else forged(content, rng)
        assert case != content
        file.write_bytes(case)
        state = await store.bank(ANA).sync()
        served += isinstance(state.items, LayeredMap)
        assert state.digest() == digest
    store.close()
    assert served == 0


async def test_bytes_that_change_while_a_checkpoint_is_open_change_nothing(
    tmp_path: Path,
) -> None:
    """Neither what is served nor what is sealed at the close, and no process dies of a cut."""
    path = tmp_path / "m.db"
    file = await checkpointed(path, 1)
    content, rng, query = file.read_bytes(), Random(5), Query(text="boat harbour tea")
    store = opened(path)
    replayed = SqlJournal(path, read_only=True, seal=SEAL)
    expected, hits = await _read(replayed, store), None
    replayed.close()
    store.close()
    for number in range(-(-MUTATIONS // 10)):
        store = opened(path)
        bank = store.bank(ANA)
        state = await bank.sync()
        assert isinstance(state.items, LayeredMap)
        changed = bytearray(content)
        for _ in range(10):
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        with file.open("r+b") as same:
            same.write(changed)
            if number % 3 == 0:
                same.truncate(rng.randrange(len(changed)))
        found = await bank.search(query, k=5)
        hits = hits or found
        assert found == hits and hits
        assert {item.id: item for item in state.items.values()} == expected
        assert store.checkpoints is not None
        assert store.checkpoints.save(bank) == file
        store.close()
        again = opened(path)
        sealed = await again.bank(ANA).sync()
        assert isinstance(sealed.items, LayeredMap) and sealed.digest() == state.digest()
        assert {item.id: item for item in sealed.items.values()} == expected
        again.close()
        content = file.read_bytes()


async def _read(journal: SqlJournal, store: OpenStore) -> dict[str, Any]:
    from memagent.memory.bank import MemoryBank

    bank = MemoryBank(embedder=store.embedder, scope=ANA, journal=journal)
    return {item.id: item for item in (await bank.sync()).items.values()}


# -- notes -----------------------------------------------------------------------------

USERS = [Scope(user_id=f"user {n}") for n in range(5)]
RECORD = 104


def written(path: Path, seal: Seal = SEAL) -> Path:
    """Make a store of five users with four rows each; return the file of its notes."""

    async def write() -> None:
        with SqlJournal(path, seal=seal) as journal:
            for row in range(4):
                for user in USERS:
                    await journal.append(user, StatsDelta(), expect=row)

    asyncio.run(write())
    return path.with_name(f"{path.name}.tips")


def append(path: Path, user: Scope, seal: Seal = SEAL) -> None:
    async def write() -> None:
        with SqlJournal(path, seal=seal) as journal:
            await journal.append(user, StatsDelta(), expect=await journal.head(user))

    asyncio.run(write())


def test_without_its_notes_a_keyed_store_refuses_to_write_and_names_the_way_out(
    tmp_path: Path,
) -> None:
    notes = written(tmp_path / "j.db")
    notes.unlink()
    for _ in range(2):
        with pytest.raises(StoreCorrupt, match=r"is missing.*memagent doctor --seal"):
            SqlJournal(tmp_path / "j.db", seal=SEAL)
        assert not notes.exists(), "a refusal signs nothing"
    with SqlJournal(tmp_path / "j.db", read_only=True, seal=SEAL) as reader:
        assert len(asyncio.run(reader.scopes())) == 5
    assert seal_store(tmp_path / "j.db", SEAL) == 5
    append(tmp_path / "j.db", USERS[0])


def _taken_out(content: bytes, rng: Random) -> bytes:
    at = 23 + RECORD * rng.randrange(15)
    return content[:at] + content[at + RECORD * rng.randint(1, 3) :]


def _swapped(content: bytes, rng: Random) -> bytes:
    first, second = sorted(rng.sample(range(18), 2))
    records = [content[23 + n * RECORD :][:RECORD] for n in range(20)]
    records[first], records[second] = records[second], records[first]
    return content[:23] + b"".join(records)


def _flipped(content: bytes, rng: Random) -> bytes:
    changed = bytearray(content)
    changed[23 + rng.randrange(RECORD * 18)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _signed_otherwise(content: bytes, rng: Random) -> bytes:
    at = 23 + RECORD * rng.randrange(18)
    body = content[at : at + 72]
    mac = hashlib.sha256(b"memagent/tip/1/" + body).digest()
    return content[:at] + body + mac + content[at + RECORD :]


def _beginning_gone(content: bytes, rng: Random) -> bytes:
    return content[:23] + content[23 + RECORD * rng.randint(1, 19) :]


FORGERIES: list[Callable[[bytes, Random], bytes]] = [
    _taken_out,
    _swapped,
    _flipped,
    _signed_otherwise,
    _beginning_gone,
]


def test_forged_notes_are_never_written_on(tmp_path: Path) -> None:
    notes = written(tmp_path / "j.db")
    content, rng = notes.read_bytes(), Random(2)
    assert len(content) == 23 + 20 * RECORD
    for number in range(FORGED):
        case = FORGERIES[number % len(FORGERIES)](content, rng)
        notes.write_bytes(case)
        with pytest.raises(StoreCorrupt):
            append(tmp_path / "j.db", rng.choice(USERS))
        assert notes.read_bytes() == case, "a refusal signs nothing"
    notes.write_bytes(content)
    append(tmp_path / "j.db", USERS[0])


def test_a_log_that_was_changed_is_not_signed_by_its_next_append(tmp_path: Path) -> None:
    import sqlite3
    from contextlib import closing

    path = tmp_path / "j.db"
    notes = written(path)
    with closing(sqlite3.connect(path)) as database:
        names = dict(database.execute("SELECT user_id, id FROM scopes").fetchall())
        cut, changed = names[USERS[0].user_id], names[USERS[1].user_id]
        database.execute("DELETE FROM journal WHERE scope_id = ? AND seq > 2", (cut,))
        database.execute("DELETE FROM payloads WHERE scope_id = ? AND seq > 2", (cut,))
        tip = "SELECT seq, chain, recorded_us FROM journal WHERE scope_id = ? AND seq = 2"
        database.execute(
            f"UPDATE scopes SET (head, chain, recorded_us) = ({tip}) WHERE id = ?", (cut, cut)
        )
        for table, column in (("journal", "scope_id"), ("scopes", "id")):
            last = " AND seq = 4" if table == "journal" else ""
            database.execute(
                f"UPDATE {table} SET chain = ? WHERE {column} = ?{last}", (b"f" * 32, changed)
            )
        database.execute(
            "INSERT INTO scopes (digest, user_id, head, chain, recorded_us) "
            "SELECT ?, 'mallory', head, chain, recorded_us FROM scopes WHERE id = ?",
            (_digest_of("mallory"), names[USERS[2].user_id]),
        )
        database.commit()
    before = notes.read_bytes()
    for user in (USERS[0], USERS[1], Scope(user_id="mallory")):
        with pytest.raises(StoreCorrupt, match="doctor --seal"):
            append(path, user)
        assert notes.read_bytes() == before
    append(path, USERS[3])
    with SqlJournal(path, read_only=True, seal=SEAL) as reader:
        told = "\n".join(reader.compare_tips())
    assert all(word in told for word in ("ends at 2", "was written anew", "never noted"))


def _digest_of(user_id: str) -> str:
    from memagent.journal.rows import scope_digest

    return scope_digest((user_id, None, None))


def test_notes_of_an_older_release_become_a_chain(tmp_path: Path) -> None:
    import hmac

    path = tmp_path / "j.db"
    notes = written(path)
    content = notes.read_bytes()
    old = [b"memagent-tips/1 keyed\n\n"]
    for at in range(23, len(content), RECORD):
        body = content[at : at + 72]
        old += [body, hmac.digest(KEY, b"memagent/tip/1/" + body, "sha256")]
    notes.write_bytes(b"".join(old))
    with SqlJournal(path, read_only=True, seal=SEAL) as reader:
        assert reader.compare_tips() == []
    append(path, USERS[0])
    assert notes.read_bytes().startswith(b"memagent-tips/2 keyed")
    with SqlJournal(path, read_only=True, seal=SEAL) as reader:
        assert reader.compare_tips() == []


@pytest.mark.parametrize("seal", [Seal(), SEAL], ids=["plain", "keyed"])
def test_a_short_write_leaves_the_notes_in_order(
    tmp_path: Path, seal: Seal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a full disk does it: a piece is written, then nothing, then it goes on."""
    notes = written(tmp_path / "j.db", seal)
    write, room = os.write, [0, 50]

    def short(fd: int, data: bytes) -> int:
        if len(data) % RECORD == 0 and room:
            return write(fd, data[: room.pop()])
        return write(fd, data)

    async def go_on() -> None:
        with SqlJournal(tmp_path / "j.db", seal=seal) as journal:
            for row in range(4, 8):
                with monkeypatch.context() as full:
                    if row == 5:
                        full.setattr(os, "write", short)
                    await journal.append(USERS[0], StatsDelta(), expect=row)

    asyncio.run(go_on())
    assert (notes.stat().st_size - 23) % RECORD == 0
    with SqlJournal(tmp_path / "j.db", seal=seal) as journal:
        assert journal.compare_tips() == []

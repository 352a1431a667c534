"""Checkpoints: the memory that one opens is the one that a replay makes, whatever befalls the file."""

from __future__ import annotations

import logging
import shutil
import struct
from dataclasses import fields
from hashlib import sha256
from pathlib import Path
from random import Random
from typing import Any

import pytest
from bank_kit import DIRECT, WORDS, batch, fact, session
from checkpoint_kit import ANA, History, open_hashing, same_memory, same_state, without_checkpoint

from memagent.checkpoints import file as file_format, store as policy
from memagent.checkpoints.store import Checkpoints
from memagent.checkpoints.tables import FORMS, LayeredMap
from memagent.core.answers import Query
from memagent.core.errors import StoreError
from memagent.core.ops import Add
from memagent.core.records import Scope, Session
from memagent.core.snapshot import Erased
from memagent.memory.bank import MemoryBank
from memagent.memory.facade import Memory
from memagent.opening.open_store import OpenStore
from memagent.search.pipeline import Projection
from memagent.state.fold import BankState


def checkpoints_of(store: OpenStore) -> Checkpoints:
    assert store.checkpoints is not None
    return store.checkpoints


def opened_from_checkpoint(bank: MemoryBank) -> bool:
    return isinstance(bank.state.touched, LayeredMap)


async def checkpointed(path: Path, *, seed: int = 1, steps: int = 30) -> tuple[Path, str]:
    """Make a store with a checkpoint of its last entry; return the file and the digest."""
    store = open_hashing(path)
    bank = store.bank(ANA)
    await History(seed).write(bank, steps)
    await bank.refresh()
    file = checkpoints_of(store).save(bank)
    store.close()
    return file, bank.state.digest()


@pytest.mark.parametrize("seed", range(6))
async def test_a_memory_from_a_checkpoint_is_the_one_that_a_replay_makes(
    tmp_path: Path, seed: int
) -> None:
    """Through three generations, each a checkpoint over the one before, with a tail."""
    history, path = History(seed), tmp_path / "memory.db"
    rng = Random(seed)
    for generation in range(3):
        store = open_hashing(path)
        bank = store.bank(ANA)
        await bank.sync()
        assert opened_from_checkpoint(bank) == (generation > 0)
        await history.write(bank, rng.randint(5, 25))
        if rng.random() < 0.5:
            await bank.refresh()
        assert checkpoints_of(store).save(bank).exists()
        await history.write(bank, rng.randint(0, 10))
        fork, replayed = bank.fork(), without_checkpoint(store)
        await same_memory(bank, replayed, texts=WORDS[:1])
        await same_memory(fork, replayed.fork(), texts=WORDS[:1])
        store.close()
    store = open_hashing(path)
    bank, replayed = store.bank(ANA), without_checkpoint(store)
    await same_memory(bank, replayed, texts=WORDS[:3])
    # forks that go on are equal too: nothing below them is shared by mistake
    await bank.sync()
    forks = [bank.fork(), replayed.fork()]
    for fork in forks:
        await History(seed + 100).write(fork, 20)
    same_state(forks[0].state, forks[1].state)
    same_state(bank.state, replayed.state)
    store.close()


async def test_a_memory_of_sessions_alone_has_one(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    store = open_hashing(path)
    for number in range(3):
        await store.bank(ANA).store_session(session(number))
    bank = store.bank(ANA)
    await bank.refresh()
    checkpoints_of(store).save(bank)
    store.close()
    store = open_hashing(path)
    bank = store.bank(ANA)
    await bank.sync()
    assert isinstance(bank.state.sessions, LayeredMap)
    await same_memory(bank, without_checkpoint(store), texts=WORDS[:1])
    store.close()


async def test_only_the_tail_of_the_journal_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "memory.db"
    await checkpointed(path)
    store = open_hashing(path)
    writer = without_checkpoint(store)
    await History(9).write(writer, 3)
    begins: list[int] = []
    since = type(store.journal).since
    monkeypatch.setattr(
        type(store.journal), "since", lambda *args: (begins.append(args[2]), since(*args))[1]
    )
    bank = store.bank(ANA)
    await bank.sync()
    assert begins == [begins[0]]
    assert begins[0] > 10
    same_state(bank.state, writer.state)
    store.close()


async def test_nothing_is_decoded_before_it_is_touched(tmp_path: Path) -> None:
    path, count = tmp_path / "memory.db", 200
    store = open_hashing(path)
    bank = store.bank(ANA)
    facts = [fact(f"Ana keeps boat {number}") for number in range(count)]
    await bank.commit(batch(*(Add(fact=each) for each in facts)), source=DIRECT)
    await bank.refresh()
    checkpoints_of(store).save(bank)
    store.close()
    store = open_hashing(path)
    state = await store.bank(ANA).sync()
    assert isinstance(state.items, LayeredMap)
    assert len(state.items) == count
    base: Any = state.items.base
    assert 0 < len(base._known) < count / 2  # what was decoded
    store.close()


@pytest.mark.parametrize("kept", [0, 1, 50, 127, 128, 1_000, -1])
async def test_a_torn_checkpoint_is_replaced_by_a_replay(
    tmp_path: Path, kept: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "memory.db"
    file, digest = await checkpointed(path)
    content = file.read_bytes()
    file.write_bytes(content[:kept])
    assert await digest_after(path, caplog) == digest
    assert "is not used, the journal is replayed" in caplog.text
    assert not file.exists(), "a useless file stays"


async def digest_after(path: Path, caplog: pytest.LogCaptureFixture) -> str:
    store = open_hashing(path)
    bank = store.bank(ANA)
    with caplog.at_level(logging.WARNING):
        state = await bank.sync()
    assert not opened_from_checkpoint(bank)
    await same_memory(bank, without_checkpoint(store), texts=["boat"])
    store.close()
    return state.digest()


async def test_no_flipped_bit_ever_changes_an_answer(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    file, digest = await checkpointed(path, steps=8)
    content, rng = file.read_bytes(), Random(4)
    query, refused = Query(text="boat harbour"), 0
    store = open_hashing(path)
    replayed = without_checkpoint(store)
    hits = await replayed.search(query, k=5)
    for _ in range(200):
        flipped = bytearray(content)
        flipped[rng.randrange(len(content))] ^= 1 << rng.randrange(6)
        file.write_bytes(flipped)
        bank = store.bank(ANA)
        assert await bank.search(query, k=5) == hits
        assert bank.state.digest() == digest
        refused += not opened_from_checkpoint(bank)
    same_state(bank.state, replayed.state)
    assert refused > 150, "hardly any flip was noticed"
    store.close()


async def test_a_checkpoint_of_another_memory_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "memory.db"
    file, digest = await checkpointed(path)
    foreign, other = await checkpointed(tmp_path / "other" / "memory.db", seed=2)
    assert other != digest
    shutil.copy(foreign, file)
    assert await digest_after(path, caplog) == digest


async def test_a_checkpoint_of_another_user_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "memory.db"
    file, digest = await checkpointed(path)
    store = open_hashing(path)
    bob = store.bank(Scope(user_id="bob"))
    await History(1).write(bob, 30)
    shutil.copy(checkpoints_of(store).save(bob), file)
    store.close()
    assert await digest_after(path, caplog) == digest


async def test_a_checkpoint_of_a_newer_format_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "memory.db"
    file, digest = await checkpointed(path)
    content = bytearray(file.read_bytes())
    at, length = struct.unpack_from("<QQ", content, 20)
    fields = struct.pack("<IQQ", file_format.FORMAT + 1, at, length)
    content[16:36] = fields
    content[36:68] = sha256(fields + content[at : at + length]).digest()
    file.write_bytes(content)
    assert await digest_after(path, caplog) == digest
    assert f"its format is {file_format.FORMAT + 1}" in caplog.text


async def test_a_checkpoint_made_by_other_rules_is_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "memory.db"
    with monkeypatch.context() as otherwise:
        otherwise.setattr("memagent.search.pipeline.tokenize", lambda text: text[1:].split())
        _, digest = await checkpointed(path)
    assert await digest_after(path, caplog) == digest
    assert "would be indexed otherwise now" in caplog.text


async def test_a_checkpoint_ahead_of_a_restored_journal_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, backup = tmp_path / "memory.db", tmp_path / "backup.db"
    store = open_hashing(path)
    await History(1).write(store.bank(ANA), 10)
    store.close()
    shutil.copy(path, backup)
    file, _ = await checkpointed(path, seed=5, steps=10)
    shutil.copy(backup, path)
    path.with_name("memory.db.tips").unlink()  # as on the machine that the backup goes to
    assert file.exists()
    store = open_hashing(path)
    expected = (await without_checkpoint(store).sync()).digest()
    store.close()
    assert await digest_after(path, caplog) == expected


async def test_another_embedder_takes_the_state_and_embeds_anew(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    file, digest = await checkpointed(path)
    before = file.read_bytes()
    store = OpenStore.open(path=path, embedder="static", check_embedder=False)
    bank = store.bank(ANA)
    await same_memory(bank, without_checkpoint(store), texts=["boat"])
    assert opened_from_checkpoint(bank)
    assert bank.state.digest() == digest
    store.close()
    assert file.read_bytes() == before


async def test_deleting_the_folder_harms_nothing(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    file, digest = await checkpointed(path, steps=60)
    store = open_hashing(path)
    bank = store.bank(ANA)
    await bank.sync()
    shutil.rmtree(file.parent)
    await same_memory(bank, without_checkpoint(store), texts=WORDS[:3])
    store.close()
    store = open_hashing(path)
    assert (await store.bank(ANA).sync()).digest() == digest
    store.close()


async def test_a_reader_uses_a_checkpoint_and_writes_none(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    file, digest = await checkpointed(path)
    for damaged in (False, True):
        if damaged:
            file.write_bytes(file.read_bytes()[:-1])
        before = file.read_bytes()
        store = open_hashing(path, read_only=True)
        bank = store.bank(ANA)
        assert (await bank.sync()).digest() == digest
        assert opened_from_checkpoint(bank) != damaged
        await bank.refresh()
        store.close()
        assert file.read_bytes() == before


# -- when they are made ----------------------------------------------------------------


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "FEWEST_ENTRIES", 4)
    monkeypatch.setattr(policy, "CLOSING_ENTRIES", 2)


@pytest.mark.usefixtures("eager")
async def test_one_is_made_in_the_background_and_another_at_the_close(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    store = open_hashing(path)
    bank, history = store.bank(ANA), History(1)
    await history.write(bank, 12)
    await bank.refresh()
    for future in list(checkpoints_of(store)._running.values()):  # the test waits for it
        future.result(timeout=30)
    file = checkpoints_of(store).path_of(ANA)
    first = seq_of(file)
    assert 0 < first <= bank.state.seq
    await bank.store_session(a_session(history))
    await history.write(bank, 6)
    await bank.refresh()
    store.close()
    assert seq_of(file) == bank.state.seq > first
    assert [entry.name for entry in file.parent.iterdir()] == [file.name]
    store = open_hashing(path)
    before = file.stat().st_ino
    await store.bank(ANA).refresh()
    store.close()
    assert file.stat().st_ino == before, "nothing was new"


def a_session(history: History) -> Session:
    history.sessions += 1
    return session(history.sessions)


def seq_of(file: Path) -> int:
    return int(file_format.CheckpointFile.open(file).facts["seq"])


@pytest.mark.usefixtures("eager")
async def test_one_entry_of_many_items_is_worth_a_checkpoint(tmp_path: Path) -> None:
    store = open_hashing(tmp_path / "memory.db")
    bank = store.bank(ANA)
    await Memory(bank).add_many([f"note {number}" for number in range(6)])
    store.close()
    assert seq_of(checkpoints_of(store).path_of(ANA)) == bank.state.seq == 1


async def test_small_memories_have_none(tmp_path: Path) -> None:
    store = open_hashing(tmp_path / "memory.db")
    bank = store.bank(ANA)
    await History(1).write(bank, 20)
    await bank.refresh()
    store.close()
    assert not checkpoints_of(store).path_of(ANA).parent.exists()


@pytest.mark.usefixtures("eager")
async def test_a_full_disk_or_a_memory_too_large_only_goes_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(policy, "MOST_BYTES", 2_000)
    store = open_hashing(tmp_path / "memory.db")
    bank = store.bank(ANA)
    await History(1).write(bank, 20)
    with caplog.at_level(logging.INFO):
        file = checkpoints_of(store).save(bank)
    assert "more than 2000 bytes" in caplog.text
    assert list(file.parent.iterdir()) == []
    monkeypatch.setattr(policy, "MOST_BYTES", 1 << 30)
    monkeypatch.setattr(file_format.os, "fsync", no_space)
    with caplog.at_level(logging.INFO):
        checkpoints_of(store).save(bank)
    assert "No space left" in caplog.text
    assert list(file.parent.iterdir()) == []
    monkeypatch.undo()
    store.close()


def no_space(_: int) -> None:
    raise OSError(28, "No space left on device")


async def test_the_folder_keeps_the_ones_used_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "memory.db"
    first, _ = await checkpointed(path)
    monkeypatch.setattr(policy, "MOST_FOLDER_BYTES", int(1.5 * first.stat().st_size))
    store = open_hashing(path)
    bob = store.bank(Scope(user_id="bob"))
    await History(1).write(bob, 30)
    await bob.refresh()
    second = checkpoints_of(store).save(bob)
    store.close()
    assert list(first.parent.iterdir()) == [second]


async def test_a_folder_is_measured_only_when_much_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, looks, scandir = tmp_path / "memory.db", list[Path](), policy.os.scandir

    def counted(folder: Path) -> Any:
        looks.append(folder)
        return scandir(folder)

    file, _ = await checkpointed(path)
    store = open_hashing(path)
    bank = store.bank(ANA)
    await bank.refresh()
    monkeypatch.setattr(policy.os, "scandir", counted)
    for _ in range(10):
        checkpoints_of(store).save(bank)
    assert len(looks) == 1
    monkeypatch.setattr(policy, "MOST_FOLDER_BYTES", 8 * file.stat().st_size)
    for _ in range(10):
        checkpoints_of(store).save(bank)
    assert len(looks) == 11
    store.close()


async def test_a_memory_of_a_hundred_is_opened_from_a_checkpoint_and_only_hits_are_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "memory.db"
    store = open_hashing(path)
    memory = Memory(store.bank(ANA))
    for number in range(100):
        await memory.add(f"Ana keeps the {WORDS[number % len(WORDS)]} in box {number}")
    found = await memory.search(WORDS[0], k=3)
    store.close()
    store = open_hashing(path)
    bank = store.bank(ANA)
    again = await Memory(bank).search(WORDS[0], k=3)
    assert [(hit.id, hit.score) for hit in again] == [(hit.id, hit.score) for hit in found]
    assert isinstance(bank.state.items, LayeredMap)
    table: Any = bank.state.items.base
    read = {item.id for item in table._known.values()}
    assert {hit.id for hit in again} <= read
    assert len(read) <= 40
    store.close()


# -- erasing ---------------------------------------------------------------------------


@pytest.mark.usefixtures("eager")
async def test_an_erasure_takes_the_checkpoint_along(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    file, _ = await checkpointed(path)
    assert b"harbour" in file.read_bytes()
    store = open_hashing(path)
    bank = store.bank(ANA)
    await Memory(bank).reset(user_id="ana")
    assert not file.exists()
    await bank.refresh()
    store.close()
    assert all(
        b"harbour" not in left.read_bytes() for left in tmp_path.rglob("*") if left.is_file()
    )


async def test_a_checkpoint_never_brings_an_erased_memory_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "memory.db"
    file, _ = await checkpointed(path)
    old = file.read_bytes()
    store = open_hashing(path)
    bank = store.bank(ANA)
    gone = sorted(item.id for item in (await bank.sync()).active())[0]
    await Memory(bank).erase(gone)
    assert not file.exists()
    store.close()
    file.write_bytes(old)
    await digest_after(path, caplog)
    store = open_hashing(path)
    assert gone not in (await store.bank(ANA).sync()).items
    store.close()


async def test_a_checkpoint_begun_before_an_erasure_never_takes_its_place(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    store = open_hashing(path)
    bank = store.bank(ANA)
    await History(1).write(bank, 20)
    await bank.refresh()
    old = bank.projection()
    other = OpenStore.open(path=path, embedder="hashing")
    erased: list[bool] = []

    class Late:
        """A memory whose checkpoint is being written when the erasure comes."""

        scope, embedder = ANA, bank.embedder

        def projection(self) -> Projection:
            return old

    async def erase() -> None:
        await other.bank(ANA).append(lambda _: Erased(reason="asked"))
        erased.append(True)

    checkpoints = checkpoints_of(store)
    late = Late()
    erasures = 0
    await erase()
    checkpoints._save(ANA, bank.embedder, late.projection(), erasures, lambda: None)  # begun before
    assert erased == [True]
    assert list(checkpoints.path_of(ANA).parent.glob("*")) == []
    other.close()
    store.close()


async def test_what_an_erasure_cannot_delete_is_not_erased(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "memory.db"
    await checkpointed(path)
    store = open_hashing(path)
    bank = store.bank(ANA)
    digest = (await bank.sync()).digest()

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as broken:
        broken.setattr(Path, "unlink", refuse)
        with pytest.raises(StoreError, match=r"ckpt .*Permission denied.*nothing was erased"):
            await bank.append(lambda _: Erased(reason="asked"))
    assert (await bank.sync()).digest() == digest
    await bank.append(lambda _: Erased(reason="asked"))
    assert not (await bank.sync()).items
    store.close()


def test_every_part_of_a_state_is_written() -> None:
    """A field that comes or goes needs a place in the file, and a new format number."""
    elsewhere = {"graph", "seq", "item_root", "stats_root", "ordinal_root", "trial_root"}
    elsewhere |= {"cleared", "live"}
    derived = {"orders", "trail"}
    names = {field.name for field in fields(BankState)}
    assert names == set(FORMS) | elsewhere | derived
    assert file_format.FORMAT == 2


def test_the_manifest_is_data() -> None:
    """Nothing in the package can make code of a file's bytes."""
    package = Path(file_format.__file__).parent
    source = "".join(file.read_text(encoding="utf-8") for file in package.glob("*.py"))
    for word in ("pickle", "marshal", "eval(", "exec(", "import_module"):
        assert word not in source

"""One session is erased to the byte: twenty markers and their vectors, killed in between."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from crash_child import CrashServer
from erasure_workloads import KEPT, MARKERS, SCOPE, fill, needles, open_memory

from memagent.journal.proof import audit as file_search, file_scan
from memagent.journal.proof.audit import count_in_files, files_of
from memagent.journal.sqlite import SqlJournal

POINTS = (
    "redact.planned",
    "transaction.begun",
    "headers.written",
    "heads.written",
    "commit.before",
    "commit.after",
    "erase.committed",
    "erase.scrubbed",
    "redact.written",
)


@pytest.fixture(scope="module")
def server() -> Iterator[CrashServer]:
    with CrashServer("erasure_workloads") as running:
        yield running


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    """A store as a crash leaves it: with a write-ahead log, and all needles in its files."""
    folder = tmp_path_factory.mktemp("filled")
    with SqlJournal(folder / "m.db", synchronous="OFF") as journal:
        memory = open_memory(journal)
        asyncio.run(fill(memory, journal))
        sought = needles(memory)
        copy = folder / "copy"
        copy.mkdir()
        for file in files_of(folder / "m.db"):
            shutil.copy(file, copy)
    (copy / "m.db.lock").unlink()
    return copy, sought


def found(path: Path, sought: list[bytes]) -> int:
    return sum(count for _, count in count_in_files(files_of(path), sought).values())


def test_the_search_finds_every_marker_and_vector(filled: tuple[Path, list[bytes]]) -> None:
    folder, sought = filled
    assert len(MARKERS) == 20 and len(sought) >= 20 + 5
    for needle in sought:
        assert found(folder / "m.db", [needle]), f"{needle!r} is not found before the erasure"


async def test_the_receipt_tells_what_is_left(
    filled: tuple[Path, list[bytes]], tmp_path: Path
) -> None:
    folder, sought = filled
    shutil.copytree(folder, tmp_path / "s")
    path = tmp_path / "s" / "m.db"
    with SqlJournal(path) as journal:
        memory = open_memory(journal)
        receipt = await memory.erase_session("session-gone")
        assert receipt.gone and (receipt.items, receipt.turns) == (5, 3)
        assert receipt.needles >= 6 and receipt.unproven is None
        assert {place.name for place in receipt.places} >= {"m.db", "m.db-wal"}
        assert found(path, sought) == 0
        assert found(path, [KEPT.format(0).encode()])
        assert journal.verify(SCOPE) == []
        assert len(await memory.get_all()) == 5
    assert found(path, sought) == 0
    with SqlJournal(path, read_only=True) as journal:
        assert len(await open_memory(journal).get_all()) == 5


async def test_a_search_that_fails_is_noted_and_undoes_nothing(
    filled: tuple[Path, list[bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, sought = filled
    shutil.copytree(folder, tmp_path / "s")
    monkeypatch.setattr(file_search, "_TIMEOUT_S", 0.0)
    with SqlJournal(tmp_path / "s" / "m.db") as journal:
        receipt = await open_memory(journal).erase_session("session-gone")
    monkeypatch.undo()
    assert receipt.unproven == "the files could not be searched within 0 seconds"
    assert not receipt.gone and receipt.scrubbed and receipt.places == ()
    assert found(tmp_path / "s" / "m.db", sought) == 0


def test_a_scan_finds_what_a_plain_search_finds(tmp_path: Path) -> None:
    """Needles of all lengths, at all offsets, over the border of two pieces, in zeros."""
    rng = Random(7)
    needles = [rng.randbytes(rng.choice([8, 9, 31, 200, 4_096])) for _ in range(200)]
    needles += [bytes(40), bytes(20) + b"x" + bytes(20), b"aaaaaaaaab", b"aaaaaaaac"]
    data = bytearray(rng.randbytes(1 << 20) + bytes(1 << 16) + b"a" * 999)
    for needle in needles[:100:2]:
        at = rng.randrange(len(data))
        data[at:at] = needle
    (tmp_path / "f").write_bytes(data)
    expected = sum(needle in data for needle in needles)
    assert 50 <= expected < 100
    assert count_in_files([tmp_path / "f"], needles) == {"f": (len(data), expected)}
    assert count_in_files([tmp_path / "f", tmp_path / "none"], []) == {"f": (len(data), 0)}
    for some in (needles[:1], needles[: file_scan.FEW], needles[: file_scan.FEW + 1]):
        there = sum(needle in data for needle in some)
        assert count_in_files([tmp_path / "f"], some) == {"f": (len(data), there)}


def test_a_scan_finds_what_lies_over_the_border_of_two_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = Random(8)
    data = rng.randbytes(3_000)
    (tmp_path / "f").write_bytes(data)
    needles = [data[at : at + size] for at in range(0, 2_900, 97) for size in (8, 13, 90)]
    for piece in (9, 64, 1_001):
        monkeypatch.setattr(file_scan, "_PIECE_BYTES", piece)
        for some in (needles, needles[: file_scan.FEW - 1]):
            sought = file_scan.Needles([*some, rng.randbytes(20)])
            assert file_scan.scanned(str(tmp_path / "f"), sought) == (3_000, len(some))


@pytest.mark.parametrize("point", POINTS)
async def test_a_kill_in_between_leaves_it_whole_or_gone(
    filled: tuple[Path, list[bytes]], tmp_path: Path, server: CrashServer, point: str
) -> None:
    folder, sought = filled
    shutil.copytree(folder, tmp_path / "s")
    path = tmp_path / "s" / "m.db"
    death = server.run("erasure_workloads:erase_session", point=point, path=str(path))
    assert death.killed, death.trace
    with SqlJournal(path) as journal:
        memory = open_memory(journal)
        assert journal.verify(SCOPE) == []
        names = {session.id for session in await memory.sessions()}
        if "session-gone" in names:
            assert len(await memory.get_all()) == 10
            assert (await memory.erase_session("session-gone")).gone
        assert not journal.scrub_due
        assert found(path, sought) == 0
        assert len(await memory.get_all()) == 5

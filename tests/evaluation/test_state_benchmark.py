"""The benchmark of what holds now: counts are right on dialogues whose outcome is known."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from environments.dialogues.state import DATA, held_out, labels_of, play, sample, table
from environments.errors import EnvironmentFault
from environments.evaluate import app

BATCH = """# batch: homes-02 | language: en | voices: two friends

=== homes-02-001 | plain
@ 2024-01-12
a Ana: I live in Porto. || self | live | Porto | + | now
b Ana: I have a cat called Miso. || self | has pet | Miso | + | now
@ 2024-06-02
c Ana: I've moved to Lisbon, I don't live in Porto any more. || self | live | Lisbon | + | now || replaces a
? Where does Ana live now? | c | Lisbon
? Where did Ana live before? | a | Porto
? Which car does Ana drive? | -
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "en").mkdir()
    (tmp_path / "en" / "homes-02.txt").write_text(BATCH, encoding="utf-8")
    return tmp_path


def test_found_lost_and_right_are_counted_by_what_memory_holds(folder: Path) -> None:
    dialogues = held_out(folder)
    assert labels_of(dialogues[0]) == (frozenset("a"), frozenset("bc"))
    figures = asyncio.run(play(dialogues, design="verbatim", model=None))
    counts = figures["all"].counts
    assert (counts["found"], counts["ended"]) == (1, 1)
    assert (counts["lost"], counts["never held"], counts["kept"]) == (0, 0, 2)
    assert (counts["right now"], counts["right then"], counts["stale"]) == (1, 1, 0)
    assert counts["unanswerable"] == 1
    assert "language en" in figures
    assert "1.000 (1/1)" in table(figures)


def test_the_verb_prints_a_table_and_refuses_a_folder_without_dialogues(
    folder: Path, tmp_path: Path
) -> None:
    printed = CliRunner().invoke(app, ["state", str(folder), "--design", "verbatim,learned"])
    assert printed.exit_code == 0, printed.output
    assert printed.output.count("updates found") == 2
    empty = tmp_path / "none"
    empty.mkdir()
    failed = CliRunner().invoke(app, ["state", str(empty)])
    assert isinstance(failed.exception, EnvironmentFault)


def test_held_out_batches_are_even_and_a_sample_spreads_over_them() -> None:
    dialogues = held_out()
    assert len(dialogues) > 1_000
    assert all(int(own.batch.rpartition("-")[2]) % 2 == 0 for own in dialogues)
    assert len({own.batch for own in sample(dialogues, 60)}) > 30
    assert {own.language for own in sample(dialogues, 60)} == {"en", "de", "es"}
    assert not {own.batch for own in held_out(odd=True)} & {own.batch for own in dialogues}


@pytest.mark.parametrize(
    ("hard", "all_of", "lost", "found", "right", "stale"),
    [(False, (556, 248, 413), 8, 122, 282, 6), (True, (771, 270, 500), 15, 95, 325, 7)],
)
def test_subjects_told_side_by_side_cost_no_fact(
    hard: bool, all_of: tuple[int, ...], lost: int, found: int, right: int, stale: int
) -> None:
    """Batches from 40 on are those written to be hard."""
    dialogues = [
        own for own in held_out(DATA / "plain") if (int(own.batch.rpartition("-")[2]) >= 40) == hard
    ]
    counts = asyncio.run(play(dialogues, design="auto", model=None))["all"].counts
    assert (counts["kept"], counts["ended"], counts["answerable"]) == all_of
    assert counts["lost"] <= lost
    assert counts["found"] >= found
    assert counts["right"] >= right
    assert counts["stale"] <= stale

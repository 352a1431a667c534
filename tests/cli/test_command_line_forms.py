"""Both spellings of a command's text and file, and answers on a terminal of 80 columns."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from command_line_kit import error_of, got, made_store, moved_into, run

from memagent.cli.frame import console
from memagent.cli.views import answer_view
from memagent.core.answers import Answer, Citation, Verdict


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return made_store(moved_into(tmp_path, monkeypatch))


def test_the_new_text_is_an_argument_or_an_option(store: Path) -> None:
    item = got(run("list", "--json"))[0]["id"]
    assert got(run("edit", item, "Ana has a cat.", "--json"))["text"] == "Ana has a cat."
    assert got(run("edit", item, "--text", "Ana has a dog.", "--json"))["text"] == "Ana has a dog."
    for texts in ([], ["one", "--text", "two"]):
        message = error_of(run("edit", item, *texts), code=2)
        assert "give TEXT or --text TEXT, one of them" in message
    assert got(run("list", "--json"))[0]["version"] == 3


def test_the_file_of_an_export_is_an_argument_or_an_option(store: Path) -> None:
    written = [
        got(run("export", *words, "--json"))["digest"]
        for words in (["a.jsonl"], ["-o", "b.jsonl"], ["--output", "c.jsonl"])
    ]
    assert len(set(written)) == 1
    assert Path("a.jsonl").read_bytes() == Path("b.jsonl").read_bytes()
    for words in ([], ["d.jsonl", "-o", "d.jsonl"]):
        message = error_of(run("export", *words), code=2)
        assert "give FILE or --output FILE, one of them" in message
    assert not Path("d.jsonl").exists()


def test_citations_are_stacked_in_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    quote = "I moved into the flat above the bakery, and the whole stair smells of bread at five."
    citation = Citation(
        hit_id="mem_0123456789abcdef0123",
        turn_id="2024-05-18:1",
        speaker="Ana",
        said_at=datetime(2024, 5, 18, 9, 20, tzinfo=UTC),
        quote=quote,
    )
    bare = Citation(hit_id="evt_1", quote="Bread.")
    verdict = Verdict.SUPPORTED
    console().print(
        answer_view(Answer(text="Above the bakery.", verdict=verdict, citations=(citation, bare)))
    )
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [text.rstrip() for text in lines] == [
        "Above the bakery.",
        "verdict: supported",
        "",
        "[1] Ana, 2024-05-18 09:20, 2024-05-18:1, mem_0123456789abcdef0123",
        "    I moved into the flat above the bakery, and the whole stair smells of bread",
        "    at five.",
        "[2] evt_1",
        "    Bread.",
    ]

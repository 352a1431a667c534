"""`memagent graph` writes one user's event graph in the format that the file's name tells.

It never replaces a file unasked.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line_kit import error_of, got, made_store, moved_into, run

from memagent.core.answers import NodeState
from memagent.events.graph_files import read_graph


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return made_store(moved_into(tmp_path, monkeypatch))


@pytest.mark.parametrize("name", ["graph.html", "graph.json", "graph.graphml", "GRAPH.JSON"])
def test_the_ending_tells_the_format(tmp_path: Path, name: str) -> None:
    told = got(run("graph", "-o", name, "--json"))
    assert (told["path"], told["format"]) == (name, name.lower().rpartition(".")[2])
    text = (tmp_path / name).read_text(encoding="utf-8")
    assert ("Bolt" in text, text.lstrip()[0]) == (True, "{" if told["format"] == "json" else "<")


def test_another_ending_needs_a_format(tmp_path: Path) -> None:
    assert "--format" in error_of(run("graph", "-o", "graph.txt"))
    assert got(run("graph", "-o", "graph.txt", "--format", "json", "--json"))["format"] == "json"
    assert read_graph(tmp_path / "graph.txt").scope.user_id == "default"


def test_a_file_that_is_there_is_kept(tmp_path: Path) -> None:
    (tmp_path / "graph.json").write_text("mine", encoding="utf-8")
    assert "--force" in error_of(run("graph", "-o", "graph.json"))
    assert (tmp_path / "graph.json").read_text(encoding="utf-8") == "mine"
    assert run("graph", "-o", "graph.json", "--force").exit_code == 0
    assert read_graph(tmp_path / "graph.json").nodes


def test_the_past_and_what_is_hidden(tmp_path: Path) -> None:
    cat = next(item["id"] for item in got(run("list", "--json")) if "Bolt" in item["text"])
    assert run("rm", cat).exit_code == 0
    for name, options in (
        ("now", ()),
        ("open", ("--without-hidden",)),
        ("then", ("--as-of-said", "2023-05-10")),
    ):
        assert run("graph", "-o", f"{name}.json", *options).exit_code == 0
    now, shown, then = (read_graph(tmp_path / f"{name}.json") for name in ("now", "open", "then"))
    assert [node.state for node in now.nodes if node.id == cat] == [NodeState.CLOSED]
    assert cat not in {node.id for node in shown.nodes}
    assert {turn.said_at.day for turn in then.turns if turn.said_at} == {7}


def test_a_user_without_memories_gets_an_empty_graph(tmp_path: Path) -> None:
    done = run("graph", "-o", "graph.json", "--user", "nobody")
    assert done.exit_code == 0 and "nothing is stored" in done.stderr
    assert read_graph(tmp_path / "graph.json").nodes == ()

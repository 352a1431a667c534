"""Memories of Letta and Zep, and files that are no export: one plain error each."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from command_line_kit import got, moved_into, run

from memagent import Agent
from memagent.core.errors import InputError
from memagent.integrations.memory_import import read_memories

LETTA = {
    "agents": [{"name": "sam", "messages": []}],
    "blocks": [
        {
            "id": "block-0",
            "label": "human",
            "value": "\nName: Chad\nAge: ?\n\nLikes: Formel 1, Segeln\n",
        },
        {"id": "block-1", "label": "persona", "value": "I am Sam."},
    ],
    "tools": [],
}
PASSAGES = [
    {
        "id": "passage-1",
        "text": "Chad keeps two cats.",
        "created_at": "2025-03-04T10:00:00Z",
        "embedding": [0.1, 0.2],
        "metadata": {"topic": "pets"},
    }
]
EDGES = {
    "edges": [
        {
            "uuid": "e1",
            "name": "LOVES",
            "fact": "Kendra loves Adidas shoes",
            "created_at": "2024-08-20T00:00:00Z",
            "valid_at": "2024-08-10T00:00:00Z",
            "invalid_at": "2024-09-02T00:00:00Z",
        },
        {
            "uuid": "e2",
            "name": "LIKES",
            "fact": "Kendra likes Puma shoes",
            "created_at": "2024-09-02T00:00:00Z",
            "valid_at": None,
            "invalid_at": None,
        },
    ],
    "row_count": 2,
}


def test_blocks_passages_and_edges_become_memories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved_into(tmp_path, monkeypatch)
    for name, content in (("agent.af", LETTA), ("passages.json", PASSAGES), ("zep.json", EDGES)):
        Path(name).write_text(json.dumps(content), encoding="utf-8")
        for imported in (len(read_memories(Path(name))), 0):
            report = got(run("import-from", name, "--user", "chad", "--json"))
            assert report["imported"] == imported, name
            assert report["refused"] == 0
    with Agent(user_id="chad") as agent:
        now = {item.text: item for item in agent.memory.get_all()}
        before = agent.memory.search("shoes", as_of="2024-08-20")
    assert now.keys() == {
        "Name: Chad",
        "Likes: Formel 1, Segeln",
        "Chad keeps two cats.",
        "Kendra likes Puma shoes",
    }
    cats = now["Chad keeps two cats."]
    assert f"{cats.said_at:%Y-%m-%d}" == "2025-03-04"
    assert "embedding" not in json.dumps(cats.metadata)
    assert [hit.item.text for hit in before if hit.item and hit.item.expires_at] == [
        "Kendra loves Adidas shoes"
    ]


def test_memories_without_an_owner_are_refused_without_a_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved_into(tmp_path, monkeypatch)
    file = tmp_path / "zep.json"
    file.write_text(json.dumps(EDGES), encoding="utf-8")
    report = got(run("import-from", str(file), "--json"))
    assert (report["found"], report["imported"], report["refused"]) == (2, 0, 2)


@pytest.mark.parametrize("content", ["", "not json", "[1]", '{"results": 5}', "[{}]", "\ud800"])
def test_what_is_no_export_is_told_in_one_line(tmp_path: Path, content: str) -> None:
    file = tmp_path / "export.json"
    file.write_bytes(content.encode("utf-8", "surrogatepass"))
    with pytest.raises(InputError):
        read_memories(file)
    with pytest.raises(InputError):
        read_memories(tmp_path)
    with pytest.raises(InputError):
        read_memories(tmp_path / "missing")


def test_rows_without_the_usual_keys_are_read_or_refused_one_by_one(tmp_path: Path) -> None:
    file = tmp_path / "edges.json"
    edges = [{"id": "e1", "fact": "Ana sails"}, {"id": "e2", "fact": "Ana paints"}]
    file.write_text(json.dumps({"edges": edges}), encoding="utf-8")
    assert [row["id"] for row in read_memories(file)] == ["e1", "e2"]
    file.write_text(json.dumps([{"uuid": "m1", "memory": "Ana sails", "metadata": "-"}]), "utf-8")
    assert [(row["id"], row["data"]) for row in read_memories(file)] == [("m1", "Ana sails")]
    file.write_text(json.dumps({"results": []}), encoding="utf-8")
    with pytest.raises(InputError, match="holds no memories"):
        read_memories(file)


def test_a_folder_of_any_name_is_read_and_nothing_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "a#b ?c"
    folder.mkdir()
    file = folder / "storage.sqlite"
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE points (id TEXT, point BLOB)")
        connection.commit()
    assert read_memories(file) == []
    assert [path.name for path in tmp_path.rglob("*")] == ["a#b ?c", "storage.sqlite"]

"""A settings file that is merely found in the current folder runs no code and names no server."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from command_line_kit import error_of, got, moved_into, run

from memagent.cli.stores import needs_consent
from memagent.config import AgentSettings, ServiceSettings

HARMLESS = '[store]\ntype = "sqlite"\npath = "a.db"\n[embedder]\ntype = "hashing"\n'
RISKY = {
    "embedder": '[embedder]\ntype = "plugin"\nname = "subprocess:Popen"\n'
    '[embedder.options]\nargs = ["touch", "ran"]\n',
    "weights": '[embedder]\ntype = "sentence-transformers"\nmodel = "./weights"\n',
    "reranker": '[reranker]\ntype = "plugin"\nname = "os:system"\n',
    "cross": '[reranker]\ntype = "cross-encoder"\nmodel = "./weights"\n',
    "design": 'design = "evil.module:DESIGN"\n',
    "endpoint": '[model]\nmodel = "openai/x"\napi_base = "http://evil.example"\n',
    "extra": '[model]\nmodel = "openai/x"\n[model.extra]\nbase_url = "http://evil.example"\n',
    "url": '[model]\nmodel = "huggingface/https://evil.example"\n',
    "weights of a model": '[model]\nmodel = "hf:weights/first"\n',
    "role": '[roles.answerer]\nmodel = "openai/x"\napi_base = "http://evil.example"\n',
    "store": '[store]\ntype = "postgres"\nurl = "postgresql://evil.example/x"\n',
    "index": '[index]\ntype = "qdrant"\nurl = "http://evil.example"\n',
    "embedder far away": '[embedder]\ntype = "litellm"\nmodel = "openai/x"\n'
    'api_base = "http://evil.example"\n',
    "hosted model": '[model]\nmodel = "openai/gpt-4o-mini"\n',
    "file above": '[store]\ntype = "sqlite"\npath = "../elsewhere.db"\n',
    "file anywhere": '[store]\ntype = "sqlite"\npath = "/var/tmp/memagent-elsewhere.db"\n',
    "file at home": '[store]\ntype = "sqlite"\npath = "~/memagent-elsewhere.db"\n',
    "tips": '[store]\ntype = "sqlite"\npath = "a.db"\ntips = "/var/tmp/memagent-tips"\n',
    "key file": '[store]\ntype = "sqlite"\npath = "a.db"\nkey_file = "/etc/hostname"\n',
    "tracing": "tracing = true\n",
    "content of traces": "capture_content = true\n",
    "runs": '[service]\nruns_folder = "/etc"\n',
    "hosts": '[service]\nhosts = ["evil.example"]\n',
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return moved_into(tmp_path, monkeypatch)


@pytest.mark.parametrize("text", RISKY.values(), ids=RISKY)
@pytest.mark.parametrize("command", [["ingest"], ["list"], ["search", "x"], ["serve"]])
def test_a_found_file_that_runs_code_or_names_a_server_is_refused(
    folder: Path, text: str, command: list[str]
) -> None:
    (folder / "memagent.toml").write_text(text, encoding="utf-8")
    (folder / "chat.txt").write_text("Ana: hello\n", encoding="utf-8")
    arguments = ["ingest", "chat.txt"] if command == ["ingest"] else command
    says = error_of(run(*arguments))
    assert "memagent trust" in says and "--config" in says
    assert not (folder / "ran").exists()
    assert {path.name for path in folder.iterdir()} <= {"memagent.toml", "chat.txt"}
    assert not (folder.parent / "elsewhere.db").exists()


def test_a_harmless_file_needs_no_consent(folder: Path) -> None:
    (folder / "memagent.toml").write_text(HARMLESS, encoding="utf-8")
    (folder / "chat.txt").write_text("Ana: I like tea\n", encoding="utf-8")
    assert run("ingest", "chat.txt").exit_code == 0 and (folder / "a.db").exists()
    assert got(run("trust", "--json"))["trusted"] == "nothing needs it"


def test_consent_is_given_once_for_these_entries_and_this_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder / "memagent.toml"
    plugin = '[embedder]\ntype = "plugin"\nname = "memagent.embed.static:HashEmbedder"\n'
    file.write_text(f"{HARMLESS.partition('[embedder]')[0]}{plugin}", encoding="utf-8")
    (folder / "chat.txt").write_text("Ana: I like tea\n", encoding="utf-8")
    assert "embedder" in error_of(run("ingest", "chat.txt"))
    assert run("ingest", "chat.txt", "--config", str(file)).exit_code == 0, "named, not found"
    assert got(run("trust", "--json"))["trusted"] == "embedder"
    assert len(got(run("list", "--json"))) == 1
    file.write_text(f'design = "verbatim"\n{file.read_text()}', encoding="utf-8")
    assert run("list").exit_code == 0, "other entries may change"
    file.write_text(file.read_text().replace("HashEmbedder", "Other"), encoding="utf-8")
    assert "memagent trust" in error_of(run("list"))

    copy = folder / "copy"
    copy.mkdir()
    file.write_text(file.read_text().replace("Other", "HashEmbedder"), encoding="utf-8")
    (copy / "memagent.toml").write_text(file.read_text(), encoding="utf-8")
    monkeypatch.chdir(copy)
    assert "memagent trust" in error_of(run("list"))


def test_every_setting_is_harmless_or_asks(folder: Path) -> None:
    """No setting is used from a found file merely because nobody thought of it."""
    harmless = {"design", "recipe", "sampling"}
    parts = {"embedder", "store", "service"}
    for name in AgentSettings.model_fields:
        if name not in harmless | parts:
            assert list(needs_consent({name: {"x": "y"}}, folder)) == [
                f"{name}.x" if name == "roles" else name
            ]
    for name, field in ServiceSettings.model_fields.items():
        asked = needs_consent({"service": {name: "text"}}, folder)
        assert list(asked) == [f"service.{name}"], field


def every_key() -> list[tuple[str, ...]]:
    """The place of every setting there is, through all variants of its parts."""
    schema = AgentSettings.model_json_schema()
    places: set[tuple[str, ...]] = set()

    def walk(part: dict[str, Any], place: tuple[str, ...]) -> None:
        part = schema["$defs"][part["$ref"].rpartition("/")[2]] if "$ref" in part else part
        variants = [*part.get("anyOf", ()), *part.get("oneOf", ()), *part.get("allOf", ())]
        for variant in variants:
            walk(variant, place)
        for name, inner in part.get("properties", {}).items():
            walk(inner, (*place, name))
        if isinstance(inner := part.get("additionalProperties"), dict):
            walk(inner, (*place, "answerer"))
        if not variants and "properties" not in part:
            places.add(place)

    walk(schema, ())
    return sorted(places)


KINDS: dict[str, list[dict[str, Any]]] = {
    "store": [{"type": "sqlite"}, {"type": "postgres", "url": "{url}"}, {"type": "memory"}],
    "embedder": [
        {"type": "litellm", "model": "openai/x"},
        {"type": "sentence-transformers", "model": "{url}"},
        {"type": "plugin", "name": "os:system"},
    ],
    "reranker": [{"type": "cross-encoder", "model": "{url}"}, {"type": "plugin", "name": "os:x"}],
    "index": [{"type": "qdrant", "url": "{url}"}],
    "model": [{"model": "openai/x"}],
    "roles": [{"answerer": {"model": "openai/x"}}],
}
"""Tables that a hostile key needs around it to be read at all."""


def settings_with(place: tuple[str, ...], value: object, url: str) -> list[dict[str, Any]]:
    """Settings that set one key, inside each table that it may stand in."""
    made: list[dict[str, Any]] = []
    for around in KINDS.get(place[0], [{}]):
        table = json.loads(json.dumps({place[0]: around} if around else {}).replace("{url}", url))
        inner = table
        for name in place[:-1]:
            inner = inner.setdefault(name, {})
        inner[place[-1]] = value
        made.append(table)
    return made


def test_no_setting_of_a_found_file_sends_a_byte_or_makes_a_file_elsewhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every key there is, with an address, a place elsewhere, a program, a number and a switch."""
    called: list[object] = []

    def connect(_: socket.socket, address: object) -> None:
        called.append(address)
        raise OSError("refused by the test")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-environment")
    home = folder / "home"
    work = folder / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    (work / "chat.txt").write_text("Ana: I like tea\n", encoding="utf-8")
    url = "http://127.0.0.1:9"
    keys = every_key()
    assert {("store", "tips"), ("model", "base_url"), ("service", "runs_folder")} <= set(keys)
    tried = 0
    for place in keys:
        for value in (url, "../elsewhere", "os:system", 7, True):
            for settings in settings_with(place, value, url):
                tried += 1
                (work / "memagent.toml").write_text(as_toml(settings), encoding="utf-8")
                ran = [run("ingest", "chat.txt"), run("ask", "Who likes tea?")]
                assert called == [], (settings, called)
                beside = {path.name for path in folder.iterdir()}
                assert beside <= {"home", "work"}, (settings, beside)
                assert all(each.exception is None or each.exit_code for each in ran), settings
    assert tried > 300
    elsewhere = [path for path in home.rglob("*") if path.is_file()] if home.exists() else []
    assert {path.suffix for path in elsewhere} <= {
        ".db",
        ".db-wal",
        ".db-shm",
        ".lock",
        ".tips",
        "",
    }


def as_toml(settings: dict[str, Any]) -> str:
    """Write settings as TOML: plain entries first, then tables."""
    lines: list[str] = []

    def write(table: dict[str, Any], name: str) -> None:
        if name:
            lines.append(f"[{name}]")
        lines.extend(
            f"{key} = {json.dumps(value)}"
            for key, value in table.items()
            if not isinstance(value, dict)
        )
        for key, value in table.items():
            if isinstance(value, dict):
                write(value, f"{name}.{key}".lstrip("."))

    write(settings, "")
    return "\n".join(lines) + "\n"


def test_what_init_writes_is_trusted(folder: Path) -> None:
    plugin = "memagent.embed.static:HashEmbedder"
    assert run("init", "--path", "b.db", "--embedder", plugin).exit_code == 0
    assert "plugin" in (folder / "memagent.toml").read_text(encoding="utf-8")
    assert run("list").exit_code == 0
    assert "no settings file" in error_of(run("trust", "--config", "none.toml"))

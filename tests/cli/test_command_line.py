"""The command line as its users have it: commands, JSON that is only JSON, one-line errors."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from command_line_kit import (
    SAMPLE,
    closing,
    digest,
    error_of,
    got,
    made_store,
    moved_into,
    real,
    run,
    texts,
)

from memagent.agent import Agent
from memagent.build import open_sqlite
from memagent.cli.frame import (
    Options,
    _execute,  # pyright: ignore[reportPrivateUsage]
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return moved_into(tmp_path, monkeypatch)


@pytest.fixture
def store(folder: Path) -> Path:
    return made_store(folder)


# -- start-up --------------------------------------------------------------------------


def loaded_by(*commands: Sequence[str]) -> set[str]:
    """Modules loaded by a fresh process that runs the commands one after the other."""
    code = (
        "import json, sys\n"
        "from memagent.cli.app import app\n"
        "sink, sys.stdout = sys.stdout, open('out.txt', 'w')\n"
        "codes = [app(command, standalone_mode=False) for command in json.loads(sys.argv[1])]\n"
        "assert not any(codes), codes\n"
        "json.dump(sorted(sys.modules), sink)\n"
    )
    command = [sys.executable, "-W", "error", "-c", code, json.dumps(commands)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def test_help_and_version_load_typer_and_rich_alone() -> None:
    slow = {
        "numpy",
        "langgraph",
        "sqlalchemy",
        "networkx",
        "dateparser",
        "rpds",
        "asyncio",
        "litellm",
    }
    assert loaded_by(["--help"], ["--version"]) & {*slow, "pydantic"} == set()
    assert loaded_by(["ask", "--help"]) & slow == set(), "though there typer itself loads pydantic"


def test_looking_and_changing_load_no_graph_and_no_model(store: Path) -> None:
    first, second = (item["id"] for item in got(run("list", "--json", "--limit", "2")))
    loaded = loaded_by(
        ["search", "cat"],
        ["list"],
        ["show", first],
        ["edit", first, "--text", "Ana has a cat."],
        ["rm", second],
        ["history"],
        ["history", first],
        ["undo"],
        ["diff", "--from", "0"],
        ["export", "all.jsonl"],
        ["import", "all.jsonl", "--user", "two"],
    )
    assert loaded & {"langgraph", "langchain_core", "litellm", "dateparser", "torch"} == set()


def test_a_question_loads_what_it_needs_alone(store: Path) -> None:
    loaded = loaded_by(["list"], ["search", "cat"], ["ask", "What does Ana have?"])
    libraries = {
        *("langgraph", "langchain_core", "langsmith", "litellm", "dateparser", "networkx"),
        *("fastapi", "alembic", "tenacity", "pydantic_settings", "sqlalchemy.orm"),
        "sqlalchemy.dialects.postgresql",
    }
    own = {
        *("memagent.pages", "memagent.service", "memagent.memory.graph_export"),
        *("memagent.memory.transfer", "memagent.graphs.chat", "memagent.graphs.ingest"),
    }
    assert loaded & (libraries | own) == set()


# -- end to end ------------------------------------------------------------------------


def test_from_init_to_an_equal_copy() -> None:
    made = got(real("init", "--path", "store.db", "--json"))
    assert Path(made["store"]).exists()
    first = got(real("ingest", str(SAMPLE), "--json"))
    assert (
        first["complete"]
        and first["turns"] >= 100
        and first["ops"]["ADD"] > 50
        and first["failures"] == []
    )
    again = got(real("ingest", str(SAMPLE), "--json"))
    assert (again["sessions"], again["skipped_sessions"], again["turns"]) == (
        0,
        first["sessions"],
        0,
    )

    answer = got(real("ask", "What is Ravi's cat called?", "--json"))
    assert (
        answer["verdict"] in ("supported", "quoted")
        and "Pixel" in answer["text"]
        and "hits" not in answer
    )
    cited = answer["citations"][0]
    assert cited["turn_id"] and cited["said_at"] and "Pixel" in cited["quote"]

    before = digest()
    changed = got(
        run("edit", cited["hit_id"][:12], "--text", "Ravi's cat is called Pixel.", "--json")
    )
    assert (changed["id"], changed["version"]) == (cited["hit_id"], 2)
    assert [entry["op"]["op"] for entry in got(run("history", cited["hit_id"], "--json"))] == [
        "ADD",
        "UPDATE",
    ]
    undone = got(run("undo", "--json"))
    assert undone["undoes"] == changed["op_id"].partition(".")[0]
    assert digest() == before
    seq = got(run("history", "--json"))[-1]["seq"]
    assert got(run("diff", "--from", str(seq - 1), "--json"))["changed"][0][1]["version"] == 1

    exported = got(real("export", "memory.jsonl", "--json"))
    imported = got(real("import", "memory.jsonl", "--path", "other.db", "--user", "copy", "--json"))
    assert (
        imported["digest"]
        == exported["digest"]
        == digest("--path", "other.db", "--user", "copy")
        == before
    )
    assert texts("--path", "other.db", "--user", "copy") == texts()
    found = got(real("doctor", "--json"))
    assert found["ok"] and found["users"][0]["chain"] == "intact"


def test_what_people_read_names_speakers_dates_and_turns(store: Path) -> None:
    answer = run("ask", "What did Ana adopt?", "--why").stdout
    assert "verdict: supported" in answer and "2023-05-07:1" in answer and "Ana" in answer
    assert "dense" in answer and "lexical" in answer
    listed = run("list", "--speaker", "Ben").stdout
    assert "sourdough" in listed and "Bolt" not in listed
    item = got(run("search", "grey cat", "-k", "1", "--json"))[0]["item"]
    shown = run("show", item["id"]).stdout
    assert (
        item["text"] in " ".join(shown.split())
        and "2023-05-07:1" in shown
        and "6 May 2023" in shown
    )
    assert "ADD" in run("history").stdout
    assert run("ask", "Who is the king of Spain?").stdout.startswith("Nothing")


@pytest.mark.parametrize(
    "arguments",
    [
        ["ask", "What did Ana adopt?"],
        ["ask", "Bolt?", "--why"],
        ["search", "cat", "--why"],
        ["list", "--deleted"],
        ["history"],
        ["diff", "--from", "today"],
        ["doctor"],
        ["undo"],
        ["export", "out.jsonl"],
        ["reembed"],
        ["rm", "--all", "--user", "default", "--yes"],
        ["ingest", "chat.txt", "--user", "two"],
        ["init", "--force", "--config", "new.toml", "--path", "new.db"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_json_is_one_document_and_nothing_else(store: Path, arguments: list[str]) -> None:
    got(run(*arguments, "--json"))


# -- settings --------------------------------------------------------------------------


def test_settings_come_from_option_variable_and_file_in_that_order(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(texts()) == 4, "./memagent.toml is read"
    assert got(run("init", "--path", "empty.db", "--config", "empty.toml", "--json"))[
        "store"
    ].endswith("empty.db")
    assert texts("--config", "empty.toml") == []
    monkeypatch.setenv("MEMAGENT_STORE__PATH", "empty.db")
    assert texts() == []
    assert len(texts("--path", str(store))) == 4


def test_init_writes_comments_and_replaces_nothing_unasked(folder: Path) -> None:
    arguments = [
        "init",
        "--path",
        "a b.db",
        "--design",
        "verbatim",
        "--model",
        "openai/gpt-4o-mini",
    ]
    assert run(*arguments).exit_code == 0
    text = (folder / "memagent.toml").read_text(encoding="utf-8")
    assert (
        text.count("# ") > 5
        and 'design = "verbatim"' in text
        and 'model = "openai/gpt-4o-mini"' in text
    )
    assert "a b.db" in text
    assert "--force" in error_of(run(*arguments))
    assert run(*arguments, "--force", "--embedder", "hashing", "--path", "c.db").exit_code == 0
    assert "dim = 256" in (folder / "memagent.toml").read_text(encoding="utf-8")
    assert "no designs plug-in" in error_of(
        run("init", "--config", "x.toml", "--design", "nope", "--json")
    )
    assert not (folder / "x.toml").exists()


def test_a_wrong_settings_file_is_told_by_name(folder: Path) -> None:
    (folder / "memagent.toml").write_text("desing = 'x'\n", encoding="utf-8")
    assert "desing" in error_of(run("list", "--json"))
    assert "cannot be read" in error_of(run("list", "--config", "none.toml"))


# -- errors ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["show", "mem_nothing"], "no memory 'mem_nothing'"),
        (["ask", "  "], "the question is empty"),
        (["ask", "x", "--as-of-said", "blursday"], "names no date"),
        (["diff", "--from", "-3"], "names no date"),
        (["edit", "mem_nothing", "--text", "x"], "no memory"),
        (["undo", "c99"], "no commit 'c99'"),
        (["import", "none.jsonl", "--user", "two"], "cannot be read"),
        (["import", "chat.txt", "--user", "two"], "line 1: not JSON"),
        (["import", "chat.txt"], "is not empty"),
        (["export", "chat.txt"], "--force replaces it"),
        (["export", "no/such/folder.jsonl"], "No such file"),
        (["export", "-o", "chat.txt"], "--force replaces it"),
        (["ingest", "none.txt"], "there is no such file"),
        (["ask", "x", "--design", "memory_r2"], "needs a language model"),
        (["search", "x", "--embedder", "hashing"], "memagent reembed"),
        (["list", "--path", "none.db"], "there is no memory at none.db"),
        (["undo", "--path", "none.db"], "there is no memory at none.db"),
        (["list", "--user", ""], "1 to 256 characters"),
    ],
)
def test_an_error_is_one_line_and_exit_code_1(
    store: Path, folder: Path, arguments: list[str], says: str
) -> None:
    assert says in error_of(run(*arguments))
    assert says in error_of(run(*arguments, "--json"))
    assert not (folder / "none.db").exists()


def test_an_unknown_format_names_those_that_are_read(store: Path) -> None:
    says = error_of(run("ingest", "chat.txt", "--format", "docx"))
    assert "'docx'" in says and "messages" in says and "locomo" in says


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["serach", "x"], "Did you mean 'search'"),
        (["ask"], "Missing argument"),
        (["list", "--limit", "0"], "--limit"),
        (["list", "--nope"], "No such option"),
        (["rm"], "give the ids"),
        (["rm", "--all", "--yes"], "--all needs --user"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    store: Path, arguments: list[str], says: str
) -> None:
    assert says in error_of(run(*arguments), code=2)
    assert says in error_of(run(*arguments, "--json"), code=2)


def test_a_traceback_is_for_verbose_only(store: Path) -> None:
    assert "Traceback" in run("show", "mem_nothing", "--verbose").stderr
    done = real("show", "mem_nothing", "--json")
    assert error_of(done) and json.loads(done.stdout)["error"]["type"] == "MemoryNotFound"


def test_output_may_be_cut_off(store: Path) -> None:
    command = f"{sys.executable} -m memagent.cli.app list | head -n 1"
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout.startswith("id") and done.stderr == ""


def test_readers_work_beside_a_writer_and_a_second_writer_is_told_of_it(store: Path) -> None:
    item = got(run("list", "--json"))[0]["id"]
    with closing(open_sqlite(store)):
        assert json.loads(real("list", "--json").stdout)
        message = error_of(real("edit", item, "--text", "x", "--json"))
        assert str(os.getpid()) in message
        assert got(run("doctor", "--json"))["store"]["writer"] == f"process {os.getpid()}"


# -- changing --------------------------------------------------------------------------


def test_rm_deletes_all_that_are_named_or_none(store: Path) -> None:
    ids = [item["id"] for item in got(run("list", "--json"))]
    assert "no memory" in error_of(run("rm", ids[0], "mem_nothing"))
    assert len(texts()) == 4
    assert len(got(run("rm", ids[0], ids[1][:12], ids[0], "--json"))["deleted"]) == 2
    assert len(texts()) == 2 and len(texts("--deleted")) == 4
    assert run("undo").exit_code == 0
    assert len(texts()) == 4


def test_rm_all_needs_an_answer(store: Path) -> None:
    assert "--yes" in error_of(run("rm", "--all", "--user", "default"))
    assert len(texts()) == 4
    assert len(got(run("rm", "--all", "--user", "default", "--yes", "--json"))["deleted"]) == 4
    assert texts() == []
    assert got(run("rm", "--all", "--user", "default", "--yes", "--json")) == {
        "commit": None,
        "deleted": [],
    }


def test_ids_may_be_shortened_while_they_are_clear(folder: Path) -> None:
    with Agent(path=folder / "store.db") as agent:
        for name in ("note-alpha-1", "note-alpha-2"):
            agent.memory.add(f"about {name}", id=name)
    path = ["--path", "store.db"]
    assert "begins the ids of 2 memories" in error_of(run("show", "note-alpha", *path))
    assert "no memory 'note-'" in error_of(run("show", "note-", *path))
    assert got(run("show", "note-alpha-1", "--json", *path))["item"]["text"] == "about note-alpha-1"


def test_a_lost_update_is_refused(store: Path) -> None:
    item = got(run("list", "--json"))[0]
    assert (
        got(run("edit", item["id"], "--text", "Ana has a cat.", "--version", "1", "--json"))[
            "version"
        ]
        == 2
    )
    failed = run("edit", item["id"], "--text", "Ana has a dog.", "--version", "1", "--json")
    assert json.loads(failed.stdout)["error"]["type"] == "VersionConflict"


def test_undo_takes_a_named_commit_and_can_be_undone(store: Path) -> None:
    item = got(run("list", "--json"))[0]["id"]
    first = got(run("edit", item, "--text", "Ana has a cat.", "--json"))
    undone = got(run("undo", first["op_id"].partition(".")[0], "--json"))
    assert "Ana has a cat." not in texts()
    got(run("undo", undone["id"], "--json"))
    assert "Ana has a cat." in texts()


def test_time_points_choose_what_counts(store: Path) -> None:
    def found(*arguments: str) -> set[str]:
        return {
            hit["item"]["id"] for hit in got(run("search", "Bolt", "-k", "9", "--json", *arguments))
        }

    assert len(found()) == 4
    assert len(found("--as-of-said", "8 May 2023")) == len(found("--as-of-said", "2023-05-07")) == 2
    assert found("--as-of-said", "2023-05-07T13:00") == found("--as-of-recorded", "0") == set()
    assert len(found("--as-of-recorded", "today")) == 4
    assert len(found("--as-of-valid", "6 May 2023")) == 1
    asked = got(run("ask", "What happened last week?", "--at", "27 May 2023", "--json"))[
        "question"
    ]["asked_at"]
    assert asked.startswith("2023-05-27")


def test_nothing_found_says_who_has_memories(store: Path) -> None:
    listed = run("list", "--user", "eve")
    assert listed.exit_code == 0 and "users of this store: default" in listed.stderr


# -- what is shown ---------------------------------------------------------------------


def test_stored_text_is_never_markup_nor_a_terminal_command(folder: Path) -> None:
    nasty = "[red]x[/red] [/] \x1b[2J\x1b]0;owned\x07 \u202eevil \x9b1m\rback"
    with Agent(path=folder / "store.db") as agent:
        item = agent.memory.add(nasty, id="nasty-item", speaker="[bold]\x1b[1m")
        agent.memory.update(item.id, nasty + "!")
    for arguments in (
        ["list"],
        ["show", "nasty-item"],
        ["history"],
        ["search", "x", "--why"],
        ["ask", "what is evil?"],
    ):
        shown = run(*arguments, "--path", "store.db")
        assert shown.exit_code == 0, shown.stderr
        assert "[red]x[/red]" in shown.stdout.replace("\n", "")
        assert not set(shown.stdout + shown.stderr) & {"\x1b", "\x07", "\u202e", "\x9b", "\r"}
    message = error_of(run("show", "\x1b[2Jnothing", "--path", "store.db"))
    assert "\x1b" not in message and "\\x1b" in message


def test_work_that_closes_standard_output_ends_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 1 of `mcp` closes it once its client has hung up."""
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert _execute(Options(), lambda: sys.stdout.close()) == 0

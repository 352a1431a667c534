"""What a stranger types wrong in the first hour gets one line of the house that says what to do."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from command_line_kit import moved_into, run

from environments import evaluate
from memagent import Agent, AsOf, ConfigError, Scope
from memagent.build import open_store
from memagent.cli.app import COMMANDS
from memagent.config import AgentSettings, load_settings
from memagent.core.errors import InputError, ModelError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return moved_into(tmp_path, monkeypatch)


WRONG: dict[str, tuple[Callable[[Agent], object], str]] = {
    "no question": (lambda agent: agent.ask(cast("Any", None)), "question is of type NoneType"),
    "no message": (lambda agent: agent.chat(cast("Any", 5)), "message is of type int"),
    "no query": (lambda agent: agent.memory.search(cast("Any", None)), "query is of type NoneType"),
    "no path": (lambda _: Agent(path=cast("Any", 5)).status(), "path is a int; give the path"),
    "no file": (lambda agent: agent.memory.export(cast("Any", None)), "path is a NoneType; give"),
    "no import": (lambda agent: agent.memory.import_(cast("Any", 5)), "path is a int; give"),
    "no page": (lambda agent: agent.memory.export_graph(cast("Any", 5)), "path is a int; give"),
    "no limit": (lambda agent: agent.memory.get_all(limit=cast("Any", "a")), "limit is a str"),
    "no list filter": (lambda agent: agent.memory.get_all(where=cast("Any", 5)), "where is a int"),
    "no filter": (lambda agent: agent.search("tea", where=cast("Any", 5)), "where is a int"),
    "no recipe": (lambda agent: agent.search("tea", recipe=cast("Any", 5)), "recipe is a int"),
    "no bound": (
        lambda agent: agent.search("tea", abstain_below=cast("Any", "a")),
        "abstain_below is a str; give a probability, 0 to 1",
    ),
    "no tokens": (lambda agent: agent.search("tea", max_tokens=cast("Any", "a")), "max_tokens is"),
    "no k": (lambda agent: agent.chat("hi", k=cast("Any", "a")), "k is a str; give a whole number"),
    "no rounds": (lambda agent: agent.chat("hi", max_tool_rounds=cast("Any", "a")), "rounds is a"),
    "no tools": (lambda agent: agent.chat("hi", tools=cast("Any", 5)), "tools is a int; give"),
    "no own tools": (lambda _: Agent(path=":memory:", tools=cast("Any", 5)), "tools is a int"),
    "no thread": (lambda _: Agent(path=":memory:", thread=cast("Any", 5)), "thread is a int"),
    "no id to get": (lambda agent: agent.memory.get(cast("Any", [])), "id of the memory is a list"),
    "no history": (lambda agent: agent.memory.history(cast("Any", {})), "memory is a dict; give a"),
    "no id to erase": (lambda agent: agent.memory.erase(cast("Any", [])), "memory is a list; give"),
    "no session": (lambda agent: agent.memory.erase_session(cast("Any", [])), "session is a list"),
    "no commit": (lambda agent: agent.memory.undo(cast("Any", [])), "id of the commit is a list"),
    "one text": (lambda agent: agent.memory.add_many("tea"), "one text; give a list of them"),
    "no texts": (lambda agent: agent.memory.add_many(cast("Any", 5)), "texts is a int; give a"),
    "no expiry": (
        lambda agent: agent.memory.add("tea", expires_at=cast("Any", 5)),
        "expires_at is a int; give a datetime",
    ),
    "no conversation": (lambda agent: agent.ask("tea?", thread=cast("Any", 5)), "thread is a int"),
    "no way to fail": (
        lambda agent: agent.remember("tea", on_error=cast("Any", "stop")),
        "on_error is 'stop'; give one of 'raise', 'keep'",
    ),
    "no date": (lambda agent: agent.memory.as_of("soon"), "no ISO date"),
    "no model": (lambda _: Agent(cast("Any", object()), path=":memory:"), "complete\\(request\\)"),
    "a URL": (lambda _: Agent(path="https://host/memory.db").status(), "is a URL; give a file"),
    "no scheme": (
        lambda _: Agent("openai/m", path=":memory:", base_url="localhost:80"),
        "must begin with http:// or https://",
    ),
    "no host": (
        lambda _: Agent("openai/m", path=":memory:", base_url="http://:80/v1"),
        "and a host, for example",
    ),
    "a port in letters": (
        lambda _: Agent("openai/m", path=":memory:", base_url="http://ana:hush@host:port"),
        r"'\*\*\*@host:port'",
    ),
}


@pytest.mark.parametrize(
    "url", ["http://localhost:80", "HTTPS://a.b/v1", "http://[::1]:8000/v1", "http://u:p@h:8/v1"]
)
def test_an_address_of_a_server_is_taken(url: str, folder: Path) -> None:
    Agent("openai/m", path=":memory:", base_url=url).close()


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_says_what_to_give_instead(name: str, folder: Path) -> None:
    call, says = WRONG[name]
    with Agent(path=":memory:") as agent, pytest.raises((InputError, ConfigError), match=says):
        call(agent)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("word", "meant"), [("user", "user_id"), ("db", "path"), ("desing", "design")]
)
def test_an_unknown_keyword_names_the_one_that_was_meant(word: str, meant: str) -> None:
    with pytest.raises(TypeError, match=f"'{word}'; did you mean '{meant}'"):
        Agent(**cast("Any", {word: "ana"}))


def test_a_command_that_there_is_not_names_the_one_that_was_meant(folder: Path) -> None:
    told = run("delete", "mem_a")
    assert (told.exit_code, told.stderr.strip()) == (
        2,
        "memagent: No such command 'delete'. Did you mean 'rm'? (see: memagent --help)",
    )


def test_a_question_without_quotes_is_told_to_take_some(folder: Path) -> None:
    told = run("ask", "Where", "do", "I", "live?")
    assert told.exit_code == 2
    assert "put words that belong together in quotes" in told.stderr


def test_a_folder_is_no_store_and_a_missing_file_is_told_in_a_short_line(folder: Path) -> None:
    told = run("ask", "--db", str(folder), "Where do I live?")
    assert told.stderr.strip() == f"memagent: {folder} is a folder; name a file in it"
    told = run("ingest", "none.txt")
    assert "there is no such file" in told.stderr
    assert "WhatsApp, Telegram, Signal, ChatGPT or Claude" in told.stderr
    assert len(told.stderr) < 400


def test_a_models_failure_is_kept_in_the_report_only_where_that_is_asked_for() -> None:
    nobody = "http://127.0.0.1:9/v1"
    with Agent("openai/m", path=":memory:", base_url=nobody, api_key="none") as agent:
        with pytest.raises(ModelError):
            agent.remember("I live in Lisbon.", session_id="a", on_error="raise")
        assert agent.remember("I have a dog.", session_id="b", on_error="keep").failed_chunks


def test_a_date_will_do_where_a_point_in_time_is_asked_for() -> None:
    with Agent(path=":memory:") as agent:
        agent.remember("I live in Lisbon.", at="2024-01-05")
        agent.remember("My dog is called Rex.", at="2024-03-05")
        february = agent.memory.as_of("2024-02-01")
        same = agent.memory.as_of(AsOf(said=datetime(2024, 2, 1, 23, tzinfo=UTC)))
        texts = [item.text for item in february.get_all()]
        assert texts == [item.text for item in same.get_all()] == ["I live in Lisbon."]
        assert agent.memory.search("dog Rex", as_of="2024-02-01") == agent.memory.search(
            "dog Rex", as_of=AsOf(said=datetime(2024, 2, 1, 23, 59, 59, 999_999, tzinfo=UTC))
        )


def test_a_piped_chat_whose_model_fails_exits_with_1(folder: Path) -> None:
    told = run("chat", "--db", "c.db", "--model", "openai/m", says="hello\n")
    assert told.exit_code == 1
    assert "OPENAI_API_KEY" in told.stderr
    assert run("chat", "--db", "d.db", says="I live in Lisbon.\n").exit_code == 0


def test_a_question_that_is_too_long_is_told_in_characters(folder: Path) -> None:
    run("ingest", "none", "--db", "c.db")
    with Agent(path="c.db") as agent:
        agent.remember("I live in Lisbon.")
    told = run("ask", "--db", "c.db", "word " * 5_000)
    assert told.exit_code == 1
    assert told.stderr.strip() == (
        "memagent: the question has 25,000 characters; ask with at most 20,000"
    )


def test_a_base_url_has_one_name_and_its_earlier_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "http://127.0.0.1:9/v1"
    for name in ("base_url", "api_base"):
        Path("some.toml").write_text(f'[model]\nmodel = "openai/m"\n{name} = "{url}"\n')
        settings = load_settings(Path("some.toml"))
        assert settings.model is not None
        assert settings.model.base_url == url
        assert AgentSettings.model_validate(settings.model_dump()) == settings
    monkeypatch.setenv("MEMAGENT_MODEL__BASE_URL", "http://127.0.0.1:8/v1")
    from_variable = load_settings(Path("some.toml")).model
    assert from_variable is not None
    assert from_variable.base_url == "http://127.0.0.1:8/v1"


def test_the_command_line_and_a_store_take_the_address_of_a_server(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    nobody = "http://127.0.0.1:9/v1"
    told = run("chat", "--db", "c.db", "--model", "openai/m", "--base-url", nobody, says="hi\n")
    assert "no server answers at 127.0.0.1:9" in told.stderr
    told = run("ask", "--db", "c.db", "--base-url", nobody, "hi")
    assert "--base-url needs a model" in told.stderr
    store = open_store(path=":memory:")
    with pytest.raises(ConfigError, match="http://"):
        store.agent(Scope(user_id="ana"), model="openai/m", base_url="localhost")


def test_the_help_shows_the_commands_in_panels(folder: Path) -> None:
    lines = run("--help").stdout.splitlines()
    panels = [line.split("─ ")[1].split(" ─")[0] for line in lines if line.startswith("╭")]
    assert panels[1:] == [
        "Start",
        "Remember and ask",
        "Change and look back",
        "Learn from tasks",
        "Move and keep",
    ]
    listed = {line.split()[1] for line in lines if line.startswith("│ ") and line[2] != " "}
    assert {*COMMANDS, "keys"} <= listed


def test_an_unknown_command_of_the_evaluation_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["memagent-eval", "nope"])
    with pytest.raises(SystemExit) as stopped:
        evaluate.main()
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("memagent-eval: No such command 'nope'")

"""Heads of `learned` fitted to a user's corrections, and to the decisions of a model."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scripted_server import Reply, ScriptedServer
from typer.testing import CliRunner

from memagent import Agent
from memagent.core.errors import ConfigError
from memagent.core.records import Session, Turn
from memagent.designs.learned import fitted
from memagent.designs.parts.learned.heads import open_heads
from train.learned.adapt.heads import Heads, save_heads
from train.run.command import app

pytestmark = pytest.mark.torch
START = datetime(2024, 3, 1, 12, tzinfo=UTC)
TOWNS = "Quorbal Vestrin Almira Tandor Ruvika Sempel Orlit Fenwy Zubrin Kaltas Mirov Pelda".split()
THINGS = "kettle lamp scarf drill bucket mirror pillow ladder cushion teapot basket hammer".split()


def session(number: int, *texts: str) -> Session:
    return Session(
        id=f"S{number}",
        at=START + timedelta(days=7 * number),
        turns=tuple(
            Turn(id=f"D{number}:{place}", speaker="Zarina", text=text)
            for place, text in enumerate(texts, start=1)
        ),
    )


def stating(number: int) -> Session:
    """Return a session of one purchase and one trip."""
    thing, town = THINGS[number], TOWNS[number]
    return session(number, f"I bought a {thing} last Friday.", f"I spent a week in {town}.")


def kept(agent: Agent) -> list[str]:
    return [item.text for item in agent.snapshot().items.values() if item.active]


def corrected_store(path: Path, *, sessions: int) -> None:
    """Write a store whose user deletes every purchase that was remembered."""
    with Agent(design="learned", path=path) as agent:
        for number in range(sessions):
            agent.remember(stating(number))
            for item in list(agent.snapshot().items.values()):
                if item.active and "bought" in item.text:
                    agent.memory.delete(item.id)


def run(*arguments: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_heads_learn_what_a_user_deletes_and_leave_the_store_as_it_is(tmp_path: Path) -> None:
    store, heads = tmp_path / "m.db", tmp_path / "m.npz"
    corrected_store(store, sessions=9)
    before = store.read_bytes()
    report = run("tune", str(store), "--out", str(heads))
    assert store.read_bytes() == before
    assert report["accepted"], report
    assert report["corrected"] == 9
    own = report["held_out"]
    assert own["corrected"]["before"] < 0.5 < own["corrected"]["after"], report
    assert own["others"] == {"decisions": 3, "before": 1.0, "after": 1.0}
    for design, purchases in (("learned", 1), (fitted(heads), 0)):
        with Agent(design=design, path=":memory:") as agent:
            agent.remember(stating(11))
            texts = kept(agent)
            assert sum("bought" in text for text in texts) == purchases, texts
            assert any(TOWNS[11] in text for text in texts), texts


def test_an_update_that_the_user_took_back_is_not_made_again(tmp_path: Path) -> None:
    store = tmp_path / "m.db"
    with Agent(design="learned", path=store) as agent:
        for number in range(0, 12, 2):
            old, new = TOWNS[number], TOWNS[number + 1]
            name = THINGS[number].capitalize()
            agent.remember(session(2 * number, f"My friend {name} lives in {old}."))
            agent.remember(session(2 * number + 1, f"{name} moved to {new} last week."))
            items = agent.snapshot().items.values()
            if any(item.version > 1 and new in item.text for item in items):
                agent.memory.undo()
    report = run("tune", str(store), "--out", str(tmp_path / "h.npz"))
    assert report["corrected"] >= 4
    own = report["held_out"]["corrected"]
    assert own["after"] >= own["before"]


def test_too_few_corrections_and_damaged_heads_are_refused(tmp_path: Path) -> None:
    store = tmp_path / "m.db"
    corrected_store(store, sessions=2)
    with pytest.raises(ConfigError, match="at least 4 are needed"):
        CliRunner().invoke(app, ["tune", str(store)], catch_exceptions=False)
    with pytest.raises(ConfigError, match="no store"):
        CliRunner().invoke(app, ["tune", str(tmp_path / "none.db")], catch_exceptions=False)
    broken = tmp_path / "h.npz"
    broken.write_bytes(b"PK")
    with pytest.raises(ConfigError, match="cannot be read"):
        fitted(broken)
    with pytest.raises(ConfigError, match="cannot be read"):
        fitted(tmp_path / "none.npz")
    np.savez(broken, shipped=np.array("other"))
    with pytest.raises(ConfigError, match="other weights"):
        fitted(broken)


def test_heads_that_were_fitted_again_are_read_again(tmp_path: Path) -> None:
    path, heads = tmp_path / "h.npz", Heads()
    save_heads(path, heads)
    first = open_heads(path)
    assert open_heads(path) is first
    with torch.no_grad():
        heads.worth.bias.fill_(3.0)
    save_heads(path, heads)
    again = open_heads(path)
    assert again.digest != first.digest
    assert float(again.weights["worth.bias"][0]) == 3.0


def test_heads_learn_the_decisions_of_a_model_over_http(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The teacher keeps nothing of what was heard of others, and sometimes rambles."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    asked: list[str] = []

    def reply(body: Any, index: int) -> Reply:
        text = str(body["messages"][-1]["content"])
        asked.append(text)
        if index % 9 == 8:
            return Reply(text="That is a hard one.")
        speaker, _, said = text.rpartition("New statement by ")[2].partition(": ")
        assert speaker
        return Reply(text="ADD" if said.startswith(("I ", "My ", "I'")) else "SKIP")

    heads = tmp_path / "d.npz"
    with ScriptedServer(reply) as server:
        report = run(
            "distil", "--model", "openai/teacher", "--base-url", server.url,
            "--episodes", "2", "--out", str(heads),
        )  # fmt: skip
    assert len(asked) == report["decisions"] + report["unreadable"]
    assert report["unreadable"] == len(asked) // 9
    own = report["held_out"]
    assert own["agrees_after"] > own["agrees_before"] + 0.1, report
    fitted(heads)

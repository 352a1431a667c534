"""A store that an earlier version wrote is read by this one: same digest, same texts, same
answers, same past, and it takes new writes.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from crash_child import CRASH_POINTS, CrashServer
from journal_kit import read_all
from places import ROOT
from typer.testing import CliRunner

from memagent import Agent
from memagent.core.errors import MemAgentError, StoreCorrupt, StoreError
from memagent.core.records import Scope
from memagent.core.snapshot import StatsDelta
from memagent.journal.rows import first_chain, next_chain, payload_digest, scope_digest, scope_key
from memagent.journal.sqlite import SqlJournal

OLDER = Path(__file__).parent / "older"
VERSIONS = sorted(path.name for path in OLDER.iterdir())


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "older_store", ROOT / "scripts" / "older_store.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["older_store"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(params=VERSIONS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the store of one version, since opening a store may write to it."""
    return Path(shutil.copytree(OLDER / request.param, tmp_path / request.param))


def expected(store: Path) -> dict[str, Any]:
    return json.loads((store / "facts.json").read_text(encoding="utf-8"))


def test_everything_is_read_as_it_was_written(store: Path) -> None:
    facts = expected(store)
    with Agent(path=store / "store.db", user_id="ana", embedder="hashing") as agent:
        read = script().facts_of(agent)
        for (text, quotes), (older, cited) in zip(read["answers"], facts["answers"], strict=True):
            # Later rules may say the answer before the sentence that they quote.
            assert quotes == cited and text.endswith(older), (text, older)
        for name in read.keys() - {"answers"}:
            assert read[name] == facts[name], name
        versions = [entry.item.text for entry in agent.memory.history(facts["door"]) if entry.item]
        assert versions == ["The green door sticks", "The green door was mended"]
        agent.memory.add("Written by a later version")
        agent.memory.undo()
        assert agent.memory.snapshot().digest == facts["digest"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_a_kill_while_an_older_store_is_opened_and_written_loses_nothing(
    store: Path, tmp_path: Path
) -> None:
    """At each point the store is left as it was, or with what the killed process wrote."""
    facts, killed = expected(store), 0
    points = [name for name in CRASH_POINTS if not name.startswith("erase.")][::2]
    untouched = Path(shutil.copytree(store, tmp_path / "untouched")) / "store.db"
    with Agent(path=untouched, user_id="ana", embedder="hashing") as agent:
        older = {session.id for session in agent.memory.sessions()}
    with CrashServer("bank_workloads") as server:
        for point in points:
            path = Path(shutil.copytree(store, tmp_path / point)) / "store.db"
            death = server.run("bank_workloads:remember_one", point=point, path=str(path))
            assert not death.trace, death.trace
            killed += death.killed
            with Agent(path=path, user_id="ana", embedder="hashing") as agent:
                sessions = {session.id: session for session in agent.memory.sessions()}
                new = sessions.keys() - older
                assert len(new) <= 1 and (new or death.killed), point
                agent.resume()
                for session_id in new:
                    agent.memory.erase_session(session_id)
                texts = [item.text for item in agent.memory.get_all()]
                assert sorted(texts) == sorted(facts["texts"]), point
    assert killed >= 4


def test_an_older_export_is_imported(store: Path, tmp_path: Path) -> None:
    with Agent(path=tmp_path / "new.db", user_id="ana", embedder="hashing") as agent:
        agent.memory.import_(store / "export.jsonl")
        assert agent.memory.snapshot().digest == expected(store)["digest"]


def test_keys_of_an_older_service_are_known(store: Path) -> None:
    from memagent.cli.app import app

    done = CliRunner().invoke(app, ["keys", "list", "--path", str(store / "store.db"), "--json"])
    assert done.exit_code == 0, done.output
    assert expected(store)["key"] in done.stdout


def test_a_changed_byte_is_not_read_in_silence(store: Path) -> None:
    lines = (store / "export.jsonl").read_text(encoding="utf-8").replace("viola", "piano")
    (store / "export.jsonl").write_text(lines, encoding="utf-8")
    with (
        Agent(path=":memory:", user_id="ana", embedder="hashing") as agent,
        pytest.raises(MemAgentError, match="cut short or altered"),
    ):
        agent.memory.import_(store / "export.jsonl")


@pytest.mark.parametrize("newer", ["format", "kind", "field"])
def test_a_newer_store_is_called_newer_and_not_corrupt(tmp_path: Path, newer: str) -> None:
    path, scope = tmp_path / "j.db", Scope(user_id="ann")
    with SqlJournal(path) as journal:
        asyncio.run(journal.append(scope, StatsDelta(), expect=0))
    with closing(sqlite3.connect(path)) as database:
        if newer == "format":
            database.execute("UPDATE meta SET value = 'memagent-journal/2'")
        else:
            (salt, body) = database.execute("SELECT salt, body FROM payloads").fetchone()
            entry = json.loads(body) | ({"kind": "dream"} if newer == "kind" else {"mood": 1})
            body = json.dumps(entry).encode()
            digest = payload_digest(salt, body)
            kind, at = database.execute("SELECT kind, recorded_us FROM journal").fetchone()
            first = first_chain(scope_digest(scope_key(scope)))
            chain = next_chain(first, seq=1, kind=kind, recorded_us=at, digest=digest)
            database.execute("UPDATE payloads SET body = ?", (body,))
            database.execute("UPDATE journal SET payload_digest = ?, chain = ?", (digest, chain))
            database.execute("UPDATE scopes SET chain = ?", (chain,))
        database.commit()
    path.with_name("j.db.tips").unlink()

    def read() -> None:
        with SqlJournal(path, read_only=True) as journal:
            asyncio.run(read_all(journal, scope))

    with pytest.raises(StoreError, match="was written by a newer memagent") as refused:
        read()
    assert not isinstance(refused.value, StoreCorrupt)

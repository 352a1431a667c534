"""A store that an earlier version wrote is read by this one: same digest, same texts, same
answers, same past, and it takes new writes.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from places import ROOT
from typer.testing import CliRunner

from memagent import Agent
from memagent.core.errors import MemAgentError

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

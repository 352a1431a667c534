"""The example of an outside package: designs and an environment, installed and found by name."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from places import ROOT
from training_run_kit import written

from environments.checker import check_environment
from memagent.core.errors import ConfigError
from memagent.testing import ScriptedModel, check_design
from train.settings.run import load_run

EXAMPLE = ROOT / "examples" / "custom_design"
SCRIPT = """
from memagent import Agent

with Agent(path=":memory:", user_id="ana", design="diary") as agent:
    words = "I painted the fence. Nice weather today! Do you like green?"
    agent.remember([{"name": "Ana", "content": words}])
    print([item.text for item in agent.memory.get_all()])
    print(agent.ask("What did Ana paint?").citations[0].quote)
"""


LEARN = """
from memagent import Agent
from memagent.extend import TrialStep

with Agent(path=":memory:", user_id="ana", design="habits", embedder="hashing") as agent:
    agent.memory.add_many(["the cabinet opens with force", "the cabinet opens with the key"])
    key = [item.id for item in agent.memory.get_all() if "key" in item.text][0]
    for _ in range(2):
        agent.report(agent.recall("open the cabinet"), 1.0, credit={key: 1.0})
    print(agent.snapshot().stats[key].q_value, agent.recall("open the cabinet").hits[0].id == key)
with Agent(path=":memory:", user_id="ana", design="last_words", embedder="hashing") as agent:
    trial = agent.recall("walk").trial
    for number in range(30):
        step = TrialStep(action=f"step {number}", observation="on you go")
        trial = agent.compact(trial.with_step(step))
    print(len(agent.report(trial, 1.0).trial.edits))
"""
KIND = 'kind = "inventory"\n\n[agent]\nanswering = "policy"\ndesign = "{design}"'
TRAIN = """
from pathlib import Path
from train.settings.world import open_environment
from train.settings.run import load_run
import sys
settings = load_run(Path(sys.argv[1]))
env = open_environment(settings.environment, sessions=3)
print(env.name, sum(1 for _ in env.episodes("train")), settings.agent.design)
"""


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Run Python with the example installed by pip in a folder of its own."""
    folder = tmp_path_factory.mktemp("outside")
    pip = ["-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target"]
    built = subprocess.run(
        [sys.executable, *pip, str(folder / "installed"), str(EXAMPLE)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    path = {"PYTHONPATH": str(folder / "installed"), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, **path},
            cwd=folder,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    return run


def test_the_package_installs_and_is_found_by_name(outside: Callable[..., str]) -> None:
    kept, quote = outside("-c", SCRIPT).splitlines()
    assert kept == "['Ana: I painted the fence.']"
    assert "I painted the fence." in quote


def test_its_other_designs_learn_and_keep_a_workspace(outside: Callable[..., str]) -> None:
    learned, edits = outside("-c", LEARN).splitlines()
    assert learned == "0.75 True"
    assert int(edits) >= 5


def test_evaluation_and_command_line_find_them_by_name(outside: Callable[..., str]) -> None:
    words = ("play", "inventory", "--design", "habits", "--count", "4", "--json")
    told = json.loads(outside("-m", "environments.evaluate", *words))
    assert told["arms"]["habits"]["reward"] > 0.3 and told["arms"]["habits"]["questions"] >= 4
    words = ("play", "tiny_shop", "--design", "last_words", "--design", "habits", "--json")
    arms = json.loads(outside("-m", "environments.evaluate", *words))["arms"]
    assert list(arms) == ["oracle", "no memory", "last_words", "habits"]
    outside("-c", "from memagent import Agent; Agent(path='m.db', embedder='hashing').close()")
    place = ("--path", "m.db", "--embedder", "hashing", "--design", "habits", "--json")
    begun = json.loads(outside("-m", "memagent.cli.app", "recall", "open the door", *place))
    done = json.loads(
        outside("-m", "memagent.cli.app", "report", begun["trial"]["id"], "1", *place)
    )
    assert done["lesson"]["changes"], "the design of the outside package wrote its case"


@pytest.mark.parametrize("design", ["diary", "habits", "last_words"])
def test_training_takes_environment_and_designs_by_name(
    outside: Callable[..., str], tmp_path: Path, design: str
) -> None:
    """A run file names them; without the package the same file is refused."""
    settings = written(tmp_path, replace=[("turns = 4", KIND.format(design=design))])
    assert outside("-c", TRAIN, str(settings)).split() == ["inventory", "8", design]
    with pytest.raises(ConfigError, match=f"{design}|inventory"):
        load_run(settings)


def test_the_package_has_three_designs_and_one_environment() -> None:
    with (EXAMPLE / "pyproject.toml").open("rb") as file:
        declared = tomllib.load(file)["project"]["entry-points"]
    assert sorted(declared["memagent.designs"]) == ["diary", "habits", "last_words"]
    assert list(declared["memagent.environments"]) == ["inventory"]


@pytest.mark.parametrize("module", ["", ".habits", ".last_words"])
async def test_they_keep_the_promises_of_a_design(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    design = import_module(f"memagent_diary{module}").DESIGN
    await check_design(design, lambda: ScriptedModel([]))


def test_it_keeps_the_promises_of_an_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    check_environment(import_module("memagent_diary.inventory").Inventory())


def test_the_example_imports_nothing_of_the_package_but_extend() -> None:
    """What an outside design needs stands in `memagent.extend`."""
    for file in (ROOT / "examples" / "custom_design").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("memagent."):
                assert node.module == "memagent.extend", f"{file.name} imports {node.module}"
            if isinstance(node, ast.Import):
                assert not any(name.name.startswith("memagent") for name in node.names)

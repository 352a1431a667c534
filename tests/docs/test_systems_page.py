"""The page of systems is true: each name, command and check on it exists, and none is missing."""

from __future__ import annotations

import ast
import re
import shlex
from functools import cache
from itertools import pairwise

import pytest
from places import ROOT
from typer.main import get_command

from environments.evaluate import app as eval_app
from memagent.cli.app import app
from memagent.plugins import available
from train.run.command import app as train_app

PAGE = ROOT / "docs" / "research" / "systems.md"
CHECKS = ROOT / "docs" / "contributing" / "index.md"
GROUPS = ("designs", "environments", "tasks", "techniques")
PROGRAMS = {"memagent": app, "memagent-eval": eval_app, "memagent-train": train_app}
NAMED_IN_THE_PLAN = """Memory-R1 Memory-R2 LoGo-GRPO CompassMem Memory-T1 MemRL ExpRAG ReMem
Evo-Memory ACE Notebook AgentFly Mem-alpha MEM1 IterResearch Delethink Memo HiAgent MemAct DCPO
MAP RAFA HCAM Observational Semantic AOI Mem0 MemoryOS MemAgent ALFWorld WebShop TCP MTR
MemoryAgentBench SORT Time-Dialog LoCoMo LongMemEval GRPO LOOP RLOO TreePS-RAG DARS Knapsack VADE
Dynamic EchoRL DGG D3S FAPO LUSPO""".split()


def rows(text: str) -> list[list[str]]:
    """The cells of every table row but heads."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if row[0] not in ("system", "claim", "way to cheat", "repair")
            and not row[0].startswith("---")]  # fmt: skip


ROWS = rows(PAGE.read_text("utf-8"))
KNOWN = {name for group in GROUPS for name in available(group)}


@cache
def names_of_tests(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in tree.body if isinstance(node, functions)}


def checks_in(cell: str) -> list[str]:
    return re.findall(r"`(tests/[^`]+)`", cell)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_row_names_what_there_is(row: list[str]) -> None:
    assert len(row) == 6, row
    system, _, names, command, checks, state = row
    assert state.split(";")[0].split(":")[0].split()[0] in ("works", "partial", "not"), system
    if state.startswith("not built"):
        assert len(state) > len("not built: ")
        return
    assert state.startswith(("works", "partial: "))
    listed = re.findall(r"`(\w+)`", names)
    assert set(listed) <= KNOWN, set(listed) - KNOWN
    assert_there_is(command.strip("`"))
    assert checks_in(checks), f"{system} has no check"
    for check in checks_in(checks):
        assert_checked(check)


def assert_checked(check: str) -> None:
    path, _, name = check.partition("::")
    found = names_of_tests(path)
    assert name.startswith("test_") or name == "*"
    assert (name in found) if name != "*" else any(each.startswith("test_") for each in found), (
        f"{path} has no test {name}"
    )


def assert_there_is(command: str) -> None:
    words = shlex.split(command)
    if words[0] == "python":
        assert (ROOT / words[1]).is_file(), command
        return
    commands = getattr(get_command(PROGRAMS[words[0]]), "commands", {})
    assert words[1] in commands, command
    for flag, name in pairwise(words):
        assert flag != "--design" or name in available("designs")
    if words[1] == "play":
        assert words[2] in {*available("tasks"), *available("environments")}


def test_no_system_of_the_plan_and_no_name_of_the_package_is_missing() -> None:
    systems = " ".join(row[0] for row in ROWS)
    words = set(re.findall(r"[\w-]+", systems))
    assert not set(NAMED_IN_THE_PLAN) - words
    listed = {name for row in ROWS for name in re.findall(r"`(\w+)`", row[2])}
    assert not KNOWN - listed, "each shipped name has its row"


def test_every_check_of_experience_exists() -> None:
    page = CHECKS.read_text("utf-8")
    text = page.partition("\n## Checks of learning")[2].partition("\n## ")[0]
    checks = checks_in(text)
    assert len(checks) > 30
    for check in checks:
        assert_checked(check)
    for script in re.findall(r"`(?:python )?((?:scripts|benchmarks|docs)/[\w/.-]+)", text):
        assert (ROOT / script).exists(), script

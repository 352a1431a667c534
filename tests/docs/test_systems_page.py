"""The page of systems is true: each name, command and check on it exists, and none is missing."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import shlex
import sys
import tomllib
from functools import cache
from itertools import pairwise
from pathlib import Path

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
    assert state.split(";")[0].split(":")[0].split()[0] in ("works", "partial", "open", "not"), (
        system
    )
    if state.startswith("not built"):
        assert len(state) > len("not built: ")
        return
    assert state.startswith(("works", "partial: ", "open: "))
    listed = re.findall(r"`(\w+)`", names)
    assert set(listed) <= KNOWN, set(listed) - KNOWN
    assert_there_is(command.strip("`"))
    assert checks_in(checks), f"{system} has no check"
    for check in checks_in(checks):
        assert_checked(check)


SPEC = importlib.util.spec_from_file_location("systems_page", ROOT / "scripts" / "systems_page.py")
assert SPEC and SPEC.loader
script = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)


def test_the_page_is_what_its_checks_came_to(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["systems_page.py", "--check"])
    assert script.main() == 0, capsys.readouterr().out


@pytest.mark.parametrize("came", ["failed", "was skipped", None])
def test_a_row_whose_check_did_not_pass_is_open(came: str | None) -> None:
    text = PAGE.read_text("utf-8")
    outcomes = json.loads(script.OUTCOMES.read_text("utf-8"))
    row = next(row for row in ROWS if row[5].startswith("works"))
    check = script.checks_of(row[4])[0]
    others = {name: outcome for name, outcome in outcomes.items() if name != check}
    page = script.page_of(text, others if came is None else others | {check: came})
    assert page != text
    [state] = [cells[5] for cells in rows(page) if cells[0] == row[0]]
    assert state.startswith(f"open: `{check.rpartition('::')[2]}` {came or 'did not run'}; works")
    assert script.page_of(page, outcomes) == text, "passing again, it works again"


def test_the_worst_case_of_a_check_counts(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    report.write_text(
        """<testsuites><testsuite>
        <testcase classname="tests.unit.test_a" name="test_b[x]"/>
        <testcase classname="tests.unit.test_a" name="test_b[y]"><failure/></testcase>
        <testcase classname="tests.unit.test_a" name="test_c"/>
        <testcase classname="tests.unit.test_d" name="test_e"><skipped/></testcase>
        </testsuite></testsuites>"""
    )
    cases = script.cases_of(report)
    came = {
        check: script.outcome(check, cases)
        for check in (
            "tests/unit/test_a.py::test_b",
            "tests/unit/test_a.py::test_c",
            "tests/unit/test_a.py::*",
            "tests/unit/test_d.py::test_e",
            "tests/unit/test_d.py::test_f",
        )
    }
    assert list(came.values()) == ["failed", "passed", "failed", "was skipped", "did not run"]


def test_at_least_fifteen_faults_are_for_the_kit_to_notice_and_each_can_be_put_in() -> None:
    table = ROOT / "tests" / "data" / "technique_faults.toml"
    faults = tomllib.loads(table.read_text("utf-8"))["fault"]
    assert len({fault["what"] for fault in faults}) >= 15
    for fault in faults:
        text = (ROOT / fault["file"]).read_text("utf-8")
        assert text.count(fault["mended"]) == 1, fault["what"]
        for check in fault["tests"]:
            assert_checked(check.partition("[")[0])


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

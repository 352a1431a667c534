"""The code in the documents runs and prints what they show, and the examples run."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import httpx
import pytest
from doc_pages import Outcome, blocks_of, comparable, played
from docs_model import docs_model
from first_tasks import results
from patience import patience_s
from places import ROOT
from scripted_server import ScriptedServer
from typer.main import get_command

from environments.evaluate import app as eval_app
from memagent.cli.app import app
from memagent.config import load_settings
from train.run.command import app as train_app

pytestmark = pytest.mark.timeout(500)  # the first test waits for the code of all pages
TEN_MINUTES_S = 600
TOML = re.compile(r"^```toml[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELL = re.compile(r"^```(?:sh|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)

PAGES = [
    page.relative_to(ROOT).as_posix()
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if page.name != "command-line.md" and blocks_of(page.read_text(encoding="utf-8"))
]
"""Pages with code that runs; the page on the command line has a test of its own."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """What the code of every page prints; a stand-in answers for hosted models."""
    pages = {name: (ROOT / name).read_text(encoding="utf-8") for name in PAGES}
    with ScriptedServer(docs_model) as server:
        return played(pages, tmp_path_factory.mktemp("pages"), model_url=server.url)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_shows_what_its_code_prints(name: str, outcomes: dict[str, Outcome]) -> None:
    outcome = outcomes[name]
    assert outcome.fault == ""
    blocks = blocks_of((ROOT / name).read_text(encoding="utf-8"))
    for block, printed in zip(blocks, outcome.outputs, strict=True):
        assert comparable(printed) == comparable(block.output), (
            f"{name}:{block.line}: read it, then PYTHONPATH=tests/kits python "
            f"tests/kits/doc_pages.py {name}"
        )


def test_twelve_first_tasks_end_as_the_pages_say(outcomes: dict[str, Outcome]) -> None:
    ended = list(results(outcomes))
    assert len(ended) == 12
    assert [result.task.aim for result in ended if not result.as_shown] == []
    assert sum(result.seconds for result in ended) < patience_s(TEN_MINUTES_S)


def test_only_code_that_needs_a_trained_model_or_a_part_of_yours_does_not_run() -> None:
    marked = [
        page.name
        for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
        for _ in re.findall(r"^```python notest$", page.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert marked == ["extending.md", "training.md", "training.md"]


def test_settings_on_the_pages_are_read(tmp_path: Path) -> None:
    read = 0
    for page in sorted((ROOT / "docs").rglob("*.md")):
        for text in TOML.findall(page.read_text(encoding="utf-8")):
            tomllib.loads(text)
            if page.name in {"quickstart.md", "retrieval.md", "scaling.md"}:
                settings = tmp_path / f"{read}.toml"
                settings.write_text(text, encoding="utf-8")
                load_settings(settings)
                read += 1
    assert read >= 4


def test_commands_in_shell_blocks_exist() -> None:
    groups: dict[str, Any] = {
        "memagent": get_command(app),
        "memagent-eval": get_command(eval_app),
        "memagent-train": get_command(train_app),
    }
    commands = [
        (page.name, shlex.split(command, comments=True))
        for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
        for block in SHELL.findall(page.read_text(encoding="utf-8"))
        for command in re.split(r"\n|\s(?:&&|\|)\s", re.sub(r"\\\n\s*", " ", block))
        if command.startswith("memagent") and "#" not in command.partition(" ")[0]
    ]
    assert len(commands) > 20
    for page, words in commands:
        options = [word.partition("=")[0] for word in words if word.startswith("--")]
        group = groups[words[0]]
        if len(words) > 1 and words[1] in group.commands:
            known = {name for one in group.commands[words[1]].params for name in one.opts}
            assert set(options) <= known | {"--help"}, f"{page}: {' '.join(words)}"
        else:
            assert (words[0] == "memagent-train" and words[1].endswith(".toml")) or options, (
                f"{page}: there is no such command: {' '.join(words)}"
            )


def test_the_parts_of_the_page_on_extending_work_in_an_outside_folder(tmp_path: Path) -> None:
    page = (ROOT / "docs/contributing/extending.md").read_text(encoding="utf-8")
    files = dict(re.findall(r'^```python title="([^"]+)"\n(.*?)^```', page, re.M | re.S))
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "use.py").write_text(
        "from by_range import by_range\nassert by_range([0, 1, 2]) == [-0.5, 0, 0.5]\n"
        "assert by_range([1, 1]) == [0, 0]\n",
        encoding="utf-8",
    )
    printed: dict[str, str] = {}
    for name in ("try_it.py", "check_it.py", "use.py"):
        done = subprocess.run(
            [sys.executable, "-W", "error", name],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        printed[name] = done.stdout
    quoted = [line for line in printed["try_it.py"].splitlines() if '"' in line]
    assert quoted[0].endswith('"I keep the spare key in the shed."')
    assert "keeps the laws" in printed["check_it.py"]


@pytest.mark.parametrize("name", ["quickstart.py", "demo.py"])
def test_examples_run(name: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / name)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "abstain" in done.stdout.lower() or "nothing" in done.stdout.lower()


def test_the_chat_program_of_the_readme_runs_with_each_of_its_second_lines(tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    program = re.findall(r'^```python title="chat.py"\n(.*?)^```', readme, re.M | re.S)[0]
    others = re.findall(r"^with Agent\(.* as agent:", readme, re.MULTILINE)
    assert len(others) == 5  # the program's, three others, and that of the next section
    with ScriptedServer(docs_model) as server:
        for line in [*others[:1], *others[2:4]]:
            known = line.replace("http://127.0.0.1:8000/v1", server.url)
            known = known.replace("ana", f"ana{others.index(line)}").replace("NAME", "gpt-4o-mini")
            (tmp_path / "chat.py").write_text(program.replace(others[0], known), encoding="utf-8")
            done = subprocess.run(
                [sys.executable, "-W", "error::UserWarning", "chat.py"],
                input="Rex is allergic to chicken, my vet says.\nWhat can I feed Rex?\n\n",
                capture_output=True,
                text=True,
                timeout=120,
                cwd=tmp_path,
                env={
                    **os.environ,
                    "XDG_DATA_HOME": str(tmp_path),
                    "OPENAI_API_KEY": "a-key",
                    "OPENAI_BASE_URL": server.url,
                },
                check=False,
            )
            assert done.returncode == 0, done.stderr
            assert "chicken" in done.stdout, done.stdout


def test_the_demo_gives_eight_right_answers_and_no_doubts(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(ROOT / "examples/demo.py")]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=True
    )
    answers = re.findall(r">>> agent\.(?:ask|memory\.history)\(.*\n {4}(.*)", done.stdout)
    assert answers == [
        "Lisbon. (supported)",
        "Porto. (supported)",
        "30 May 2026. (supported)",
        "Lisbon. (supported)",
        "version 1: I live in Lisbon.",
        "Nothing in memory answers this. (abstained)",
        '- user said on 12 January 2026: "My dog Rex is allergic to chicken." (supported)',
        "Lisbon. (supported)",
    ]
    assert "Not sure" not in done.stdout and "No language model" not in done.stdout
    assert float(re.findall(r"in ([\d.]+) s", done.stdout)[-1]) < patience_s(20)


def test_links_between_documents_lead_somewhere() -> None:
    front = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    pages = [*front, *sorted((ROOT / "docs").rglob("*.md"))]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), (
                f"{page.name} links to {target}, which does not exist"
            )


def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path) -> None:
    notebook = json.loads((ROOT / "examples/tour.ipynb").read_text(encoding="utf-8"))
    assert all(not cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code")
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    (tmp_path / "cells.py").write_text("\n".join(cells), encoding="utf-8")
    command = [sys.executable, "-W", "error", "cells.py"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "3 March 2024" in done.stdout and "undo Ana's favourite colour is green" in done.stdout


def test_the_chat_app_answers_from_what_a_user_said(tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(ROOT / "examples/chat_app.py"),
        "--db",
        str(tmp_path / "chat.db"),
        "--port",
        "0",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        try:
            assert process.stderr is not None
            line = next(line for line in process.stderr if "running on" in line)
            url = line.split("running on ")[1].split()[0]
            with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
                assert "Chat with memory" in client.get("/").text
                said = [
                    {"user": "ana", "text": "I adopted a grey cat called Bolt."},
                    {"user": "ana", "text": "What is my cat called?"},
                ]
                told = [client.post("/say", json=one) for one in said]
                assert [one.status_code for one in told] == [200, 200]
                assert any("Bolt" in quote for quote in told[1].json()["quotes"])
                assert (
                    client.post(
                        "/say", json={"user": "ben", "text": "What is my cat called?"}
                    ).json()["quotes"]
                    == []
                )
                assert client.post("/say", json={"user": "", "text": "x"}).status_code == 422
        finally:
            process.terminate()
            process.wait(30)

"""The code in the documents runs: README and quickstart, top to bottom, and the examples."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from places import ROOT

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "docs/quickstart.md",
        "docs/how-to.md",
        "docs/environments.md",
        "docs/event-graph.md",
        "docs/retrieval.md",
    ],
)
def test_python_blocks_run(name: str, tmp_path: Path) -> None:
    blocks = BLOCK.findall((ROOT / name).read_text(encoding="utf-8"))
    assert blocks
    script = tmp_path / "blocks.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


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
    assert printed["try_it.py"].splitlines()[0].endswith('"I keep the spare key in the shed."')
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

"""The examples of the pages about integrations run."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT

NEEDS_MCP = pytest.mark.skipif(
    importlib.util.find_spec("mcp") is None, reason='needs pip install "memagent[mcp]"'
)


def run(script: Path, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "langgraph_agent.py",
            "My dog Rex is allergic to chicken.\nThe graph's store holds 2 notes.",
        ),
        pytest.param(
            "mcp_client.py",
            'allergic to chicken" (supported)\nafter an undo: 1 memory',
            marks=NEEDS_MCP,
        ),
        ("shop_agent.py", "first 20 tasks: 15 solved\nlast 20 tasks: 20 solved"),
        pytest.param("langgraph_mcp.py", "first 7: 3 solved, last 7: 7 solved", marks=NEEDS_MCP),
        (
            "mem0_drop_in.py",
            "UPDATE: Ana prefers tea -> Ana prefers coffee\nfound, said on 2024-03-04: My dog Rex",
        ),
    ],
)
def test_examples_run(name: str, says: str, tmp_path: Path) -> None:
    script = ROOT / "examples" / name
    assert len(script.read_text(encoding="utf-8").splitlines()) < 60
    assert says in run(script, tmp_path)

"""What the documents show runs: every Python block of README and quickstart, top to bottom, and the example scripts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "name",
    ["README.md", "docs/quickstart.md", "docs/environments.md", "docs/event-graph.md", "docs/retrieval.md"],
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
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which does not exist"

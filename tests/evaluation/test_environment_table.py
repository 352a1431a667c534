"""`scripts/environment_table.py` plays every generated environment and renews the table of a page."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from places import ROOT

SCRIPT = ROOT / "scripts" / "environment_table.py"


def test_the_table_of_a_page_is_renewed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "before\n<!-- environments -->\nold\n<!-- /environments -->\nafter\n", encoding="utf-8"
    )
    small = [
        "--level",
        "tiny",
        "--episodes",
        "1",
        "--seeds",
        "0",
        "--only",
        "rewrite",
        "task_stream",
    ]
    subprocess.run(
        [sys.executable, str(SCRIPT), *small, "--into", str(page)], check=True, timeout=100
    )
    text = page.read_text(encoding="utf-8")
    assert text.startswith(
        "before\n<!-- environments -->\nLevel tiny, test split, 1 episodes of each of the seeds 0,"
    )
    assert text.endswith("<!-- /environments -->\nafter\n") and "old" not in text
    rows = {
        line.split("|")[1].strip(): line.split("|")[2:-1]
        for line in text.splitlines()
        if line.startswith("| `")
    }
    assert list(rows) == ["`rewrite`", "`task_stream`"]
    empty, oracle, first, adding, last, _, verbatim, _ = (
        cell.strip() for cell in rows["`rewrite`"]
    )
    assert (empty, oracle, first, adding, last) == (
        "0.00",
        "1.00",
        "0.00",
        "0.40",
        "1.00",
    ) and "R@5" in verbatim
    assert "Slope of success along `task_stream`: `empty` 0.00, `oracle` " in text
    page.write_text("no marks\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *small[:6], "--only", "rewrite", "--into", str(page)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode != 0 and "<!-- environments -->" in done.stderr

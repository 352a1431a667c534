"""`scripts/recall_table.py` writes a report's recall between a page's marks, as Markdown."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from benchmark_files import write_locomo
from places import ROOT
from typer.testing import CliRunner

from environments.evaluate import app

SCRIPT = ROOT / "scripts" / "recall_table.py"


def test_the_tables_of_a_report_renew_those_of_a_page(tmp_path: Path) -> None:
    words = [
        "locomo",
        str(write_locomo(tmp_path / "data")),
        "--arms",
        "bm25,add_only,oracle",
        "--out",
        str(tmp_path),
    ]
    assert CliRunner().invoke(app, words).exit_code == 0
    page = tmp_path / "page.md"
    page.write_text(
        "before\n<!-- recall one -->\nold\n<!-- /recall one -->\nafter\n", encoding="utf-8"
    )
    command = [
        sys.executable,
        str(SCRIPT),
        str(tmp_path / "report.json"),
        "--into",
        str(page),
        "--name",
    ]
    for _ in range(2):
        subprocess.run([*command, "one"], check=True, timeout=60)
    text = page.read_text(encoding="utf-8")
    assert text.startswith(
        "before\n<!-- recall one -->\nlocomo, 2 conversations, no model, embedder static"
    )
    assert (
        text.endswith("<!-- /recall one -->\nafter\n")
        and "old" not in text
        and text.count("conv-26 by itself:") == 1
    )
    assert "| @5/10/30 | 1 (n=2) | 2 (n=1) | 3 (n=1) | 4 (n=2) | 5 (n=2) | answerable |" in text
    assert (
        "| `oracle` | 1.000 / 1.000 / 1.000 |" in text
        and "add_only ran model-free, as append_turns" in text
    )
    done = subprocess.run(
        [*command, "two"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode != 0 and "<!-- recall two -->" in done.stderr

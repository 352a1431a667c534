"""The lines that pages about clients show run, against a local server in place of OpenAI's."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT
from service_kit import serving

from memagent.testing import FunctionModel
from memagent.testing.server import Reply, ScriptedServer

PAGES = sorted((ROOT / "docs" / "integrations").glob("*.md"))
BLOCK = re.compile(r"^```python requires=(\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
QUIET = {
    "OPENAI_API_KEY": "none",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "OTEL_SDK_DISABLED": "true",
    "CREWAI_TRACING_ENABLED": "false",
}


def found(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_lines_of_a_page_run(page: Path, tmp_path: Path) -> None:
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    if not blocks:
        assert page.stem in ("index", "co-installation", "langgraph-store-tests")
        return
    [(needs, code)] = blocks
    missing = [name for name in needs.split(",") if not found(name)]
    if missing:
        pytest.skip(f"{page.name} needs {', '.join(missing)}")
    assert len(code.strip().splitlines()) <= 20
    with (
        ScriptedServer(lambda *_: Reply(text="Rex.")) as provider,
        serving(model=FunctionModel(lambda _: "Rex."), design="verbatim") as running,
    ):
        script = tmp_path / "page.py"
        script.write_text(f"SERVICE = {running.url!r}\n{code}", encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(script)],
            capture_output=True,
            text=True,
            timeout=110,
            cwd=tmp_path,
            env={**os.environ, **QUIET, "OPENAI_BASE_URL": provider.url},
            check=False,
        )
    assert done.returncode == 0, done.stderr[-2000:]
    expected = "earned" if page.stem in ("openenv", "trl") else "Rex"
    assert expected in done.stdout or page.stem == "google-adk", done.stdout

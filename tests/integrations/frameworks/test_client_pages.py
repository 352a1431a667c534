"""The lines that pages about clients show run, against a local server in place of OpenAI's."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT
from scripted_server import Reply, ScriptedServer
from service_kit import serving

from memagent.testing import FunctionModel

PAGE = ROOT / "docs" / "integrations" / "index.md"
SECTIONS = {
    re.sub(r"\W+", "-", title.lower()).strip("-"): text
    for title, text in re.findall(
        r"^## (.*)\n((?:(?!## ).*\n?)*)", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    if " requires=" in text
}
BLOCK = re.compile(r"^```(python|js) requires=(\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
NODE = ROOT / "clients" / "typescript"
QUIET = {
    "OPENAI_API_KEY": "none",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "OTEL_SDK_DISABLED": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}


def found(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def found_by_node(name: str) -> bool:
    """Say whether npm has installed a package; our own has to be built."""
    built = NODE / "dist" / "index.js" if name == "memagent" else NODE / "node_modules" / name
    return shutil.which("node") is not None and built.exists()


@pytest.mark.parametrize("section", SECTIONS)
def test_the_lines_of_a_page_run(section: str, tmp_path: Path) -> None:
    [(language, needs, code)] = BLOCK.findall(SECTIONS[section])
    there = found if language == "python" else found_by_node
    missing = [name for name in needs.split(",") if not there(name)]
    if missing:
        pytest.skip(f"{section} needs {', '.join(missing)}")
    assert len(code.strip().splitlines()) <= 20
    with (
        ScriptedServer(lambda *_: Reply(text="Rex.")) as provider,
        serving(model=FunctionModel(lambda _: "Rex."), design="verbatim") as running,
    ):
        script = tmp_path / "page.py"
        command = [sys.executable, str(script)]
        if language == "js":  # beside the packages that it imports
            script = NODE / "dist" / f"page-{section}.mjs"
            script.parent.mkdir(exist_ok=True)
            command = ["node", str(script)]
        said = "const SERVICE" if language == "js" else "SERVICE"
        script.write_text(f"{said} = {running.url!r}\n{code}", encoding="utf-8")
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=110,
            cwd=tmp_path,
            env={**os.environ, **QUIET, "OPENAI_BASE_URL": provider.url},
            check=False,
        )
    assert done.returncode == 0, done.stderr[-2000:]
    expected = "earned" if section in ("openenv", "trl") else "Rex"
    assert expected in done.stdout or section == "google-adk", done.stdout

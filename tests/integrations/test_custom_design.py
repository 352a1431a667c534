"""The example of a design in a package of its own: it installs and is used by name."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

from places import ROOT

from memagent.testing import ScriptedModel, check_design

EXAMPLE = ROOT / "examples" / "custom_design"
SCRIPT = """
from memagent import Agent

with Agent(path=":memory:", user_id="ana", design="diary") as agent:
    words = "I painted the fence. Nice weather today! Do you like green?"
    agent.remember([{"name": "Ana", "content": words}])
    print([item.text for item in agent.memory.get_all()])
    print(agent.ask("What did Ana paint?").citations[0].quote)
"""


def test_the_package_installs_and_is_found_by_name(tmp_path: Path) -> None:
    target = tmp_path / "installed"
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--target",
        str(target),
    ]
    built = subprocess.run(
        [*pip, str(EXAMPLE)], capture_output=True, text=True, timeout=120, check=False
    )
    assert built.returncode == 0, built.stderr
    environment = {**os.environ, "PYTHONPATH": str(target), "PYTHONDONTWRITEBYTECODE": "1"}
    run = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(
        run, capture_output=True, text=True, timeout=120, check=False, env=environment, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    kept, quote = done.stdout.strip().splitlines()
    assert kept == "['Ana: I painted the fence.']"
    assert "I painted the fence." in quote


async def test_it_keeps_the_promises_of_a_design(monkeypatch: object) -> None:
    sys.path.insert(0, str(EXAMPLE))
    try:
        from memagent_diary import DESIGN  # pyright: ignore[reportMissingImports, reportUnknownVariableType]

        await check_design(DESIGN, lambda: ScriptedModel([]))  # pyright: ignore[reportUnknownArgumentType]
    finally:
        sys.path.remove(str(EXAMPLE))


def test_the_example_imports_nothing_of_the_package_but_extend() -> None:
    """What an outside design needs stands in `memagent.extend`."""
    for file in (ROOT / "examples" / "custom_design").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("memagent."):
                assert node.module == "memagent.extend", f"{file.name} imports {node.module}"
            if isinstance(node, ast.Import):
                assert not any(name.name.startswith("memagent") for name in node.names)

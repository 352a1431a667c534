"""The page on the service says what is true: its curl blocks run top to bottom, its
tables are complete, the example runs.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT
from service_kit import serving

from memagent.client.http import FAULTS, HTTP_CODES
from memagent.config import ServiceSettings

PAGE = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")


@pytest.mark.skipif(
    not (shutil.which("curl") and shutil.which("bash")), reason="needs bash and curl"
)
def test_the_walk_through_the_verbs_runs(tmp_path: Path) -> None:
    script = "\n".join(
        ["set -eo pipefail", *re.findall(r"^```bash\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)]
    )
    with serving(tmp_path / "memory.db") as running:
        environment = {"URL": running.url, "PATH": "/usr/local/bin:/usr/bin:/bin", "no_proxy": "*"}
        done = subprocess.run(
            ["bash", "-c", script],
            capture_output=True,
            text=True,
            timeout=100,
            cwd=tmp_path,
            env=environment,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr
    assert "application/problem+json" not in done.stdout and '"code"' not in done.stdout.replace(
        '"code":null', ""
    )
    assert "event: answer" in done.stdout and "chat.completion" in done.stdout


def test_the_tables_are_complete() -> None:
    assert [
        code for code in [*HTTP_CODES, *(fault.code for fault in FAULTS)] if f"`{code}`" not in PAGE
    ] == []
    assert [name for name in ServiceSettings.model_fields if f"`{name}`" not in PAGE] == []


def test_the_example_runs(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / "rest_client.py")]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (
        "refused:" in done.stdout and "nothing: abstained" in done.stdout and "vet" in done.stdout
    )

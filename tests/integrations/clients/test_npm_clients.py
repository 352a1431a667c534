"""The TypeScript client, and the checks of `docs/integrations/checks.md` that run under
node, against `memagent serve`. Needs `npm ci` in `clients/typescript`; skipped without.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from client_ground import Ground, client_ground
from litellm_marks import LITELLM_MARKS
from places import ROOT

FOLDER = ROOT / "clients" / "typescript"
PAGE = ROOT / "docs" / "integrations" / "checks.md"
NAMES = re.findall(r'^  "(.* \| .*)": async', (FOLDER / "test/checks.mjs").read_text(), re.M)
MAJORS = ("newest", "before")
"""Of the packages openai and ai; there is one of Anthropic's."""
RUNS = [
    (majors, name)
    for majors in MAJORS
    for name in NAMES
    if majors == "newest" or not name.startswith("anthropic")
]
NEEDS_NODE = pytest.mark.skipif(
    shutil.which("node") is None or not (FOLDER / "node_modules").is_dir(),
    reason="needs node, and `npm ci` in clients/typescript",
)
pytestmark = [pytest.mark.process, *LITELLM_MARKS]


def node(ground: Ground, *words: str, majors: str = "newest") -> subprocess.CompletedProcess[str]:
    own = {"MEMAGENT_URL": ground.url, "MEMAGENT_CLIENTS": majors}
    return subprocess.run(
        ["node", *words],
        capture_output=True,
        text=True,
        timeout=110,
        cwd=FOLDER,
        env={**os.environ, **own, "AI_SDK_LOG_WARNINGS": "false"},
        check=False,
    )


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with client_ground(tmp_path_factory.mktemp("clients")) as running:
        yield running


Faults = dict[tuple[str, str], str | None]


@pytest.fixture(scope="module")
def faults(ground: Ground) -> Faults:
    found: Faults = {}
    for majors in MAJORS:
        done = node(ground, "test/checks.mjs", majors=majors)
        assert done.returncode == 0, done.stderr
        for line in map(json.loads, done.stdout.splitlines()):
            found[majors, line["name"]] = line["fault"]
    return found


@NEEDS_NODE
@pytest.mark.parametrize(("majors", "name"), RUNS)
def test_a_stock_client_is_at_home(majors: str, name: str, faults: Faults) -> None:
    assert faults[majors, name] is None, faults[majors, name]


@NEEDS_NODE
@pytest.mark.timeout(300)
def test_the_typescript_client_is_built_from_the_document_and_works(ground: Ground) -> None:
    npm = shutil.which("npm")
    assert npm is not None
    built = subprocess.run(
        [npm, "run", "build"], capture_output=True, text=True, cwd=FOLDER, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    done = node(ground, "--test", "test/client.test.mjs")
    assert done.returncode == 0, done.stdout[-3000:]
    assert "# pass 7" in done.stdout


def test_the_page_lists_these_checks() -> None:
    rows = re.findall(r"^\| \d+ \| (\S+) \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.M)
    assert rows[-len(NAMES) :] == [tuple(name.split(" | ")) for name in NAMES]


def test_only_sources_are_kept(tmp_path: Path) -> None:
    kept = subprocess.run(
        ["git", "ls-files", "clients"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    if kept.returncode:
        pytest.skip("not a checkout")
    assert not re.search(r"node_modules|/dist/|schema\.ts", kept.stdout)

"""Check that memagent's extras install beside agent frameworks, and write the table.

For each framework, pip resolves it alone and beside memagent's requirements, in a dry
run from nothing. It fails where the framework beside memagent is older than alone.

python scripts/co_installation.py                     # prints the table
python scripts/co_installation.py --write             # writes docs/integrations/co-installation.md
python scripts/co_installation.py crewai openai-agents
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "integrations" / "co-installation.md"
EXTRAS = ("mcp", "client", "service", "qdrant", "postgres")
FRAMEWORKS = (
    "langchain",
    "langchain-mcp-adapters",
    "deepagents",
    "openai-agents",
    "pydantic-ai",
    "llama-index-core",
    "autogen-core",
    "crewai",
    "google-adk",
    "strands-agents",
    "litellm[proxy]",
    "verifiers",
)
HEADER = """# Beside other frameworks

`python scripts/co_installation.py --write` makes this table: for each framework, pip
resolves it alone and beside `memagent[{extras}]`, in a dry run from nothing on Python
{python}. *Before* is the same with the requirement `mcp>=2.3`, as memagent had it until
its MCP server learned version 1.

| framework | alone | beside memagent | mcp | before | verdict |
| --- | --- | --- | --- | --- | --- |
"""


def requirements(extras: Sequence[str]) -> list[str]:
    """Return what memagent and its extras require."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    return [*project["dependencies"], *(line for extra in extras for line in optional[extra])]


def resolved(wanted: Sequence[str], pip: Sequence[str]) -> dict[str, str]:
    """Return the versions that pip would install, by name; empty where it finds none."""
    command = [*pip, "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-"]
    done = subprocess.run([*command, *wanted], capture_output=True, text=True, check=False)
    if done.returncode:
        return {}
    rows = json.loads(done.stdout)["install"]
    return {row["metadata"]["name"].lower(): row["metadata"]["version"] for row in rows}


def row_of(framework: str, pip: Sequence[str]) -> tuple[str, bool]:
    """Return a framework's line of the table, and whether it keeps its version."""
    name = framework.partition("[")[0]
    ours = requirements(EXTRAS)
    before = [line if not line.startswith("mcp") else "mcp>=2.3,<3" for line in ours]
    alone = resolved([framework], pip).get(name, "none")
    beside = resolved([framework, *ours], pip)
    version, was = beside.get(name, "none"), resolved([framework, *before], pip).get(name, "none")
    good = version == alone != "none"
    verdict = "same" if good else "differs"
    mcp = beside.get("mcp", "-")
    return f"| {framework} | {alone} | {version} | {mcp} | {was} | {verdict} |", good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("frameworks", nargs="*", default=FRAMEWORKS)
    parser.add_argument("--write", action="store_true", help="write the page")
    parser.add_argument("--pip", default=f"{sys.executable} -m pip", help="the pip to ask")
    chosen = parser.parse_args()
    python = ".".join(map(str, sys.version_info[:2]))
    text = HEADER.format(extras=",".join(EXTRAS), python=python)
    kept = True
    for framework in chosen.frameworks:
        line, good = row_of(framework, chosen.pip.split())
        kept = kept and good
        text += f"{line}\n"
        print(line, flush=True)
    if chosen.write:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(text, encoding="utf-8")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())

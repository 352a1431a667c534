"""Check that memagent's extras install beside agent frameworks, and write the table.

For each framework, uv or pip resolves it alone and beside memagent's requirements, in a
dry run from nothing. It fails where the newest version does not go with memagent's.

python scripts/co_installation.py                     # prints the table
python scripts/co_installation.py --quick             # less of it, in a third of the time
python scripts/co_installation.py --write             # into docs/integrations/checks.md
python scripts/co_installation.py crewai openai-agents
python scripts/co_installation.py --vllm              # whether memagent[train,vllm] resolves
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from math import inf
from pathlib import Path
from time import monotonic

from framework_tests import ROOT, find_uv
from pages import write_part

PAGE = ROOT / "docs" / "integrations" / "checks.md"
PYTHON = "3.11"
EXTRAS = ("mcp", "client", "service", "qdrant", "postgres")
FRAMEWORKS = (
    "langchain",
    "langchain-mcp-adapters",
    "deepagents",
    "openai-agents",
    "pydantic-ai",
    "llama-index-core",
    "autogen-core",
    "agent-framework-core",
    "crewai",
    "google-adk",
    "strands-agents",
    "litellm[proxy]",
    "verifiers",
    "openenv-core",
    "trl",
)
HEADER = """`python scripts/co_installation.py --write` makes this table: for each framework, uv (or
pip, in a dry run) resolves it alone and beside memagent with the extras
{extras},
from nothing, for Python {python}. *When pinned* means that the newest version installs
if you name it; left alone, the resolver prefers a newer `mcp`. *Before* is the same with
the requirement `mcp>=2.3`, as memagent had it until its MCP server learned version 1.

| framework | alone | beside memagent | mcp | before | verdict |
| --- | --- | --- | --- | --- | --- |
"""


def requirements(extras: Sequence[str]) -> list[str]:
    """Return what memagent and its extras require."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    return [*project["dependencies"], *(line for extra in extras for line in optional[extra])]


def resolved(
    wanted: Sequence[str], resolver: Sequence[str], *, seconds: float | None = None
) -> dict[str, str]:
    """Return the versions that would be installed, by name; empty where there are none."""
    text = "\n".join(wanted)
    if Path(resolver[0]).name == "uv":
        options = ["pip", "compile", "-", "--quiet", "--no-header", "--no-annotate"]
        done = _run([*resolver, *options, "--python-version", PYTHON], text, seconds)
        pins = (line.partition("==") for line in done.splitlines() if "==" in line)
        return {name.partition("[")[0].lower(): rest.split()[0] for name, _, rest in pins}
    options = ["install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-"]
    found = _run([*resolver, *options, *wanted], "", seconds)
    rows = json.loads(found or '{"install": []}')["install"]
    return {row["metadata"]["name"].lower(): row["metadata"]["version"] for row in rows}


def reachable(resolver: Sequence[str]) -> bool:
    """Tell whether the package index answers within a minute."""
    try:
        return bool(resolved(["packaging"], resolver, seconds=60))
    except subprocess.TimeoutExpired:
        return False


def _run(command: Sequence[str], text: str, seconds: float | None) -> str:
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, check=False, timeout=seconds
    )
    if done.returncode:
        print(done.stderr.strip()[-300:], file=sys.stderr)
    return done.stdout if done.returncode == 0 else ""


def quick_row(framework: str, resolver: Sequence[str]) -> tuple[str, bool]:
    """Return a framework's versions alone and beside memagent, and whether the first goes.

    A framework that cannot be resolved alone says nothing about memagent.
    """
    name = framework.partition("[")[0]
    ours = requirements(EXTRAS)
    alone = resolved([framework], resolver).get(name)
    if alone is None:
        return f"| {framework} | not checked: it cannot be resolved alone | |", True
    beside = resolved([f"{framework}=={alone}", *ours], resolver)
    return f"| {framework} | {alone} | {beside.get(name, 'none')} |", name in beside


def row_of(framework: str, resolver: Sequence[str]) -> tuple[str, bool]:
    """Return a framework's line of the table, and whether it keeps its version."""
    name = framework.partition("[")[0]
    ours = requirements(EXTRAS)
    before = [line if not line.startswith("mcp") else "mcp>=2.3,<3" for line in ours]
    alone = resolved([framework], resolver).get(name, "none")
    beside = resolved([framework, *ours], resolver)
    version = beside.get(name, "none")
    was = resolved([framework, *before], resolver).get(name, "none")
    pinned = version == alone or resolved([f"{framework}=={alone}", *ours], resolver)
    verdict = "same" if version == alone else "when pinned" if pinned else "older"
    mcp = beside.get("mcp", "-")
    return f"| {framework} | {alone} | {version} | {mcp} | {was} | {verdict} |", bool(pinned)


def vllm_row(resolver: Sequence[str], seconds: float) -> tuple[str, bool]:
    """Return the versions that `memagent[train,vllm]` resolves to, and whether it does.

    A resolver that takes longer says nothing.
    """
    extras = [line for line in requirements(("train", "vllm")) if "memagent[" not in line]
    try:
        found = resolved([*extras, *requirements(("dates",))], resolver, seconds=seconds)
    except subprocess.TimeoutExpired:
        return "memagent[train,vllm]: not checked: out of time", True
    names = ("vllm", "transformers", "trl", "torch")
    versions = ", ".join(f"{name} {found[name]}" for name in names if name in found)
    return f"memagent[train,vllm]: {versions or 'cannot be resolved'}", "vllm" in found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("frameworks", nargs="*", default=FRAMEWORKS)
    parser.add_argument("--write", action="store_true", help="write the page")
    parser.add_argument("--quick", action="store_true", help="only whether the newest goes")
    parser.add_argument("--seconds", type=float, default=inf, help="begin none after so many")
    pip = find_uv() or f"{sys.executable} -m pip"
    parser.add_argument("--resolver", default=pip, help="uv, which is fast, or a pip to ask")
    parser.add_argument("--vllm", action="store_true", help="only whether the extra vllm resolves")
    chosen = parser.parse_args()
    resolver, began = chosen.resolver.split(), monotonic()
    if not reachable(resolver):
        print("skipped: the package index cannot be reached")
        return 0
    if chosen.vllm:
        line, good = vllm_row(resolver, min(chosen.seconds, 3_600.0))
        print(line)
        return 0 if good else 1
    text = HEADER.format(extras=", ".join(f"`{extra}`" for extra in EXTRAS), python=PYTHON)
    kept = True
    for framework in chosen.frameworks:
        if monotonic() - began > chosen.seconds:
            print(f"| {framework} | not checked: out of time | |")
            continue
        line, good = (quick_row if chosen.quick else row_of)(framework, resolver)
        kept = kept and good
        text += f"{line}\n"
        print(line, flush=True)
    if chosen.write:
        write_part(PAGE, "beside", text)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())

"""Run the tests of each framework's adapter in an environment of its own.

Frameworks pin versions that do not go together, so one environment cannot hold them
all. An environment is made by `venv` and pip, or by uv where it is installed, and kept
for the next run.

python scripts/framework_tests.py                 # all of them
python scripts/framework_tests.py crewai mcp-1    # some
python scripts/framework_tests.py --renew crewai  # write down today's newest versions first
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = "tests/integrations/frameworks"
PINS = ROOT / FOLDER / "pins"
PAGES = f"{FOLDER}/test_client_pages.py::test_the_lines_of_a_page_run"
CONTRACTS = f"{FOLDER}/test_contracts.py"
CLIENTS = "tests/integrations/clients"
TOOLS = ("pytest", "pytest-timeout", "hypothesis", "anyio", "openai")
ENVIRONMENTS = {
    "langchain": (
        (
            *("langchain", "langchain-openai", "langgraph-cli[inmem]", "litellm>=1.106,<2"),
            *("openai>=3", "anthropic>=2"),
        ),
        (
            f"{FOLDER}/test_langchain.py",
            CONTRACTS,
            f"{FOLDER}/test_langgraph_dev.py",
            f"{PAGES}[langchain]",
            f"{PAGES}[chatopenai]",
            f"{CLIENTS}/test_openai_clients.py",
            f"{CLIENTS}/test_anthropic_clients.py",
        ),
    ),
    "openai-agents": (
        ("openai-agents",),
        (f"{FOLDER}/test_openai_agents.py", CONTRACTS, f"{PAGES}[openai-agents-sdk]"),
    ),
    "pydantic-ai": (
        ("pydantic-ai-slim[openai]",),
        (f"{FOLDER}/test_pydantic_ai.py", CONTRACTS, f"{PAGES}[pydanticai]"),
    ),
    "llama-index": (
        ("llama-index-core",),
        (f"{FOLDER}/test_llama_index.py", CONTRACTS, f"{PAGES}[llamaindex]"),
    ),
    "autogen": (
        ("autogen-core", "autogen-agentchat"),
        (f"{FOLDER}/test_autogen.py", CONTRACTS, f"{PAGES}[autogen]"),
    ),
    "agent-framework": (
        ("agent-framework-core",),
        (f"{FOLDER}/test_agent_framework.py", CONTRACTS, f"{PAGES}[agent-framework]"),
    ),
    "crewai": (("crewai",), (f"{FOLDER}/test_crewai.py", CONTRACTS, f"{PAGES}[crewai]")),
    "google-adk": (
        ("google-adk",),
        (f"{FOLDER}/test_google_adk.py", CONTRACTS, f"{PAGES}[google-adk]"),
    ),
    "verifiers": (
        ("verifiers>=0.4,<0.5", "gymnasium", "uv"),
        (
            f"{FOLDER}/test_verifiers.py",
            f"{FOLDER}/test_verifiers_traces.py",
            f"{PAGES}[verifiers]",
        ),
    ),
    "openenv": (("openenv-core", "gymnasium"), (f"{FOLDER}/test_openenv.py", f"{PAGES}[openenv]")),
    "mem0": (("mem0ai",), ("tests/integrations/test_mem0_differential.py",)),
    "mcp-1": (("mcp<2",), ("tests/integrations/test_mcp_versions.py",)),
}


def find_uv() -> str | None:
    """Return uv beside this Python or on the path."""
    beside = str(Path(sys.executable).parent)
    return shutil.which("uv", path=os.pathsep.join((beside, os.environ.get("PATH", ""))))


def renew(name: str, packages: tuple[str, ...]) -> None:
    """Write down the newest versions that go together with memagent; needs uv."""
    tool = [find_uv() or "uv", "pip", "compile", "-q", "--no-header", "--no-annotate"]
    extras = ["--extra", "client", "--extra", "service", "--python-version", "3.11"]
    done = subprocess.run(
        [*tool, *extras, "pyproject.toml", "-"],
        input="\n".join([*TOOLS, *packages]),
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        check=True,
    )
    (PINS / f"{name}.txt").write_text(done.stdout, encoding="utf-8")


def environment(name: str, packages: tuple[str, ...], folder: Path) -> Path:
    """Make the environment of a framework, or bring it up to date; return its Python."""
    place = folder / name
    python = place / "bin" / "python"
    pins = ["-c", str(PINS / f"{name}.txt")]
    wanted = [*pins, "-e", f"{ROOT}[client,service]", *TOOLS, *packages]
    uv = find_uv()
    if not python.exists():
        made = [uv, "venv", "-q"] if uv else [sys.executable, "-m", "venv"]
        subprocess.run([*made, str(place)], check=True)
    pip = (
        [uv, "pip", "install", "-q", "--python", str(python)]
        if uv
        else [str(python), "-m", "pip", "install", "-q"]
    )
    own = {**os.environ, "PIP_CONSTRAINT": ""}  # make's pins are for the other environment
    subprocess.run([*pip, *wanted], check=True, env=own)
    return python


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", default=list(ENVIRONMENTS))
    parser.add_argument("--folder", type=Path, default=ROOT / ".venv" / "frameworks")
    parser.add_argument("--renew", action="store_true", help="write down the newest versions")
    chosen = parser.parse_args()
    failed: list[str] = []
    for name in chosen.names:
        packages, tests = ENVIRONMENTS[name]
        if chosen.renew:
            renew(name, packages)
        python = environment(name, packages, chosen.folder)
        print(f"== {name}", flush=True)
        tools = os.pathsep.join((str(python.parent), os.environ.get("PATH", "")))
        done = subprocess.run(
            [python, "-m", "pytest", "-q", *tests],
            cwd=ROOT,
            env={**os.environ, "PATH": tools},
            check=False,
        )
        failed += [name] if done.returncode else []
    print(f"failed: {', '.join(failed)}" if failed else "all passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

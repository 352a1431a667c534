"""Run LangGraph's own store tests on memagent's store, and write the table.

The tests are read from a checkout of langgraph, unchanged, into a folder that is thrown
away; `tests/kits/langgraph_swap.py` puts memagent's store in the place of theirs. Those
of PostgresStore run on a PostgreSQL of their own. It fails where a test fails without a
reason in `langgraph_store_reasons.toml`, or passes although there is one.

git clone --depth 1 https://github.com/langchain-ai/langgraph
python scripts/langgraph_store_tests.py langgraph            # prints the table
python scripts/langgraph_store_tests.py langgraph --write    # writes the page
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from framework_tests import ROOT, environment
from pages import write_part

TESTS = {
    "checkpoint": ("test_store.py",),
    "checkpoint-sqlite": ("test_store.py", "test_async_store.py", "test_ttl.py"),
    "checkpoint-postgres": ("test_store.py", "test_async_store.py"),
}
PACKAGES = (
    *("langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres", "psycopg[binary,pool]"),
    *("pytest-asyncio", "pytest-mock", "pytest-retry"),
)
KITS = ROOT / "tests" / "kits"
REASONS = Path(__file__).with_name("langgraph_store_reasons.toml")
PAGE = ROOT / "docs" / "integrations" / "checks.md"
HEADER = """`python scripts/langgraph_store_tests.py CHECKOUT --write` runs the store tests of
LangGraph's repository on `MemoryStore` and writes this section. The tests are theirs,
unchanged; `tests/kits/langgraph_swap.py` opens a memory where they open a store: in
memory, in a file, or in a PostgreSQL database. It fails where a case fails without a
reason. Commit {commit}, with
{versions}.

| tests | cases | pass | of these with our store | do not pass |
| --- | --- | --- | --- | --- |
"""


@dataclass(frozen=True)
class Outcome:
    """A case of a test: its name, whether it passed, and whether it opened our store."""

    name: str
    passed: bool
    ours: bool
    message: str


def read_tests(checkout: Path, folder: Path) -> str:
    """Copy the libraries' tests out of the last commit and return its name."""
    git = ["git", "-C", str(checkout)]
    paths = [f"libs/{library}/tests" for library in TESTS]
    files = subprocess.run([*git, "archive", "HEAD", *paths], check=True, stdout=subprocess.PIPE)
    subprocess.run(["tar", "x", "-C", str(folder)], input=files.stdout, check=True)
    commit = [*git, "log", "-1", "--format=%h of %cs"]
    return subprocess.run(commit, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def name_database(conftest: Path, url: str) -> None:
    """Let the tests of PostgresStore use the database of a URL."""
    place, _, query = url.partition("?")
    named = f"{place}?{query.replace('/', '%2F')}"  # the tests cut the URL at its slashes
    text = conftest.read_text(encoding="utf-8")
    text = re.sub(r"^DEFAULT_URI = .*$", lambda _: f"DEFAULT_URI = {named!r}", text, flags=re.M)
    conftest.write_text(text, encoding="utf-8")


def run_tests(library: str, folder: Path, python: Path, options: Sequence[str]) -> list[Outcome]:
    """Run a library's store tests in their own process."""
    rows = folder / f"{library}.jsonl"
    asked = [f"tests/{name}" for name in TESTS[library]]
    quiet = ("-q", "--tb=no", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "--timeout=120")
    paths = os.pathsep.join((str(KITS), str(ROOT / "scripts")))
    subprocess.run(
        [str(python), "-m", "pytest", "-p", "langgraph_swap", *quiet, *options, *asked],
        cwd=folder / "libs" / library,
        env={**os.environ, "PYTHONPATH": paths, "LANGGRAPH_OUTCOMES": str(rows)},
        stdout=sys.stderr,
        check=False,
    )
    return outcomes(library, rows.read_text(encoding="utf-8").splitlines())


def outcomes(library: str, lines: Sequence[str]) -> list[Outcome]:
    """Join what the plugin wrote about each case; the last attempt of a flaky one counts."""
    cases: dict[str, dict[str, object]] = {}
    for line in lines:
        row = json.loads(line)
        name = f"{library}/{row.pop('test').removeprefix('tests/')}"
        cases[name] = {**cases.get(name, {}), **row}
    return [
        Outcome(
            name,
            passed=row.get("outcome") == "passed",
            ours=bool(row.get("ours")),
            message=str(row.get("message", "")).partition("\n")[0][:160],
        )
        for name, row in cases.items()
    ]


def reason_of(name: str, reasons: Sequence[Mapping[str, object]]) -> str:
    """Return the reason why a case may fail; empty where there is none."""
    for reason in reasons:
        patterns = reason["tests"]
        bare = name.partition("[")[0]
        if isinstance(patterns, list) and any(fnmatchcase(bare, str(part)) for part in patterns):
            return str(reason["why"])
    return ""


def page_of(cases: Sequence[Outcome], reasons: Mapping[str, str], header: str) -> str:
    """Return the two tables: cases by file, and those that do not pass by reason."""
    lines = [header.rstrip("\n")]
    files = dict.fromkeys(case.name.partition("::")[0] for case in cases)
    lines += [_row(file, [case for case in cases if f"{file}::" in case.name]) for file in files]
    lines += [_row("all", cases), "", "| do not pass | cases | reason |", "| --- | --- | --- |"]
    failed = [case for case in cases if not case.passed]
    for reason in dict.fromkeys(reasons[case.name] for case in failed):
        names = [case.name for case in failed if reasons[case.name] == reason]
        tests = dict.fromkeys(name.partition("::")[2].partition("[")[0] for name in names)
        shown = ", ".join(f"`{test}`" for test in tests)
        lines.append(f"| {shown} | {len(names)} | {reason or 'NONE'} |")
    return "\n".join(lines) + "\n"


def _row(file: str, cases: Sequence[Outcome]) -> str:
    passed = [case for case in cases if case.passed]
    ours = sum(case.ours for case in passed)
    return f"| {file} | {len(cases)} | {len(passed)} | {ours} | {len(cases) - len(passed)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", type=Path, help="a clone of langgraph, bare or not")
    parser.add_argument("--write", action="store_true", help="write the page")
    parser.add_argument("--tests", default="", help="only these, as pytest's -k")
    parser.add_argument("--folder", type=Path, default=ROOT / ".venv" / "frameworks")
    chosen = parser.parse_args()
    python = environment("langgraph-store", PACKAGES, chosen.folder)
    options = ("-k", chosen.tests) if chosen.tests else ()
    sys.path.insert(0, str(KITS))
    from postgres_kit import running_postgres

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        commit = read_tests(chosen.checkout, folder)
        url = stack.enter_context(running_postgres()).url
        name_database(folder / "libs" / "checkpoint-postgres" / "tests" / "conftest.py", url)
        cases = [case for name in TESTS for case in run_tests(name, folder, python, options)]
    table = tomllib.loads(REASONS.read_text(encoding="utf-8"))["reason"]
    reasons = {case.name: reason_of(case.name, table) for case in cases}
    text = page_of(cases, reasons, HEADER.format(commit=commit, versions=versions(python)))
    print(text)
    wrong = [case for case in cases if case.passed == bool(reasons[case.name])]
    for case in wrong:
        print(
            f"{case.name}: {'passes in spite of' if case.passed else 'has no'} reason"
            f" {reasons[case.name]}{case.message}",
            file=sys.stderr,
        )
    if chosen.write:
        write_part(PAGE, "store tests", text)
    return 1 if wrong else 0


def versions(python: Path) -> str:
    """Return the versions of LangGraph's packages that are installed."""
    names = ("langgraph-checkpoint", "langgraph-checkpoint-sqlite", "langgraph-checkpoint-postgres")
    code = "import sys, importlib.metadata as m; print(*map(m.version, sys.argv[1:]))"
    found = subprocess.run([str(python), "-c", code, *names], check=True, stdout=subprocess.PIPE)
    pairs = zip(names, found.stdout.decode().split(), strict=True)
    return ",\n".join(f"{name} {version}" for name, version in pairs)


if __name__ == "__main__":
    sys.exit(main())

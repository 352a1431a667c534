"""Make the states of docs/research/systems.md from the checks that ran.

A row of that page names its checks. `--run` plays them and writes what each came to into
benchmarks/measured/systems.json. Then the state of every row is made: "works" or
"partial" only where all of its checks ran and passed, "open" with the reason otherwise;
what the row says behind the state stays.

    python scripts/systems_page.py --run    # play the checks, then make the page
    python scripts/systems_page.py          # make the page from the outcomes written
    python scripts/systems_page.py --check  # return 1 if the page is another one
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "research" / "systems.md"
OUTCOMES = ROOT / "benchmarks" / "measured" / "systems.json"
NOT_RUN = re.compile(r"^open: `[^`]+` (?:failed|did not run|was skipped); ")


def checks_of(text: str) -> list[str]:
    """Return the checks that a text names, each once, in its order."""
    return list(dict.fromkeys(re.findall(r"`(tests/[^`]+::[^`]+)`", text)))


def outcome(check: str, cases: dict[str, list[str]]) -> str:
    """Return "passed" if every case of a check passed, else what the worst came to."""
    path, _, name = check.partition("::")
    module = path.removesuffix(".py").replace("/", ".")
    outcomes = [
        came
        for case, outcomes in cases.items()
        for came in outcomes
        if case.startswith(f"{module}::") and name in ("*", case.partition("::")[2])
    ]
    for worst in ("failed", "was skipped"):
        if worst in outcomes:
            return worst
    return "passed" if outcomes else "did not run"


def cases_of(report: Path) -> dict[str, list[str]]:
    """Return what the cases of a JUnit report came to, by module and test."""
    cases: dict[str, list[str]] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        kinds = {child.tag for child in case}
        came = "failed" if kinds & {"failure", "error"} else "passed"
        came = "was skipped" if "skipped" in kinds else came
        name = case.attrib["name"].partition("[")[0]
        cases.setdefault(f"{case.attrib['classname']}::{name}", []).append(came)
    return cases


def run(checks: list[str]) -> dict[str, str]:
    """Play the checks in one process of pytest and return what each came to."""
    places = [check.removesuffix("::*") for check in checks]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", f"--junitxml={report}", *places]
        done = subprocess.run(command, cwd=ROOT, check=False)
        if done.returncode not in (0, 1):
            raise RuntimeError(f"pytest came to no end: {done.returncode}")
        cases = cases_of(report)
    return {check: outcome(check, cases) for check in checks}


def state_of(state: str, checks: list[str], outcomes: dict[str, str]) -> str:
    """Return the state of a row: as it says if all its checks passed, open otherwise."""
    claimed = NOT_RUN.sub("", state)
    if claimed.startswith("not built"):
        return claimed
    for check in checks:
        came = outcomes.get(check, "did not run")
        if came != "passed":
            return f"open: `{check.rpartition('::')[2]}` {came}; {claimed}"
    return claimed if checks else f"open: `the row` did not run; {claimed}"


def page_of(text: str, outcomes: dict[str, str]) -> str:
    """Return the page with the state of each row made from the outcomes."""
    lines: list[str] = []
    for line in text.splitlines():
        cells = line.strip("|").split(" | ")
        if line.startswith("| ") and len(cells) == 6 and cells[5].strip() not in ("state", "---"):
            cells[5] = state_of(cells[5].strip(), checks_of(cells[4]), outcomes)
            line = f"| {' | '.join(cell.strip() for cell in cells)} |"
        lines.append(line)
    return "\n".join(lines) + "\n"


def main() -> int:
    """Make the page, or compare it; return 1 if it is another one."""
    flags = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    flags.add_argument("--run", action="store_true", help="play the checks first")
    flags.add_argument("--check", action="store_true", help="change nothing, compare")
    args = flags.parse_args()
    text = PAGE.read_text("utf-8")
    if args.run:
        outcomes = run(checks_of(text))
        OUTCOMES.write_text(json.dumps(outcomes, indent=1) + "\n", encoding="utf-8")
    page = page_of(text, json.loads(OUTCOMES.read_text("utf-8")))
    if args.check:
        if page != text:
            print(f"{PAGE} is not what the checks came to: python scripts/systems_page.py --run")
        return int(page != text)
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

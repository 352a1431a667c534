"""Print branch coverage of the kernel and of every other package.

    python scripts/coverage_report.py [--kernel-at-least PERCENT]

It reads the `.coverage` file that `make coverage` writes. Coverage counts statements and
branches together, as coverage.py does. With `--kernel-at-least` the exit status is 1 when
the kernel has less.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from coverage import Coverage

ROOT = Path(__file__).resolve().parent.parent
KERNEL = frozenset(
    "core timex state events search replies memory graphs opening sync build async_agent.py "
    "agent.py protocols.py config.py".split()
)
"""The parts of `memagent` that together are its kernel."""


def group_of(path: Path) -> str:
    """Return the row that a file counts for: the kernel, or its package."""
    package, *inner = path.relative_to(ROOT).parts
    if package == "memagent" and inner and inner[0] in KERNEL:
        return "kernel"
    return f"{package}/{inner[0]}" if package == "memagent" and len(inner) > 1 else package


def measured() -> dict[str, Any]:
    """Return what coverage.py's JSON report says of each file, by its path in the checkout."""
    data = Coverage(config_file=str(ROOT / "pyproject.toml"))
    data.load()
    with TemporaryDirectory() as folder:
        report = Path(folder) / "coverage.json"
        data.json_report(outfile=str(report))
        return json.loads(report.read_text(encoding="utf-8"))["files"]


def main() -> int:
    """Print the table and return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kernel-at-least", type=float, default=0.0, metavar="PERCENT")
    bound: float = parser.parse_args().kernel_at_least
    reached: Counter[str] = Counter()
    total: Counter[str] = Counter()
    kernel_files: list[tuple[float, str]] = []
    for name, figures in measured().items():
        path = ROOT / name
        if "migrations" in path.parts:
            continue
        group, summary = group_of(path), figures["summary"]
        covered = summary["covered_lines"] + summary["covered_branches"]
        possible = summary["num_statements"] + summary["num_branches"]
        reached[group] += covered
        total[group] += possible
        if group == "kernel" and possible:
            kernel_files.append((100 * covered / possible, name))
    for group in sorted(total, key=lambda row: (row != "kernel", row)):
        print(f"{group:32} {100 * reached[group] / max(total[group], 1):6.1f} %")
    print("\nkernel, least covered:")
    for percent, name in sorted(kernel_files)[:10]:
        print(f"  {name:40} {percent:6.1f} %")
    kernel = 100 * reached["kernel"] / max(total["kernel"], 1)
    if kernel < bound:
        print(f"the kernel has {kernel:.1f} %, less than {bound:g} %", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

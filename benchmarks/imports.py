"""Benchmark of start-up: `import memagent` and `memagent --help` beside an empty process.

Start-up is what a user feels on each command and a server on each cold start. A time
alone says little, for a busy machine doubles it, so each sample starts three processes
in turn (empty, import, help) and the figure is the median ratio to the empty one.
Budgets are 0.3 s and 0.5 s; where an empty process takes longer than 20 ms they grow in
proportion. The vendor libraries that each command loads are listed: there must be none
for the import, and none of the slow ones for the help text.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from dataclasses import asdict, dataclass

EMPTY_S = 0.020
"""An empty process on the machine that the budgets were set for."""
EMPTY = "python -c pass"
IMPORT = "import memagent"
HELP = "memagent --help"
CODE = {
    EMPTY: "pass",
    IMPORT: "import memagent",
    HELP: "import sys; sys.argv = ['memagent', '--help']\n"
    "from memagent.cli.app import main; main()",
}
BUDGET_S = {EMPTY: EMPTY_S, IMPORT: 0.3, HELP: 0.5}
ALLOWED = {
    EMPTY: frozenset[str](),
    IMPORT: frozenset[str](),
    HELP: frozenset({"pydantic", "rich", "typer"}),
}
VENDORS = (
    "alembic dateparser fastapi langchain_core langgraph langsmith litellm mcp networkx numpy "
    "pydantic qdrant_client rich rpds "
    "sentence_transformers sqlalchemy tenacity torch transformers typer"
).split()


@dataclass(frozen=True)
class Row:
    """One command's figures.

    They are the median wall time, the median ratio to the empty process of the same
    sample, its limit, and the vendors it loads.
    """

    command: str
    median_ms: float
    ratio: float
    ratio_limit: float
    vendors: list[str]

    @property
    def holds(self) -> bool:
        """Whether the command keeps its budget and loads no forbidden vendor.

        The empty process is the yardstick and always passes.
        """
        return self.command == EMPTY or (
            self.ratio <= self.ratio_limit and set(self.vendors) <= ALLOWED[self.command]
        )


def run(code: str) -> str:
    """Return the standard error of a fresh interpreter that runs `code`.

    Raises `CalledProcessError` when it fails.
    """
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TERM": "dumb"},
    )
    return done.stderr


def seconds(code: str) -> float:
    """Wall seconds of one fresh interpreter that runs `code`."""
    began = time.perf_counter()
    run(code)
    return time.perf_counter() - began


def loaded_vendors(code: str) -> list[str]:
    """Vendor packages in `sys.modules` after running `code` in a fresh interpreter."""
    tell = (
        f"print(json.dumps([vendor for vendor in {VENDORS} if vendor in sys.modules]), "
        "file=sys.stderr)"
    )
    return json.loads(
        run(f"import atexit, json, sys\natexit.register(lambda: {tell})\n{code}").splitlines()[-1]
    )


def measure(samples: int) -> list[Row]:
    """Return a row for each command, the empty process first."""
    for code in CODE.values():
        run(code)  # fills the bytecode and file caches
    taken = [{command: seconds(code) for command, code in CODE.items()} for _ in range(samples)]
    return [
        Row(
            command=command,
            median_ms=round(1000 * statistics.median(sample[command] for sample in taken), 1),
            ratio=round(statistics.median(sample[command] / sample[EMPTY] for sample in taken), 2),
            ratio_limit=round(BUDGET_S[command] / EMPTY_S, 1),
            vendors=loaded_vendors(code),
        )
        for command, code in CODE.items()
    ]


def main() -> int:
    """Print the table and the JSON line; 1 when a budget is broken."""
    parser = argparse.ArgumentParser(
        description="Measure memagent's start-up against an empty Python process."
    )
    parser.add_argument("--samples", type=int, default=7)
    rows = measure(parser.parse_args().samples)
    holds = all(row.holds for row in rows)
    print(f"{'command':16} {'median':>9} {'ratio':>6} {'limit':>6}  vendors loaded")
    for row in rows:
        figures = f"{row.median_ms:6.0f} ms {row.ratio:6.2f} {row.ratio_limit:6.1f}"
        print(f"{row.command:16} {figures}  {', '.join(row.vendors) or '-'}")
    print(
        json.dumps({"benchmark": "imports", "holds": holds, "rows": [asdict(row) for row in rows]})
    )
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main())

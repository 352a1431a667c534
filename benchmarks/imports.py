"""Benchmark of start-up: imports, commands and the service beside what they must load.

Start-up is what a user feels on each command and a server on each cold start. A time
alone says little, for a busy machine doubles it, so each sample starts every process in
turn and the figure is the least processor time of a few, as a ratio: `import memagent`
and `memagent --help` to an empty process, the others to a process that only imports
numpy and pydantic. The commands read a store of the sample conversation (120 turns).
The vendor libraries that each one loads are listed, and some are forbidden.

    python benchmarks/imports.py [--samples 5]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SAMPLE: Final = ROOT / "examples" / "data" / "two_friends.txt"
EMPTY: Final = "python -c pass"
LIBRARIES: Final = "numpy and pydantic"
VENDORS: Final = (
    "alembic dateparser fastapi langchain_core langgraph langsmith litellm mcp networkx numpy "
    "pydantic pydantic_settings qdrant_client rich rpds "
    "sentence_transformers sqlalchemy tenacity torch transformers typer"
).split()
NEEDED: Final = frozenset({"numpy", "pydantic", "rpds"})
ASKED: Final = NEEDED | {"rich", "typer"}


@dataclass(frozen=True)
class Start:
    """One way to start: its code, its yardstick, the most it may take, and what it may load."""

    code: str
    yardstick: str = EMPTY
    most: float = 1e9
    """Times the processor time of the yardstick."""
    vendors: frozenset[str] = frozenset(VENDORS)


def command(*words: str) -> str:
    """Return the code that runs a command as the console script does."""
    return (
        f"import sys; sys.argv = {['memagent', *words]!r}\n"
        "from memagent.cli.app import main; main()"
    )


def starts(store: Path) -> dict[str, Start]:
    """Return what is measured, by name; the commands read a store that exists."""
    place = ("--path", str(store))
    return {
        EMPTY: Start("pass", vendors=frozenset()),
        "import memagent": Start("import memagent", most=15, vendors=frozenset()),
        "memagent --help": Start(
            command("--help"), most=35, vendors=frozenset({"pydantic", "rich", "typer"})
        ),
        LIBRARIES: Start(
            "import numpy\nfrom pydantic import BaseModel\nclass A(BaseModel): a: int"
        ),
        "from memagent import Agent": Start("from memagent import Agent", LIBRARIES, 3, NEEDED),
        "memagent list": Start(command("list", *place), LIBRARIES, 7, ASKED),
        "memagent search": Start(command("search", "fox", *place), LIBRARIES, 7.5, ASKED),
        "memagent ask": Start(command("ask", "Where is Leonor?", *place), LIBRARIES, 9, ASKED),
        "the service's app": Start(
            "from memagent.service.hosting import Service\n"
            "from memagent.service.app import create_app; create_app()",
            LIBRARIES,
            20,
        ),
    }


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
        cwd=tempfile.gettempdir(),
        env={**os.environ, "TERM": "dumb", "PYTHONDONTWRITEBYTECODE": "", "OMP_NUM_THREADS": "1"},
    )
    return done.stderr


def seconds(code: str) -> float:
    """Return the processor seconds of one fresh interpreter that runs `code`."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(code)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def loaded_vendors(code: str) -> list[str]:
    """Return the vendor packages that a fresh interpreter has loaded after running `code`."""
    tell = (
        f"print(json.dumps([vendor for vendor in {VENDORS} if vendor in sys.modules]), "
        "file=sys.stderr)"
    )
    return json.loads(
        run(f"import atexit, json, sys\natexit.register(lambda: {tell})\n{code}").splitlines()[-1]
    )


@dataclass(frozen=True)
class Row:
    """One start's figures."""

    name: str
    least_ms: float
    """Processor time."""
    ratio: float
    most: float
    vendors: list[str]
    holds: bool


def measure(samples: int) -> list[Row]:
    """Return a row for each start."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "memory.db"
        run(command("ingest", str(SAMPLE), "--path", str(store)))
        every = starts(store)
        for start in every.values():
            run(start.code)  # fills the bytecode and file caches
        taken = [
            {name: seconds(start.code) for name, start in every.items()} for _ in range(samples)
        ]
        least = {name: min(sample[name] for sample in taken) for name in every}
        return [_row(name, start, least) for name, start in every.items()]


def _row(name: str, start: Start, least: dict[str, float]) -> Row:
    ratio, vendors = least[name] / least[start.yardstick], loaded_vendors(start.code)
    holds = ratio <= start.most and set(vendors) <= start.vendors
    return Row(name, round(1e3 * least[name], 1), round(ratio, 2), start.most, vendors, holds)


def main() -> int:
    """Print the table and the JSON line; 1 when a bound is broken."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=5)
    rows = measure(parser.parse_args().samples)
    holds = all(row.holds for row in rows)
    print(f"{'start':28} {'CPU':>9} {'ratio':>6} {'most':>6}  vendors loaded")
    for row in rows:
        most = f"{row.most:6.1f}" if row.most < 1e9 else "     -"
        figures = f"{row.least_ms:6.0f} ms {row.ratio:6.2f} {most}"
        print(f"{row.name:28} {figures}  {', '.join(row.vendors) or '-'}")
        if not row.holds:
            print(f"{row.name}: over its bound, or loads what it may not", file=sys.stderr)
    print(
        json.dumps({"benchmark": "imports", "holds": holds, "rows": [asdict(row) for row in rows]})
    )
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main())

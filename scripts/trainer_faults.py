"""Put each mended fault of the trainer back and see whether its test notices.

A fault is one replacement in one file of `train`. The named tests run twice, on the code
as it stands and on a copy with the fault. A fault *is noticed* if they pass on the first
and not on the second.

    python scripts/trainer_faults.py                # all, minutes each on a slow machine
    python scripts/trainer_faults.py --rows 5 11 13 # these
    python scripts/trainer_faults.py --write benchmarks/measured/trainer_faults.json
    python scripts/trainer_faults.py --table tests/data/technique_faults.toml
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests" / "data" / "trainer_faults.toml"


def faults(table: Path) -> list[dict[str, Any]]:
    """Return the faults: row, what, file, mended, faulty, tests."""
    return tomllib.loads(table.read_text(encoding="utf-8"))["fault"]


def with_fault(fault: dict[str, Any], folder: Path) -> Path:
    """Copy the package `train` with the fault put back. Raises `ValueError` if it cannot be."""
    shutil.copytree(ROOT / "train", folder / "train", ignore=shutil.ignore_patterns("__pycache__"))
    file = folder / fault["file"]
    text = file.read_text(encoding="utf-8")
    if text.count(fault["mended"]) != 1:
        raise ValueError(f"row {fault['row']}: {fault['file']} does not hold what was mended once")
    file.write_text(text.replace(fault["mended"], fault["faulty"]), encoding="utf-8")
    return folder


def passes(fault: dict[str, Any], *, first: Path) -> bool:
    """Tell whether the fault's tests pass with the packages of a folder before all others."""
    command = ["-q", "-x", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    code = (
        f"import sys; sys.path.insert(0, {str(first)!r}); import pytest; "
        f"sys.exit(pytest.main({[*command, *fault['tests']]!r}))"
    )
    environment = {**os.environ, "PYTHONPATH": str(first), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, check=False
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stdout.decode()[-2_000:])
    return done.returncode == 0


def main() -> int:
    """Check the chosen rows; return 1 when a fault goes unnoticed."""
    flags = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    flags.add_argument("--rows", type=int, nargs="*", help="only these rows")
    flags.add_argument("--write", type=Path, help="add the outcome to this JSON")
    flags.add_argument("--table", type=Path, default=TABLE, help="TOML of the faults")
    args = flags.parse_args()
    outcomes: dict[str, Any] = {}
    if args.write and args.write.exists():
        outcomes = json.loads(args.write.read_text(encoding="utf-8"))
    for fault in faults(args.table):
        if args.rows and fault["row"] not in args.rows:
            continue
        mended = passes(fault, first=ROOT)
        with tempfile.TemporaryDirectory() as folder:
            faulty = passes(fault, first=with_fault(fault, Path(folder)))
        name = f"{fault['row']}: {fault['what']}"
        outcomes[name] = {"as it stands": mended, "with the fault": faulty}
        print(f"{name}: {'noticed' if mended and not faulty else 'NOT NOTICED'}", flush=True)
        if args.write:
            args.write.write_text(json.dumps(outcomes, indent=1) + "\n", encoding="utf-8")
    return any(each["with the fault"] or not each["as it stands"] for each in outcomes.values())


if __name__ == "__main__":
    sys.exit(main())

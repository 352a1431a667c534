"""Searching the files of a store for bytes, from a process of its own.

A database file must not be opened and closed by other means in a process that has it
open: that would drop SQLite's locks. So a child reads the files.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from memagent.core.errors import StoreError

_TIMEOUT_S: Final = 600
_CHILD: Final = """
import base64, json, sys
asked = json.load(sys.stdin)
needles = [base64.b64decode(text) for text in asked["needles"]]
longest, told = max(map(len, needles), default=1), {}
for name in asked["files"]:
    found, size, tail = set(), 0, b""
    try:
        with open(name, "rb") as file:
            while piece := file.read(1 << 24):
                size += len(piece)
                data = tail + piece
                found |= {at for at, needle in enumerate(needles) if needle in data}
                tail = data[-longest:]
    except FileNotFoundError:
        continue
    told[name] = [size, len(found)]
json.dump(told, sys.stdout)
"""


def files_of(path: Path) -> list[Path]:
    """Return the files of a store, in order.

    These are the database, what lies beside it under its name, and the service's database.
    """
    beside = {*path.parent.glob(f"{path.name}*"), *path.parent.glob(f"{path.stem}.service.db*")}
    found = {file for name in beside for file in (name.rglob("*") if name.is_dir() else (name,))}
    return sorted(file for file in found if file.is_file())


def count_in_files(files: Sequence[Path], needles: Sequence[bytes]) -> dict[str, tuple[int, int]]:
    """Return (size in bytes, number of needles in it) of each file, by its name.

    Raises `StoreError` when the files cannot be read.
    """
    asked = {
        "files": [str(file) for file in files],
        "needles": [base64.b64encode(needle).decode() for needle in needles],
    }
    child = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _CHILD],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if child.returncode:
        raise StoreError(f"the files could not be searched: {child.stderr.strip()[-200:]}")
    told: dict[str, list[int]] = json.loads(child.stdout)
    return {Path(name).name: (size, found) for name, (size, found) in told.items()}

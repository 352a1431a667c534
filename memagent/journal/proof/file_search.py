"""Searching the files of a store for bytes, from a process of its own.

A database file must not be opened and closed by other means in a process that has it
open: that would drop SQLite's locks. So a child reads the files (`file_scan`).
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from memagent.core.errors import StoreError
from memagent.journal.proof import file_scan

_TIMEOUT_S: Final = 600.0


def files_of(path: Path) -> list[Path]:
    """Return the files of a store, in order.

    These are the database, what lies beside it under its name, and the service's database.
    """
    beside = {*path.parent.glob(f"{path.name}*"), *path.parent.glob(f"{path.stem}.service.db*")}
    found = {file for name in beside for file in (name.rglob("*") if name.is_dir() else (name,))}
    return sorted(file for file in found if file.is_file())


def count_in_files(files: Sequence[Path], needles: Sequence[bytes]) -> dict[str, tuple[int, int]]:
    """Return (size in bytes, number of needles in it) of each file, by its name.

    Needles have at least eight bytes. Raises `StoreError` when the files cannot be read,
    or not in time.
    """
    task = {
        "files": [str(file) for file in files],
        "needles": [base64.b64encode(needle).decode() for needle in needles],
        "packages": str(Path(np.__file__).parents[1]),
    }
    try:
        child = subprocess.run(
            [sys.executable, "-I", "-S", file_scan.__file__],
            input=json.dumps(task),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
    except subprocess.TimeoutExpired as exc:
        raise StoreError(f"the files could not be searched within {_TIMEOUT_S:g} seconds") from exc
    except (OSError, subprocess.CalledProcessError) as exc:
        told = str(getattr(exc, "stderr", None) or exc).strip()[-200:]
        raise StoreError(f"the files could not be searched: {told}") from exc
    answers: dict[str, list[int]] = json.loads(child.stdout)
    return {Path(name).name: (size, found) for name, (size, found) in answers.items()}

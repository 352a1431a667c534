"""One finished training run, shared by the workers that the tests are dealt to."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from training_run_kit import train, written


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Return the folder of a finished run and what the command printed.

    The worker that asks first makes it, in half a minute; the others wait and read it.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, printed = shared / "finished", shared / "finished" / "printed.json"
    with FileLock(shared / "finished.lock"):
        if not printed.exists():
            done = train("run", written(folder))
            assert done.exit_code == 0, (done.output, done.exception)
            printed.write_text(done.stdout, encoding="utf-8")
    return folder / "run", json.loads(printed.read_text(encoding="utf-8"))

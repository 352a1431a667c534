"""Where things lie: the checkout, the tests, and the folders of helper modules."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
KITS = [TESTS / "kits", *(TESTS / "kits" / name for name in ("workloads", "web", "learning"))]
KITS_PATH = os.pathsep.join(str(folder) for folder in [*KITS, ROOT])
"""For `PYTHONPATH` of a process that imports helper modules."""

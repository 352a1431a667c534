"""Print the constraints file for an environment.

    python scripts/freeze.py ENVIRONMENT_PYTHON > constraints.txt

Every installed distribution is pinned exactly, save memagent itself and pip. Local
version labels (`+cpu`) are dropped, so that a pin fits whichever build of that version
a machine gets.
"""

from __future__ import annotations

import re
import subprocess
import sys

HEADER = """\
# Exact versions of everything that the Makefile and .ci/run install, and of what every extra needs.
# Written by `make constraints` from a fresh environment holding memagent[all,dev].
"""
_LEFT_OUT = frozenset({"memagent", "pip", "wheel"})
_LIST = """
from importlib.metadata import distributions
print("\\n".join(f"{d.name}=={d.version}" for d in distributions()))
"""


def pins(python: str) -> list[str]:
    """Lines `name==version` for the environment of that interpreter, sorted by normalised name."""
    listed = subprocess.run(
        [python, "-c", _LIST], check=True, capture_output=True, text=True
    ).stdout.split()
    versions: dict[str, str] = {}
    for line in listed:
        name, _, version = line.partition("==")
        versions[re.sub(r"[-_.]+", "-", name).lower()] = version.partition("+")[0]
    return [
        f"{name}=={version}" for name, version in sorted(versions.items()) if name not in _LEFT_OUT
    ]


if __name__ == "__main__":
    print(HEADER + "\n".join(pins(sys.argv[1])))

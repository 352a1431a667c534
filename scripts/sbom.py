"""Write a software bill of materials of what the image installs, as CycloneDX 1.5.

Versions and hashes come from `deploy/requirements.txt`, licences from the distributions
that are installed here. Equal inputs give equal bytes.

    python scripts/sbom.py > build/memagent.cdx.json
"""

from __future__ import annotations

import json
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

LOCK = Path(__file__).resolve().parents[1] / "deploy" / "requirements.txt"
_PIN = re.compile(r"^(?P<name>[\w.-]+)(?:\[[\w,.-]+\])?==(?P<version>[\w.!+-]+)(?P<rest>.*)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def pins(text: str) -> list[tuple[str, str, list[str]]]:
    """Return (name, version, SHA-256 digests) of each pinned requirement."""
    found: list[tuple[str, str, list[str]]] = []
    for line in text.splitlines():
        if match := _PIN.match(line):
            found.append((match["name"], match["version"], []))
        if digest := _HASH.search(line):
            found[-1][2].append(digest[1])
    return found


def component(name: str, version: str, digests: list[str]) -> dict[str, Any]:
    """Return a requirement as a component; its licence where it is installed here."""
    purl = f"pkg:pypi/{name.lower()}@{version}"
    described: dict[str, Any] = {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "properties": [{"name": "sha256", "value": digest} for digest in digests],
    }
    try:
        about = metadata.metadata(name)
    except metadata.PackageNotFoundError:
        return described
    named = [about[field] for field in ("License-Expression", "License") if field in about]
    licence = next(filter(None, named), "")
    if licence and "\n" not in licence and len(licence) < 80:
        described["licenses"] = [{"license": {"name": licence}}]
    return described


def bill(text: str) -> dict[str, Any]:
    """Return the bill of materials of a lock file's text."""
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": "memagent",
                "name": "memagent",
                "version": metadata.version("memagent"),
            }
        },
        "components": [component(*pin) for pin in pins(text)],
    }


def main() -> int:
    """Write the bill to standard output."""
    json.dump(bill(LOCK.read_text(encoding="utf-8")), sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

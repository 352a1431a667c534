"""Measure the disk space of the light core and fail over a limit.

The script installs the core into a fresh environment and prints the size of each
package.

The environment is made without pip and setuptools, which belong to whoever installs, so
all that lies in site-packages afterwards is ours and what we depend on, compiled files
included, as pip leaves it. A size is what `du` counts: allocated blocks, in MB of 2**20
bytes. The plain sum of file lengths, always smaller, is printed beside the total.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import venv
from collections import Counter
from importlib.metadata import Distribution, distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MB = 2**20


def install(target: Path, *, requirement: str, constraints: Path) -> Path:
    """Make an environment with the requirement and return its site-packages folder.

    Raises `subprocess.CalledProcessError` when pip fails.
    """
    venv.create(target, with_pip=False)
    python = target / "bin" / "python"
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(python),
            "install",
            "-qq",
            "-c",
            str(constraints),
            requirement,
        ],
        check=True,
        cwd=ROOT,
    )
    ask = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return Path(subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip())


def allocated(path: Path) -> int:
    """Bytes of disk blocks that a file or folder itself takes, its contents not counted."""
    return path.lstat().st_blocks * 512


def by_package(site: Path) -> Counter[str]:
    """Sum up the allocated bytes of each distribution.

    Folders and files of no distribution are under '(folders and rest)'.
    """
    sizes: Counter[str] = Counter()
    claimed: set[Path] = set()
    for distribution in distributions(path=[str(site)]):
        for path in _files(distribution, site):
            if path not in claimed:
                claimed.add(path)
                sizes[distribution.name] += allocated(path)
    sizes["(folders and rest)"] = sum(
        allocated(path) for path in [site, *site.rglob("*")] if path not in claimed
    )
    return sizes


def _files(distribution: Distribution, site: Path) -> list[Path]:
    """Yield the distribution's files inside site-packages.

    A console script beside it is a few hundred bytes and not counted.
    """
    listed = (Path(str(distribution.locate_file(entry))) for entry in distribution.files or ())
    return [
        path
        for path in listed
        if path.is_relative_to(site) and ".." not in path.parts and path.is_file()
    ]


def main() -> int:
    """Print the table; 1 when the total is over the limit."""
    parser = argparse.ArgumentParser(
        description="Measure the installed size of memagent's light core."
    )
    parser.add_argument(
        "--limit-mb", type=float, default=250.0, help="fail over this many MB (default: 250)"
    )
    parser.add_argument(
        "--requirement", default=".", help="what to install (default: this checkout)"
    )
    parser.add_argument("--constraints", type=Path, default=ROOT / "constraints.txt")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="memagent-size-") as folder:
        site = install(
            Path(folder), requirement=options.requirement, constraints=options.constraints
        )
        sizes = by_package(site)
        lengths = sum(path.lstat().st_size for path in site.rglob("*") if path.is_file())
        unwanted = sorted(
            name for name in ("torch", "litellm", "sentence_transformers") if (site / name).exists()
        )
    total = sum(sizes.values())
    for name, size in sizes.most_common():
        print(f"{size / MB:8.1f} MB  {name}")
    print(
        f"{total / MB:8.1f} MB  in all, limit {options.limit_mb:g} MB (files alone "
        f"{lengths / MB:.1f} MB)"
    )
    print(
        json.dumps(
            {
                "core_mb": round(total / MB, 1),
                "limit_mb": options.limit_mb,
                "packages": len(sizes) - 1,
            }
        )
    )
    if unwanted:
        print(f"the light core brought {', '.join(unwanted)}", file=sys.stderr)
    return int(bool(unwanted) or total > options.limit_mb * MB)


if __name__ == "__main__":
    sys.exit(main())

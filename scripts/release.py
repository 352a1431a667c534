"""Do what a release needs up to the upload: compare versions, build, install, try.

    python scripts/release.py [--out build/release]

The wheel and the source archive are built offline with hatchling. Each is installed in
one line from its file into a fresh environment, which borrows only the dependencies of
this one, and must answer the README's example as printed there. The wheel must hold every
file of the packages, and the source archive must build the same wheel. A store that the
installed version wrote is left in `OUT/older`, for the tests of later versions. The
script uploads nothing; it prints the lines that do.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from pathlib import Path

from packaging.metadata import Metadata

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("memagent", "environments", "train")
BUILD = ("-m", "hatchling", "build", "-d")
_EXAMPLE = re.compile(
    r"```python[^\n]*\n((?:(?!```).)*?path=\":memory:\".*?)```\s+```text\n(.*?)```", re.DOTALL
)
"""An example of the README that needs no file and no key, and what it prints."""


def version() -> str:
    """Return the version of the tree, which stands in one place."""
    text = (ROOT / "memagent" / "__init__.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    assert match is not None
    return match[1]


def version_faults(name: str) -> list[str]:
    """Return the places that name another version than `name`, or not that of a release."""
    released = re.sub(r"\.dev\d+$", "", name)
    places = {
        "deploy/kubernetes/kustomization.yaml": f"newTag: {released}\n",
        "deploy/compose.yaml": f"image: memagent:{released}\n",
        "clients/typescript/package.json": f'"version": "{released}"',
        "docs/openapi.json": f'"version": "{name}"',
        "docs/rest.md": f"Version {name};",
        "memagent/service/routes/templates/docs.html": f"<h1>memagent {name}</h1>",
        "CHANGELOG.md": f"## {released} - ",
    }
    return [
        f"{place} does not hold {words.strip()!r}"
        for place, words in places.items()
        if words not in (ROOT / place).read_text(encoding="utf-8")
    ]


def build(source: Path, out: Path, *targets: str) -> list[Path]:
    """Build the named targets of a source tree into `out` and return the archives."""
    words = [word for target in targets for word in ("-t", target)]
    subprocess.run([sys.executable, *BUILD, str(out), *words], cwd=source, check=True)
    return sorted(out.glob("*.whl")) + sorted(out.glob("*.tar.gz"))


def digests(wheel: Path) -> dict[str, int]:
    """Return the checksum of each file of a wheel, by its name."""
    with zipfile.ZipFile(wheel) as archive:
        return {entry.filename: entry.CRC for entry in archive.infolist()}


def wheel_faults(wheel: Path) -> list[str]:
    """Return the files that a wheel lacks or has too many, and faults of its metadata."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    left_out = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["exclude"]
    spared = [f":(exclude,glob){pattern}" for pattern in left_out]
    listed = ["git", "ls-files", "-z", *PACKAGES, *spared]
    done = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True)
    tracked = {name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()}
    held = {name for name in digests(wheel) if ".dist-info/" not in name}
    faults = [f"{wheel.name} lacks {name}" for name in sorted(tracked - held)]
    faults += [f"{wheel.name} holds {name}, which git does not" for name in sorted(held - tracked)]
    info = next(name for name in digests(wheel) if name.endswith(".dist-info/METADATA"))
    with zipfile.ZipFile(wheel) as archive:
        metadata = Metadata.from_email(archive.read(info), validate=True)
    return faults if metadata.license_files else [*faults, "the wheel names no licence"]


def rebuilt(archive: Path, folder: Path) -> Path:
    """Build a wheel from a source archive alone and return it."""
    with tarfile.open(archive) as files:
        files.extractall(folder, filter="data")
    (tree,) = folder.iterdir()
    return build(tree, folder / "wheel", "wheel")[0]


def installed(archive: Path, folder: Path) -> Path:
    """Install an archive in one line into a fresh environment; return its Python.

    The dependencies are those of this environment, borrowed after the installation.
    """
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "-qq", "--no-deps"]
    subprocess.run([*pip, str(archive)], check=True, env=_bare())
    place = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    (Path(place) / "borrowed.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return python


def _bare() -> dict[str, str]:
    """Return this process's environment without the paths of this tree."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def trial_faults(python: Path, folder: Path, name: str) -> list[str]:
    """Use an installed memagent as a stranger would; return what differed."""

    def output(*words: str | Path) -> str:
        line = [str(word) for word in words]
        return subprocess.run(
            line, cwd=folder, check=True, capture_output=True, text=True, env=_bare()
        ).stdout

    home = output(python, "-c", "import memagent; print(memagent.__file__)")
    if not Path(home.strip()).is_relative_to(python.parent.parent):
        return [f"{home.strip()} was imported, which is not the installed one"]
    example = _EXAMPLE.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert example is not None, "the README has no example with path=':memory:' and its output"
    faults: list[str] = []
    if (printed := output(python, "-c", example[1])) != example[2]:
        faults.append(f"the README's example printed {printed!r}")
    command = python.with_name("memagent")
    if (printed := output(command, "--version")) != f"memagent {name}\n":
        faults.append(f"memagent --version printed {printed!r}")
    (folder / "chat.txt").write_text("Ana: I live in Porto.\n", encoding="utf-8")
    output(command, "ingest", "chat.txt", "--db", "a.db")
    answer = output(command, "ask", "--db", "a.db", "--json", "Where does Ana live?")
    if "Porto" not in json.loads(answer)["text"]:
        faults.append(f"memagent ask printed {answer!r}")
    for other in ("memagent-eval", "memagent-train"):
        output(python.with_name(other), "--help")
    return faults


def release(out: Path) -> list[str]:
    """Build and try everything; return the faults."""
    name = version()
    out.mkdir(parents=True, exist_ok=True)
    for earlier in (*out.glob("*.whl"), *out.glob("*.tar.gz")):
        earlier.unlink()
    wheel, archive = build(ROOT, out, "wheel", "sdist")
    faults = [*version_faults(name), *wheel_faults(wheel)]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        again = rebuilt(archive, folder / "source")
        if digests(again) != digests(wheel):
            faults.append(f"{archive.name} builds another wheel than {wheel.name}")
        pythons = [
            installed(file, folder / f"venv{number}") for number, file in enumerate((wheel, again))
        ]
        for number, python in enumerate(pythons):
            (folder / f"trial{number}").mkdir()
            faults += trial_faults(python, folder / f"trial{number}", name)
        older = out / "older" / name
        if not older.exists():
            script = [pythons[0], ROOT / "scripts" / "older_store.py", older]
            subprocess.run(script, check=True, cwd=folder, env=_bare())
    return faults


def main() -> int:
    """Run the steps and print what is left to do by hand."""
    parser = argparse.ArgumentParser(description="Do what a release needs up to the upload.")
    parser.add_argument("--out", type=Path, default=Path("build/release"))
    out = parser.parse_args().out.resolve()
    faults = release(out)
    for fault in faults:
        print(f"fault: {fault}")
    for file in sorted(out.glob("memagent-*")):
        print(f"{file.stat().st_size / 1e6:6.1f} MB  {file.name}")
    if not faults:
        print(f"left to do: git tag v{version()}; python -m twine upload {out}/memagent-*")
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(main())

"""Rules that a reviewer would otherwise repeat: no machine paths, no leftovers, no
pickle, no giant files, empty package fronts.
"""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest
from places import ROOT

PACKAGES = ("memagent", "environments", "train")
TEXT = set(
    " .py .pyi .md .toml .txt .cfg .ini .sh .yml .yaml .json .html .css .js .mako .sql".split(" ")
)
UNPICKLERS = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
LONGEST_FILE = 650
FRONTS = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("__init__.py"))


def checkout_files() -> list[Path]:
    """Text files of the checkout that git has or would take; [] where there is no git."""
    command = [
        "git",
        "-C",
        str(ROOT),
        "ls-files",
        "--cached",
        "--others",
        "--exclude-standard",
        "-z",
    ]
    try:
        listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split(
            "\0"
        )
    except (OSError, subprocess.CalledProcessError):
        return []
    return [
        ROOT / name
        for name in listed
        if name and (ROOT / name).is_file() and Path(name).suffix in TEXT
    ]


FILES = checkout_files()
MODULES = [path for path in FILES if path.suffix == ".py"]
needs_checkout = pytest.mark.skipif(not FILES, reason="no git checkout to list files of")


def mentions(pattern: str, files: list[Path]) -> list[str]:
    """'file:line: text' for each line that matches."""
    found: list[str] = []
    for path in files:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if re.search(pattern, line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}")
    return found


@needs_checkout
@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(r"(?<![\w.-])/(?:work|root)/", id="paths of one machine"),
        pytest.param(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b", id="notes to self"),
        pytest.param(
            "|".join(["pypi" + r"\.org", "python" + r"hosted", "registry" + r"\.npmjs"]),
            id="registry hosts",
        ),
    ],
)
def test_no_file_mentions(pattern: str) -> None:
    assert mentions(pattern, [path for path in FILES if path.name != "LICENSE"]) == []


@needs_checkout
def test_nothing_is_pickled() -> None:
    named = re.compile("|".join([*UNPICKLERS, "allow_pickle"]))
    texts = {path: path.read_text(encoding="utf-8") for path in MODULES}
    assert [
        path.relative_to(ROOT).as_posix()
        for path, text in texts.items()
        if named.search(text) and any(map(_pickles, ast.walk(ast.parse(text))))
    ] == []


def _pickles(node: ast.AST) -> bool:
    """An import of a module that unpickles, or `allow_pickle=` with anything but a literal False."""
    if isinstance(node, ast.Import):
        return any(alias.name.partition(".")[0] in UNPICKLERS for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").partition(".")[0] in UNPICKLERS
    if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
        return not isinstance(node.value, ast.Constant) or node.value.value is not False
    return False


@needs_checkout
def test_no_module_is_a_giant() -> None:
    lengths = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8").count("\n")
        for path in MODULES
    }
    assert {place: lines for place, lines in lengths.items() if lines > LONGEST_FILE} == {}


@pytest.mark.parametrize(
    "front", FRONTS, ids=[path.parent.relative_to(ROOT).as_posix() for path in FRONTS]
)
def test_a_package_front_only_re_exports(front: Path) -> None:
    tree = ast.parse(front.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), f"{front.relative_to(ROOT)} says nothing about the package"
    assert [
        f"{front.relative_to(ROOT)}:{node.lineno}" for node in tree.body[1:] if not _is_export(node)
    ] == []


def _is_export(node: ast.stmt) -> bool:
    """Imports, `__all__`, the version, and the table and hooks of lazy exports."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = {target.id if isinstance(target, ast.Name) else "" for target in targets}
        return names <= {"__all__", "__version__", "_HOMES", "_HOME_OF"}
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    if isinstance(node, ast.ClassDef):
        return node.name == "Later"  # the seam of what is loaded on first use
    return isinstance(node, ast.FunctionDef) and node.name in {"__getattr__", "__dir__"}


@pytest.mark.parametrize("package", PACKAGES)
def test_every_folder_with_modules_is_a_package(package: str) -> None:
    folders = {path.parent for path in (ROOT / package).rglob("*.py")}
    without = [
        folder.relative_to(ROOT).as_posix()
        for folder in folders
        if not (folder / "__init__.py").exists()
    ]
    assert [folder for folder in sorted(without) if "migrations" not in folder] == []

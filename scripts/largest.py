"""The ten largest files, classes and functions, in lines: a smell test read in every CI
run, never a limit to split a file for.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WHERE = ("memagent", "environments", "train", "examples", "scripts", "benchmarks", "tests")
TOP = 10
Row = tuple[int, str]


def measure(path: Path) -> Iterator[tuple[str, Row]]:
    """(kind, (lines, label)) for the file, and for every class and function in it, nested ones too."""
    source = path.read_text(encoding="utf-8")
    place = path.relative_to(ROOT).as_posix()
    yield "files", (source.count("\n"), place)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            kind = "classes" if isinstance(node, ast.ClassDef) else "functions"
            yield (
                kind,
                (
                    (node.end_lineno or node.lineno) - node.lineno + 1,
                    f"{place}:{node.lineno} {node.name}",
                ),
            )


def main(folders: list[str]) -> None:
    """Print the three tables for the given folders of the checkout."""
    tables: dict[str, list[Row]] = {"files": [], "classes": [], "functions": []}
    for folder in folders:
        for path in (ROOT / folder).rglob("*.py"):
            for kind, row in measure(path):
                tables[kind].append(row)
    for kind, rows in tables.items():
        print(f"{TOP} largest {kind} of {len(rows)}, in lines")
        for lines, label in sorted(rows, reverse=True)[:TOP]:
            print(f"{lines:7d}  {label}")


if __name__ == "__main__":
    main(sys.argv[1:] or list(WHERE))

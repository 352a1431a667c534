"""Figures of the code's structure, printed in every CI run.

They are the ten largest files, classes and functions, the statements of each part of
`memagent` beside the budgets, circles of imports between files, and crowded folders.
With `--check` the exit code is 1 when a budget is exceeded, files import each other in
a circle or a folder is too full. The sizes in lines are a smell test, never a reason to
split a file. Statements (`ast.stmt` nodes) do not depend on the formatter.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("memagent", "environments", "train")
FOLDERS = (*PACKAGES, "examples", "scripts", "benchmarks", "tests")
TOP = 10
MAX_FILES = 16
"""Python files in one folder of a package, at one level."""
BUDGETS = {"memagent": 23_500, "kernel": 7_500}
KERNEL = frozenset(
    "core timex state events search replies memory graphs build parts.py open_store.py "
    "remembering.py agent_parts.py async_agent.py live_agent.py background.py agent.py "
    "protocols.py config.py".split()
)
"""The parts of `memagent` that together are its kernel; `build` is a file or a package."""
Row = tuple[int, str]
Trees = Mapping[Path, ast.Module]


def parse(folders: list[str]) -> dict[Path, ast.Module]:
    """Parse every Python file below folders of the checkout, by its path there."""
    files = sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))
    return {path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8")) for path in files}


def sizes(trees: Trees) -> dict[str, list[Row]]:
    """Measure files, classes and functions in lines, nested ones too."""
    tables: dict[str, list[Row]] = {"files": [], "classes": [], "functions": []}
    for path, tree in trees.items():
        lines = (ROOT / path).read_text(encoding="utf-8").count("\n")
        tables["files"].append((lines, path.as_posix()))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                kind = "classes" if isinstance(node, ast.ClassDef) else "functions"
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                tables[kind].append((lines, f"{path.as_posix()}:{node.lineno} {node.name}"))
    return tables


def statements(trees: Trees) -> Counter[str]:
    """Count the statements of each package and file directly below `memagent`."""
    counts: Counter[str] = Counter()
    for path, tree in trees.items():
        if path.parts[0] == "memagent":
            counts[path.parts[1]] += sum(isinstance(node, ast.stmt) for node in ast.walk(tree))
    return counts


def imports(trees: Trees) -> dict[str, set[str]]:
    """Map each module to the modules of the checkout that it imports, late and type-only too."""
    names = {".".join(path.with_suffix("").parts).removesuffix(".__init__"): path for path in trees}
    return {
        name: {target for target in imported_by(trees[path], names) if target != name}
        for name, path in names.items()
    }


def imported_by(tree: ast.Module, names: Mapping[str, Path]) -> Iterator[str]:
    """Yield the modules among `names` that a file imports, by absolute imports as ours are."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and (module := node.module or "") in names:
            inner = (f"{module}.{alias.name}" for alias in node.names)
            yield from (name if name in names else module for name in inner)


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other in a circle, sorted."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        ahead = [*graph[start]]
        while ahead:
            name = ahead.pop()
            if name not in seen:
                seen.add(name)
                ahead += graph[name]
        reached[start] = seen
    groups = {
        tuple(sorted(name for name in reached[start] if start in reached[name]))
        for start in graph
        if start in reached[start]
    }
    return [list(group) for group in sorted(groups)]


def crowded(trees: Trees) -> list[str]:
    """Name the folders of packages with too many Python files at one level."""
    counts = Counter(path.parent for path in trees if path.parts[0] in PACKAGES)
    return [f"{folder} has {n} files" for folder, n in sorted(counts.items()) if n > MAX_FILES]


def report(folders: list[str]) -> list[str]:
    """Print all figures and return the faults among them."""
    trees = parse(folders)
    for kind, rows in sizes(trees).items():
        print(f"{TOP} largest {kind} of {len(rows)}, in lines")
        for lines, label in sorted(rows, reverse=True)[:TOP]:
            print(f"{lines:7,d}  {label}")
    counts = statements(trees)
    totals = {
        "memagent": counts.total(),
        "kernel": sum(n for part, n in counts.items() if part in KERNEL),
    }
    print("statements")
    for name, count in totals.items():
        print(f"{count:7,d}  {name}, of {BUDGETS[name]:,} allowed")
    for part, count in counts.most_common():
        print(f"{count:7,d}  memagent/{part}{' (kernel)' if part in KERNEL else ''}")
    packages = {path: tree for path, tree in trees.items() if path.parts[0] in PACKAGES}
    faults = [
        f"{name} has {count:,} statements, {count - BUDGETS[name]:,} more than its budget"
        for name, count in totals.items()
        if count > BUDGETS[name]
    ]
    faults += [f"circle of imports: {', '.join(names)}" for names in circles(imports(packages))]
    faults += [f"{text}, {MAX_FILES} are allowed" for text in crowded(trees)]
    print("\n".join(faults) or "no circle of imports, no crowded folder, no budget exceeded")
    return faults


def main() -> int:
    """Print the figures; with `--check` return 1 if something is wrong."""
    parser = argparse.ArgumentParser(description="Print figures of the code's structure.")
    parser.add_argument("folders", nargs="*", default=list(FOLDERS), help="folders to look at")
    parser.add_argument("--check", action="store_true", help="exit with 1 if something is wrong")
    options = parser.parse_args()
    return int(bool(report(options.folders)) and options.check)


if __name__ == "__main__":
    sys.exit(main())

"""Hold the code's structure to `budgets.toml`, and print its figures.

The figures are statements and files of each package, the share of import statements,
the largest class counted over its own chain of bases, and the inner modules of memagent
that tests import. Two faults need no budget: modules that import each other in a circle,
and a folder with too many modules. `--check` exits with 1 above a ceiling. Statements
are `ast.stmt` nodes, so the formatter does not change them.

The file is a ratchet: a change may spend what an earlier one saved, and nobody raises a
ceiling. `scripts/trips.py --check` holds the figures that need a running agent.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

PACKAGES = ("memagent", "environments", "train")
TOP = 10
MAX_FILES = 16
"""Python files in one folder of a package, at one level."""
DOORS = frozenset({"memagent", "memagent.extend", "memagent.testing"})
"""What tests may import without entering the house."""
Trees = Mapping[Path, ast.Module]
Row = tuple[int, str]


def parse(root: Path, folders: tuple[str, ...] = PACKAGES) -> dict[Path, ast.Module]:
    """Parse every Python file below folders of a checkout, by its path there."""
    files = sorted(path for folder in folders for path in (root / folder).rglob("*.py"))
    return {path.relative_to(root): ast.parse(path.read_text(encoding="utf-8")) for path in files}


def statements(trees: Trees) -> Counter[str]:
    """Count the statements of each package, and of each part of `memagent`."""
    counts: Counter[str] = Counter()
    for path, tree in trees.items():
        count = sum(isinstance(node, ast.stmt) for node in ast.walk(tree))
        counts[path.parts[0]] += count
        counts["/".join(path.parts[:2])] += count
    return counts


def import_percent(trees: Trees) -> float:
    """Return the share of import statements among the statements of `memagent`."""
    nodes = [
        node
        for path, tree in trees.items()
        if path.parts[0] == "memagent"
        for node in ast.walk(tree)
    ]
    imported = sum(isinstance(node, ast.Import | ast.ImportFrom) for node in nodes)
    return 100 * imported / max(1, sum(isinstance(node, ast.stmt) for node in nodes))


def module_name(path: Path) -> str:
    """Return the dotted name of a file of the checkout."""
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


def chains(trees: Trees) -> list[Row]:
    """Measure every class in lines, together with the bases that the packages define."""
    bodies: dict[tuple[str, str], ast.ClassDef] = {}
    names: dict[str, dict[str, tuple[str, str]]] = {}
    for path, tree in trees.items():
        module = module_name(path)
        known = names.setdefault(module, {})
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                known |= {a.asname or a.name: (node.module, a.name) for a in node.names}
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                bodies[module, node.name] = node
                known[node.name] = (module, node.name)

    def chain(key: tuple[str, str]) -> set[tuple[str, str]]:
        found = {key}
        for base in bodies[key].bases:
            plain = base.value if isinstance(base, ast.Subscript) else base
            target = names[key[0]].get(plain.id) if isinstance(plain, ast.Name) else None
            if target in bodies and target != key:
                found |= chain(target)
        return found

    def lines(key: tuple[str, str]) -> int:
        return (bodies[key].end_lineno or 0) - bodies[key].lineno + 1

    return [(sum(map(lines, chain(key))), ".".join(key)) for key in bodies]


def inner_modules(tests: Trees, packages: Trees) -> set[str]:
    """Return the inner modules of memagent that test files import."""
    modules = {module_name(path) for path in packages if path.parts[0] == "memagent"}
    return {
        name for tree in tests.values() for name in imported_by(tree, modules) if name not in DOORS
    }


def imports(trees: Trees) -> dict[str, set[str]]:
    """Map each module to the modules of the packages it imports, late and type-only too."""
    names = {module_name(path): tree for path, tree in trees.items()}
    return {
        name: {target for target in imported_by(tree, names) if target != name}
        for name, tree in names.items()
    }


def imported_by(tree: ast.Module, names: Mapping[str, object] | set[str]) -> Iterator[str]:
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


def figures(trees: Trees, tests: Trees) -> dict[str, float]:
    """Return today's value of every budget, under the budget's name."""
    counts = statements(trees)
    values: dict[str, float] = {f"statements.{name}": counts[name] for name in PACKAGES}
    for name in PACKAGES:
        values[f"files.{name}"] = sum(path.parts[0] == name for path in trees)
    values["imports.memagent_percent"] = import_percent(trees)
    own = {path: tree for path, tree in trees.items() if path.parts[0] == "memagent"}
    values["classes.largest_chain_lines"] = max(size for size, _ in chains(own))
    values["tests.inner_modules"] = len(inner_modules(tests, trees))
    return values


def ceilings(root: Path) -> dict[str, float]:
    """Read the budgets of a checkout as `table.name: ceiling`."""
    tables = tomllib.loads((root / "budgets.toml").read_text(encoding="utf-8"))
    return {
        f"{table}.{name}": value for table, rows in tables.items() for name, value in rows.items()
    }


def exceeded(values: Mapping[str, float], limits: Mapping[str, float]) -> list[str]:
    """Name each figure above its ceiling; a figure without a ceiling is a fault too."""
    return [
        f"{name} is {value:,.6g}, {value - limits[name]:,.3g} above its ceiling"
        if name in limits
        else f"{name} has no ceiling in budgets.toml"
        for name, value in values.items()
        if name not in limits or value > limits[name]
    ]


def sizes(root: Path, trees: Trees) -> dict[str, list[Row]]:
    """Measure files and functions in lines, nested functions too."""
    tables: dict[str, list[Row]] = {"files": [], "functions": []}
    for path, tree in trees.items():
        lines = (root / path).read_text(encoding="utf-8").count("\n")
        tables["files"].append((lines, path.as_posix()))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or node.lineno) - node.lineno + 1
                tables["functions"].append((lines, f"{path.as_posix()}:{node.lineno} {node.name}"))
    return tables


def main() -> int:
    """Print the figures; with `--check` return 1 if one is above its ceiling."""
    parser = argparse.ArgumentParser(description="Hold the code's structure to budgets.toml.")
    parser.add_argument(
        "root", nargs="?", type=Path, default=Path(__file__).resolve().parent.parent
    )
    parser.add_argument("--check", action="store_true", help="exit with 1 above a ceiling")
    options = parser.parse_args()
    trees = parse(options.root)
    for kind, rows in {
        **sizes(options.root, trees),
        "classes, over their chain of bases": chains(trees),
    }.items():
        print(f"{TOP} largest {kind}, of {len(rows)}, in lines")
        for lines, label in sorted(rows, reverse=True)[:TOP]:
            print(f"{lines:7,d}  {label}")
    print("statements")
    for part, count in statements(trees).most_common():
        if part.startswith("memagent/"):
            print(f"{count:7,d}  {part}")
    values, limits = figures(trees, parse(options.root, ("tests",))), ceilings(options.root)
    print("figure, ceiling")
    for name, value in values.items():
        print(f"{value:10,.6g}{limits.get(name, float('nan')):10,.6g}  {name}")
    faults = exceeded(values, limits)
    faults += [f"circle of imports: {', '.join(names)}" for names in circles(imports(trees))]
    faults += [f"{text}, {MAX_FILES} are allowed" for text in crowded(trees)]
    print("\n".join(faults) or "no ceiling exceeded, no circle of imports, no crowded folder")
    return int(bool(faults) and options.check)


if __name__ == "__main__":
    sys.exit(main())

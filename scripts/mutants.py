"""Change one operator, number or branch of a module at a time, and see whether a test fails.

A mutant is *killed* if the tests of its module fail or take three times as long as without
it. The sample is drawn from all places of a module by a printed seed. It works on a copy
of the package, appends each result to a file of JSON lines, and leaves out what is there
already, so a run that was stopped goes on. Prints the share of killed mutants.

    python scripts/mutants.py --sample 30 --seed 1 --results build/mutants.jsonl
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TESTS = {
    "memagent/state/validation.py": (
        "unit/memory/test_validate_ops.py",
        "unit/memory/test_trust_attacks.py",
    ),
    "memagent/state/backing.py": (
        "unit/memory/test_backing.py",
        "unit/memory/test_trust_attacks.py",
    ),
    "memagent/journal/rows.py": ("stores/test_journal.py", "stores/test_journal_damage.py"),
    "memagent/journal/proof/audit.py": (
        "stores/test_tip_book.py",
        "stores/test_tips.py",
        "stores/test_journal.py",
    ),
    "memagent/service/access.py": ("service/test_access_rules.py",),
}
"""The tests that are to notice a change of a module."""
_COMPARED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_COMPUTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.BitOr: ast.BitAnd}


def places(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield the nodes that a mutant may change, in order."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in (inner for line in function.body for inner in ast.walk(line)):
                if _changeable(node):
                    yield node


def _changeable(node: ast.AST) -> bool:
    match node:
        case ast.Compare():
            return type(node.ops[0]) in _COMPARED
        case ast.BinOp():
            return type(node.op) in _COMPUTED
        case ast.Constant():
            return isinstance(node.value, bool | int)
        case _:
            return isinstance(node, ast.BoolOp | ast.If | ast.IfExp | ast.UnaryOp)


def change(node: ast.AST) -> str:
    """Change a node in place, and say how."""
    match node:
        case ast.Compare():
            node.ops[0] = _COMPARED[type(node.ops[0])]()
            return "comparison"
        case ast.BinOp():
            node.op = _COMPUTED[type(node.op)]()
            return "arithmetic"
        case ast.Constant():
            node.value = not node.value if isinstance(node.value, bool) else int(node.value) + 1  # type: ignore[arg-type]
            return "constant"
        case ast.BoolOp():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            return "and, or"
        case ast.If() | ast.IfExp():
            node.test = ast.UnaryOp(op=ast.Not(), operand=node.test)
            return "branch"
        case _:
            assert isinstance(node, ast.UnaryOp)
            node.operand = ast.UnaryOp(op=ast.Not(), operand=node.operand)
            return "negation"


def passes(copy: Path, module: str, timeout_s: float | None) -> bool:
    """Tell whether the tests of a module pass on the copy."""
    tests = [str(copy / "tests" / name) for name in TESTS[module]]
    environment = os.environ | {"PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, timeout=timeout_s, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def main() -> int:
    """Run a sample of mutants of every module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sample", type=int, default=30, help="mutants of each module")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--modules", nargs="*", default=list(TESTS))
    options = parser.parse_args()
    results = options.results.absolute()
    results.parent.mkdir(parents=True, exist_ok=True)
    known: dict[str, bool] = {}
    if results.exists():
        rows = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
        known = {row["mutant"]: row["killed"] for row in rows}
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name)
        for folder in ("memagent", "tests", "pyproject.toml", "docs", "scripts"):
            source = ROOT / folder
            if source.is_dir():
                shutil.copytree(source, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, copy / folder)
        for module in options.modules:
            _mutate(module, copy, options, known, results)
    for module in options.modules:
        outcomes = [killed for mutant, killed in known.items() if mutant.startswith(module)]
        figures = {"module": module, "mutants": len(outcomes), "killed": sum(outcomes)}
        print(json.dumps(figures | {"seed": options.seed}))
    return 0


def _mutate(
    module: str, copy: Path, options: argparse.Namespace, known: dict[str, bool], results: Path
) -> None:
    text = (ROOT / module).read_text(encoding="utf-8")
    count = sum(1 for _ in places(ast.parse(text)))
    rng = random.Random(f"{options.seed} {module}")
    chosen = rng.sample(range(count), min(options.sample, count))
    began = time.monotonic()
    if not passes(copy, module, None):
        raise SystemExit(f"the tests of {module} fail without any mutant")
    allowed_s = 3 * (time.monotonic() - began) + 30
    for number in chosen:
        tree = ast.parse(text)
        node = list(places(tree))[number]
        line = getattr(node, "lineno", 0)
        mutant = f"{module}:{line} {number} {change(node)}"
        if mutant in known:
            continue
        (copy / module).write_text(ast.unparse(ast.fix_missing_locations(tree)), encoding="utf-8")
        known[mutant] = not passes(copy, module, allowed_s)
        with results.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"mutant": mutant, "killed": known[mutant]}) + "\n")
    (copy / module).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())

"""The language of the code: banned names for public definitions and for `as` targets, and
docstrings that open with a sentence.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from places import ROOT

PACKAGES = ("memagent", "environments", "train")
Rule = Callable[[ast.AST], Iterator[tuple[int, str]]]
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
BANNED_DEFINITIONS = set(
    "alike asked become believed found given heard held kept knobs made manners one party pen "
    "said_so seen shown taken teller told wanted waited_for".split()
)
"""Riddles as names of public functions, classes and methods."""
BANNED_TARGETS = set("asked found given it kept made one shown told wanted".split())
"""Names that say nothing about the value, as targets of `with`, `except` and `import ... as`."""
RIDDLES = re.compile(r"(What|Who|Whose|Whom|Where|How|Which|That of|Those)\b")


def places(path: Path, nodes: Iterator[tuple[int, str]]) -> list[str]:
    return [f"{path.relative_to(ROOT)}:{line}: {text}" for line, text in nodes]


def definitions(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of each public definition that has a banned name."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            and node.name.lower() in BANNED_DEFINITIONS
        ):
            yield node.lineno, node.name


def targets(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of each `as` target that has a banned name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                for name in ast.walk(item.optional_vars) if item.optional_vars else ():
                    if isinstance(name, ast.Name) and name.id in BANNED_TARGETS:
                        yield node.lineno, name.id
        elif isinstance(node, ast.ExceptHandler) and node.name in BANNED_TARGETS:
            yield node.lineno, str(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                if alias.asname in BANNED_TARGETS:
                    yield node.lineno, str(alias.asname)


def openings(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and first words of each docstring of a function or class that is a riddle."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            text = ast.get_docstring(node) or ""
            if RIDDLES.match(text):
                yield node.lineno, text[:60]


@pytest.fixture(scope="module")
def trees() -> dict[Path, ast.Module]:
    """The syntax tree of each module."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}


@pytest.mark.parametrize("rule", [definitions, targets, openings], ids=lambda rule: rule.__name__)
def test_the_code_speaks_plainly(rule: Rule, trees: dict[Path, ast.Module]) -> None:
    broken = [place for path, tree in trees.items() for place in places(path, rule(tree))]
    assert broken == []

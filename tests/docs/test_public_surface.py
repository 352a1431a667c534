"""The public face: what `import memagent` gives and costs, and that packaging says what
the code says.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import distribution

import pytest
from places import ROOT

import memagent
from memagent import Agent, AsyncAgent, AsyncClient, Client
from memagent.core.errors import MissingExtra
from memagent.memory.facade import Memory
from memagent.plugins import GROUPS, load
from memagent.sync.live_agent import SyncMemory

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
VENDORS = [
    "litellm",
    "qdrant_client",
    "torch",
    "sentence_transformers",
    "networkx",
    "langgraph",
    "sqlalchemy",
    "fastapi",
    "dateparser",
]


def fresh(code: str, *arguments: str) -> str:
    """Standard output of a fresh interpreter; its failure fails the test with what it printed."""
    command = [sys.executable, "-W", "error", "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout


def sources(package: str) -> Iterator[tuple[str, ast.Module]]:
    """(path in the checkout, syntax tree) of each module of a package."""
    for path in sorted((ROOT / package).rglob("*.py")):
        yield path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def declared_entry_points() -> dict[str, dict[str, str]]:
    tables: dict[str, dict[str, str]] = {"console_scripts": PYPROJECT["project"]["scripts"]}
    tables.update(PYPROJECT["project"]["entry-points"])
    return tables


def test_importing_memagent_loads_no_vendor_library() -> None:
    loaded = json.loads(fresh("import memagent, sys, json; print(json.dumps(sorted(sys.modules)))"))
    assert [name for name in VENDORS if name in loaded] == []


def test_importing_any_module_opens_no_socket_and_starts_no_thread() -> None:
    code = """
import importlib, sys, threading
from memagent.core.errors import MissingExtra
def guard(event, args):
    if event in {"socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"}:
        raise SystemExit(f"{event} {args[1:]}")
sys.addaudithook(guard)
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except MissingExtra:
        pass
    except ModuleNotFoundError as exc:
        if str(exc.name).partition(".")[0] in {"memagent", "environments"}:
            raise
assert threading.active_count() == 1, threading.enumerate()
"""
    modules = [info.name for info in pkgutil.walk_packages(memagent.__path__, "memagent.")]
    fresh(
        code,
        *(name for name in modules if "migrations" not in name and not name.endswith("__main__")),
    )


def test_every_public_name_resolves_and_is_listed_in_order() -> None:
    assert memagent.__all__ == sorted(memagent.__all__)
    assert [name for name in memagent.__all__ if not hasattr(memagent, name)] == []
    assert set(memagent.__all__) <= set(dir(memagent))


def test_what_type_checkers_see_is_what_python_gives() -> None:
    tree = ast.parse((ROOT / "memagent" / "__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted([*seen, "__version__"]) == memagent.__all__
    for name, module in seen.items():
        assert getattr(memagent, name) is getattr(importlib.import_module(str(module)), name)


@pytest.mark.parametrize(
    ("face", "verbs", "own"),
    [
        (SyncMemory, Memory, {"as_of", "fork"}),
        (
            Agent,
            AsyncAgent,
            {"remember", "chat", "stream_chat", "snapshot", "status", "with_model"},
        ),
        (Client, AsyncClient, {"stream", "close"}),
    ],
)
def test_a_synchronous_verb_has_the_signature_of_the_asynchronous_one(
    face: type, verbs: type, own: set[str]
) -> None:
    public = {name for name in vars(face) if not name.startswith("_")}
    shared = {name for name in public if callable(getattr(verbs, name, None))}
    assert own < shared
    for name in shared - own:
        ours, theirs = getattr(face, name), getattr(verbs, name)
        assert inspect.signature(ours) == inspect.signature(theirs), name
        assert inspect.getdoc(ours) == inspect.getdoc(theirs) != "", name
        assert not inspect.iscoroutinefunction(ours), name


def test_a_bound_synchronous_verb_shows_its_parameters_without_self() -> None:
    with Agent(path=":memory:", embedder="hashing") as agent:
        bound = inspect.signature(agent.memory.update)
        assert list(bound.parameters) == ["item_id", "text", "version", "valid"]
        assert agent.memory.update.__name__ == "update"
        with pytest.raises(TypeError, match="unexpected keyword argument 'kinds'"):
            agent.memory.add("tea", kinds="fact")  # pyright: ignore[reportCallIssue]
        with pytest.raises(TypeError, match="unexpected keyword argument 'limit'"):
            agent.memory.search("tea", limit=3)  # pyright: ignore[reportCallIssue]


def test_an_unknown_attribute_is_an_ordinary_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Agnet'"):
        _ = memagent.Agnet  # pyright: ignore[reportAttributeAccessIssue]


def test_the_version_is_the_installed_one() -> None:
    assert distribution("memagent").version == memagent.__version__


def test_no_identifier_in_memagent_speaks_of_training() -> None:
    found: list[str] = []
    for place, tree in sources("memagent"):
        for node in ast.walk(tree):
            names = [
                getattr(node, field, None)
                for field in ("id", "attr", "name", "arg", "asname", "module")
            ]
            bad = [name for name in names if isinstance(name, str) and speaks_of_training(name)]
            found += [f"{place}:{getattr(node, 'lineno', 0)} {name}" for name in bad]
    assert found == []


def speaks_of_training(identifier: str) -> bool:
    """Whether a word of the identifier is train, trainer, training, ...; `constraint`
    and `strain` are other words.
    """
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", identifier)
    return any(re.match(r"(?:re|pre|un)?train", word.lower()) for word in words)


@pytest.mark.parametrize(
    "name", ["is_training", "TrainConfig", "pretrained", "model.train", "retrain", "TRAIN_STEPS"]
)
def test_the_search_for_training_finds_its_words(name: str) -> None:
    assert speaks_of_training(name)


@pytest.mark.parametrize(
    "name", ["UniqueConstraint", "strain", "constrained", "trait", "restraint"]
)
def test_the_search_for_training_spares_other_words(name: str) -> None:
    assert not speaks_of_training(name)


def test_declared_entry_points_are_the_installed_ones() -> None:
    installed: dict[str, dict[str, str]] = {}
    for point in distribution("memagent").entry_points:
        installed.setdefault(point.group, {})[point.name] = point.value
    assert installed == declared_entry_points(), (
        "pyproject.toml changed after the install: run `pip install -e .` again"
    )


def test_entry_points_declare_known_groups_in_order() -> None:
    plugin_tables = PYPROJECT["project"]["entry-points"]
    assert {group.removeprefix("memagent.") for group in plugin_tables} <= set(GROUPS)
    for table in plugin_tables.values():
        assert list(table) == sorted(table)


@pytest.mark.parametrize(
    ("group", "name"),
    [
        pytest.param(
            group.removeprefix("memagent."),
            name,
            marks=[pytest.mark.torch] if "train." in path else [],
        )
        for group, table in PYPROJECT["project"]["entry-points"].items()
        for name, path in table.items()
    ],
)
def test_every_built_in_plugin_loads(group: str, name: str) -> None:
    try:
        assert load(group, name) is not None  # pyright: ignore[reportArgumentType]
    except MissingExtra as exc:
        pytest.skip(str(exc))


@pytest.mark.parametrize("target", PYPROJECT["project"]["scripts"].values())
def test_every_console_script_has_something_to_call(target: str) -> None:
    module, _, attribute = target.partition(":")
    assert callable(getattr(importlib.import_module(module), attribute))

"""Worlds from TOML files: the levels that are shipped and worlds of your own.

A world is one TOML file, or a folder with a `world.toml`. A file may `include` others
(files beside it, or a shipped level by its name) and adds to them: lists are joined,
tables merged, and for single values the including file wins. What is read is validated
field by field, then by `check_grammar`, so a world that opens can be played.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, get_args

from pydantic import ConfigDict, TypeAdapter, ValidationError

from environments.errors import EnvironmentFault
from environments.worlds.config import WorldConfig
from environments.worlds.language.checks import check_grammar
from environments.worlds.language.spec import FROM_FILE, LEAST, Grammar

Level = Literal["tiny", "standard", "rich"]
"""A shipped world."""
LEVELS: Final[tuple[Level, ...]] = get_args(Level)
"""The shipped worlds by name, the smallest first."""
FOLDER_VARIABLE: Final = "MEMAGENT_WORLDS"
"""The environment variable that names a folder of worlds."""
_MAIN: Final = "world.toml"


@dataclass(frozen=True)
class WorldSpec:
    """A world that was read: its language and its defaults."""

    name: str
    """The level, or the name of the folder or file."""
    grammar: Grammar
    config: WorldConfig
    """Length, density and noise of an episode where the caller sets nothing."""


@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """Keys of a world file besides those of `Grammar`."""

    __pydantic_config__: ClassVar[ConfigDict] = FROM_FILE
    include: tuple[str, ...] = ()
    """Files to read first, relative to the world's folder, or names of shipped levels."""
    keep: tuple[str, ...] = ()
    """Names of the relations to keep of those included; all when empty."""
    least: int = LEAST
    """Fewest forms of a group, at least 2; the smallest sizes of all other lists shrink
    with it.
    """
    config: WorldConfig = field(default_factory=WorldConfig)
    """Defaults of an episode."""


def open_world(level: str | Path) -> WorldSpec:
    """Return the world of a level, a name in the folder of worlds, or a path.

    `MEMAGENT_WORLDS` may name the folder of worlds. A world is read once in a process.
    Raises `EnvironmentFault` when there is none or it has faults, all of them listed.
    """
    return _opened(str(level))


def grammar_of(level: str | Path) -> Grammar:
    """Return the grammar of a world; names and errors as for `open_world`."""
    return open_world(level).grammar


@cache
def _opened(level: str) -> WorldSpec:
    name, folder, file = _locate(level)
    try:
        table = _read(folder, file)
        options = {key: table.pop(key) for key in ("least", "config") if key in table}
        own = TypeAdapter(FileOptions).validate_python(options)
        grammar = TypeAdapter(Grammar).validate_python(table)
        check_grammar(grammar, least=max(2, own.least))
    except ValidationError as error:
        faults = (f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        raise EnvironmentFault(f"world {name!r} has faults:\n" + "\n".join(faults)) from error
    except (OSError, ValueError, EnvironmentFault) as error:
        raise EnvironmentFault(f"world {name!r}: {error}") from error
    return WorldSpec(name, grammar, own.config)


def _locate(level: str) -> tuple[str, Traversable, str]:
    """Find a world: its name, its folder and its main file."""
    if level in LEVELS:
        return level, files("environments.worlds") / "data" / level, _MAIN
    shelf = os.environ.get(FOLDER_VARIABLE)
    for path in (Path(level), *([Path(shelf, level)] if shelf else [])):
        if path.is_dir():
            return path.resolve().name, path, _MAIN
        if path.is_file():
            return path.stem, path.parent, path.name
    raise EnvironmentFault(
        f"no level {level!r}; there are {', '.join(LEVELS)}, and no world lies at that path"
    )


def _read(folder: Traversable, file: str) -> dict[str, Any]:
    """Return the table of a file on top of those that it includes."""
    try:
        own = tomllib.loads(folder.joinpath(file).read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise EnvironmentFault(f"{file}: {error}") from error
    keep = own.pop("keep", ())
    table: dict[str, Any] = {}
    for name in own.pop("include", ()):
        part = _read(*_locate(name)[1:]) if name in LEVELS else _read(folder, name)
        table = _merged(table, part)
    if keep:
        relations = {relation.get("name"): relation for relation in table.get("relations", ())}
        if unknown := [name for name in keep if name not in relations]:
            raise EnvironmentFault(f"{file}: keep: no relation {', '.join(unknown)} is included")
        table["relations"] = [relation for name, relation in relations.items() if name in keep]
    return _merged(table, own)


def _merged(table: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(table)
    for key, value in more.items():
        before = merged.get(key)
        if isinstance(before, list) and isinstance(value, list):
            merged[key] = [*before, *value]
        elif isinstance(before, dict) and isinstance(value, dict):
            merged[key] = {**before, **value}
        else:
            merged[key] = value
    return merged


def world_schema() -> dict[str, Any]:
    """Return the JSON Schema of a world file, for editors.

    No key is required of a file, since another may bring it.
    """
    schema = TypeAdapter(Grammar).json_schema()
    options = TypeAdapter(FileOptions).json_schema()
    del schema["required"]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "World",
        "description": "A file of a generated world; see docs/worlds.md.",
        "properties": {**options["properties"], **schema["properties"]},
        "$defs": {**options["$defs"], **schema["$defs"]},
    }

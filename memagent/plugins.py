"""Plug-ins by name: one road for our built-ins and for everyone else's.

A plug-in is a Python object that some installed distribution declares under an
entry-point group `memagent.<group>`, or any object named outright as
`package.module:attribute`. `load` imports it and hands it over unchanged; whoever asked
checks that it fits, and the shipped `check_*` kits prove that it behaves. Nothing
registers itself on import: the installed metadata is the only table, read again once a
folder of the import path has changed. The one surprise: an editable install keeps the
table it was installed with, so a plug-in added later is unknown until the distribution
is installed again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from operator import attrgetter
from typing import Literal, get_args

from memagent.core.errors import ConfigError, UnknownPlugin, boundary

Group = Literal[
    "designs",
    "models",
    "embedders",
    "rerankers",
    "indexes",
    "journals",
    "readers",
    "environments",
    "tasks",
    "techniques",
]
"""A kind of plug-in; the entry-point group is `memagent.` and this word."""
GROUPS: tuple[Group, ...] = get_args(Group)
"""Every group, in the order a reader meets them."""

_CHECK_PATH = "Check the spelling, and that its package is installed."
_REINSTALL = (
    "If it was added after an editable install, run `pip install -e .` in its project again."
)


def available(group: Group) -> tuple[str, ...]:
    """Return the names that installed distributions declare in a group, sorted.

    Raises `ConfigError` for a group that does not exist. No plug-in is imported.
    """
    return tuple(sorted({point.name for point in _declared(group)}))


def load(group: Group, name: str) -> object:
    """Import a plug-in by its name, or an object by its path `package.module:attribute`.

    Raises `UnknownPlugin` when nothing has that name or the path leads nowhere, and
    `ConfigError` when the group does not exist, two distributions declare the name
    differently, or the module fails to import.
    """
    declared = _declared(group)
    if ":" in name:
        return _import(name, label=f"{group} plug-in {name!r}", remedy=_CHECK_PATH)
    targets = {point.value: point for point in declared if point.name == name}
    if not targets:
        known = sorted({point.name for point in declared})
        listed = f"installed: {', '.join(known)}" if known else "none is installed"
        raise UnknownPlugin(
            f"no {group} plug-in is named {name!r}{_maybe(name, known)}; {listed}; "
            f"or give 'package.module:attribute'. {_REINSTALL}"
        )
    if len(targets) > 1:
        claims = "; ".join(
            f"{_owner(point)} says {value}" for value, point in sorted(targets.items())
        )
        raise ConfigError(
            f"{group} plug-in {name!r} is declared twice: {claims}. "
            "Uninstall one, or give the dotted path."
        )
    value, point = targets.popitem()
    return _import(
        value, label=f"{group} plug-in {name!r} ({value}, from {_owner(point)})", remedy=_REINSTALL
    )


def _declared(group: str) -> list[EntryPoint]:
    if group not in GROUPS:
        raise ConfigError(
            f"no plug-in group {group!r}{_maybe(group, GROUPS)}; the groups are {', '.join(GROUPS)}"
        )
    folders = [folder or "." for folder in sys.path]
    known = [(each, os.stat(each).st_mtime_ns) for each in folders if os.path.exists(each)]
    return list(_points(f"memagent.{group}", tuple(known)))


@lru_cache(maxsize=2 * len(GROUPS))
def _points(group: str, changed: tuple[tuple[str, int], ...]) -> EntryPoints:  # noqa: ARG001  # the key
    """Return what is declared in a group: reading the metadata takes milliseconds."""
    return entry_points(group=group)


def _import(path: str, *, label: str, remedy: str) -> object:
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise UnknownPlugin(f"{label}: a dotted path has the form 'package.module:attribute'")
    try:
        with boundary(ConfigError, f"importing {label}"):
            module = import_module(module_name)
    except ConfigError as exc:
        cause = exc.__cause__
        missing = cause.name if isinstance(cause, ModuleNotFoundError) else None
        if missing is None or not f"{module_name}.".startswith(f"{missing}."):
            raise  # what the module itself imports is missing
        raise UnknownPlugin(f"{label}: there is no module {missing!r}. {remedy}") from cause
    try:
        return attrgetter(attribute)(module)
    except AttributeError as exc:
        near = _maybe(attribute, [word for word in vars(module) if not word.startswith("_")])
        raise UnknownPlugin(
            f"{label}: module {module_name!r} has no {attribute!r}{near}. {remedy}"
        ) from exc


def _maybe(word: str, known: Iterable[str]) -> str:
    near = get_close_matches(word, list(known), n=3)
    return f" (did you mean {' or '.join(map(repr, near))}?)" if near else ""


def _owner(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an unnamed distribution"

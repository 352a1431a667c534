"""Pure records and rules: standard library and pydantic only.

Import the module you need; nothing is re-exported here.

`Later` is a module that is imported when one of its names is first used: for what few
calls need beside a verb that all use. An agent that remembers and answers loads neither
erasure nor time travel. A file names such a module once, at its head:

    if TYPE_CHECKING:
        from memagent.memory import timetravel
    else:
        timetravel = Later("memagent.memory.timetravel")
"""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Later:
    """A module by its name; any use of an attribute imports it."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._name), name)

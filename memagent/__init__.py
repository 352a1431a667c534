"""memagent: a language-model agent with a long-term memory that is learned, cited and auditable.

The names below are the public face. They are resolved on first use (PEP 562), so
`import memagent` runs in milliseconds, loads no vendor library, reads no environment
variable and opens no socket. `from memagent import Agent` is all most programs need.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memagent.agent import Agent
    from memagent.async_agent import AsyncAgent
    from memagent.client.async_client import AsyncClient, Client
    from memagent.core.answers import Answer, AsOf, Citation, Filter, Hit, Question
    from memagent.core.errors import ConfigError, MemAgentError
    from memagent.core.ops import Add, Delete, Noop, Update
    from memagent.core.records import Event, Fact, MemoryItem, Scope, Session, TimeSpan, Turn
    from memagent.core.snapshot import IngestReport, MemorySnapshot
    from memagent.designs.base import MemoryDesign
    from memagent.memory.bank import MemoryBank

__version__ = "0.2.0"

__all__ = [
    "Add",
    "Agent",
    "Answer",
    "AsOf",
    "AsyncAgent",
    "AsyncClient",
    "Citation",
    "Client",
    "ConfigError",
    "Delete",
    "Event",
    "Fact",
    "Filter",
    "Hit",
    "IngestReport",
    "MemAgentError",
    "MemoryBank",
    "MemoryDesign",
    "MemoryItem",
    "MemorySnapshot",
    "Noop",
    "Question",
    "Scope",
    "Session",
    "TimeSpan",
    "Turn",
    "Update",
    "__version__",
]

_HOMES = {
    "agent": "Agent",
    "async_agent": "AsyncAgent",
    "client.async_client": "AsyncClient Client",
    "core.answers": "Answer AsOf Citation Filter Hit Question",
    "core.errors": "ConfigError MemAgentError",
    "core.ops": "Add Delete Noop Update",
    "core.records": "Event Fact MemoryItem Scope Session TimeSpan Turn",
    "core.snapshot": "IngestReport MemorySnapshot",
    "designs.base": "MemoryDesign",
    "memory.bank": "MemoryBank",
}
_HOME_OF = {
    name: f"memagent.{module}" for module, names in _HOMES.items() for name in names.split()
}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'memagent' has no attribute {name!r}")
    value: object = getattr(import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""`MemagentMemory` for CrewAI: the unified memory of a crew or an agent, kept by memagent.

CrewAI asks a model for scopes, categories and importance of each memory; here no model
is asked, and `recall` is memagent's search. Scopes and categories are kept as they are
given.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUntypedBaseClass=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeArgument=false, reportUntypedFunctionDecorator=false

from __future__ import annotations

from typing import Any

from pydantic import PrivateAttr

from memagent.agent import Agent
from memagent.core.errors import MissingExtra
from memagent.core.records import MemoryItem

try:
    from crewai.memory.types import MemoryMatch, MemoryRecord
    from crewai.memory.unified_memory import Memory
except ImportError as exc:
    raise MissingExtra("crewai", needed_for="MemagentMemory", cause=str(exc)) from exc


class MemagentMemory(Memory):
    """The memory of one user, for `Crew(memory=MemagentMemory.over(agent))`."""

    _agent: Agent = PrivateAttr()

    @classmethod
    def over(cls, agent: Agent) -> MemagentMemory:
        """Make a memory over a synchronous agent; CrewAI calls it from its threads."""
        memory = cls(storage=object())  # nothing of it is asked: the verbs below take its place
        memory._agent = agent
        return memory

    def remember(self, content: str, scope: str | None = None, **given: Any) -> MemoryRecord | None:
        """Remember one text as it is."""
        categories = [str(name) for name in given.get("categories") or ()]
        metadata = {"scope": scope or "/", "categories": ",".join(categories)}
        item = self._agent.memory.add(content, kind="crew", metadata=metadata)
        return _record(item)

    def remember_many(self, contents: list[str], scope: Any = None, **given: Any) -> list[Any]:
        """Remember texts as they are; when it returns they are stored."""
        return [record for text in contents if (record := self.remember(text, scope, **given))]

    def extract_memories(self, content: str) -> list[str]:
        """Return the text as the one memory in it; CrewAI would ask its model."""
        return [content] if content.strip() else []

    def recall(self, query: str, scope: Any = None, *, limit: int = 10, **_: Any) -> list[Any]:
        """Return the memories that fit a text, best first; of a scope if one is given."""
        hits = self._agent.search(query, k=limit) if query.strip() else []
        rows = [(_record(hit.item), hit.score) for hit in hits if hit.item is not None]
        return [
            MemoryMatch(record=record, score=score, match_reasons=["memagent"])
            for record, score in rows
            if scope is None or record.scope.startswith(scope)
        ]

    def reset(self, *_: Any, **__: Any) -> None:
        """Delete every memory of the user; an undo brings them back."""
        self._agent.memory.delete_all(user_id=self._agent.user_id)

    def drain_writes(self) -> None:
        """Return at once: writes do not wait."""

    def close(self) -> None:
        """Leave the agent open; whoever opened it closes it."""


def _record(item: MemoryItem) -> MemoryRecord:
    categories = str(item.metadata.get("categories") or "")
    dates = {"created_at": item.said_at} if item.said_at is not None else {}
    scope = str(item.metadata.get("scope") or "/")
    names = categories.split(",") if categories else []
    return MemoryRecord(id=item.id, content=item.text, scope=scope, categories=names, **dates)

"""`MemagentMemory` for CrewAI: the unified memory of a crew or an agent, kept by memagent.

CrewAI asks a model for scopes, categories and importance of each memory; here no model
is asked, and `recall` is memagent's search. Scopes and categories are kept as they are
given. Everything else of CrewAI's memory (forget, reset, scopes, slices) works over
`CrewStorage`. What a crew saves is a model's word and has an assistant's trust.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUntypedBaseClass=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeArgument=false, reportUntypedFunctionDecorator=false

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from typing import Any

from pydantic import PrivateAttr

from memagent.agent import Agent
from memagent.core.answers import Hit
from memagent.core.errors import MissingExtra
from memagent.core.ops import Add, OpBatch, Update
from memagent.core.records import Fact, MemoryItem, SourceRef, Trust
from memagent.integrations import access as conversation
from memagent.integrations.access import Access

try:
    from crewai.memory.types import MemoryMatch, MemoryRecord, ScopeInfo
    from crewai.memory.unified_memory import Memory
except ImportError as exc:
    raise MissingExtra("crewai", needed_for="MemagentMemory", cause=str(exc)) from exc

_KIND = "crew"
_MOST = 100


class CrewStorage:
    """The records of a crew as memories of one user: CrewAI's `StorageBackend`."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    def save(self, records: list[MemoryRecord]) -> None:
        """Store records; they get ids of their own."""
        for record in records:
            self.add(record.content, record)

    def add(self, content: str, record: MemoryRecord) -> MemoryItem:
        """Store a text with the fields of a record."""
        fact = Fact(text=content, kind=_KIND, trust=Trust.ASSISTANT, said_at=datetime.now(UTC))
        return self._commit(Add(fact=fact, metadata=_fields(record)))

    def delete(
        self,
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        record_ids: list[str] | None = None,
        older_than: datetime | None = None,
        metadata_filter: dict[str, Any] | None = None,
    ) -> int:
        """Delete the records that meet every condition; an undo brings them back."""
        wanted = metadata_filter or {}
        cut = (
            older_than
            if older_than is None or older_than.tzinfo
            else older_than.replace(tzinfo=UTC)
        )
        doomed = [
            record
            for record in self._records(scope_prefix)
            if (not categories or set(categories) & set(record.categories))
            and (record_ids is None or record.id in record_ids)
            and (cut is None or record.created_at < cut)
            and wanted.items() <= record.metadata.items()
        ]
        for record in doomed:
            self.agent.memory.delete(record.id)
        return len(doomed)

    def update(self, record: MemoryRecord) -> None:
        """Write a record's text and fields anew."""
        version = self.agent.memory.get(record.id).version
        fields = _fields(record)
        self._commit(Update(id=record.id, version=version, text=record.content, metadata=fields))

    def get_record(self, record_id: str) -> MemoryRecord | None:
        """Return a record, or None."""
        return next((record for record in self._records() if record.id == record_id), None)

    def list_records(
        self, scope_prefix: str | None = None, limit: int = 200, offset: int = 0
    ) -> list[MemoryRecord]:
        """Return records of a scope, newest first."""
        return self._records(scope_prefix)[::-1][offset : offset + limit]

    def get_scope_info(self, scope: str) -> ScopeInfo:
        """Return figures of a scope with all below it."""
        records = self._records(scope)
        dates = [record.created_at for record in records]
        return ScopeInfo(
            path=scope,
            record_count=len(records),
            categories=sorted({name for record in records for name in record.categories}),
            oldest_record=min(dates, default=None),
            newest_record=max(dates, default=None),
            child_scopes=self.list_scopes(scope),
        )

    def list_scopes(self, parent: str = "/") -> list[str]:
        """Return the scopes next below one."""
        base = parent.rstrip("/")
        below = {
            record.scope[len(base) + 1 :].partition("/")[0] for record in self._records(parent)
        }
        return sorted(f"{base}/{name}" for name in below if name)

    def list_categories(self, scope_prefix: str | None = None) -> dict[str, int]:
        """Return the categories of a scope with the number of their records."""
        return dict(Counter(name for r in self._records(scope_prefix) for name in r.categories))

    def count(self, scope_prefix: str | None = None) -> int:
        """Return the number of records of a scope."""
        return len(self._records(scope_prefix))

    def reset(self, scope_prefix: str | None = None) -> None:
        """Delete the records of a scope; without one all memories of the user."""
        if scope_prefix is None:
            self.agent.memory.delete_all(user_id=self.agent.user_id)
        else:
            self.delete(scope_prefix)

    def _commit(self, op: Add | Update) -> MemoryItem:
        batch, source = OpBatch(accepted=(op,)), SourceRef(actor="crew")
        commit = Access(self.agent).run(lambda live: live.bank.commit(batch, source=source))
        item = commit.changes[0].after
        assert item is not None
        return item

    def _records(self, scope: str | None = None) -> list[MemoryRecord]:
        """Return the records of a scope with all below it, oldest first."""
        items = self.agent.memory.get_all(limit=None)
        return [record for item in items if _within((record := _record(item)).scope, scope)]


class MemagentMemory(Memory):
    """The memory of one user, for `Crew(memory=MemagentMemory.over(agent))`."""

    _crew: CrewStorage = PrivateAttr()

    @classmethod
    def over(cls, agent: Agent) -> MemagentMemory:
        """Make a memory over a synchronous agent; CrewAI calls it from its threads."""
        storage = CrewStorage(agent)
        memory = cls(storage=storage)
        memory._crew = storage
        return memory

    def remember(self, content: str, scope: str | None = None, **given: Any) -> MemoryRecord | None:
        """Remember one text as it is; None when this memory only reads."""
        if self.read_only:
            return None
        root = given.get("root_scope") or self.root_scope
        record = MemoryRecord(
            content=content,
            scope=_joined(root, scope),
            categories=[str(name) for name in given.get("categories") or ()],
            metadata=given.get("metadata") or {},
            importance=0.5 if given.get("importance") is None else given["importance"],
            source=given.get("source"),
            private=bool(given.get("private")),
        )
        return _record(self._crew.add(content, record))

    def remember_many(self, contents: list[str], scope: Any = None, **given: Any) -> list[Any]:
        """Remember texts as they are; when it returns they are stored."""
        return [record for text in contents if (record := self.remember(text, scope, **given))]

    def extract_memories(self, content: str) -> list[str]:
        """Return the text as the one memory in it; CrewAI would ask its model."""
        return [content] if content.strip() else []

    def recall(  # noqa: PLR0913 - CrewAI's signature
        self,
        query: str,
        scope: Any = None,
        categories: list[str] | None = None,
        limit: int = 10,
        depth: str = "deep",  # noqa: ARG002
        source: str | None = None,
        include_private: bool = False,
    ) -> list[Any]:
        """Return the memories that fit a text, best first.

        Those of a scope, of one of the categories, and of private ones those of the
        same source alone.
        """
        inside = None if scope is None and not self.root_scope else _joined(self.root_scope, scope)
        hits = self._crew.agent.search(query, k=_MOST) if query.strip() else []
        matches = [
            MemoryMatch(record=record, score=hit.score, match_reasons=["memagent"])
            for hit in hits
            if hit.item is not None
            and _within((record := _record(hit.item, shown=hit)).scope, inside)
            and (not categories or set(categories) & set(record.categories))
            and (
                not record.private
                or include_private
                or (source is not None and record.source == source)
            )
        ]
        return matches[:limit]

    def drain_writes(self) -> None:
        """Return at once: writes do not wait."""

    def close(self) -> None:
        """Leave the agent open; whoever opened it closes it."""


def _joined(root: str | None, scope: str | None) -> str:
    """Return a scope below a root, in one spelling."""
    parts = [part for path in (root, scope) for part in (path or "").split("/") if part]
    return "/" + "/".join(parts)


def _within(path: str, scope: str | None) -> bool:
    """Tell whether a path is a scope or lies below it."""
    base = _joined(None, scope)
    return base == "/" or path == base or path.startswith(base + "/")


def _fields(record: MemoryRecord) -> dict[str, str]:
    """Return the fields of a record as metadata of a memory."""
    return {
        "scope": record.scope,
        "categories": json.dumps(record.categories),
        "crew": json.dumps(
            {
                "metadata": record.metadata,
                "importance": record.importance,
                "source": record.source,
                "private": record.private,
            },
            default=str,
        ),
    }


def _record(item: MemoryItem, *, shown: Hit | None = None) -> MemoryRecord:
    """Return a memory as a record; one that is `shown` to a model is cleaned."""
    named = str(item.metadata.get("categories") or "")
    # earlier releases joined the names by commas
    categories = json.loads(named) if named.startswith("[") else named.split(",") if named else []
    return MemoryRecord(
        id=item.id,
        content=item.text if shown is None else conversation.recalled_text(shown),
        scope=_joined(None, str(item.metadata.get("scope") or "/")),
        categories=categories,
        **json.loads(str(item.metadata.get("crew") or "{}")),
        created_at=item.said_at or datetime.fromtimestamp(0, UTC),
    )

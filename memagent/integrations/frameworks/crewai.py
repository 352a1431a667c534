"""`MemagentMemory` for CrewAI: the unified memory of a crew or an agent, kept by memagent.

CrewAI asks a model for scopes, categories and importance of each memory; here no model
is asked, and `recall` is memagent's search, weighed by CrewAI's own score. Scopes and
categories are kept as they are given. Everything else of CrewAI's memory (forget, reset,
scopes, slices) works over `CrewStorage`. What a crew saves is a model's word and has an
assistant's trust.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownParameterType=false, reportUntypedBaseClass=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeArgument=false, reportUntypedFunctionDecorator=false
# pyright: reportUnknownLambdaType=false

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from datetime import UTC, datetime
from inspect import signature
from time import perf_counter
from typing import Any, Final

from memagent.integrations.access import (
    Access,
    Add,
    Agent,
    ConfigError,
    Delete,
    Fact,
    Filter,
    Hit,
    InputError,
    MemoryItem,
    MemoryNotFound,
    MissingExtra,
    OpBatch,
    SourceRef,
    Trust,
    Update,
    as_utc,
    recalled_text,
)

try:
    from crewai.events import crewai_event_bus
    from crewai.events.types import memory_events as events
    from crewai.memory.types import MemoryMatch, MemoryRecord, ScopeInfo, compute_composite_score
    from crewai.memory.unified_memory import Memory
except ImportError as exc:
    raise MissingExtra("crewai", needed_for="MemagentMemory", cause=str(exc)) from exc

_KIND = "crew"
# Fields of CrewAI's memory that tell how it asks its model and its embedder.
_UNUSED: Final = frozenset(Memory.model_fields) - {
    *("memory_kind", "storage", "read_only", "root_scope", "default_importance"),
    *("recency_weight", "semantic_weight", "importance_weight", "recency_half_life_days"),
}
_KEPT: Final = frozenset(
    ("self", "content", "contents", "scope", "categories", "metadata", "importance", "source")
) | {"private", "agent_role", "root_scope"}
_RECIPES: Final = {"shallow": "fast", "deep": "deep"}


class CrewStorage:
    """The records of a crew as memories of one user: CrewAI's `StorageBackend`."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    def save(self, records: list[MemoryRecord]) -> None:
        """Store records under their ids, in one commit."""
        self._commit(
            Add(
                fact=Fact(
                    text=record.content,
                    kind=_KIND,
                    trust=Trust.ASSISTANT,
                    said_at=as_utc(record.created_at),
                ),
                id=record.id,
                metadata=_fields(record),
            )
            for record in records
        )

    def search(self, query_embedding: list[float], *_: Any, **__: Any) -> Any:
        """Raise `InputError`: memagent embeds the text of a query by itself."""
        raise InputError(
            f"query_embedding has {len(query_embedding)} numbers of another embedder; "
            "memagent searches by text: call MemagentMemory.recall"
        )

    def delete(
        self,
        scope_prefix: str | None = None,
        categories: list[str] | None = None,
        record_ids: list[str] | None = None,
        older_than: datetime | None = None,
        metadata_filter: dict[str, Any] | None = None,
    ) -> int:
        """Delete the records that meet every condition; an undo brings them back."""
        fields = metadata_filter or {}
        doomed = [
            record.id
            for record in self.records(scope_prefix, categories)
            if (record_ids is None or record.id in record_ids)
            and (older_than is None or as_utc(record.created_at) < as_utc(older_than))
            and all(record.metadata.get(name) == value for name, value in fields.items())
        ]
        self._commit(Delete(id=name) for name in doomed)
        return len(doomed)

    def update(self, record: MemoryRecord) -> None:
        """Write a record's text and fields anew."""
        version = self.agent.memory.get(record.id).version
        self._commit(
            [Update(id=record.id, version=version, text=record.content, metadata=_fields(record))]
        )

    def get_record(self, record_id: str) -> MemoryRecord | None:
        """Return a record, or None."""
        try:
            return _record(self.agent.memory.get(record_id))
        except MemoryNotFound:
            return None

    def list_records(
        self, scope_prefix: str | None = None, limit: int = 200, offset: int = 0
    ) -> list[MemoryRecord]:
        """Return records of a scope, newest first."""
        if limit <= 0 or offset < 0:
            return []
        return self.records(scope_prefix)[::-1][offset : offset + limit]

    def get_scope_info(self, scope: str) -> ScopeInfo:
        """Return figures of a scope with all below it."""
        records = self.records(scope)
        dates = [record.created_at for record in records]
        return ScopeInfo(
            path=_joined(None, scope),
            record_count=len(records),
            categories=sorted({name for record in records for name in record.categories}),
            oldest_record=min(dates, default=None),
            newest_record=max(dates, default=None),
            child_scopes=self.list_scopes(scope),
        )

    def list_scopes(self, parent: str = "/") -> list[str]:
        """Return the scopes next below one."""
        base = _joined(None, parent).rstrip("/")
        below = {record.scope[len(base) + 1 :].partition("/")[0] for record in self.records(parent)}
        return sorted(f"{base}/{name}" for name in below if name)

    def list_categories(self, scope_prefix: str | None = None) -> dict[str, int]:
        """Return the categories of a scope with the number of their records."""
        return dict(Counter(name for r in self.records(scope_prefix) for name in r.categories))

    def count(self, scope_prefix: str | None = None) -> int:
        """Return the number of records of a scope."""
        return len(self.records(scope_prefix))

    def reset(self, scope_prefix: str | None = None) -> None:
        """Delete the records of a scope; without one all memories of the user."""
        self.delete(scope_prefix)

    async def asave(self, records: list[MemoryRecord]) -> None:
        """`save`, awaited."""
        self.save(records)

    async def asearch(self, query_embedding: list[float], *_: Any, **__: Any) -> Any:
        """`search`, awaited. Raises `InputError`."""
        return self.search(query_embedding)

    async def adelete(self, *conditions: Any, **named: Any) -> int:
        """`delete`, awaited."""
        return self.delete(*conditions, **named)

    def records(
        self, scope: str | None = None, categories: Iterable[str] | None = None
    ) -> list[MemoryRecord]:
        """Return the records of a scope with all below it, oldest first.

        With `categories` only those of at least one of them.
        """
        items = self.agent.memory.get_all(limit=None)
        inside = [item for item in items if _within(_scope(item), scope)]
        records, names = [_record(item) for item in inside], set(categories or ())
        return [record for record in records if not names or names & set(record.categories)]

    def _commit(self, ops: Iterable[Add | Delete | Update]) -> None:
        batch, source = OpBatch(accepted=tuple(ops)), SourceRef(actor="crew")
        if batch.accepted:
            Access(self.agent).run(lambda live: live.bank.commit(batch, source=source))


class MemagentMemory(Memory):
    """The memory of one user, for `Crew(memory=MemagentMemory.over(agent))`."""

    @classmethod
    def over(cls, agent: Agent, **options: Any) -> MemagentMemory:
        """Make a memory over a synchronous agent; CrewAI calls it from its threads.

        `options` are fields of CrewAI's memory: `root_scope`, `read_only`,
        `default_importance`, and the weights of its score. One that says how CrewAI asks
        a model or an embedder is refused by name.
        """
        return cls(storage=CrewStorage(agent), **options)

    def model_post_init(self, context: Any, /) -> None:
        """Refuse the fields that have no use here; pydantic reports the `ConfigError`."""
        unused = sorted(self.model_fields_set & _UNUSED)
        if unused or not isinstance(self.storage, CrewStorage):
            raise ConfigError(
                f"{', '.join(unused)} has no use here: give model and embedder to memagent's Agent"
                if unused
                else "the storage of this memory is memagent: MemagentMemory.over(agent)"
            )
        super().model_post_init(context)
        self._embedder_instance = lambda _: []  # memagent keeps the vectors of the texts

    def remember(self, content: str, *rest: Any, **named: Any) -> MemoryRecord | None:
        """Remember one text as it is; None when this memory only reads."""
        given = signature(Memory.remember).bind(self, content, *rest, **named).arguments
        return next(iter(self._save([content], given)), None)

    def remember_many(self, contents: list[str], *rest: Any, **named: Any) -> list[MemoryRecord]:
        """Remember texts as they are; when it returns they are stored."""
        given = signature(Memory.remember_many).bind(self, contents, *rest, **named).arguments
        return self._save(contents, given)

    def _save(self, texts: list[str], given: dict[str, Any]) -> list[MemoryRecord]:
        """Store texts in one commit, with what a call of CrewAI's was given.

        Raises `ConfigError` for an argument of a later CrewAI.
        """
        if unknown := sorted(set(given) - _KEPT):
            raise ConfigError(f"{unknown[0]} is not kept; leave it out")
        if self.read_only or not texts:
            return []
        importance, root = given.get("importance"), given.get("root_scope")
        fields = {
            "scope": _joined(self.root_scope if root is None else root, given.get("scope")),
            "categories": [str(name) for name in given.get("categories") or ()],
            "metadata": given.get("metadata") or {},
            "importance": self.default_importance if importance is None else importance,
            "source": given.get("source"),
            "private": bool(given.get("private")),
        }
        with self._announced(
            "MemorySave",
            value="\n".join(texts),
            metadata=given.get("metadata"),
            agent_role=given.get("agent_role"),
        ):
            records = [MemoryRecord(content=text, **fields) for text in texts]
            self.storage.save(records)
        return records

    def extract_memories(self, content: str) -> list[str]:
        """Return the text as the one memory in it; CrewAI would ask its model."""
        return [content] if content.strip() else []

    def recall(  # noqa: PLR0913 - CrewAI's signature
        self,
        query: str,
        scope: Any = None,
        categories: list[str] | None = None,
        limit: int = 10,
        depth: str = "deep",
        source: str | None = None,
        include_private: bool = False,
    ) -> list[Any]:
        """Return the memories that fit a text, best first.

        Those of a scope, of one of the categories, and of private ones those of the
        same source alone. `deep` also follows the graph and neighbours, `shallow` is
        memagent's fast search. Raises `ConfigError` for another depth.
        """
        if depth not in _RECIPES:
            raise ConfigError(f"there is no depth {depth!r}; there are {', '.join(_RECIPES)}")
        with self._announced("MemoryQuery", query=query, limit=limit) as outcome:
            inside = _joined(self.root_scope, scope)
            found = {
                record.id: record
                for record in self.storage.records(inside, categories)
                if not record.private
                or include_private
                or (source is not None and record.source == source)
            }
            where, recipe = Filter(ids=frozenset(found)), _RECIPES[depth]
            asks = bool(found) and limit > 0 and bool(query.strip())
            hits = (
                self.storage.agent.search(query, k=2 * limit, where=where, recipe=recipe)
                if asks
                else []
            )
            matches = [self._match(found[hit.id], hit) for hit in hits if hit.id in found]
            matches.sort(key=lambda match: match.score, reverse=True)
            outcome["results"] = matches = matches[: max(limit, 0)]
        return matches

    def _match(self, record: MemoryRecord, hit: Hit) -> MemoryMatch:
        """Return a record with CrewAI's score: relevance, age and importance."""
        relevance = min(1.0, max(0.0, hit.score))
        score, reasons = compute_composite_score(record, relevance, self._config)
        shown = record.model_copy(update={"content": recalled_text(hit)})
        return MemoryMatch(record=shown, score=score, match_reasons=[*reasons, "memagent"])

    @contextmanager
    def _announced(self, kind: str, **fields: Any) -> Generator[dict[str, Any]]:
        """Tell CrewAI's listeners how a call begins and ends, with what it puts into the dict."""

        def emit(stage: str, **more: Any) -> None:
            event = getattr(events, f"{kind}{stage}Event")
            crewai_event_bus.emit(self, event(source_type="unified_memory", **fields, **more))

        start, outcome = perf_counter(), dict[str, Any]()
        emit("Started")
        try:
            yield outcome
        except Exception as exc:
            emit("Failed", error=str(exc))
            raise
        spent = "save_time_ms" if kind == "MemorySave" else "query_time_ms"
        emit("Completed", **outcome, **{spent: (perf_counter() - start) * 1000})


def _joined(root: str | None, scope: str | None) -> str:
    """Return a scope below a root, in one spelling."""
    parts = [part for path in (root, scope) for part in (path or "").split("/") if part]
    return "/" + "/".join(parts)


def _within(path: str, scope: str | None) -> bool:
    """Tell whether a path is a scope or lies below it."""
    base = _joined(None, scope)
    return base == "/" or path == base or path.startswith(base + "/")


def _scope(item: MemoryItem) -> str:
    return _joined(None, str(item.metadata.get("scope") or "/"))


def _fields(record: MemoryRecord) -> dict[str, str]:
    """Return the fields of a record as metadata of a memory."""
    return {
        "scope": _joined(None, record.scope),
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


def _record(item: MemoryItem) -> MemoryRecord:
    """Return a memory as a record."""
    named = str(item.metadata.get("categories") or "")
    # earlier releases joined the names by commas
    categories = json.loads(named) if named.startswith("[") else named.split(",") if named else []
    created = (item.said_at or datetime.fromtimestamp(0, UTC)).replace(tzinfo=None)
    return MemoryRecord(
        id=item.id,
        content=item.text,
        scope=_scope(item),
        categories=categories,
        **json.loads(str(item.metadata.get("crew") or "{}")),
        created_at=created,
        last_accessed=created,
    )

"""mem0's vocabulary over memagent: owners, filters, arguments, writes and results.

What mem0 keeps beside a text (agent, run, actor, role, the caller's metadata of any
JSON) stands in reserved metadata of the item, so that a caller's keys can never pose as
an owner. An item's user is its scope's and is kept nowhere else. `OwnersAgents` has one
agent per owner's scope, over one store.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

from pydantic import BaseModel

from memagent.async_agent import AsyncAgent
from memagent.build import Store
from memagent.config import AgentSettings, ModelSettings
from memagent.core.errors import ConfigError, InputError
from memagent.core.ops import Add, OpBatch, Update
from memagent.core.records import Fact, MemoryItem, Scope, SourceRef, Trust
from memagent.core.snapshot import HistoryEntry, IngestReport
from memagent.designs.base import MemoryDesign
from memagent.integrations.access import Assignment, assign, in_order
from memagent.memory.bank import MemoryBank
from memagent.protocols import ChatModel
from memagent.state.fold import BankState

OWNERS = ("user_id", "agent_id", "run_id")
_PROMOTED = ("agent_id", "run_id", "actor_id", "role")
_LOGIC = ("AND", "OR", "NOT")
_OPERATORS = ("eq", "ne", "gt", "gte", "lt", "lte", "in", "nin", "contains", "icontains")


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of the memories of a call; at least one id is set."""

    user_id: str | None = None
    agent_id: str | None = None
    run_id: str | None = None

    @property
    def scope(self) -> Scope:
        """The scope of this owner's memories: its user, else its agent, else its run."""
        if self.user_id is not None:
            return Scope(user_id=self.user_id)
        return Scope(
            agent_id=self.agent_id, run_id=None if self.agent_id is not None else self.run_id
        )


def owner_of(ids: Mapping[str, Any], *, needed_for: str) -> Owner:
    """Return the owner that some of user_id, agent_id and run_id name.

    Raises `InputError` for none, or for an id that cannot be one.
    """
    named: dict[str, str] = {}
    for name in OWNERS:
        if (value := ids.get(name)) is not None:
            named[name] = str(value).strip()
            odd = any(char.isspace() or not char.isprintable() for char in named[name])
            if odd or not 0 < len(named[name]) <= 256:
                raise InputError(
                    f"{name} {str(value)[:40]!r} cannot be an id: "
                    "give 1 to 256 printable characters without spaces"
                )
    if not named:
        raise InputError(
            f"{needed_for} needs at least one of user_id, agent_id, run_id, "
            "such as filters={'user_id': 'ana'}"
        )
    return Owner(**named)


def fits(scope: Scope, item: MemoryItem, owner: Owner, conditions: Mapping[str, Any]) -> bool:
    """Tell whether an item of a scope carries every id of an owner and meets a filter."""
    fields = fields_of(scope, item)
    ids = {"user_id": owner.user_id, "agent_id": owner.agent_id, "run_id": owner.run_id}
    return all(fields.get(name) == value for name, value in ids.items() if value is not None) and (
        not conditions or _passes({**metadata_of(item), **fields}, conditions)
    )


# -- what is kept beside a text --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Note:
    """The description of memories that a call or an import makes."""

    owner: Owner
    metadata: Mapping[str, Any] | None
    last_day: date | None

    def reserved(
        self,
        *,
        actor_id: str | None = None,
        role: str | None = None,
        updated_at: datetime | None = None,
    ) -> dict[str, Any]:
        """Return the reserved metadata of a memory.

        Raises `InputError` for metadata that is not JSON.
        """
        owner, last_day = self.owner, self.last_day
        fields: dict[str, Any] = {
            "_agent_id": owner.agent_id,
            "_run_id": owner.run_id,
            "_actor_id": actor_id,
            "_role": role,
            "_expiration_date": last_day.isoformat() if last_day is not None else None,
            "_metadata": as_json(self.metadata) if self.metadata else None,
            "_updated_at": updated_at.isoformat() if updated_at is not None else None,
        }
        return {name: value for name, value in fields.items() if value is not None}


def as_json(metadata: Mapping[str, Any]) -> str:
    """Encode the caller's metadata as JSON, without the keys that name owners.

    Raises `InputError`.
    """
    try:
        return json.dumps(
            {key: value for key, value in metadata.items() if key not in (*OWNERS, "actor_id")}
        )
    except (TypeError, ValueError, RecursionError) as exc:
        raise InputError(f"the metadata is not JSON: {exc}") from exc


def metadata_of(item: MemoryItem) -> dict[str, Any]:
    """Return the caller's metadata of an item, also that of memagent's own verbs."""
    plain = {key: value for key, value in item.metadata.items() if not key.startswith("_")}
    return {**plain, **json.loads(str(item.metadata.get("_metadata") or "{}"))}


def fields_of(scope: Scope, item: MemoryItem) -> dict[str, Any]:
    """Return the fields that filters can name and results show beside text and dates."""
    promoted = {name: item.metadata.get(f"_{name}") for name in _PROMOTED}
    if scope.agent_id is not None or scope.run_id is not None:
        promoted["agent_id"] = promoted["agent_id"] or scope.agent_id
        promoted["run_id"] = promoted["run_id"] or scope.run_id
        user = None
    else:
        user = scope.user_id
    last_day = item.metadata.get("_expiration_date")
    fields = {"user_id": user, **promoted, "expiration_date": last_day}
    return {name: value for name, value in fields.items() if value is not None}


def envelope(
    scope: Scope, versions: Sequence[MemoryItem], *, score: float | None = None
) -> dict[str, Any]:
    """Show an item, given with its earlier versions, as mem0 shows a memory."""
    item = versions[-1]
    created = _date(item, "_created_at") or versions[0].said_at
    updated = _date(item, "_updated_at") or item.said_at or created
    row: dict[str, Any] = {
        "id": item.id,
        "memory": item.text,
        "hash": hashlib.md5(item.text.encode(), usedforsecurity=False).hexdigest(),
        "metadata": metadata_of(item) or None,
        "created_at": created.isoformat() if created is not None else None,
        "updated_at": updated.isoformat() if updated is not None else None,
        **fields_of(scope, item),
    }
    return row if score is None else {**row, "score": score}


def _date(item: MemoryItem, name: str) -> datetime | None:
    text = item.metadata.get(name)
    return datetime.fromisoformat(str(text)) if text is not None else None


# -- dates -----------------------------------------------------------------------------


def expiration_of(value: object) -> date | None:
    """Return the last day of a memory from a date, a datetime or YYYY-MM-DD.

    Raises `InputError`.
    """
    if value is None:
        return None
    if isinstance(value, datetime):
        return value.date()
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        raise InputError(
            f"expiration_date {str(value)[:40]!r} is no date; write YYYY-MM-DD"
        ) from None


def end_of(day: date | None) -> datetime | None:
    """Return the end of a memory with that last day: the midnight after it, in UTC."""
    if day is None or day == date.max:
        return None
    return datetime.combine(day + timedelta(days=1), time(), UTC)


def moment_of(value: object) -> datetime | None:
    """Return a moment from a datetime, seconds since 1970 or an ISO text; naive ones are UTC.

    Raises `InputError`.
    """
    if value is None:
        return None
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    except (ValueError, OverflowError, OSError):
        raise InputError(
            f"timestamp {str(value)[:40]!r} is no moment; give seconds since 1970 or an ISO date"
        ) from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


# -- filters ---------------------------------------------------------------------------


def check_filter(conditions: Mapping[str, Any]) -> None:
    """Raise `InputError` for an operator that does not exist or lacks its list."""
    for name, rule in conditions.items():
        if name in _LOGIC:
            for part in cast("list[object]", rule if isinstance(rule, list) else [None]):
                if not isinstance(part, Mapping):
                    raise InputError(f"{name} takes a list of filters")
                check_filter(cast("Mapping[str, Any]", part))
        elif isinstance(rule, Mapping):
            for operator in cast("Mapping[str, object]", rule):
                if operator not in _OPERATORS:
                    raise InputError(
                        f"there is no filter operator {str(operator)!r}; "
                        f"there are {', '.join(_OPERATORS)}"
                    )


def _passes(values: Mapping[str, Any], conditions: Mapping[str, Any]) -> bool:
    return all(_meets(values, name, rule) for name, rule in conditions.items())


def _meets(values: Mapping[str, Any], name: str, rule: Any) -> bool:
    if name == "AND":
        return all(_passes(values, part) for part in rule)
    if name in _LOGIC:
        return any(_passes(values, part) for part in rule) == (name == "OR")
    if isinstance(rule, Mapping):
        bounds = cast("Mapping[str, Any]", rule).items()
        return all(_compares(values.get(name), str(operator), bound) for operator, bound in bounds)
    return name in values if rule == "*" else values.get(name) == rule


def _compares(value: Any, operator: str, bound: Any) -> bool:
    match operator:
        case "eq":
            return value == bound
        case "ne":
            return value != bound
        case "in" | "nin":
            listed = isinstance(bound, list | tuple | set) and value in bound
            return listed == (operator == "in")
        case "contains" | "icontains":
            if isinstance(value, list):
                return bound in value
            text, part = str(value or ""), str(bound)
            return part in text if operator == "contains" else part.casefold() in text.casefold()
        case _:
            return in_order(value, operator, bound)


UNSET: Any = object()
"""Stands for an argument that the caller left out, where None has a meaning."""
Config = Mapping[str, Any] | BaseModel
"""mem0's configuration: its `MemoryConfig`, or the same as a dict."""
Messages = str | Mapping[str, Any] | Sequence[Mapping[str, Any]]
_log = logging.getLogger(__name__)
AMENDED = "mem0"
"""Actor of a commit that completes what `add` wrote; history leaves it out."""
_TRUST = {"assistant": Trust.ASSISTANT, "tool": Trust.TOOL}

# -- arguments -------------------------------------------------------------------------


def unknown(memory_id: str) -> InputError:
    """Return the error for an id that no memory has."""
    return InputError(f"Memory with id {memory_id} not found")


def messages_of(messages: Messages) -> list[Mapping[str, Any]]:
    """Return a text, a message or a list as messages, without the system's.

    Raises `InputError`.
    """
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    rows: Any = [messages] if isinstance(messages, Mapping) else messages
    if not isinstance(rows, Sequence) or not all(
        isinstance(row, Mapping) for row in cast("Sequence[object]", rows)
    ):
        raise InputError(
            "messages are a text, a message, or a list of messages "
            "such as {'role': 'user', 'content': 'Hello'}"
        )
    utterances = cast("Sequence[Mapping[str, Any]]", rows)
    return [message for message in utterances if message.get("role") != "system"]


def check_search(query: object, threshold: object, reference_date: object) -> None:
    """Raise `InputError` for a search that mem0 would refuse."""
    if not isinstance(query, str) or not query.strip():
        raise InputError("the query is empty" if isinstance(query, str) else "the query is no text")
    if reference_date is not None:
        raise InputError("reference_date is not supported; add(timestamp=...) dates memories")
    least = 0 if threshold is None else threshold
    if not isinstance(least, int | float) or not 0 <= least <= 1:
        raise InputError(f"threshold is {threshold!r}; give a number between 0 and 1, or None")


def read_request(
    filters: Mapping[str, Any] | None, ids: Mapping[str, str | None], top_k: object, *, verb: str
) -> tuple[Owner, dict[str, Any]]:
    """Return the owner and the filter's other conditions of a read.

    `ids` are those given beside `filters`. Raises `InputError`.
    """
    conditions = dict(filters or {})
    named = {name: conditions.pop(name, None) or ids[name] for name in OWNERS}
    check_filter(conditions)
    if not isinstance(top_k, int) or isinstance(top_k, bool) or top_k < 0:
        raise InputError(f"top_k is {top_k!r}; ask for 0 or more")
    return owner_of(named, needed_for=verb), conditions


def place_of(
    config: Config | str | Path | None,
) -> tuple[str | Path | None, AgentSettings | None]:
    """Return the path and the settings that a memory's first argument names.

    Of mem0's `MemoryConfig` only what was set counts, not its defaults. Raises
    `ConfigError` for anything else than a path or a configuration.
    """
    if config is None or isinstance(config, str | Path):
        return config, None
    if isinstance(config, BaseModel):
        config = config.model_dump(exclude_unset=True, warnings=False)
    if not isinstance(config, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(
            f"a {type(config).__name__} is no configuration; give a path, mem0's MemoryConfig "
            "or the same as a dict"
        )
    llm = _table(config, "llm")
    options = _table(llm, "config")
    settings: AgentSettings | None = None
    if options.get("model"):
        names = ("openai_base_url", "ollama_base_url", "base_url")
        model = ModelSettings(
            model=f"{llm.get('provider') or 'openai'}/{options['model']}",
            api_key=options.get("api_key"),
            base_url=next((options[name] for name in names if options.get(name)), None),
        )
        settings = AgentSettings(model=model)
    folder = _table(_table(config, "vector_store"), "config").get("path")
    unused = sorted(set(config) - {"llm", "vector_store", "version", "history_db_path"})
    if unused:
        _log.warning("mem0 settings that have no use here: %s", ", ".join(unused))
    return Path(str(folder)) / "memagent.db" if folder else None, settings


def _table(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return config.get(name) or {}


# -- writes ----------------------------------------------------------------------------


async def add_raw(
    bank: MemoryBank, messages: Sequence[Mapping[str, Any]], note: Note, *, at: datetime
) -> list[dict[str, Any]]:
    """Keep each message as a memory of its own. Raises `InputError` for one without text."""
    ops: list[Add] = []
    for message in messages:
        role, text, name = message.get("role"), message.get("content"), message.get("name")
        role = str(role or "user")
        if not isinstance(text, str) or not text.strip():
            raise InputError(
                "a message has no text: give it as `content`, a string that is not empty"
            )
        metadata = note.reserved(actor_id=str(name) if name else None, role=role)
        fact = Fact(
            text=text,
            speaker=str(name or role),
            said_at=at,
            trust=_TRUST.get(role, Trust.USER),
            expires_at=end_of(note.last_day),
        )
        ops.append(Add(fact=fact, id=str(uuid4()), metadata=metadata))
    if ops:
        await bank.commit(OpBatch(accepted=tuple(ops)), source=SourceRef(actor="user"))
    return [
        {
            "id": op.id,
            "memory": op.fact.text,
            "event": "ADD",
            "actor_id": op.metadata.get("_actor_id"),
            "role": op.metadata["_role"],
        }
        for op in ops
    ]


async def update(
    agent: AsyncAgent,
    memory_id: str,
    text: str | None,
    metadata: Mapping[str, Any] | None,
    expiration_date: Any,
) -> None:
    """Write a new version of a memory; None leaves the text or the metadata, `UNSET` the last day.

    Raises `InputError` when the memory is gone.
    """
    dated = expiration_date is not UNSET
    last_day = expiration_of(expiration_date) if dated else None
    now = agent.clock()

    def plan(state: BankState, _: str) -> list[Assignment]:
        old = state.items.get(memory_id)
        if old is None or not old.active:
            raise unknown(memory_id)
        reserved = {**old.metadata, "_updated_at": now.isoformat()}
        if metadata is not None:
            reserved["_metadata"] = as_json({**metadata_of(old), **metadata})
        op = Update(id=old.id, version=old.version, text=text or old.text)
        fields = {**dict(old), "version": old.version + 1, "text": op.text, "metadata": reserved}
        if dated:
            reserved["_expiration_date"] = last_day.isoformat() if last_day is not None else None
            fields["expires_at"] = end_of(last_day)
        return [(op, MemoryItem.model_validate(fields), None)]

    await assign(agent.bank, plan)


# -- results ---------------------------------------------------------------------------


def page_of(rows: Sequence[dict[str, Any]], page: int, size: int) -> dict[str, Any]:
    """Return one page of rows, counted from 1. Raises `InputError`."""
    if page < 1 or size < 1:
        raise InputError(f"page {page}, page_size {size}: both count from 1")
    end = page * size
    return {
        "count": len(rows),
        "next": page + 1 if end < len(rows) else None,
        "previous": page - 1 or None,
        "results": rows[end - size : end],
    }


def events(
    report: IngestReport, before: Mapping[str, MemoryItem], after: BankState
) -> list[dict[str, Any]]:
    """Return one event per op of an ingest; a NOOP that names no memory is left out."""
    rows: list[dict[str, Any]] = []
    for applied in (op for chunk in report.chunks for op in chunk.applied):
        item_id, name = applied.item_id, applied.op.op
        if item_id is None:
            continue
        old, now = before.get(item_id), after.items.get(item_id)
        shown = old if name == "DELETE" and old is not None else now
        row = {"id": item_id, "memory": shown.text if shown is not None else "", "event": name}
        if name == "UPDATE" and old is not None:
            row["previous_memory"] = old.text
        rows.append(row)
    return rows


def history(memory_id: str, entries: Sequence[HistoryEntry]) -> list[dict[str, Any]]:
    """Return a memory's changes as rows of mem0's history."""
    rows: list[dict[str, Any]] = []
    text: str | None = None
    for entry in entries:
        if entry.source.actor == AMENDED:
            continue
        now = entry.item.text if entry.item is not None and entry.item.active else None
        restored = "DELETE" if now is None else "ADD" if text is None else "UPDATE"
        metadata = entry.item.metadata if entry.item is not None else {}
        rows.append(
            {
                "id": f"{memory_id}:{entry.seq}",
                "memory_id": memory_id,
                "old_memory": text,
                "new_memory": now,
                "event": entry.op.op if entry.op is not None else restored,
                "created_at": entries[0].recorded_at.isoformat(),
                "updated_at": entry.recorded_at.isoformat(),
                "is_deleted": now is None,
                "actor_id": metadata.get("_actor_id"),
                "role": metadata.get("_role"),
            }
        )
        text = now
    return rows


class OwnersAgents:
    """The agents of a store, made when a call needs them."""

    def __init__(
        self, store: Store, *, model: ChatModel | str | None, design: MemoryDesign | str | None
    ) -> None:
        self.store = store
        self._model, self._design = model, design
        self._agents: dict[Scope, AsyncAgent] = {}

    def of_scope(self, scope: Scope) -> AsyncAgent:
        """Return the agent of a scope."""
        if scope not in self._agents:
            self._agents[scope] = self.store.agent(scope, model=self._model, design=self._design)
        return self._agents[scope]

    async def every(self) -> list[AsyncAgent]:
        """Return the agents of all scopes in use and in the store."""
        known = dict.fromkeys((*self._agents, *await self.store.journal.scopes()))
        return [self.of_scope(scope) for scope in known]

    async def find(self, memory_id: str) -> AsyncAgent | None:
        """Return the agent that has an active memory of this id."""
        for agent in await self.every():
            item = (await agent.bank.sync()).items.get(memory_id)
            if item is not None and item.active:
                return agent
        return None

    async def get(self, memory_id: str) -> AsyncAgent:
        """Return the agent that has an active memory of this id. Raises `InputError`."""
        if (agent := await self.find(memory_id)) is None:
            raise unknown(memory_id)
        return agent

    async def memories_of(
        self, owner: Owner, conditions: Mapping[str, Any], *, show_expired: bool
    ) -> list[tuple[AsyncAgent, list[MemoryItem]]]:
        """Return each agent that may have memories of an owner, and those that meet a filter."""
        one_scope = owner.user_id is not None
        agents = [self.of_scope(owner.scope)] if one_scope else await self.every()
        return [
            (
                agent,
                [
                    item
                    for item in await agent.memory.get_all(include_deleted=show_expired)
                    if item.active and fits(agent.bank.scope, item, owner, conditions)
                ],
            )
            for agent in agents
        ]

"""How calls of mem0 read and what they give back: arguments, configuration, events, history."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from memagent.config import AgentSettings, ModelSettings
from memagent.core.errors import InputError
from memagent.core.ops import Add, Update
from memagent.core.records import MemoryItem
from memagent.core.reports import IngestReport
from memagent.core.snapshot import HistoryEntry
from memagent.integrations import mem0_records as records
from memagent.integrations.access import Assignment, assign
from memagent.integrations.mem0_records import Owner, owner_of
from memagent.memory.bank import MemoryBank
from memagent.state.fold import BankState

_log = logging.getLogger(__name__)
_AMENDED = "mem0"
"""Actor of a commit that completes what `add` wrote; history leaves it out."""

# -- arguments -------------------------------------------------------------------------


def unknown(memory_id: str) -> InputError:
    """The error for an id that nobody has."""
    return InputError(f"Memory with id {memory_id} not found")


def messages_of(messages: object) -> list[Mapping[str, Any]]:
    """Messages from a text, one message or a list. Raises `InputError`."""
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    if isinstance(messages, Mapping):
        return [cast("Mapping[str, Any]", messages)]
    if not isinstance(messages, Sequence) or not all(
        isinstance(one, Mapping) for one in cast("Sequence[object]", messages)
    ):
        raise InputError(
            "messages are a text, a message, or a list of messages such as {'role': 'user', 'content': 'Hello'}"
        )
    return list(cast("Sequence[Mapping[str, Any]]", messages))


def asked(
    filters: Mapping[str, Any] | None, given: Mapping[str, Any], top_k: int, *, needed_for: str
) -> tuple[Owner, dict[str, Any], int]:
    """(owner, the filter's other conditions, how many) of a read."""
    unknown = set(given) - {*records.OWNERS, "limit"}
    if unknown:
        raise InputError(f"{needed_for} has no argument {sorted(unknown)[0]!r}")
    wanted = dict(filters or {})
    ids = {name: wanted.pop(name, None) or given.get(name) for name in records.OWNERS}
    records.check_filter(wanted)
    limit = given.get("limit", top_k)
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise InputError(f"top_k is {limit!r}; ask for 0 or more")
    return owner_of(ids, needed_for=needed_for), wanted, limit


def arguments_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a memory from mem0's configuration."""
    arguments: dict[str, Any] = {}
    chosen = _table(config, "llm")
    options = _table(chosen, "config")
    if options.get("model"):
        provider = str(chosen.get("provider") or "openai")
        base = next(
            (
                options[name]
                for name in ("openai_base_url", "ollama_base_url", "base_url")
                if options.get(name)
            ),
            None,
        )
        model = ModelSettings(
            model=f"{provider}/{options['model']}", api_key=options.get("api_key"), api_base=base
        )
        arguments["settings"] = AgentSettings(model=model)
    kept = _table(_table(config, "vector_store"), "config")
    if kept.get("path"):
        arguments["path"] = Path(str(kept["path"])) / "memagent.db"
    unused = sorted(set(config) - {"llm", "vector_store", "version", "history_db_path"})
    if unused:
        _log.warning("mem0 settings that have no use here: %s", ", ".join(unused))
    return arguments


def _table(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] | None = config.get(name)
    return found if found is not None else {}


# -- results ---------------------------------------------------------------------------


async def amend(
    bank: MemoryBank, report: IngestReport, kept: Mapping[str, Any], *, day: Any
) -> None:
    """Put what the call said about its memories beside those that it added."""
    added = {
        one.item_id for chunk in report.chunks for one in chunk.applied if isinstance(one.op, Add)
    }

    def plan(state: BankState, commit_id: str) -> list[Assignment]:
        return [
            (
                Update(
                    id=item.id, version=item.version, text=item.text, reason="metadata of the call"
                ),
                item.model_copy(
                    update={
                        "metadata": {**item.metadata, **kept},
                        "expires_at": records.end_of(day) or item.expires_at,
                    }
                ),
                state.archive.get(item.id, ()),
            )
            for item_id in sorted(one for one in added if one is not None)
            if (item := state.items.get(item_id)) is not None and item.active
        ]

    await assign(bank, plan, actor=_AMENDED)


def events(
    report: IngestReport, before: Mapping[str, MemoryItem], after: BankState
) -> list[dict[str, Any]]:
    """What an ingest did, one event an op on a memory; a NOOP that names none is left out."""
    found: list[dict[str, Any]] = []
    for applied in (one for chunk in report.chunks for one in chunk.applied):
        item_id = applied.item_id
        if item_id is None:
            continue
        old, now = before.get(item_id), after.items.get(item_id)
        text = (
            old.text
            if applied.op.op == "DELETE" and old is not None
            else now.text
            if now is not None
            else ""
        )
        event = {"id": item_id, "memory": text, "event": applied.op.op}
        if applied.op.op == "UPDATE" and old is not None:
            event["previous_memory"] = old.text
        found.append(event)
    return found


def history(memory_id: str, entries: Sequence[HistoryEntry]) -> list[dict[str, Any]]:
    """A memory's changes as rows of mem0's history."""
    shown: list[dict[str, Any]] = []
    text: str | None = None
    created = entries[0].recorded_at if entries else None
    for entry in entries:
        if entry.source.actor == _AMENDED:
            continue
        now = entry.item.text if entry.item is not None and entry.item.active else None
        event = (
            entry.op.op
            if entry.op is not None
            else "DELETE"
            if now is None
            else "ADD"
            if text is None
            else "UPDATE"
        )
        kept = entry.item.metadata if entry.item is not None else {}
        shown.append(
            {
                "id": f"{memory_id}:{entry.seq}",
                "memory_id": memory_id,
                "old_memory": text,
                "new_memory": now,
                "event": event,
                "created_at": created.isoformat() if created is not None else None,
                "updated_at": entry.recorded_at.isoformat(),
                "is_deleted": now is None,
                "actor_id": kept.get("_actor_id"),
                "role": kept.get("_role"),
            }
        )
        text = now
    return shown

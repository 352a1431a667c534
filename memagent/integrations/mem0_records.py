"""mem0's vocabulary over memory items: owners, result envelopes, metadata filters. Pure.

What mem0 keeps beside a text (agent, run, actor, role, the caller's metadata of any
JSON) stands in reserved metadata of the item, so that a caller's keys can never pose as
an owner. An item's user is its scope's and is kept nowhere else.

Import of memories that another program keeps: mem0's from the folder of its qdrant store
(local mode) or a JSON export, Letta's blocks and passages, and the facts of Zep's graph.

Ids, texts, owners, dates and metadata are kept; vectors are made anew when they are
needed. Memories imported before are skipped, so an import can be repeated. No vendor's
library is needed, and nothing that a file names is ever run (see `point_reader`).
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from memagent.build import Store
from memagent.core.errors import InputError
from memagent.core.ops import Add, OpBatch
from memagent.core.records import Fact, MemoryItem, Record, Scope, SourceRef, Text
from memagent.integrations.point_reader import read_point
from memagent.readers.files import list_in, object_in, text_in

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
    named = {name: _entity(ids[name], name) for name in OWNERS if ids.get(name) is not None}
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


def _entity(value: object, name: str) -> str:
    trimmed = str(value).strip()
    odd = any(char.isspace() or not char.isprintable() for char in trimmed)
    if odd or not 0 < len(trimmed) <= 256:
        raise InputError(
            f"{name} {str(value)[:40]!r} cannot be an id: "
            "give 1 to 256 printable characters without spaces"
        )
    return trimmed


# -- what is kept beside a text --------------------------------------------------------


def reserved_metadata(
    owner: Owner,
    metadata: Mapping[str, Any] | None,
    *,
    actor_id: str | None = None,
    role: str | None = None,
    last_day: date | None = None,
    updated_at: datetime | None = None,
) -> dict[str, Any]:
    """Return the reserved metadata of an item.

    Raises `InputError` for metadata that is not JSON.
    """
    fields: dict[str, Any] = {
        "_agent_id": owner.agent_id,
        "_run_id": owner.run_id,
        "_actor_id": actor_id,
        "_role": role,
        "_expiration_date": last_day.isoformat() if last_day is not None else None,
        "_metadata": as_json(metadata) if metadata else None,
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
            return _in_order(value, operator, bound)


def _in_order(value: Any, operator: str, bound: Any) -> bool:
    pair = (value, bound)
    numbers = all(isinstance(part, int | float) and not isinstance(part, bool) for part in pair)
    if not numbers and not all(isinstance(part, str) for part in pair):
        return False
    if value == bound:
        return operator in ("gte", "lte")
    return (value > bound) == (operator in ("gt", "gte"))


_AT_ONCE = 500
_ANYBODY = ""
"""The user of a row whose program keeps none beside it."""
_NOT_METADATA = frozenset(
    "id user_id agent_id run_id actor_id role data hash created_at updated_at text_lemmatized "
    "expiration_date attributed_to embedding embedding_config ends_at".split()
)


class ImportReport(Record):
    """The counts of an import."""

    found: int
    imported: int
    skipped: int
    """There already."""
    refused: int
    """Without text or owner, or too long."""
    users: tuple[Text, ...]


Row = Mapping[str, Any]
"""One memory as mem0 keeps it: `id`, and the payload with `data` as its text."""


def read_memories(path: Path) -> list[Row]:
    """Read the memories of a qdrant folder, one of its `storage.sqlite` files, or a JSON export.

    A JSON export is mem0's, an agent file or passages of Letta, or edges of Zep's graph.

    Raises `InputError` for anything else.
    """
    if path.is_dir():
        files = sorted(
            file for file in path.rglob("storage.sqlite") if not _other_collection(file.parent.name)
        )
        if not files:
            raise InputError(
                f"{path} holds no collection of qdrant's local mode "
                "(collection/NAME/storage.sqlite)"
            )
        return [row for file in files for row in _points(file)]
    if not path.is_file():
        raise InputError(f"there is no {path}")
    if path.suffix == ".sqlite":
        return list(_points(path))
    return _exported(path)


def _other_collection(name: str) -> bool:
    """Tell whether mem0 keeps its entities or its own notes in a collection, not memories."""
    return name.endswith("_entities") or name == "mem0migrations"


async def import_memories(
    store: Store, rows: Iterable[Row], *, user_id: str | None = None
) -> ImportReport:
    """Add rows to the memories of their owners, several hundred in a commit.

    With `user_id` only rows of that user are added. Those of Letta and Zep, which name
    nobody, are that user's.
    """
    parts: dict[Scope, dict[str, Add]] = {}
    found = refused = 0
    for row in rows:
        named = user_id if row.get("user_id") == _ANYBODY else row.get("user_id")
        if user_id is not None and str(named) != user_id:
            continue
        found += 1
        try:
            owner, op = _add({**row, "user_id": named})
        except (InputError, ValidationError):
            refused += 1
            continue
        parts.setdefault(owner.scope, {})[op.id or ""] = op
    imported = 0
    for scope, ops in parts.items():
        bank = store.bank(scope)
        known = (await bank.sync()).items
        fresh = [op for op in ops.values() if op.id not in known]
        for start in range(0, len(fresh), _AT_ONCE):
            batch = OpBatch(accepted=tuple(fresh[start : start + _AT_ONCE]))
            imported += len((await bank.commit(batch, source=SourceRef(actor="import"))).changes)
    return ImportReport(
        found=found,
        imported=imported,
        skipped=found - refused - imported,
        refused=refused,
        users=tuple(
            sorted({scope.user_id for scope in parts if not scope.agent_id and not scope.run_id})
        ),
    )


def _add(row: Row) -> tuple[Owner, Add]:
    owner = owner_of(row, needed_for="a memory")
    text = row.get("data")
    if not isinstance(text, str) or not text.strip():
        raise InputError("a memory without text")
    created_at = moment_of(row.get("created_at"))
    last_day = expiration_of(row.get("expiration_date"))
    metadata = reserved_metadata(
        owner,
        {key: value for key, value in row.items() if key not in _NOT_METADATA},
        actor_id=row.get("actor_id"),
        role=row.get("role"),
        last_day=last_day,
        updated_at=moment_of(row.get("updated_at")),
    )
    speaker = row.get("actor_id") or row.get("role")
    fact = Fact(
        text=text,
        speaker=str(speaker) if speaker else None,
        said_at=created_at,
        expires_at=end_of(last_day) or moment_of(row.get("ends_at")),
    )
    return owner, Add(fact=fact, id=str(row["id"]), metadata=metadata)


# -- a JSON export ---------------------------------------------------------------------


def _exported(path: Path) -> list[Row]:
    """Read the rows of `{"results": [...]}` (from `get_all`), of a list, or one object a line."""
    try:
        text = path.read_text(encoding="utf-8")
        try:
            document: object = json.loads(text)
        except json.JSONDecodeError:
            document = [json.loads(line) for line in text.splitlines() if line.strip()]
    except (OSError, ValueError, RecursionError) as exc:
        raise InputError(f"{path} is no JSON export: {exc}") from exc
    if isinstance(document, dict):
        table = cast("dict[str, object]", document)
        if "blocks" in table and "agents" in table:
            return list(_blocks(table["blocks"]))
        names = ("results", "memories", "edges", "passages")
        document = next((table[name] for name in names if name in table), [table])
    rows = cast("list[Any]", document if isinstance(document, list) else [])
    if not rows or not all(
        isinstance(row, dict) and ("id" in row or "uuid" in row) for row in rows
    ):
        raise InputError(
            f"{path} is no export of mem0, Letta or Zep: it must hold memories with ids"
        )
    return [_edge(row) if "fact" in row else _flat(row) for row in rows]


def _blocks(blocks: object) -> Iterator[Row]:
    """Yield the lines of Letta's blocks that tell of people and things, not of the agent."""
    for block in map(object_in, list_in(blocks)):
        name = text_in(block.get("label"))
        lines = map(str.strip, text_in(block.get("value")).splitlines())
        for text in (line for line in lines if name != "persona" and line):
            if not text.endswith(": ?"):
                digest = hashlib.sha256(text.encode()).hexdigest()[:16]
                row = {"id": f"{name}-{digest}", "data": text, "block": name}
                yield row | {"user_id": _ANYBODY}


def _edge(row: Mapping[str, Any]) -> Row:
    """Turn an edge of Zep's graph into a row: a fact, from when it held and until when."""
    ended = row.get("invalid_at") or row.get("expired_at")
    said = row.get("valid_at") or row.get("created_at")
    dates = {"created_at": said, "ends_at": ended}
    return {"id": row.get("uuid"), "data": row["fact"], **dates, "user_id": _ANYBODY}


def _flat(row: Mapping[str, Any]) -> Row:
    """Turn a memory as `get_all` shows it into a row of the store."""
    text = row.get("memory", row.get("data", row.get("text")))
    payload = {key: row[key] for key in row if key not in ("memory", "metadata", "score", "text")}
    owner = {"user_id": _ANYBODY} if "embedding" in row else {}
    return {**(row.get("metadata") or {}), **owner, **payload, "data": text}


# -- qdrant's local mode ---------------------------------------------------------------


def _points(file: Path) -> Iterator[Row]:
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
            blobs = [
                row[0] for row in connection.execute("SELECT point FROM points ORDER BY rowid")
            ]
    except sqlite3.Error as exc:
        raise InputError(f"{file} cannot be read: {exc}") from exc
    for blob in blobs:
        try:
            point = read_point(blob)
        except ValueError as exc:
            raise InputError(f"{file} holds a point that is not qdrant's: {exc}") from exc
        payload: object = point.get("payload")
        if isinstance(payload, dict) and "linked_memory_ids" not in payload:
            yield {**cast("dict[str, Any]", payload), "id": str(point.get("id"))}

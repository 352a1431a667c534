"""mem0's vocabulary over memory items: owners, result envelopes, metadata filters. Pure.

What mem0 keeps beside a text (agent, run, actor, role, the caller's metadata of any
JSON) stands in reserved metadata of the item, so that a caller's keys can never pose as
an owner. An item's user is its scope's and is kept nowhere else.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, cast

from memagent.core.errors import InputError
from memagent.core.records import MemoryItem, Scope

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

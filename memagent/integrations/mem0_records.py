"""mem0's vocabulary over memory items: owners, result envelopes, metadata filters.

Pure.

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
    """Whose memories a call is about; at least one id is set."""

    user_id: str | None = None
    agent_id: str | None = None
    run_id: str | None = None

    @property
    def scope(self) -> Scope:
        """Where a memory of this owner is kept: with its user, else with its agent,
        else with its run.
        """
        if self.user_id is not None:
            return Scope(user_id=self.user_id)
        return Scope(
            agent_id=self.agent_id, run_id=None if self.agent_id is not None else self.run_id
        )

    def may_be_in(self, scope: Scope) -> bool:
        """Whether memories of this owner may be kept in a scope."""
        return scope == self.scope if self.user_id is not None else True

    def owns(self, scope: Scope, item: MemoryItem) -> bool:
        """Whether an item of a scope carries every id of this owner."""
        fields = fields_of(scope, item)
        wanted = {"user_id": self.user_id, "agent_id": self.agent_id, "run_id": self.run_id}
        return all(fields.get(name) == value for name, value in wanted.items() if value is not None)


def owner_of(ids: Mapping[str, Any], *, needed_for: str) -> Owner:
    """The owner that some of user_id, agent_id and run_id name.

    Raises `InputError` for none, or for an id that cannot be one.
    """
    found = {name: _entity(ids[name], name) for name in OWNERS if ids.get(name) is not None}
    if not found:
        raise InputError(
            f"{needed_for} needs at least one of user_id, agent_id, run_id, such as filters={{'user_id': 'ana'}}"
        )
    return Owner(**found)


def _entity(value: object, name: str) -> str:
    trimmed = str(value).strip()
    if (
        not trimmed
        or len(trimmed) > 256
        or any(one.isspace() or not one.isprintable() for one in trimmed)
    ):
        raise InputError(
            f"{name} {str(value)[:40]!r} cannot be an id: give 1 to 256 printable characters without spaces"
        )
    return trimmed


# -- what is kept beside a text --------------------------------------------------------


def kept_metadata(
    owner: Owner,
    metadata: Mapping[str, Any] | None,
    *,
    actor_id: str | None = None,
    role: str | None = None,
    expiration: date | None = None,
    dates: Mapping[str, datetime] | None = None,
) -> dict[str, str | int | float | bool | None]:
    """Reserved metadata of an item.

    Raises `InputError` for metadata that is not JSON.
    """
    kept: dict[str, Any] = {
        "_agent_id": owner.agent_id,
        "_run_id": owner.run_id,
        "_actor_id": actor_id,
        "_role": role,
        "_expiration_date": expiration.isoformat() if expiration is not None else None,
        "_metadata": as_json(metadata) if metadata else None,
        **{f"_{name}": moment.isoformat() for name, moment in (dates or {}).items()},
    }
    return {name: value for name, value in kept.items() if value is not None}


def as_json(metadata: Mapping[str, Any]) -> str:
    """The caller's metadata as JSON, without the keys that name owners.

    Raises `InputError`.
    """
    try:
        return json.dumps(
            {key: value for key, value in metadata.items() if key not in (*OWNERS, "actor_id")}
        )
    except (TypeError, ValueError, RecursionError) as exc:
        raise InputError(f"the metadata is not JSON: {exc}") from exc


def metadata_of(item: MemoryItem) -> dict[str, Any]:
    """The caller's metadata of an item, also what was given through other verbs of memagent."""
    plain = {key: value for key, value in item.metadata.items() if not key.startswith("_")}
    return {**plain, **json.loads(str(item.metadata.get("_metadata") or "{}"))}


def fields_of(scope: Scope, item: MemoryItem) -> dict[str, Any]:
    """What a filter can name, and what stands at the top of a result, beside text and dates."""
    promoted = {name: item.metadata.get(f"_{name}") for name in _PROMOTED}
    if scope.agent_id is not None or scope.run_id is not None:
        promoted["agent_id"] = promoted["agent_id"] or scope.agent_id
        promoted["run_id"] = promoted["run_id"] or scope.run_id
        user = None
    else:
        user = scope.user_id
    found = {"user_id": user, **promoted, "expiration_date": item.metadata.get("_expiration_date")}
    return {name: value for name, value in found.items() if value is not None}


def envelope(
    scope: Scope, versions: Sequence[MemoryItem], *, score: float | None = None
) -> dict[str, Any]:
    """An item, given with its earlier versions, as mem0 shows a memory."""
    item = versions[-1]
    created = _date(item, "_created_at") or versions[0].said_at
    updated = _date(item, "_updated_at") or item.said_at or created
    shown: dict[str, Any] = {
        "id": item.id,
        "memory": item.text,
        "hash": hashlib.md5(item.text.encode(), usedforsecurity=False).hexdigest(),
        "metadata": metadata_of(item) or None,
        "created_at": created.isoformat() if created is not None else None,
        "updated_at": updated.isoformat() if updated is not None else None,
        **fields_of(scope, item),
    }
    return shown if score is None else {**shown, "score": score}


def _date(item: MemoryItem, name: str) -> datetime | None:
    kept = item.metadata.get(name)
    return datetime.fromisoformat(str(kept)) if kept is not None else None


# -- dates -----------------------------------------------------------------------------


def expiration_of(value: object) -> date | None:
    """The last day of a memory from a date, a datetime or YYYY-MM-DD.

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
    """When a memory with that last day is over: the midnight after it, in UTC."""
    if day is None or day == date.max:
        return None
    return datetime.combine(day + timedelta(days=1), time(), UTC)


def moment_of(value: object) -> datetime | None:
    """A moment from a datetime, seconds since 1970, or an ISO text; naive ones are UTC.

    Raises `InputError`.
    """
    if value is None or isinstance(value, datetime):
        return value if value is None or value.tzinfo is not None else value.replace(tzinfo=UTC)
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return datetime.fromtimestamp(value, UTC)
        found = datetime.fromisoformat(str(value))
    except (ValueError, OverflowError, OSError):
        raise InputError(
            f"timestamp {str(value)[:40]!r} is no moment; give seconds since 1970 or an ISO date"
        ) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


# -- filters ---------------------------------------------------------------------------


def check_filter(wanted: Mapping[str, Any]) -> None:
    """Raises `InputError` for an operator that does not exist, or one without a list
    where it takes one.
    """
    for name, rule in wanted.items():
        if name in _LOGIC:
            if not isinstance(rule, list) or not all(
                isinstance(one, Mapping) for one in cast("list[object]", rule)
            ):
                raise InputError(f"{name} takes a list of filters")
            for one in cast("list[Mapping[str, Any]]", rule):
                check_filter(one)
        elif isinstance(rule, Mapping):
            unknown = [
                str(one) for one in cast("Mapping[str, object]", rule) if one not in _OPERATORS
            ]
            if unknown:
                raise InputError(
                    f"there is no filter operator {unknown[0]!r}; there are {', '.join(_OPERATORS)}"
                )


def passes(values: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether a memory's fields meet a filter."""
    return all(_meets(values, name, rule) for name, rule in wanted.items())


def _meets(values: Mapping[str, Any], name: str, rule: Any) -> bool:
    match name:
        case "AND":
            return all(passes(values, one) for one in rule)
        case "OR":
            return any(passes(values, one) for one in rule)
        case "NOT":
            return not any(passes(values, one) for one in rule)
        case _:
            pass
    if isinstance(rule, Mapping):
        return all(
            _compares(values.get(name), str(op), bound)
            for op, bound in cast("Mapping[str, Any]", rule).items()
        )
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
    numbers = all(
        isinstance(one, int | float) and not isinstance(one, bool) for one in (value, bound)
    )
    if not numbers and not (isinstance(value, str) and isinstance(bound, str)):
        return False
    if value == bound:
        return operator in ("gte", "lte")
    return (value > bound) == (operator in ("gt", "gte"))

"""Arguments that several commands share, and the ids, moments and points that people type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar, cast

from typer import Argument, BadParameter, Option

import memagent
from memagent.core.errors import InputError, MemoryNotFound, fault_in

if TYPE_CHECKING:
    from memagent.experience import OutcomeArguments

_SHORTEST_PREFIX = 8
T = TypeVar("T")

ItemId = Annotated[
    str, Argument(metavar="ID", help="Id of a memory, or the first 8 characters of it or more.")
]
Why = Annotated[
    bool,
    Option(
        "--why",
        "--explain",
        help="Show with every hit what its score is made of and what led to it.",
    ),
]
RecipeName = Annotated[
    str | None,
    Option("--recipe", metavar="NAME", help="How to search: fast, balanced, deep or plain."),
]
TrustName = Literal["system", "user", "assistant", "tool", "untrusted"]
LeastTrust = Annotated[
    TrustName | None,
    Option("--min-trust", help="Leave out what is trusted less, such as words of tools."),
]
Force = Annotated[bool, Option("--force", help="Replace a file that is there.")]


@dataclass(frozen=True, kw_only=True)
class TimeOptions:
    """Options that ask for the memory as it was at a point in time."""

    as_of_said: Annotated[
        str | None, Option(metavar="DATE", help="Use only what had been said by then.")
    ] = None
    as_of_valid: Annotated[
        str | None, Option(metavar="DATE", help="Use what held at that time.")
    ] = None
    as_of_recorded: Annotated[
        str | None, Option(metavar="DATE|SEQ", help="Use the memory as it was recorded then.")
    ] = None

    def as_of(self) -> memagent.AsOf:
        """Read the options. Raises `InputError` for a text that names no date."""
        said, valid, recorded = self.as_of_said, self.as_of_valid, self.as_of_recorded
        return memagent.AsOf(
            said=None if said is None else parse_moment(said, option="--as-of-said", end=True),
            valid=None if valid is None else parse_moment(valid, option="--as-of-valid", end=True),
            recorded=None if recorded is None else parse_point(recorded, option="--as-of-recorded"),
        )


@dataclass(frozen=True, kw_only=True)
class FilterOptions:
    """Options that choose among the memories."""

    speaker: Annotated[
        list[str] | None, Option(metavar="NAME", help="Only of this speaker; repeatable.")
    ] = None
    kind: Annotated[
        list[str] | None, Option(metavar="KIND", help="Only of this kind; repeatable.")
    ] = None
    session: Annotated[
        list[str] | None,
        Option("--session", metavar="ID", help="Only of this session; repeatable."),
    ] = None

    min_trust: LeastTrust = None

    def where(self) -> memagent.Filter:
        """Return the filter that the options describe."""
        where = memagent.Filter(
            speakers=frozenset(self.speaker or ()),
            kinds=frozenset(self.kind or ()),
            session_ids=frozenset(self.session or ()),
        )
        return trusted(where, self.min_trust)


def trusted(where: memagent.Filter, least: str | None) -> memagent.Filter:
    """Return a filter that also leaves out what is trusted less."""
    from memagent.memory.options import trusting

    return trusting(where, least)


def exactly_one(argument: T | None, option: T | None, *, choices: str) -> T:
    """Return the value that was given as an argument or as an option.

    Raises `BadParameter` when both are given or neither is.
    """
    value = option if argument is None else argument
    if value is None or (argument is not None and option is not None):
        raise BadParameter(f"give {choices}, one of them")
    return value


def check_free(file: Path, *, force: bool) -> None:
    """Raise `InputError` if the file exists and must not be replaced."""
    if file.exists() and not force:
        raise InputError(f"{file} is there already; --force replaces it")


def find_id(known: Mapping[str, object], prefix: str, *, user_id: str) -> str:
    """Return the known id that was typed in full or by its first 8 characters or more.

    Raises `MemoryNotFound`, and `InputError` for the beginning of several ids.
    """
    if prefix in known:
        return prefix
    long_enough = len(prefix) >= _SHORTEST_PREFIX
    matches = sorted(item_id for item_id in known if long_enough and item_id.startswith(prefix))
    if len(matches) > 1:
        raise InputError(
            f"{prefix!r} begins the ids of {len(matches)} memories "
            f"({', '.join(matches[:3])}, ...); give more of it"
        )
    if not matches:
        raise MemoryNotFound(
            f"no memory {prefix!r} for user {user_id!r}; `memagent list` shows the ids"
        )
    return matches[0]


def parse_moment(text: str, *, option: str, end: bool = False) -> datetime:
    """Return the moment of a date or phrase: the first of its span, or with `end` the last.

    Raises `InputError` for a text that names no date.
    """
    from memagent.core.records import as_utc
    from memagent.memory.bank import system_clock
    from memagent.timex.resolve import resolve_time

    phrase = text.strip()
    if ":" in phrase or "T" in phrase:
        try:
            return as_utc(datetime.fromisoformat(phrase))
        except ValueError:
            pass
    span = resolve_time(phrase, anchor=system_clock())
    if span is not None:
        bound = span.end - timedelta(microseconds=1) if end and span.end is not None else span.start
        if bound is not None:
            return bound
    raise InputError(
        f"{option}: {text!r} names no date; "
        "write 2023-05-08, 2023-05-08T13:56, '8 May 2023' or 'last Friday'"
    )


def parse_point(text: str, *, option: str, end: bool = True) -> datetime | int:
    """Return a journal sequence number (digits only), or a moment as `parse_moment` does."""
    return int(text) if text.strip().isdecimal() else parse_moment(text, option=option, end=end)


def read_outcome(file: Path | None) -> OutcomeArguments:
    """Read the optional parts of a trial's outcome; {} without a file.

    Raises `InputError` with the fault.
    """
    from pydantic import ValidationError

    from memagent.client.wire import TrialOutcome

    if file is None:
        return {}
    try:
        value: object = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as exc:
        raise InputError(f"{file} cannot be read: {exc}") from exc
    if not isinstance(value, dict) or "reward" in value:
        raise InputError(f"{file}: an outcome is a JSON object; its reward is the argument REWARD")
    told = cast("dict[str, object]", value)
    try:
        every = TrialOutcome.model_validate({**told, "reward": 0.0}).arguments()
    except ValidationError as exc:
        raise InputError(f"{file}: {fault_in(exc)}") from exc
    named = {name: part for name, part in every.items() if name in told}
    return cast("OutcomeArguments", cast("object", named))

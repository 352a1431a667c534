"""One line for each thing a prompt shows: turns, facts, memories, events.

Pure; every part passes `quoted`.

Dates are written out ("8 May 2023"), since facts and answers are to be worded so. Ids
and versions stand in brackets before all else, so that a text cannot pretend to be
another memory. The surprise: an id is twenty hex digits and as many tokens, so `dated`
shows memories by short names ("mem_7"), and the day of many once above them.

Model calls with a prompt file, and the JSON schemas of the replies.

A reply that cannot be read is asked for once more where the slot says so. The second
try is a call of its own, with its own response and parse status: nothing is hidden from
traces, budgets or credit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import groupby
from typing import Any, Final, Generic, TypeVar

from memagent.core.answers import Hit, Question
from memagent.core.exchange import JsonSchema, Message, ModelResponse, Role
from memagent.core.ops import Parsed, ParseStatus, RejectReason, Repair
from memagent.core.records import Event, Fact, Granularity, TimeSpan, Trust, Turn
from memagent.designs.base import Prompt, Proposal, SlotContext, fence, load_prompt, quoted
from memagent.timex.resolve import format_span

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MAX_TURN_IDS = 8
NO_NAMES: Final[Mapping[str, str]] = {}
"""Ids stand for themselves."""
T = TypeVar("T")


def day_span(moment: datetime) -> TimeSpan:
    """Return the UTC day of a moment."""
    start = moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    return TimeSpan(start=start, end=start + timedelta(days=1), granularity=Granularity.DAY)


def day_text(moment: datetime) -> str:
    """Write the UTC day in words: "8 May 2023"."""
    return _midnight_text(moment.replace(hour=0, minute=0, second=0, microsecond=0))


@lru_cache(maxsize=4_096)
def _midnight_text(midnight: datetime) -> str:
    return format_span(day_span(midnight))


def weekday_text(moment: datetime) -> str:
    """Write the UTC day in words, with its weekday: "Monday, 8 May 2023"."""
    return f"{_WEEKDAYS[moment.weekday()]}, {day_text(moment)}"


def date_text(at: datetime | None) -> str:
    """Write the day of a conversation for a prompt that resolves relative time by it."""
    return weekday_text(at) if at else "unknown, so leave relative time as it was told"


def turn_line(turn: Turn) -> str:
    """Write a turn: id, speaker, words, picture."""
    return f"[{quoted(turn.id)}] {quoted(turn.speaker)}: {quoted(turn.said)}"


def dated(
    shown: Iterable[T], write: Callable[[T], str], said_at: Callable[[T], datetime | None]
) -> Iterator[str]:
    """Yield a line for each entry, and before those of one day that day."""

    def day(entry: T) -> str:
        moment = said_at(entry)
        return f"said {day_text(moment) if moment else 'on an unknown day'}:"

    for said, entries in groupby(shown, day):
        yield said
        yield from map(write, entries)


def fact_lines(facts: Sequence[Fact]) -> Iterator[str]:
    """Yield facts under their number, with whom they are about and when they happened."""
    numbered = enumerate(facts)
    return dated(numbered, lambda entry: _fact_line(*entry), lambda entry: entry[1].said_at)


def _fact_line(index: int, fact: Fact) -> str:
    about = fact.subject if fact.subject != fact.speaker else None
    notes = _notes(by=fact.speaker, about=about, valid=_untold(fact.valid, fact.text))
    return f"{index}. {notes}{quoted(fact.text)}"


def short_names(hits: Iterable[Hit]) -> dict[str, str]:
    """Return a short name for each id: its kind and its place, as in "mem_7" or "evt_8"."""
    kinds = {hit.id: "evt" if hit.event else "mem" for hit in hits}
    return {name: f"{kind}_{place}" for place, (name, kind) in enumerate(kinds.items())}


def named(names: Mapping[str, str], shown: str) -> str:
    """Return the id that a short name stands for; any other text stays as it is."""
    return {name: own for own, name in names.items()}.get(shown.strip().strip("[]"), shown)


def hit_lines(hits: Iterable[Hit], names: Mapping[str, str]) -> Iterator[str]:
    """Yield memories and events by their short names, under the day they were said."""
    return dated(hits, lambda hit: _short_line(hit, names), hit_said_at)


def hit_said_at(hit: Hit) -> datetime | None:
    """Return when the hit's memory or event was said, if that is known."""
    record = hit.item or hit.event
    return record.said_at if record else None


def _short_line(hit: Hit, names: Mapping[str, str]) -> str:
    record = hit.item or hit.event
    valid = _untold(record.valid, hit.text) if record else None
    notes = _notes(**_who(hit), valid=valid, more=_more(hit, names))
    return f"[{names[hit.id]}] {notes}{quoted(hit.text)}"


def _untold(valid: TimeSpan | None, text: str) -> TimeSpan | None:
    """Return a time unless the text tells it in the same words."""
    return None if valid is None or format_span(valid) in text else valid


def hit_line(hit: Hit, *, version: bool = False) -> str:
    """Write a memory or an event.

    The line gives its id (with `version` also its version), dates, speaker, source
    turns, the path by which a walk reached it, how far it is trusted where that is less
    than a user's words, and its text.
    """
    record = hit.item or hit.event
    notes = _notes(
        **_who(hit),
        said=hit_said_at(hit),
        turns=hit.source_turn_ids,
        valid=record.valid if record else None,
        more=_more(hit),
    )
    name = f"{quoted(hit.id)} v{hit.item.version}" if version and hit.item else quoted(hit.id)
    return f"[{name}] {notes}{quoted(hit.text)}"


def _who(hit: Hit) -> dict[str, Any]:
    by = hit.item.speaker if hit.item else ", ".join(hit.event.people) if hit.event else None
    about = hit.item.subject if hit.item else None
    return {"by": by, "about": about if about != by else None}


def _more(hit: Hit, names: Mapping[str, str] = NO_NAMES) -> tuple[str, str]:
    return (
        f"reached {path}" if (path := path_text(hit, names)) else "",
        f"trust {hit.trust.value}" if hit.trust.rank > Trust.USER.rank else "",
    )


def in_time_order(hits: Iterable[Hit]) -> list[Hit]:
    """Sort hits by the time they were said, undated ones first; ties keep their order."""
    return sorted(hits, key=_moment)


def _moment(hit: Hit) -> float:
    record = hit.item or hit.event
    if record is None:
        return float("-inf")
    moment = record.said_at or (record.valid.start if record.valid else None)
    return moment.timestamp() if moment else float("-inf")


def event_notes(event: Event) -> str:
    """Write day, people and time of an event, in parentheses; "" when it has none."""
    return _notes(said=event.said_at, by=", ".join(event.people), valid=event.valid)


def path_text(hit: Hit, names: Mapping[str, str] = NO_NAMES) -> str:
    """Write the path of a walk to the hit, seed first: "mem_a -supersedes-> this".

    Return "" when the hit was found by search.
    """
    steps = (
        f"{names.get(node) or quoted(node)} {f'-{edge}->' if forward else f'<-{edge}-'}"
        for node, edge, forward in hit.why.via
    )
    return " ".join((*steps, "this")) if hit.why.via else ""


def _notes(
    *,
    by: str | None,
    valid: TimeSpan | None,
    said: datetime | None = None,
    about: str | None = None,
    turns: Iterable[str] = (),
    more: Iterable[str] = (),
) -> str:
    turn_ids = ", ".join(map(quoted, list(turns)[-_MAX_TURN_IDS:]))
    notes = (
        f"said {day_text(said)}" if said else "",
        f"by {quoted(by)}" if by else "",
        f"about {quoted(about)}" if about else "",
        f"turns {turn_ids}" if turn_ids else "",
        f"time {format_span(valid)}" if valid else "",
        *more,
    )
    known = "; ".join(note for note in notes if note)
    return f"({known}) " if known else ""


V = TypeVar("V")

TEXT: Final[JsonSchema] = {"type": "string"}
TEXT_OR_NULL: Final[JsonSchema] = {"type": ["string", "null"]}
TEXTS: Final[JsonSchema] = {"type": "array", "items": TEXT}
INTEGER: Final[JsonSchema] = {"type": "integer"}
UNREAD = frozenset({ParseStatus.FAILED, ParseStatus.EMPTY})
_ECHO_CHARS = 2_000
_AGAIN = (
    "That reply could not be used. Reply once more about what is quoted above, with the "
    "JSON object described and nothing else."
)


def object_schema(properties: JsonSchema) -> JsonSchema:
    """Describe a closed JSON object that must have all these properties, in this order."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": properties,
    }


def list_schema(key: str, entry: JsonSchema) -> JsonSchema:
    """Describe a JSON object with one property, a list of entries."""
    return object_schema({key: {"type": "array", "items": entry}})


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonCall(Generic[T]):
    """A prompt, the JSON that it asks for, and the function that reads the reply."""

    role: Role
    prompt: Prompt
    schema: JsonSchema
    parse: Callable[[str], Parsed[T]]


@dataclass(frozen=True, slots=True)
class JsonReply(Generic[T]):
    """The last reply as read, and every call made for it with its parse status, in order."""

    parsed: Parsed[T]
    statuses: tuple[ParseStatus, ...]
    responses: tuple[ModelResponse, ...]
    repairs: tuple[Repair, ...] = ()

    def proposal(self, values: Iterable[V]) -> Proposal[V]:
        """Propose `values`, beside the entries that could not be read."""
        return Proposal(
            values=tuple(values),
            rejected=self.parsed.rejected,
            parse=self.statuses,
            repairs=self.repairs,
            responses=self.responses,
        )


async def ask_for_json(
    ctx: SlotContext, json_call: JsonCall[T], values: dict[str, str], *, ordinal: int, retry: bool
) -> JsonReply[T]:
    """Fill the prompt with `values`, ask the model and read its reply.

    Ask once more when the reply is empty, unreadable or ambiguous and `retry` is set;
    the first reading stands when the second reads nothing. `ordinal` counts this call
    among the role's calls for the chunk, from 0.
    """
    role, schema, digest = json_call.role, json_call.schema, json_call.prompt.digest
    messages = json_call.prompt.messages(**values)
    first = await ctx.call(role, messages, schema=schema, call=ordinal, prompt_digest=digest)
    parsed = json_call.parse(first.text)
    if not (retry and ctx.again) or not _ask_again(parsed):
        return JsonReply(parsed, (parsed.status,), (first,), parsed.repairs)
    if first.text.strip():
        messages = (*messages, Message(role="assistant", content=first.text[:_ECHO_CHARS]))
    messages = (*messages, Message(role="user", content=_AGAIN))
    second = await ctx.call(role, messages, schema=schema, call=ordinal + 1, prompt_digest=digest)
    reread = json_call.parse(second.text)
    statuses, repairs = (parsed.status, reread.status), (*parsed.repairs, *reread.repairs)
    better = reread if reread.status not in UNREAD or not parsed.values else parsed
    return JsonReply(better, statuses, (first, second), repairs)


def _ask_again(parsed: Parsed[Any]) -> bool:
    return parsed.status in UNREAD or any(
        bad.reason is RejectReason.AMBIGUOUS for bad in parsed.rejected
    )


async def ask_about(
    question: Question,
    ctx: SlotContext,
    role: Role,
    prompt_name: str,
    schema: JsonSchema,
    ordinal: int = 0,
    /,
    **values: str,
) -> ModelResponse:
    """Fill a prompt with `values` and ask the model once, in the course of a question."""
    prompt = load_prompt(prompt_name)
    return await ctx.call(
        role,
        prompt.messages(**values),
        schema=schema,
        question_id=question.id,
        call=ordinal,
        prompt_digest=prompt.digest,
    )


def question_values(question: Question) -> dict[str, str]:
    """Return the prompt slots `asked` (the day, "" when unknown) and `question`."""
    asked_at = question.asked_at
    return {
        "asked": f"The question is asked on {weekday_text(asked_at)}." if asked_at else "",
        "question": fence("question", [quoted(question.text)]),
    }

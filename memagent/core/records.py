"""The records that cross every boundary, from turns and facts to items and events.

All are frozen pydantic models that refuse unknown fields. Three axes of time never mix:
`valid` is when something happened (a half-open span with a granularity), `said_at` is
the date of the turn that told it, `recorded_at` is when the journal wrote it. Every
datetime is aware; readers turn naive ones into UTC. The surprise: text is kept as given
except for lone surrogates, which no database can hold; `clean_text` replaces them once,
at the border, so that digests agree everywhere.

The closed vocabularies of the records stand here too: precisions of time, states,
relations, kinds of nodes. So does `Record`, the base of all of them.

The docstring below a field is its description in JSON Schema. Pydantic can read these
docstrings too, but it parses the source of each class when the class is made, which
took as long as all the rest of an import. Here a schema reads them when it is asked
for. Validators are built at first use as well: a command uses a few models of many.

The surprise: models are made with `defer_build` and do not keep it in their settings.
There it would reach every `TypeAdapter` over a model too, and FastAPI, which builds its
adapters with a warning turned off, would see that warning at the first request.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache, partial
from itertools import pairwise
from operator import is_, not_
from typing import Annotated, Any, Final, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class Granularity(StrEnum):
    """The precision of a span of time."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    WEEKEND = "weekend"
    WEEK = "week"
    MONTH = "month"
    SEASON = "season"
    YEAR = "year"
    DECADE = "decade"
    RANGE = "range"


class ItemStatus(StrEnum):
    """The place of an item in the memory now."""

    ACTIVE = "active"
    DELETED = "deleted"


class Relation(StrEnum):
    """Kinds of edges of the event graph.

    Inverses are derived, so a walk can go both ways.
    """

    CAUSES = "causes"
    MOTIVATES = "motivates"
    ENABLES = "enables"
    FOLLOWS = "follows"
    BEFORE = "before"
    AFTER = "after"
    CONTRASTS = "contrasts"
    PART_OF = "part_of"
    PARALLEL = "parallel"
    ELABORATES = "elaborates"
    SAME_AS = "same_as"
    SUPERSEDES = "supersedes"
    CONTAINS = "contains"
    MENTIONS = "mentions"
    RELATED = "related"


class NodeKind(StrEnum):
    """The kind of record that a node of the event graph stands for."""

    ITEM = "item"
    EVENT = "event"
    ENTITY = "entity"
    TOPIC = "topic"


class _Deferring(type(BaseModel)):
    """Makes model classes whose validators are built at first use."""

    def __new__(cls, *args: Any, **kwargs: Any) -> type:
        made: Any = super().__new__(cls, *args, defer_build=True, **kwargs)
        made.model_config.pop("defer_build")
        return made


class Documented(BaseModel, metaclass=_Deferring):
    """Base of models with documented fields; validators are built at first use."""

    @classmethod
    def trusted(cls, values: dict[str, Any]) -> Self:
        """Make a model of values for all its fields that need no check; it keeps the dict.

        For what our own code made a moment ago: a tenth of the time that checks take.
        Raises `TypeError` when there are more or fewer values than fields.
        """
        if len(values) != len(cls.__pydantic_fields__):
            raise TypeError(f"{cls.__name__} has other fields than {sorted(values)}")
        made = cls.__new__(cls)
        assign = object.__setattr__
        assign(made, "__dict__", values)
        assign(made, "__pydantic_fields_set__", set(values))
        assign(made, "__pydantic_extra__", None)
        assign(made, "__pydantic_private__", None)
        return made

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> JsonSchemaValue:
        """Return the JSON Schema, with the docstrings of fields as descriptions."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        model: type[BaseModel] = cls
        for name, description in field_docstrings(model).items():  # pyright: ignore[reportArgumentType] - cached
            field = cls.model_fields.get(name)
            key = name if field is None else field.serialization_alias or field.alias or name
            if key in properties and (field is None or field.description is None):
                properties[key].setdefault("description", description)
        return schema


@cache
def field_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstrings of a model's fields by name, inherited ones included.

    A field that a subclass declares again has no docstring but its new one.
    """
    found: dict[str, str] = {}
    for parent in reversed(model.__mro__):
        if parent is not BaseModel and issubclass(parent, BaseModel):
            for name in vars(parent).get("__annotations__", {}):
                found.pop(name, None)
            found.update(_own_docstrings(parent))
    return found


def _own_docstrings(model: type[BaseModel]) -> dict[str, str]:
    try:
        source = textwrap.dedent(inspect.getsource(model))
        (definition,) = ast.parse(source).body
    except (OSError, TypeError, SyntaxError):  # made where no source file is
        return {}
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(below.value.value)
        for field, below in zip(definition.body, definition.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }


MAX_TURN_CHARS = 200_000
"""Longest text of one turn, in characters; readers hint at splitting a longer one."""
DEFAULT_THREAD = "chat"
"""The thread of messages that name none, where no agent has its own."""


class Record(Documented):
    """Base of every record: frozen, closed, compared by value."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        # a number that slipped past validation shows in the JSON instead of turning into null
        ser_json_inf_nan="constants",
    )


def written(default: Any) -> Any:
    """Return the default of a field that is written even where defaults are left out.

    A tag by which records are told apart, and a number that equals others (-0.0 and 0.0).
    """
    return Field(default_factory=lambda _: default, json_schema_extra={"default": default})


is_none: Final[Callable[[object], bool]] = partial(is_, None)
"""Tells whether a field is to be left out of what is written, because it is None."""
is_empty: Final[Callable[[object], bool]] = not_
"""Tells whether a field is to be left out of what is written, because it is empty."""
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def clean_text(text: str) -> str:
    """Replace lone surrogates and NUL, which UTF-8 stores cannot hold, by U+FFFD."""
    return text if text.isascii() and "\x00" not in text else _UNSTORABLE.sub("\ufffd", text)


system_clock: Final = partial(datetime.now, UTC)
"""Returns the present moment in UTC."""


def as_utc(moment: datetime) -> datetime:
    """Return the same moment in UTC; a naive datetime is taken to be UTC already.

    Raises `ValueError` when UTC has no such year.
    """
    if moment.tzinfo is None:
        return moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except OverflowError as exc:
        raise ValueError(f"{moment.isoformat()} is outside the years 1 to 9999 in UTC") from exc


def _parse_moment(value: object) -> object:
    if isinstance(value, datetime):
        return as_utc(value) if value.tzinfo is None else value
    try:
        return as_utc(datetime.fromisoformat(value)) if isinstance(value, str) else value
    except ValueError:
        return value


Text = Annotated[str, AfterValidator(clean_text)]
"""A string that any UTF-8 store can hold."""
Moment = Annotated[AwareDatetime, BeforeValidator(_parse_moment), AfterValidator(as_utc)]
"""An aware datetime, normalised to UTC; naive input is read as UTC."""
Id = Annotated[Text, Field(min_length=1, max_length=256)]
Metadata = dict[Text, Text | int | float | bool | None]
"""A caller's own keys and values."""


def content_id(prefix: str, *parts: str) -> str:
    """Return `prefix` + `_` + 20 hex digits of the SHA-256 over length-prefixed parts.

    Equal parts give equal ids anywhere.
    """
    digest = hashlib.sha256(prefix.encode())
    for part in parts:
        data = part.encode("utf-8", "replace")
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return f"{prefix}_{digest.hexdigest()[:20]}"


class TimeSpan(Record):
    """A half-open span `[start, end)`; a missing bound is open.

    `text` is the phrase it was read from, if any.
    """

    start: Moment | None = None
    end: Moment | None = None
    granularity: Granularity = Granularity.DAY
    text: Text | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.start is not None and self.end is not None and self.end <= self.start:
            raise ValueError(
                "a span must end after it starts:"
                f" {self.start.isoformat()} .. {self.end.isoformat()}"
            )
        return self

    def contains(self, moment: datetime) -> bool:
        """Tell whether the moment lies in the span."""
        return (self.start is None or self.start <= moment) and (
            self.end is None or moment < self.end
        )

    def overlaps(self, other: TimeSpan) -> bool:
        """Tell whether the two spans share any moment."""
        return (self.start is None or other.end is None or self.start < other.end) and (
            other.start is None or self.end is None or other.start < self.end
        )


class Scope(Record):
    """The owner of a memory: a user, optionally narrowed to one agent and one run.

    Every journal row belongs to exactly one scope.
    """

    user_id: Id = "default"
    agent_id: Id | None = None
    run_id: Id | None = None

    @field_validator("user_id", "agent_id", "run_id")
    @classmethod
    def _without_separator(cls, value: str | None) -> str | None:
        if value is not None and _SEPARATOR in value:
            raise ValueError("ids of a scope must not hold the unit separator (U+001F)")
        return value

    @property
    def key(self) -> str:
        """One unambiguous string for the scope, used as its key in stores."""
        return _SEPARATOR.join((self.user_id, self.agent_id or "", self.run_id or ""))


_SEPARATOR = "\x1f"


class Trust(StrEnum):
    """The origin of a record's words, highest first.

    A derived record has the lowest trust of its inputs.
    """

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    UNTRUSTED = "untrusted"

    @property
    def rank(self) -> int:
        """0 is the highest trust."""
        return _TRUST_RANKS[self]


_TRUST_RANKS = {level: rank for rank, level in enumerate(Trust)}


def lowest_trust(levels: Iterable[Trust]) -> Trust:
    """Return the lowest trust among `levels`; `Trust.USER` when there are none."""
    return max(levels, key=lambda level: level.rank, default=Trust.USER)


class Turn(Record):
    """One utterance."""

    id: Id
    speaker: Id
    text: Annotated[Text, Field(max_length=MAX_TURN_CHARS)]
    at: Moment | None = None
    """When it was said, if known more precisely than the session's date."""
    image_caption: Annotated[Text, Field(max_length=MAX_TURN_CHARS)] | None = None
    """What an attached image shows, as the source describes it."""
    trust: Trust = Trust.USER
    recalled: bool = False
    """True for words made from recalled memory (an answer); never read as new facts."""

    @property
    def said(self) -> str:
        """Text and image caption in one string."""
        caption = self.image_caption
        return f"{self.text} [image: {caption}]".strip() if caption else self.text


class Session(Record):
    """A dated run of turns; turn ids are unique within a user's memory."""

    id: Id
    at: Moment | None = None
    """When the session began; without it relative dates stay unresolved."""
    turns: Annotated[tuple[Turn, ...], Field(min_length=1)]
    thread: Annotated[Id | None, Field(exclude_if=is_none)] = None
    """The conversation that the session is one day of, if any."""
    grown_at: Annotated[tuple[int, ...], Field(exclude_if=is_empty)] = ()
    """Numbers of turns at which it grew; no chunk holds turns from before and after."""

    @model_validator(mode="after")
    def _unique_turns(self) -> Self:
        ids = [turn.id for turn in self.turns]
        if len(set(ids)) < len(ids):
            repeated = next(turn_id for at, turn_id in enumerate(ids) if turn_id in ids[:at])
            raise ValueError(
                f"turn id {repeated!r} occurs twice in session {self.id!r}; turn ids must be unique"
            )
        return self

    @property
    def speakers(self) -> tuple[str, ...]:
        """Distinct speakers in order of first appearance."""
        return tuple(dict.fromkeys(turn.speaker for turn in self.turns))

    @property
    def parts(self) -> tuple[tuple[Turn, ...], ...]:
        """The turns as they were stored: those of the beginning, then of each growth."""
        bounds = (0, *self.grown_at, len(self.turns))
        return tuple(self.turns[start:end] for start, end in pairwise(bounds))

    def date_of(self, turn: Turn) -> datetime | None:
        """Return when the turn was said: its own date, else the session's."""
        return turn.at or self.at


class Chunk(Record):
    """A balanced, contiguous part of a session, read in one pass of the manager."""

    id: Text
    session_id: Id
    index: int
    count: int
    """Chunks of the session up to the end of the part that this one belongs to."""
    at: Moment | None = None
    turns: Annotated[tuple[Turn, ...], Field(min_length=1)]

    @property
    def turn_ids(self) -> tuple[str, ...]:
        """Ids of the chunk's turns in order."""
        return tuple(turn.id for turn in self.turns)


class Fact(Record):
    """One atomic, self-contained statement taken from a chunk."""

    text: Annotated[Text, Field(min_length=1, max_length=MAX_TURN_CHARS)]
    subject: Text | None = None
    """Who or what the statement is about."""
    speaker: Text | None = None
    source_turn_ids: tuple[Id, ...] = ()
    valid: TimeSpan | None = None
    """When it happened or began to hold."""
    said_at: Moment | None = None
    kind: Text = "fact"
    """`fact`, `event`, `preference`, `plan`, `turn` (verbatim), or a design's own word."""
    trust: Trust = Trust.USER
    expires_at: Moment | None = None
    """From when on it is no longer found; None for never."""


class MemoryItem(Record):
    """One remembered statement at one version.

    Old versions stay readable; a deleted item is a restorable tombstone.
    """

    id: Id
    version: Annotated[int, Field(ge=1)] = 1
    text: Annotated[Text, Field(min_length=1, max_length=MAX_TURN_CHARS)]
    kind: Text = "fact"
    subject: Text | None = None
    speaker: Text | None = None
    source_turn_ids: tuple[Id, ...] = ()
    """Turns that this version rests on, earlier versions' sources included."""
    session_id: Text | None = None
    op_id: Text = ""
    """The op that made this version."""
    valid: TimeSpan | None = None
    """When it happened or began to hold."""
    said_at: Moment | None = None
    """Date of the latest source turn."""
    trust: Trust = Trust.USER
    status: ItemStatus = ItemStatus.ACTIVE
    tags: tuple[Text, ...] = ()
    metadata: Metadata = Field(default_factory=dict[str, str | int | float | bool | None])
    """The caller's own keys; keys starting with `_` are reserved for the system."""
    embedding_missing: bool = False
    """True when the embedder failed: until the next attempt only keywords find the item."""
    expires_at: Moment | None = None
    """From when on it is found in history only; None for never."""

    @property
    def active(self) -> bool:
        """Whether the item is part of the memory (not deleted, but perhaps expired)."""
        return self.status is ItemStatus.ACTIVE

    def expired(self, now: datetime) -> bool:
        """Tell whether its time to live is over."""
        return self.expires_at is not None and self.expires_at <= now


class ItemStats(Record):
    """The lessons of use about one item; only journal entries change them."""

    q_value: float = written(0.0)
    uses: int = 0
    last_reward: float | None = None
    counters: Annotated[dict[Text, float], Field(exclude_if=is_empty, default_factory=dict)]
    """Open counts by name (`helpful`, `harmful`, a design's own)."""


class SourceRef(Record):
    """The origin of a commit."""

    session_id: Text | None = None
    chunk_id: Text | None = None
    chunk_index: int | None = None
    chunk_count: int | None = None
    turn_ids: tuple[Id, ...] = ()
    response_ids: tuple[str, ...] = ()
    """Model responses that led to the ops."""
    actor: Text = "agent"
    """`agent`, `user` (a direct edit), `import`, `undo`, or a caller's own word."""


# Plain strings, looked up several times faster than an enum's `value`.
_RELATION_WORDS = {relation: relation.value for relation in Relation}


class Event(Record):
    """An event, or another node of the event graph (item, entity, topic)."""

    id: Id
    kind: NodeKind = NodeKind.EVENT
    summary: Annotated[Text, Field(max_length=4_000)] = ""
    people: tuple[Text, ...] = ()
    source_turn_ids: tuple[Id, ...] = ()
    time_text: Text | None = None
    valid: TimeSpan | None = None
    said_at: Moment | None = None
    session_id: Text | None = None
    order: int = 0
    """Place among the events of its session, from 0."""
    aliases: tuple[Text, ...] = ()
    closed: bool = False
    """True for a tombstone: the node no longer takes part in walks."""


class EventEdge(Record):
    """A typed, directed edge, identified by source, target, relation and label."""

    source: Id
    target: Id
    relation: Relation
    label: Text = ""
    """Free words for `RELATED` edges."""
    evidence_turn_ids: tuple[Id, ...] = ()
    confidence: Annotated[float, Field(ge=0.0, le=1.0)] = 1.0
    valid: TimeSpan | None = None
    count: Annotated[int, Field(ge=1)] = 1
    """How often it was stated."""

    @property
    def key(self) -> str:
        """The edge's key between its two nodes."""
        word = _RELATION_WORDS[self.relation]
        return f"{word}:{self.label}" if self.label else word

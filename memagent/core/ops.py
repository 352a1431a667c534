"""Operations on memory as values (ADD, UPDATE, DELETE, NOOP), and their validation.

A `MemoryOp` is what a model or a caller *proposes*. `validate_ops` turns proposals into
an `OpBatch`; nothing else writes. The empty batch is legal and is still journalled, so
a chunk in which nothing was worth keeping is known to be done.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, Generic, Literal, TypeVar

from pydantic import Field

from memagent.core.records import (
    MAX_TURN_CHARS,
    Fact,
    Id,
    Metadata,
    Record,
    Text,
    TimeSpan,
    is_none,
    written,
)

T = TypeVar("T")


class _Op(Record):
    reason: Text = ""
    """Why the manager chose this op, in its own words."""
    about: Annotated[tuple[int, ...], Field(exclude=True, repr=False)] = ()
    """Places of the facts it decides about, among those shown; no part of its value."""

    def __eq__(self, other: object) -> bool:
        """Compare all fields but `about`."""
        if type(other) is not type(self):
            return NotImplemented
        names = type(self).model_fields.keys() - {"about"}
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def __hash__(self) -> int:
        """Hash by kind and reason."""
        return hash((type(self), self.reason))


class Add(_Op):
    """Remember a new fact as an item of its own."""

    op: Literal["ADD"] = written("ADD")
    fact: Fact
    id: Id | None = None
    """Explicit item id; only direct callers may set it, a model's is refused."""
    tags: tuple[Text, ...] = ()
    metadata: Metadata = Field(default_factory=dict[str, str | int | float | bool | None])


class Update(_Op):
    """Write a new version of an item; the old one stays readable."""

    op: Literal["UPDATE"] = written("UPDATE")
    id: Id
    version: int | None = None
    """The version the proposer saw; None means the one it was shown."""
    text: Annotated[Text, Field(min_length=1, max_length=MAX_TURN_CHARS)]
    source_turn_ids: tuple[Id, ...] = ()
    valid: TimeSpan | None = None
    kind: Annotated[Text | None, Field(exclude_if=is_none)] = None
    tags: Annotated[tuple[Text, ...] | None, Field(exclude_if=is_none)] = None
    metadata: Annotated[Metadata | None, Field(exclude_if=is_none)] = None
    """Kind, tags and metadata afterwards; None keeps the item's own."""


class Delete(_Op):
    """Take an item out of memory, leaving a restorable tombstone."""

    op: Literal["DELETE"] = written("DELETE")
    id: Id
    version: int | None = None
    source_turn_ids: tuple[Id, ...] = ()


class Noop(_Op):
    """Change nothing; `id` names the item that already says it, if any."""

    op: Literal["NOOP"] = written("NOOP")
    id: Id | None = None
    fact: Fact | None = None
    """The fact judged to be known already or not worth keeping."""


MemoryOp = Annotated[Add | Update | Delete | Noop, Field(discriminator="op")]


class RejectReason(StrEnum):
    """The reason why a proposed op was not carried out."""

    NOT_AN_OBJECT = "not_an_object"
    UNKNOWN_OP = "unknown_op"
    INVALID_FIELDS = "invalid_fields"
    UNKNOWN_ID = "unknown_id"
    NOT_SHOWN = "not_shown"
    STALE_VERSION = "stale_version"
    DUPLICATE_TARGET = "duplicate_target"
    DUPLICATE_TEXT = "duplicate_text"
    EMPTY_TEXT = "empty_text"
    UNCHANGED = "unchanged"
    FOREIGN_SPEAKER = "foreign_speaker"
    FOREIGN_TURN = "foreign_turn"
    SYSTEM_METADATA = "system_metadata"
    ID_NOT_ALLOWED = "id_not_allowed"
    LOW_TRUST = "low_trust"
    TOO_MANY_OPS = "too_many_ops"
    TEXT_TOO_LONG = "text_too_long"
    UNRESOLVED = "unresolved"
    UNGROUNDED = "ungrounded"
    """It shares no content with the turns it cites, or repeats an example of the prompt."""
    AMBIGUOUS = "ambiguous"
    """The reply can be read in more than one way."""
    CUT_OFF = "cut_off"
    """The reply ends before its list does; what followed is unknown."""
    NOT_ACCEPTED = "not_accepted"
    """The reporter of the trial tried the lesson on a fork and refused it."""


class Rejected(Record):
    """A proposed op that was not carried out; the journal keeps it beside accepted ones."""

    reason: RejectReason
    detail: Text = ""
    op: MemoryOp | None = None
    """The op, when it could be read at all."""
    raw: Text = ""
    """What the model wrote, shortened, when no op could be read."""


class ParseStatus(StrEnum):
    """The outcome of reading a model's text."""

    STRICT = "strict"
    """Valid JSON of the expected shape."""
    REPAIRED = "repaired"
    """Usable after stripping fences or repairing the JSON."""
    PARTIAL = "partial"
    """Some entries were usable, some were not."""
    FAILED = "failed"
    EMPTY = "empty"


class Repair(StrEnum):
    """A repair that a reply needed before it could be read."""

    REASONING = "reasoning"
    """A block of reasoning was left out."""
    FENCE = "fence"
    """A code fence or an end mark was taken off."""
    SPELLING = "spelling"
    """Other quotes, bare words, comments, missing or trailing commas."""
    PROSE = "prose"
    """Other text stands before or after the answer."""
    OTHER_ANSWER = "other_answer"
    """An earlier answer says something else; the last one counts."""
    JOINED = "joined"
    """Objects written one after another were read as one list."""
    BRACKET = "bracket"
    """A bracket is missing or wrong."""
    GUESS = "guess"
    """A string, key or value has no certain end, or was dropped."""
    CUT_OFF = "cut_off"
    """The reply ends before its answer does."""


CLEAR_REPAIRS: Final = frozenset({Repair.REASONING, Repair.FENCE, Repair.SPELLING})
"""Repairs that leave one meaning; after any other no op may change or delete an item."""


class Parsed(Record, Generic[T]):
    """Entries read from a model's text, with what could not be read."""

    status: ParseStatus
    values: tuple[T, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    repairs: tuple[Repair, ...] = ()
    """What was mended to read the text, each once, in a fixed order."""


class OpLimits(Record):
    """Bounds on what one chunk may write."""

    max_ops: Annotated[int, Field(ge=1)] = 64
    """Ops taken from one batch; the rest are rejected."""
    max_deletes: Annotated[int, Field(ge=0)] = 8
    """Items that one chunk may delete; the rest are rejected."""
    max_text_chars: Annotated[int, Field(ge=1)] = 2_000
    allow: frozenset[Literal["ADD", "UPDATE", "DELETE", "NOOP"]] = frozenset(
        {"ADD", "UPDATE", "DELETE", "NOOP"}
    )
    allow_explicit_ids: bool = False
    """Whether ADD may name its own id (direct callers only)."""
    require_sources: bool = True
    """Whether ADD and UPDATE must cite at least one turn of the chunk; a missing citation
    is filled only when unambiguous.
    """


class OpBatch(Record):
    """The verdict on one chunk's proposals: ops to write, and refused ones with reasons."""

    accepted: tuple[MemoryOp, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    doubts: Annotated[tuple[Rejected, ...], Field(exclude=True)] = ()
    """What the guard would have refused, where it only watches; never stored."""

"""The keywords of `add` and `search`, spelled once, and the checks of what callers give.

Public verbs take `**options: Unpack[SearchArguments]`, so editors show each keyword and
its type; inside, the keywords of a search travel as one frozen `SearchOptions`.

`SearchHits` is the list that a search returns: it can tell whether its hits answer what
was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import isfinite
from typing import Any, TypedDict

from memagent.core.answers import AsOf, Filter, Hit, SearchEvidence
from memagent.core.errors import ConfigError, InputError, check_keywords, check_type
from memagent.core.ops import Add
from memagent.core.recipes import Recipe
from memagent.core.records import Fact, TimeSpan, Trust, as_utc


class SearchHits(list[Hit]):
    """Hits, best first, with the evidence of the search as a whole.

    The evidence is worked out when it is first read, from the memory as it was searched.
    """

    def __init__(
        self, hits: Iterable[Hit] = (), *, judge: Callable[[], SearchEvidence] | None = None
    ) -> None:
        """Take the hits, and what judges them; hits without a judge are no evidence."""
        super().__init__(hits)
        self._judge = judge
        self._evidence: SearchEvidence | None = None

    @property
    def evidence(self) -> SearchEvidence:
        """The evidence of the hits: strong, weak or none, with a calibrated probability."""
        if self._evidence is None:
            self._evidence = self._judge() if self._judge is not None else SearchEvidence()
            self._judge = None
        return self._evidence

    def unless_below(self, probability: float) -> SearchHits:
        """Return these hits, or none where their evidence is below a probability."""
        if self.evidence.probability >= probability:
            return self
        evidence = self.evidence
        return SearchHits(judge=lambda: evidence)

    def __reduce__(self) -> tuple[type[SearchHits], tuple[list[Hit]], dict[str, object]]:
        """Copy and pickle with the evidence, not with the memory that judges it."""
        return SearchHits, (list(self),), {"_evidence": self.evidence, "_judge": None}


Scalar = str | int | float | bool | None
MAX_TEXT_CHARS = 20_000
"""Longest text of a directly added item, in characters."""
MAX_METADATA_CHARS = 20_000
"""Most characters that an item's metadata may have, keys and values together."""
MAX_ITEM_ID_CHARS = 200
"""Longest id that a caller may give an item, in characters."""


class AddArguments(TypedDict, total=False):
    """The keywords of an addition.

    `kind` is `fact` by default, and `id` is made unless one is given. `said_at` is now,
    unless turns are named. `ttl` keeps the item for so long from now; give it or
    `expires_at`.
    """

    id: str | None
    kind: str
    subject: str | None
    speaker: str | None
    valid: TimeSpan | None
    said_at: datetime | None
    source_turn_ids: Sequence[str]
    tags: Sequence[str]
    metadata: Mapping[str, Scalar] | None
    ttl: timedelta | None
    expires_at: datetime | None


class SearchArguments(TypedDict, total=False):
    """The keywords of a search.

    `k` is the most hits (10 by default), `recipe` a `Recipe` or the name of one,
    `as_of` a point in time to search at, and `max_tokens` bounds the (estimated) tokens
    of all texts together. With `abstain_below` there are no hits where the probability
    that they answer (`hits.evidence`) is lower. `min_trust` leaves out what is trusted less.
    """

    k: int
    where: Filter | None
    as_of: AsOf | datetime | str | None
    recipe: Recipe | str | None
    max_tokens: int | None
    abstain_below: float | None
    min_trust: Trust | str | None


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """The keywords of a search, with their defaults."""

    k: int = 10
    where: Filter | None = None
    as_of: AsOf | datetime | str | None = None
    recipe: Recipe | str | None = None
    max_tokens: int | None = None
    abstain_below: float | None = None
    min_trust: Trust | str | None = None

    def filter(self) -> Filter:
        """Return the filter, trust included. Raises `ConfigError` for an unknown trust."""
        if self.where is not None:
            check_type("where", self.where, Filter, "a Filter")
        where = self.where or Filter()
        return trusting(where, self.min_trust)


def trusting(where: Filter, least: Trust | str | None) -> Filter:
    """Return a filter that also leaves out what is trusted less than `least`.

    The stricter of two bounds holds. Raises `ConfigError` for an unknown trust.
    """
    if least is None:
        return where
    try:
        level = Trust(least)
    except ValueError:
        names = ", ".join(level.value for level in Trust)
        raise ConfigError(f"there is no trust {str(least)!r}; give one of {names}") from None
    bounds = [level] if where.min_trust is None else [level, where.min_trust]
    return where.model_copy(update={"min_trust": min(bounds, key=lambda bound: bound.rank)})


def new_item(text: str, options: AddArguments, *, now: datetime) -> Add:
    """Return the op that adds a text.

    Raises `InputError` for what a memory cannot hold.
    """
    check_keywords("add()", options, AddArguments.__annotations__)
    turns = tuple(options.get("source_turn_ids", ()))
    fact = Fact(
        text=checked_text(text),
        kind=options.get("kind", "fact"),
        subject=options.get("subject"),
        speaker=options.get("speaker"),
        valid=options.get("valid"),
        said_at=options.get("said_at") or (None if turns else now),
        source_turn_ids=turns,
        expires_at=_checked_expiry(options.get("ttl"), options.get("expires_at"), now=now),
    )
    item_id, tags, metadata = options.get("id"), options.get("tags", ()), options.get("metadata")
    if item_id is not None and not 0 < len(item_id) <= MAX_ITEM_ID_CHARS:
        raise InputError(f"the id has {len(item_id):,} characters; give 1 to {MAX_ITEM_ID_CHARS}")
    if isinstance(tags, str):
        raise InputError(f"tags is one text; give a list such as [{tags!r}]")
    return Add(
        fact=fact,
        id=item_id,
        tags=tuple(tags),
        metadata={} if metadata is None else _checked_metadata(metadata),
    )


def checked_text(text: str) -> str:
    """Return a text that a memory can hold. Raises `InputError`."""
    check_type("the text", text, str, "a string")
    if not text.strip():
        raise InputError("the text is empty; there is nothing to remember")
    if len(text) > MAX_TEXT_CHARS:
        raise InputError(
            f"the text has {len(text):,} characters, a memory holds at most {MAX_TEXT_CHARS:,}; "
            "split it, or remember it as a session"
        )
    return text


def _checked_expiry(
    ttl: timedelta | None, expires_at: datetime | None, *, now: datetime
) -> datetime | None:
    if ttl is not None and expires_at is not None:
        raise InputError("both ttl and expires_at are given; give one of them")
    if ttl is not None:
        check_type("the ttl", ttl, timedelta, "a timedelta")
        if ttl <= timedelta(0):
            raise InputError(f"the ttl is {ttl}; give a time longer than nothing")
        try:
            return now + ttl
        except OverflowError:
            raise InputError(
                f"the ttl of {ttl.days:,} days ends after the year 9999; "
                "leave it out to keep the memory"
            ) from None
    check_type("expires_at", expires_at, datetime | None, "a datetime")
    if expires_at is not None and as_utc(expires_at) <= now:
        raise InputError(
            f"expires_at {expires_at.isoformat()} has passed already; it is {now.isoformat()}"
        )
    return expires_at


def _checked_metadata(metadata: Mapping[Any, Any]) -> dict[str, Any]:
    check_type("the metadata", metadata, Mapping, "a dict")
    checked: dict[str, Any] = {}
    for key, value in metadata.items():
        if not isinstance(key, str):
            raise InputError(f"metadata key {key!r}: keys are strings")
        if key.startswith("_"):
            raise InputError(
                f"metadata key {key!r}: "
                "keys that start with an underscore are reserved for the system"
            )
        if isinstance(value, float) and not isfinite(value):
            raise InputError(f"metadata {key!r} is {value}; numbers must be finite")
        if isinstance(value, int) and value.bit_length() > 63:
            raise InputError(
                f"metadata {key!r} is an integer of {value.bit_length()} bits; 63 are the most"
            )
        if value is not None and not isinstance(value, str | int | float):
            raise InputError(
                f"metadata {key!r} is a {type(value).__name__}; "
                "values are texts, numbers, booleans or None"
            )
        checked[key] = value
    size = sum(len(key) + len(str(value)) for key, value in checked.items())
    if size > MAX_METADATA_CHARS:
        raise InputError(
            f"the metadata has {size:,} characters, a memory holds at most {MAX_METADATA_CHARS:,}"
        )
    return checked

"""The keywords of `add` and `search`, spelled once for every face of a memory.

Public verbs take `**options: Unpack[SearchArguments]`, so editors show each keyword and
its type; inside, the keywords of a search travel as one frozen `SearchOptions`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypedDict

from memagent.core.answers import AsOf, Filter
from memagent.core.recipes import Recipe
from memagent.core.records import TimeSpan

Scalar = str | int | float | bool | None


class AddArguments(TypedDict, total=False):
    """The keywords of an addition.

    `kind` is `fact` by default, and `id` is made unless one is given. `ttl` keeps the
    item for so long from now; give it or `expires_at`.
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
    of all texts together.
    """

    k: int
    where: Filter | None
    as_of: AsOf | None
    recipe: Recipe | str | None
    max_tokens: int | None


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """The keywords of a search, with their defaults."""

    k: int = 10
    where: Filter | None = None
    as_of: AsOf | None = None
    recipe: Recipe | str | None = None
    max_tokens: int | None = None


def check_add(options: AddArguments) -> None:
    """Raise `TypeError` for a keyword that `add` does not have."""
    unknown = options.keys() - AddArguments.__annotations__.keys()
    if unknown:
        raise TypeError(f"add() got an unexpected keyword argument {min(unknown)!r}")

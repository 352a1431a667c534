"""Recipes: the ways to search, as values.

A recipe names the arms that take part, what is added to their hits (neighbouring turns,
sessions, the event graph), what weighs a hit up or down (the time asked about, age,
importance, a named person), whether a reranker has the last word, and what is cut at
the end. Nothing here searches. `Recipe()` is plain search: all arms, and who is named
weighs more. Whatever a recipe adds counts in k.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field

from memagent.core.errors import ConfigError, check_type
from memagent.core.records import Record

Arm = Literal["dense", "dense_context", "lexical", "lexical_context"]
"""A ranking: by cosine or by BM25, over an item's own text or over its turns with their
neighbours.
"""
TimeUse = Literal["off", "soft", "hard"]
"""The effect of a time that a question names: none; what is near it counts more; nothing
else is shown.
"""


class Recipe(Record):
    """The knobs of a search."""

    arms: frozenset[Arm] = frozenset[Arm](("dense", "dense_context", "lexical", "lexical_context"))
    pool: Annotated[int, Field(ge=1, le=1_000)] = 100
    """Candidates an arm gives, at least 2 k."""
    time: TimeUse = "off"
    half_life_days: Annotated[float, Field(gt=0)] | None = None
    """After so many days since it was said a hit counts half; None for no decay."""
    importance: Annotated[float, Field(ge=0, le=10)] = 0.0
    """How much an item's importance (`metadata["importance"]`, else its learned value, 0
    to 1) adds to its weight.
    """
    utility: Annotated[float, Field(ge=0, le=1)] = 0.0
    """How much the value learned from reported outcomes, cut to -1 .. 1, adds to an item's
    weight; items that failed weigh less.
    """
    names: Annotated[float, Field(ge=0, le=10)] = 0.4
    """How much is added to the weight of what is by or about somebody the question names."""
    neighbours: Annotated[int, Field(ge=0, le=5)] = 0
    """Turns either side of a hit, in its session, whose items are added."""
    sessions: Annotated[int, Field(ge=0, le=20)] = 0
    """Sessions of the best hits that are searched once more by themselves."""
    graph: Annotated[int, Field(ge=0, le=200)] = 0
    """Most items that the event graph's links lead to from the best hits."""
    rerank: Annotated[int, Field(ge=0, le=200)] = 0
    """Best candidates that the agent's reranker puts in order; it has no effect without a
    reranker.
    """
    collapse: Annotated[float, Field(gt=0, le=1)] | None = None
    """Cosine (share of words where one has no vector) from which two hits are one;
    speaker, numbers and names must agree.
    """
    per_session: Annotated[int, Field(ge=1)] | None = None
    """Most hits of one session."""
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    """Most tokens of all hits together, estimated from their texts; what does not fit is
    passed over.
    """


PLAIN: Final = Recipe()
"""All four arms, and who is named; no use of times. Designs search so by default."""
FAST: Final = Recipe(arms=frozenset[Arm](("dense", "lexical_context")), pool=30)
"""Two arms, and who is named: the least time."""
BALANCED: Final = Recipe(time="soft")
"""All four arms; the people and the time that are named weigh in. `search` does so by
default.
"""
DEEP: Final = Recipe(time="soft", neighbours=1, sessions=2, graph=20, rerank=30, collapse=0.95)
"""Everything that a search can follow without a language model, and a reranker where there
is one.
"""
USEFUL: Final = Recipe(time="soft", utility=1.0)
"""`balanced`, weighed by what reported outcomes taught about each item."""
RECIPES: Final[dict[str, Recipe]] = {
    "fast": FAST,
    "balanced": BALANCED,
    "deep": DEEP,
    "plain": PLAIN,
    "useful": USEFUL,
}


def recipe_of(choice: Recipe | str) -> Recipe:
    """Return a recipe by its name, or the recipe itself.

    Raises `ConfigError` for a name that is none, `InputError` for what is no recipe.
    """
    if not isinstance(choice, str):
        check_type("recipe", choice, Recipe, "a Recipe or the name of one")
        return choice
    if choice not in RECIPES:
        near = get_close_matches(choice, RECIPES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigError(
            f"no recipe is named {choice!r}{hint}"
            f" (there are {', '.join(RECIPES)}; or give a Recipe)"
        )
    return RECIPES[choice]


def _by_name(value: object) -> object:
    return recipe_of(value) if isinstance(value, str) else value


RecipeField = Annotated[Recipe, BeforeValidator(_by_name, json_schema_input_type=Recipe | str)]
"""A recipe in a record: given as its name or as a `Recipe`, kept as a `Recipe`."""

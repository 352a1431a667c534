"""The forms that training has beside the worlds' own: generic ones, and German relations.

The worlds keep forms at odd places for their test split; `_interleaved` puts added forms
at even places, so that training draws them and what a test draws stays as it was.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from environments.worlds.language.spec import FORMS, Grammar, Relation

FOLDER: Final = Path(__file__).parent / "data"
_LIKE: Final = {"preference": "state", "bond": "state"}
"""Kinds that take the generic forms of another."""
_GERMAN_DAYS: Final = "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag".split()
_GERMAN_MONTHS: Final = (
    "Januar Februar März April Mai Juni Juli August September Oktober November Dezember".split()
)


@lru_cache(maxsize=1)
def generic_forms() -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Return forms by kind of relation (`any` for retractions) and group."""
    table = tomllib.loads((FOLDER / "english.toml").read_text("utf-8"))
    return {kind: {group: tuple(forms) for group, forms in groups.items()}
            for kind, groups in table.items()}  # fmt: skip


@lru_cache(maxsize=1)
def german_grammar() -> Grammar:
    """Return the German relations as a grammar whose every form is drawn in training."""
    table: dict[str, Any] = tomllib.loads((FOLDER / "german.toml").read_text("utf-8"))
    grammar = TypeAdapter(Grammar).validate_python({**table, "people": []})
    groups = (
        "openings", "hellos", "closings", "small_talk", "jokes", "fillers", "denials", "reminders",
    )  # fmt: skip
    return replace(
        grammar,
        relations=tuple(map(_all_drawn, grammar.relations)),
        replies={tone: _interleaved(forms, forms) for tone, forms in grammar.replies.items()},
        **{name: _interleaved(getattr(grammar, name), getattr(grammar, name)) for name in groups},
    )


def _all_drawn(relation: Relation) -> Relation:
    groups = {group: getattr(relation, group) for group in FORMS[relation.kind]}
    return replace(relation, **{name: _interleaved(forms, forms) for name, forms in groups.items()})


def extra_forms(relation: Relation) -> Relation:
    """Return the relation with the generic forms of its kind among those for training.

    A kind of `state` takes those of changes and corrections only where it has such forms.
    """
    groups = generic_forms().get(_LIKE.get(relation.kind, relation.kind), {})
    more = {group: forms for group, forms in groups.items() if getattr(relation, group)}
    return replace(
        relation,
        **{
            group: _interleaved((*own[0::2], *forms), own[1::2])
            for group, forms in more.items()
            for own in [getattr(relation, group)]
        },
    )


def _interleaved(training: Sequence[str], test: Sequence[str]) -> tuple[str, ...]:
    """Return a list with the first forms at even places and the others at odd ones."""
    if not training:
        return ()
    kept = test or training
    return tuple(
        form for place, own in enumerate(training) for form in (own, kept[place % len(kept)])
    )


def german_time(rng: random.Random) -> str:
    """Return a German phrase of time."""
    day, month = rng.choice(_GERMAN_DAYS), rng.choice(_GERMAN_MONTHS)
    return rng.choice(
        (
            f"am {day}", f"letzten {day}", f"am {rng.randint(1, 28)}. {month}", "gestern",
            "letzte Woche", f"im {month}", "vor drei Tagen", "heute", f"nächsten {day}",
            f"am {rng.randint(1, 28)}. {month} {rng.randint(2019, 2026)}",
        )
    )  # fmt: skip

"""The forms that training has beside the worlds' own: generic ones, and German relations.

The worlds keep forms at odd places for their test split; `interleaved` puts added forms
at even places, so that training draws them and what a test draws stays as it was. A form
that any test split has in the same words is dropped (`fresh`), whoever wrote it.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from environments.worlds.language.loading import LEVELS, grammar_of
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
        replies={tone: interleaved(forms, forms) for tone, forms in grammar.replies.items()},
        **{name: interleaved(getattr(grammar, name), getattr(grammar, name)) for name in groups},
    )


def _all_drawn(relation: Relation) -> Relation:
    groups = {group: getattr(relation, group) for group in FORMS[relation.kind]}
    return replace(relation, **{name: interleaved(forms, forms) for name, forms in groups.items()})


@lru_cache(maxsize=1)
def held_out_forms() -> frozenset[str]:
    """Return the forms of statements that a test split may use, as `plain` writes them."""
    return frozenset(
        plain(form)
        for level in LEVELS
        for relation in grammar_of(level).relations
        for group in FORMS[relation.kind]
        for form in getattr(relation, group)[1::2]
    )


def plain(form: str) -> str:
    """Return a form's words in lower case without signs."""
    return " ".join(re.findall(r"\w+", form.lower()))


def fresh(forms: Sequence[str]) -> tuple[str, ...]:
    """Return the forms that no test split has."""
    return tuple(form for form in forms if plain(form) not in held_out_forms())


def extra_forms(relation: Relation) -> Relation:
    """Return the relation with more forms for training: generic ones of its kind, derived ones.

    A kind of `state` takes those of changes and corrections only where it has such forms.
    """
    groups: dict[str, tuple[str, ...]] = dict(
        generic_forms().get(_LIKE.get(relation.kind, relation.kind), {})
    )
    for group, forms in _derived(relation).items():
        groups[group] = (*groups.get(group, ()), *forms)
    names = [group for group in FORMS[relation.kind] if getattr(relation, group)]
    return replace(
        relation,
        **{
            group: interleaved((*own[0::2], *groups.get(group, ())), own[1::2])
            for group in names
            for own in [getattr(relation, group)]
        },
    )


def _derived(relation: Relation) -> dict[str, list[str]]:
    """Return changes and corrections written around what states the relation anew."""
    if relation.kind not in ("state", "preference"):
        return {}
    change: list[str] = []
    correct: list[str] = []
    for form in relation.first[0::2]:
        core = form.removesuffix(".")
        if not form.endswith(".") or "." in core or "?" in core:
            continue
        inner = core if core.startswith(("I ", "I'", "{")) else core[0].lower() + core[1:]
        change += [f"{core} now.", f"These days {inner}.", f"{core}, no longer {{old}}.",
                   f"Things changed {{when}}, {inner}."]  # fmt: skip
        correct += [f"{core}, not {{old}}.", f"Sorry, {inner}, not {{old}}.",
                    f"Not {{old}}. {core}.",
                    f"I shouldn't have said {{old}}, {inner}."]  # fmt: skip
    return {"change": change, "correct": correct}


def interleaved(training: Sequence[str], test: Sequence[str]) -> tuple[str, ...]:
    """Return a list with the first forms, as far as fresh, at even places, the others at odd."""
    training = fresh(training)
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

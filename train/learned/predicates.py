"""Open predicates: relations with random nouns and verbs, made anew for each episode.

A network that meets a few dozen relations learns them by heart. These have thousands of
predicates, so only the shape of a statement tells what it does and where its value is.
"""

from __future__ import annotations

import random
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any, Final

from environments.worlds.language.spec import Grammar, Kind, Relation
from train.learned.forms import FOLDER, fresh, interleaved
from train.learned.words import held_out_words, plain_word

_KINDS: Final[tuple[Kind, ...]] = ("state", "preference", "set", "event", "plan", "bond")
_SHARES: Final = (6, 1, 4, 2, 3, 2)
_DRAWN: Final = 12
"""Most forms of a group that a relation gets."""
_TAILED: Final = 0.12
"""Share of the forms that end with words which say nothing more."""
_PERSONS: Final = 0.25
"""Share of the states whose values are names of people in a role ("my coach is Ovella")."""
NAMES: Final = "open_names"
"""The pool of those names."""
_REAL: Final = 0.5
"""Share of the nouns and verbs that are taken from the lists; the others are any words."""
_PEOPLE: Final = "people"


@lru_cache(maxsize=1)
def _table() -> Mapping[str, Any]:
    return tomllib.loads((FOLDER / "open.toml").read_text("utf-8"))


@lru_cache(maxsize=1)
def open_forms() -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Return the forms by kind and group, with the slots of the predicate still open."""
    return {
        kind: {group: fresh(forms) for group, forms in groups.items()}
        for kind, groups in _table().items()
        if isinstance(groups, dict)
    }


def open_relations(rng: random.Random, grammar: Grammar, count: int) -> tuple[Relation, ...]:
    """Return relations with predicates of their own over the pools of a grammar."""
    pools = sorted(set(grammar.pools) - {_PEOPLE, NAMES})
    kinds = rng.choices(_KINDS, _SHARES, k=count)
    return tuple(
        _relation(rng, f"open_{rng.getrandbits(40):010x}_{number}", kind, rng.choice(pools))
        for number, kind in enumerate(kinds)
    )


def _relation(rng: random.Random, name: str, kind: Kind, pool: str) -> Relation:
    groups = open_forms()["state" if kind == "preference" else kind]
    slots = _predicate(rng)
    if kind == "bond":
        pool = _PEOPLE
    elif kind == "state" and rng.random() < _PERSONS:
        pool, slots["noun"] = NAMES, slots["role"]
    forms: dict[str, Any] = {
        group: interleaved(_drawn(rng, own, slots), ())
        for group, own in groups.items()
        if group in _GROUPS
    }
    prompts = interleaved((f"What about your {slots['noun']}?", "What else is new?"), ())
    values: dict[str, Any] = {"name": name, "kind": kind, "values": pool, "prompts": prompts}
    if kind == "bond":
        values["role"] = slots["role"]
    return Relation(**values, **forms)


_GROUPS: Final = frozenset(field.name for field in fields(Relation))


@lru_cache(maxsize=2)
def _own(name: str) -> tuple[str, ...]:
    return tuple(
        word for word in _table()[name] if held_out_words().isdisjoint(word.lower().split())
    )


def _predicate(rng: random.Random) -> dict[str, str]:
    noun = rng.choice(_own("nouns")) if rng.random() < _REAL else plain_word(rng)
    verb = rng.choice(_own("verbs")) if rng.random() < _REAL else plain_word(rng)
    stem, _, rest = verb.partition(" ")
    rest = f" {rest}" if rest else ""
    bare = stem.removesuffix("e")
    role = rng.choice(_own("roles")) if rng.random() < _REAL else plain_word(rng)
    return {"noun": noun, "verb": verb, "verbing": f"{bare}ing{rest}", "past": f"{bare}ed{rest}",
            "verbs": f"{stem}s{rest}", "role": role, "adj": _adjective(rng)}  # fmt: skip


def _adjective(rng: random.Random) -> str:
    return rng.choice(_own("adjectives")) if rng.random() < _REAL else plain_word(rng)


def _drawn(rng: random.Random, forms: Sequence[str], slots: Mapping[str, str]) -> tuple[str, ...]:
    chosen = rng.sample(list(forms), min(len(forms), _DRAWN))
    return tuple(_filled(_tailed(rng, form), slots) for form in chosen)


def _tailed(rng: random.Random, form: str) -> str:
    """Return some forms with words behind them that say nothing more."""
    if not form.endswith(".") or rng.random() >= _TAILED:
        return form
    return form.removesuffix(".") + rng.choice(_table()["tails"]) + "."


def _filled(form: str, slots: Mapping[str, str]) -> str:
    form = form.replace("{verb}s", slots["verbs"])
    for name, words in slots.items():
        form = form.replace(f"{{{name}}}", words)
    return form

"""Random names and values, so that a network can only copy: no word tells what it is.

A value keeps the shape of the pool it stands for (number of words, capitals) and nothing
else. Words are made of syllables, or drawn from the vocabulary of the static table
without the words of any test split.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np

from environments.worlds.language.loading import LEVELS, grammar_of
from environments.worlds.language.spec import Grammar, Person
from memagent.designs.parts.learned.tokens import Floats, static_vector
from memagent.embed.static import TABLE_FOLDER

_ONSETS: Final = (
    "b br c ch cl d dr f fl g gl gr h j k kl l m n p pr qu r s sh sk st t th tr v w z".split()
)
_NUCLEI: Final = "a e i o u ai ea ie oo ou ei a e i o u".split()
_CODAS: Final = ["", "", "", "", "n", "r", "l", "s", "m", "k", "th", "nd", "x", "rt", "ng"]
_WORD: Final = re.compile(r"[^\W\d_]+")
_KEPT: Final = frozenset("of the in and a an at on for to with my his her".split())
_PLAIN: Final = re.compile(r"[a-z]{4,11}")
_NEIGHBOURS: Final = 8
PEOPLE: Final = 80
"""Names of an episode's grammar; the training half of them is used."""


@lru_cache(maxsize=1)
def held_out_words() -> frozenset[str]:
    """Return every word, in lower case, of the names and values that a test split may use."""
    found: set[str] = set()
    for level in LEVELS:
        grammar = grammar_of(level)
        found |= {person.name.lower() for person in grammar.people[1::2]}
        for name, pool in grammar.pools.items():
            shown = pool[1::2] if name in grammar.named_pools else pool
            found |= {word.lower() for value in shown for word in _WORD.findall(value)}
    return frozenset(found)


@lru_cache(maxsize=1)
def _vocabulary() -> tuple[str, ...]:
    banned = held_out_words()
    pieces = (TABLE_FOLDER / "vocab.txt").read_text("utf-8").split("\n")
    return tuple(piece for piece in pieces if _PLAIN.fullmatch(piece) and piece not in banned)


@lru_cache(maxsize=1)
def _table() -> Floats:
    rows = np.stack([static_vector(word) for word in _vocabulary()])
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-6)


@lru_cache(maxsize=20_000)
def neighbours(word: str) -> tuple[str, ...]:
    """Return the words of the vocabulary nearest to a folded word, itself left out."""
    near = _table() @ static_vector(word)
    order = np.argsort(-near, kind="stable")[: _NEIGHBOURS + 1]
    return tuple(own for place in order if (own := _vocabulary()[int(place)]) != word)


def invented(rng: random.Random) -> str:
    """Return a word of two or three syllables that no test split holds."""
    while True:
        word = "".join(
            rng.choice(_ONSETS) + rng.choice(_NUCLEI) + rng.choice(_CODAS)
            for _ in range(rng.choice((1, 2, 2, 3)))
        )
        if len(word) >= 3 and word not in held_out_words():
            return word


def plain_word(rng: random.Random) -> str:
    """Return any word of the vocabulary that no test split holds in a name or value."""
    return rng.choice(_vocabulary())


def value_like(rng: random.Random, pattern: str, *, real: float = 0.35) -> str:
    """Return a random value with the words and capitals of a pattern.

    A word is taken from the vocabulary with probability `real`, else invented.
    """

    def drawn(match: re.Match[str]) -> str:
        word = match.group()
        if word.lower() in _KEPT and match.start():
            return word
        fresh = rng.choice(_vocabulary()) if rng.random() < real else invented(rng)
        return fresh.capitalize() if word[0].isupper() else fresh

    value = _WORD.sub(drawn, pattern)
    return re.sub(r"\d", lambda _: str(rng.randrange(1, 10)), value)


def random_grammar(rng: random.Random, grammar: Grammar) -> Grammar:
    """Return the grammar with random people and values in the place of its own."""
    pools = {name: _pool(rng, pool, named=name in grammar.named_pools)
             for name, pool in grammar.pools.items()}  # fmt: skip
    people: dict[str, Person] = {}
    while len(people) < PEOPLE:
        name = invented(rng).capitalize()
        people[name] = Person(name=name, he=rng.choice(("he", "she")))
    return replace(grammar, pools=pools, people=tuple(people.values()))


def _pool(rng: random.Random, pool: Sequence[str], *, named: bool) -> tuple[str, ...]:
    """Return as many values; a training value of a named pool may stay as it is."""
    values: list[str] = []
    for place, own in enumerate(pool):
        keep = named and place % 2 == 0 and rng.random() < 0.25
        value = own if keep else value_like(rng, rng.choice(pool))
        if not any(value in other or other in value for other in values):
            values.append(value)
    return tuple(values)

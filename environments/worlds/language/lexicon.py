"""The half of a grammar that one split may use, ready for drawing, and the filling of its slots.

Even places of forms, people and named pools belong to training and validation, odd ones
to the test split, so no form and no name of the test is ever seen in training. Ids of
forms say where they stand: `lives_in.first.2`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, TypeVar

from environments.worlds.language.days import MONTHS, SHORT_WORDS
from environments.worlds.language.loading import grammar_of
from environments.worlds.language.spec import (
    ASKS,
    FORMS,
    Grammar,
    Person,
    Relation,
    Tone,
    half,
    slots_of,
)

T = TypeVar("T")

_SENTENCE = re.compile(r"(?:^|(?<=[^.][.!?] ))[a-z]")
_ARTICLE = re.compile(r"\b[Aa]n? \{(value|old|other)\}")
"""An article that a form wrote itself; it must follow the value that comes."""
_VOWEL = re.compile(
    r"(?!eu|one\b|once|uni(?!n)|use|usu|ut[eio]|uk)[aeiou]|hour|honest|heir", re.IGNORECASE
)
_SPELLED = re.compile(r"[FHLMNRSX][A-Z]+\b")


@dataclass(frozen=True, slots=True)
class Form:
    """A surface form of the split."""

    id: str
    text: str
    slots: frozenset[str]


@dataclass(frozen=True)
class Lexicon:
    """A grammar as one split sees it."""

    grammar: Grammar
    held_out: bool

    @cached_property
    def people(self) -> tuple[Person, ...]:
        """The people of the split."""
        return tuple(person for _, person in self._half(self.grammar.people))

    @cached_property
    def relations(self) -> Mapping[str, Relation]:
        """Relations by name, in the grammar's order."""
        return {relation.name: relation for relation in self.grammar.relations}

    @cached_property
    def pools(self) -> Mapping[str, tuple[str, ...]]:
        """Values by pool name."""
        return {
            name: tuple(value for _, value in self._half(pool))
            if name in self.grammar.named_pools
            else pool
            for name, pool in self.grammar.pools.items()
        }

    @cached_property
    def all_forms(self) -> Mapping[tuple[str, str], tuple[Form, ...]]:
        """Forms by relation (empty for the grammar's own) and group."""
        forms: dict[tuple[str, str], tuple[Form, ...]] = {}
        for relation in self.grammar.relations:
            for group in FORMS[relation.kind]:
                forms[relation.name, group] = self._forms(
                    f"{relation.name}.{group}", getattr(relation, group)
                )
            for ask in ASKS[relation.kind]:
                forms[relation.name, f"ask_{ask}"] = self._forms(
                    f"{relation.name}.ask_{ask}", relation.asks.get(ask, ())
                )
        for group in (
            "openings",
            "hellos",
            "closings",
            "small_talk",
            "jokes",
            "fillers",
            "denials",
            "reminders",
        ):
            forms["", group] = self._forms(group, getattr(self.grammar, group))
        for tone, replies in self.grammar.replies.items():
            forms["", f"replies_{tone}"] = self._forms(f"replies_{tone}", replies)
        return forms

    def forms(self, relation: str, group: str) -> tuple[Form, ...]:
        """Return the forms of a relation's group (`ask_now` for questions).

        With `relation` empty, those of the grammar's own group.
        """
        return self.all_forms.get((relation, group), ())

    def replies(self, tone: Tone) -> tuple[Form, ...]:
        """Return the replies of a tone."""
        return self.forms("", f"replies_{tone}")

    def _forms(self, prefix: str, texts: tuple[str, ...]) -> tuple[Form, ...]:
        texts_by_place = (
            (place, _ARTICLE.sub(r"{a_\1}", text)) for place, text in self._half(texts)
        )
        forms = (Form(f"{prefix}.{place}", text, slots_of(text)) for place, text in texts_by_place)
        return tuple(form for form in forms if not (self.held_out and form.text in self._trained))

    @cached_property
    def _trained(self) -> frozenset[str]:
        """The texts of training forms, of whatever relation.

        A held-out form that equals one is left out.
        """
        trained = Lexicon(self.grammar, held_out=False).all_forms
        return frozenset(form.text for forms in trained.values() for form in forms)

    def _half(self, entries: Sequence[T]) -> tuple[tuple[int, T], ...]:
        return half(entries, held_out=self.held_out)


def pick(
    rng: random.Random, forms: Sequence[Form], *, without: frozenset[str] = frozenset()
) -> Form | None:
    """Draw a form that holds none of the slots in `without`; None when there is none."""
    fitting = [form for form in forms if not form.slots & without] if without else forms
    return rng.choice(fitting) if fitting else None


PRONOUNS: Mapping[str, Mapping[str, str]] = {
    "he": {"he": "he", "him": "him", "his": "his"},
    "she": {"he": "she", "him": "her", "his": "her"},
    "I": {"he": "I", "him": "me", "his": "my"},
}
"""The words for {he}, {him} and {his} by whose they are."""


def filled(form: str, slots: Mapping[str, str]) -> str:
    """Return a form with its slots filled and its sentences capitalised."""
    return capitalised(form.format_map(slots))


def capitalised(text: str) -> str:
    """Return the text with a capital at the start of every sentence."""
    return _SENTENCE.sub(lambda match: match[0].upper(), text)


@lru_cache(maxsize=10_000)
def with_article(noun: str) -> str:
    """Return the noun with `a` or `an`, by sound as far as spelling tells."""
    return f"an {noun}" if _VOWEL.match(noun) or _SPELLED.match(noun) else f"a {noun}"


# The words of level `tiny`, of which a network with a closed vocabulary is made.

_TOKEN: Final = re.compile(r"\w+|[^\w\s]")
_SLOT: Final = re.compile(r"\{\w+\}")
_EXTRA: Final = "yes no a an my 's , and he she him her his I me"


def tiny_vocabulary() -> tuple[str, ...]:
    """Return every word that level `tiny` can write, question, answer or say.

    Words are in lower case and alphabetical order.

    A word is a run of letters and digits, or one other sign. Counts, which are numbers,
    go up to 31 like the days of a month.
    """
    texts = (_SLOT.sub(" ", text).lower() for text in _texts(grammar_of("tiny")))
    return tuple(sorted({word for text in texts for word in _TOKEN.findall(text)}))


def _texts(grammar: Grammar) -> Iterator[str]:
    yield from (person.name for person in grammar.people)
    yield from (value for pool in grammar.pools.values() for value in pool)
    yield from (*MONTHS, *SHORT_WORDS, *map(str, range(32)), _EXTRA)
    for group in (grammar.openings, grammar.hellos, grammar.closings, grammar.small_talk):
        yield from group
    yield from (*grammar.jokes, *grammar.fillers, *grammar.denials, *grammar.reminders)
    yield from (reply for replies in grammar.replies.values() for reply in replies)
    for relation in grammar.relations:
        yield relation.role
        yield from (word for pair in relation.pairs for word in pair)
        yield from (form for group in FORMS[relation.kind] for form in getattr(relation, group))
        yield from (form for forms in relation.asks.values() for form in forms)

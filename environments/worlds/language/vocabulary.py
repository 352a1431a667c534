"""The words of level `tiny`, of which a network with a closed vocabulary is made."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from environments.worlds.language.days import MONTHS, SHORT_WORDS
from environments.worlds.language.loading import grammar_of
from environments.worlds.language.spec import FORMS, Grammar

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

"""The small grammar: eight relations, single-word values, at most 300 words, so that a
network of under a million weights can learn it.

The held-out forms are made of words that the training forms use, and the held-out names
are new pairs of known first and family names: the test asks for new combinations, never
for unknown words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from environments.worlds.days import MONTHS, SHORT_WORDS
from environments.worlds.spec import FORMS, Grammar, Person
from environments.worlds.tiny_relations import RELATIONS

_HE: Final = "leo max sam tom ben dan".split()
_SHE: Final = "mia eva zoe amy ivy joy".split()
_FAMILY: Final = "hill lake wood stone bell reed".split()


def _people() -> tuple[Person, ...]:
    """Four family names for each first name, so that both halves hold every word."""
    firsts = [name for pair in zip(_HE, _SHE, strict=True) for name in pair]
    return tuple(
        Person(
            name=f"{first.title()} {_FAMILY[(place + step) % len(_FAMILY)].title()}",
            he="he" if first in _HE else "she",
        )
        for place, first in enumerate(firsts)
        for step in range(4)
    )


TINY: Final = Grammar(
    relations=RELATIONS,
    people=_people(),
    pools={
        "towns": tuple("Rome Paris Oslo Lima Cairo Delhi Kyoto Lyon Bonn Perth Quito Turin".split()),
        "jobs": tuple("cook nurse pilot baker judge guard clerk actor farmer tailor painter singer".split()),
        "foods": tuple("rice soup cake fish bread cheese pasta salad honey corn beans pie".split()),
        "pets": tuple("cat dog horse parrot rabbit turtle goat hen duck mouse pony snake".split()),
        "things": tuple("lamp chair table clock mirror bike drum kettle carpet shelf vase sofa".split()),
        "sights": tuple("castle museum beach tower park zoo bridge garden temple farm market harbour".split()),
    },
    calendar="short",
    openings=("hi {name}.", "hi {name}, how are you?", "how are you, {name}?", "how is it, {name}?"),
    hellos=("hi {name}.", "so so, {name}.", "well, {name}."),
    closings=("so long, {name}.", "well, so long.", "so long."),
    small_talk=(
        "it was so hot.", "so it was.", "it will rain, they say.", "they say it will rain.", "what a wind!", "what a day!",
        "so much snow!", "so much noise!", "the music was so sad.", "the wind was so sad.", "how are you?", "how was the day?",
        "the day was wet.", "the snow was wet.", "well, well.", "well, so it was.", "so late!", "what noise!",
    ),
    jokes=("ha ha.", "ha ha, well.", "I am so tired, ha ha.", "so late, ha ha."),
    replies={
        "good": ("so I heard.", "so so.", "well, so it is."),
        "bad": ("so I heard, sorry.", "sorry.", "so sorry."),
        "neutral": ("so it is.", "well, so it was.", "I heard."),
    },
    fillers=("well,", "so,"),
    denials=("no, not so.", "no, sorry."),
    reminders=("well, as I say,", "as they say,"),
)  # fmt: skip
"""The grammar of level `tiny`."""


_TOKEN: Final = re.compile(r"\w+|[^\w\s]")
_SLOT: Final = re.compile(r"\{\w+\}")


def tiny_vocabulary() -> tuple[str, ...]:
    """Every word that level `tiny` can write, question, answer or say, in lower case
    and alphabetical order.

    A word is a run of letters and digits, or one other sign. Counts, which are numbers,
    go up to 31 like the days of a month.
    """
    return tuple(
        sorted({word for text in _texts() for word in _TOKEN.findall(_SLOT.sub(" ", text).lower())})
    )


def _texts() -> Iterator[str]:
    yield from (person.name for person in TINY.people)
    yield from (value for pool in TINY.pools.values() for value in pool)
    yield from (
        *MONTHS,
        *SHORT_WORDS,
        *map(str, range(32)),
        "yes",
        "no",
        "a",
        "an",
        "my",
        "'s",
        ",",
        "and",
    )
    for group in (TINY.openings, TINY.hellos, TINY.closings, TINY.small_talk, TINY.jokes):
        yield from group
    yield from (*TINY.fillers, *TINY.denials, *TINY.reminders)
    yield from (reply for replies in TINY.replies.values() for reply in replies)
    for relation in TINY.relations:
        yield relation.role
        yield from (word for pair in relation.pairs for word in pair)
        yield from (form for group in FORMS[relation.kind] for form in getattr(relation, group))
        yield from (form for forms in relation.asks.values() for form in forms)
    yield "he she him her his I me"

"""The eleven kinds of question of the Time-Dialog family, over the events of a world.

Their names are those of TIME (Wei et al. 2025), which Memory-T1 trains on. A question
takes up to four events, each by the question for its day, and asks for something that
follows from the days: nothing is answered by one turn's words. `solve` is pure: from the
days of the events, in the order of the question, to the answer.

    extract              the day of each of three events
    localization         the day of one event
    computation          the days between two events
    duration_compare     which of two spans between events is longer
    order_compare        which of two events came first
    explicit_reasoning   what was so on a given day
    order_reasoning      which of four events came second, or third
    relative_reasoning   which of three events came right after another
    co_temporality       what was so on the day of an event
    timeline             four events in order
    counterfactual       which of three came first, had one been some days later
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from itertools import chain, zip_longest
from typing import Final

from environments.records import Probe
from environments.tasks.generated import Asked, draw_questions
from environments.worlds.language.days import on_day
from environments.worlds.language.lexicon import Lexicon
from environments.worlds.readers.moments import Moments, solve
from environments.worlds.truth import ProbeTruth, Truth

_TEMPLATES: Final[Mapping[str, str]] = {
    "extract": "Give the day of each, in this order.",
    "computation": "How many days lie between the two?",
    "duration_compare": "Which is longer, the time between the first two or between the last two? "
    'Answer "the first two" or "the last two".',
    "order_compare": "Which of the two came first, {values}?",
    "order_reasoning": "In order of time, which is number {number}: {values}?",
    "relative_reasoning": "Of the others, which came next after {last}: {others}?",
    "timeline": "Put them in order of time, the earliest first: {values}.",
    "counterfactual": "Had {first} been {number} days later, which of them would have come first: "
    "{values}?",
}
_SIZES: Final[Mapping[str, int]] = {
    "extract": 3, "computation": 2, "duration_compare": 4, "order_compare": 2,
    "order_reasoning": 4, "relative_reasoning": 3, "timeline": 4, "counterfactual": 3,
}  # fmt: skip
SUBTYPES: Final = (
    "extract", "localization", "computation", "duration_compare", "order_compare",
    "explicit_reasoning", "order_reasoning", "relative_reasoning", "co_temporality", "timeline",
    "counterfactual",
)  # fmt: skip
"""The eleven kinds of question, in the order of TIME's levels."""
_TRIES: Final = 60


@dataclass(frozen=True)
class _Event:
    """An event with the question for its day."""

    asked: Asked
    day: date

    @property
    def value(self) -> str:
        return self.asked[1].value


def time_questions(rng: random.Random, truth: Truth, lexicon: Lexicon) -> Iterator[Asked]:
    """Return questions of all kinds that the world has, in turn over the kinds.

    Two questions of a kind never take the same events.
    """
    events = _events(rng, truth, lexicon)
    then = [asked for asked in draw_questions(rng, truth, lexicon, "then") if asked[1].day]
    by_kind: dict[str, list[Asked]] = {kind: [] for kind in SUBTYPES}
    by_kind["localization"] = [_named(event.asked, "localization") for event in events]
    by_kind["explicit_reasoning"] = [_named(asked, "explicit_reasoning") for asked in then]
    by_kind["co_temporality"] = list(_at_events(rng, truth, lexicon, events, then))
    for kind in _SIZES:
        by_kind[kind] = list(_composed(rng, kind, events, lexicon))
    turns = zip_longest(*(by_kind[kind] for kind in SUBTYPES))
    return (asked for asked in chain.from_iterable(turns) if asked is not None)


def _events(rng: random.Random, truth: Truth, lexicon: Lexicon) -> list[_Event]:
    """Return the events with a told day, of different values and days."""
    state = truth.state(-1)
    events: dict[tuple[str, date], _Event] = {}
    for asked in draw_questions(rng, truth, lexicon, "when"):
        how = asked[1]
        if lexicon.relations[how.relation].kind != "event":
            continue
        day = next(
            held.start for held in state[how.subject, how.relation] if held.value == how.value
        )
        if all(how.value != value and day != other for value, other in events):
            events[how.value, day] = _Event(asked, day)
    return list(events.values())


def _named(asked: Asked, kind: str) -> Asked:
    return asked[0].model_copy(update={"category": kind}), asked[1]


def _composed(
    rng: random.Random, kind: str, events: Sequence[_Event], lexicon: Lexicon
) -> Iterator[Asked]:
    """Return questions of a kind about drawn events."""
    size, seen = _SIZES[kind], set[frozenset[str]]()
    for _ in range(_TRIES if len(events) >= size else 0):
        chosen = rng.sample(events, size)
        if (names := frozenset(event.value for event in chosen)) in seen:
            continue
        number = {"order_reasoning": rng.choice((2, 3)), "counterfactual": rng.randint(20, 90)}.get(
            kind, 0
        )
        moments: Moments = [(event.value, event.day) for event in chosen]
        answers = solve(kind, moments, number=number, calendar=lexicon.grammar.calendar)
        if not answers or (kind == "counterfactual" and _unchanged(moments, answers[0])):
            continue
        seen.add(names)
        yield _worded(kind, chosen, answers, number)


def _unchanged(moments: Moments, answer: str) -> bool:
    """Tell whether what did happen has the same answer."""
    return min(moments, key=lambda moment: moment[1])[0] == answer


def _worded(kind: str, chosen: Sequence[_Event], answers: tuple[str, ...], number: int) -> Asked:
    values = [event.value for event in chosen]
    told = {
        "values": ", ".join(values[:-1]) + f" or {values[-1]}",
        "others": ", ".join(values[:-1]),
        "first": values[0],
        "last": values[-1],
        "number": str(number),
    }
    if kind == "timeline":
        told["values"] = ", ".join(values)
    questions = " ".join(event.asked[0].question for event in chosen)
    turns = dict.fromkeys(
        turn_id for event in chosen for turn_id in event.asked[0].evidence_turn_ids
    )
    probe = Probe(
        id="q",
        question=f"{questions} {_TEMPLATES[kind].format(**told)}",
        answers=answers,
        evidence_turn_ids=tuple(turns),
        category=kind,
    )
    how = chosen[0].asked[1]
    return probe, ProbeTruth(
        probe_id="q",
        ask=kind,
        subject=how.subject,
        relation=how.relation,
        number=number,
        moments=tuple(
            (event.asked[1].subject, event.asked[1].relation, event.value) for event in chosen
        ),
        form=how.form,
    )


def _at_events(
    rng: random.Random,
    truth: Truth,
    lexicon: Lexicon,
    events: Sequence[_Event],
    then: Sequence[Asked],
) -> Iterator[Asked]:
    """Return questions for what a state was on the day of an event."""
    state, calendar = truth.state(-1), lexicon.grammar.calendar
    for probe, how in then:
        if lexicon.relations[how.relation].kind not in ("state", "preference") or how.day is None:
            continue
        held = [
            (event, value)
            for event in events
            for value in state[how.subject, how.relation]
            if value.start <= event.day - timedelta(1)
            and (value.end is None or event.day < value.end)
        ]
        named = on_day(calendar, how.day)
        if not held or named not in probe.question:
            continue
        event, value = rng.choice(held)
        asked = event.asked[1]
        turns = dict.fromkeys((*event.asked[0].evidence_turn_ids, *value.turn_ids))
        question = probe.question.replace(named, "on that day")
        yield (
            probe.model_copy(
                update={
                    "question": f"{event.asked[0].question} {question}",
                    "answers": (value.value,),
                    "evidence_turn_ids": tuple(turns),
                    "category": "co_temporality",
                }
            ),
            replace(
                how,
                ask="co_temporality",
                value="",
                day=None,
                moments=((asked.subject, asked.relation, asked.value),),
            ),
        )

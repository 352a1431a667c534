"""Order recall: which of two events came first, where they were not told in the order
in which they happened.

Half of the questions are about events told in order, half about events told the other
way round, so neither guessing nor the order of telling is right more than half of the
time. Whoever kept the days is always right.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from itertools import chain
from typing import Unpack

from environments.tasks.generated import (
    Asked,
    Draw,
    Generated,
    Shared,
    World,
    asking,
    at_least,
    questions,
)
from environments.tasks.script import Script, enough
from environments.worlds.lexicon import Lexicon
from environments.worlds.truth import Truth


class OrderRecall(Generated):
    """`threads` series of `events` events, told over `sessions` sessions."""

    name = "order_recall"

    def __init__(
        self, *, sessions: int = 8, events: int = 6, threads: int = 2, **shared: Unpack[Shared]
    ) -> None:
        """Raises `EnvironmentFault` for fewer than three events or more of them than
        the language has values.
        """
        super().__init__(**shared)
        at_least(1, sessions=sessions, threads=threads)
        at_least(3, events=events)
        self.sessions, self.events, self.threads = sessions, events, threads

    def make(self, name: str, draw: Draw, lexicon: Lexicon) -> World:
        """One episode."""
        script = Script(name, draw, lexicon, self.knobs(sessions=self.sessions))
        found = script.keys("event", ask="order", least=self.events)
        keys = enough(found, self.threads, knob="threads")
        rng, dates = script.rng, script.story.dates
        reach = 3 * (dates[-1] - dates[0]).days // 2 + 2 * self.events
        for speaker, relation in keys:
            places = sorted(rng.choice(range(self.sessions)) for _ in range(self.events))
            free = set(range(reach))
            """Days since a while before the first session; each is that of one event at
            most.
            """
            start = dates[0] - timedelta(reach - (dates[-1] - dates[0]).days)
            for place, value in zip(places, script.values(relation, self.events), strict=True):
                past = sorted(day for day in free if start + timedelta(day) <= dates[place])
                chosen = rng.choice(past)
                free.remove(chosen)
                script.tell(place, speaker, relation, value, day=start + timedelta(chosen))
        world = script.world(relation for _, relation in keys)
        asked = questions(
            draw("questions"), world[1], lexicon, lambda probe, how: how.ask == "order"
        )
        return asking(world, list(_balanced(world[1], asked)))


def _balanced(truth: Truth, asked: Iterable[Asked]) -> Iterable[Asked]:
    """As many questions about events told in order as about events told in reverse, in turn."""
    place = {(one.key, one.value): number for number, one in enumerate(truth.tellings)}
    shelves: tuple[list[Asked], list[Asked]] = ([], [])
    for probe, how in asked:
        key = how.subject, how.relation
        shelves[place[key, how.value] > place[key, how.other]].append((probe, how))
    return chain.from_iterable(zip(*shelves, strict=False))

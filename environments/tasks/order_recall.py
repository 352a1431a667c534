"""Order recall: which of two events came first, however they were told.

Half of the questions are about events told in order, half about events told the other
way round, so neither guessing nor the order of telling is right more than half of the
time. A memory that kept the days is always right.
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
    draw_questions,
    require_at_least,
    with_questions,
)
from environments.tasks.script import Script
from environments.worlds.language.lexicon import Lexicon
from environments.worlds.truth import Truth
from environments.worlds.world import World


class OrderRecall(Generated):
    """`threads` series of `events` events, told over `sessions` sessions."""

    name = "order_recall"

    def __init__(
        self, *, sessions: int = 8, events: int = 6, threads: int = 2, **shared: Unpack[Shared]
    ) -> None:
        """Raise `EnvironmentFault` for fewer than three events, or more than there are values."""
        super().__init__(**shared)
        require_at_least(1, sessions=sessions, threads=threads)
        require_at_least(3, events=events)
        self.sessions, self.events, self.threads = sessions, events, threads

    def make(self, name: str, draw: Draw, lexicon: Lexicon) -> World:
        """Make one episode."""
        script = Script(name, draw, lexicon, self.config(sessions=self.sessions))
        keys = script.keys(
            "event", ask="order", least=self.events, count=self.threads, argument="threads"
        )
        rng, dates = script.rng, script.story.dates
        reach = 3 * (dates[-1] - dates[0]).days // 2 + 2 * self.events
        for speaker, relation in keys:
            places = sorted(rng.choice(range(self.sessions)) for _ in range(self.events))
            # Days since a while before the first session; each has at most one event.
            free = set(range(reach))
            start = dates[0] - timedelta(reach - (dates[-1] - dates[0]).days)
            for place, value in zip(places, script.values(relation, self.events), strict=True):
                past = sorted(day for day in free if start + timedelta(day) <= dates[place])
                chosen = rng.choice(past)
                free.remove(chosen)
                script.tell(place, (speaker, relation), value, day=start + timedelta(chosen))
        world = script.world(relation for _, relation in keys)
        asked = draw_questions(draw("questions"), world[1], lexicon, "order")
        return with_questions(world, list(_balanced(world[1], asked)))


def _balanced(truth: Truth, asked: Iterable[Asked]) -> Iterable[Asked]:
    """Return as many questions about events told in order as in reverse, in turn."""
    place = {(telling.key, telling.value): i for i, telling in enumerate(truth.tellings)}
    by_order: tuple[list[Asked], list[Asked]] = ([], [])
    for probe, origin in asked:
        key = origin.subject, origin.relation
        reversed_ = place[key, origin.value] > place[key, origin.other]
        by_order[reversed_].append((probe, origin))
    return chain.from_iterable(zip(*by_order, strict=False))

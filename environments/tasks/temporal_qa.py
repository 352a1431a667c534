"""Questions of time, of the eleven kinds of the Time-Dialog family.

The world is that of `synthetic` with more facts and more revisions; only questions of
time are asked (`time_questions`), each kind in turn. Turns say "last Friday" and
answers are days, so a memory that keeps the words without the date of the session
fails.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from environments.tasks.generated import (
    Draw,
    Generated,
    Shared,
    require_at_least,
    with_questions,
)
from environments.tasks.time_questions import SUBTYPES, time_questions
from environments.worlds.language.lexicon import Lexicon
from environments.worlds.world import World, make_world

_ATTEMPTS = 8
"""Worlds drawn until one has questions of every kind; the last one is taken as it is."""


class TemporalQA(Generated):
    """At most `probes` questions of time over `sessions` sessions.

    Categories are the names of `time_questions`.
    """

    name = "temporal_qa"

    def __init__(self, *, sessions: int = 8, probes: int = 16, **shared: Unpack[Shared]) -> None:
        """Raise `EnvironmentFault` for numbers below 1."""
        super().__init__(**shared)
        require_at_least(1, sessions=sessions, probes=probes)
        self.sessions, self.probes = sessions, probes

    def make(self, name: str, draw: Draw, lexicon: Lexicon) -> World:
        """Make one episode."""
        base = self.world.config
        config = replace(
            base, sessions=self.sessions, facts=2 * base.facts, overwrite=0.4, probes=1
        )
        for attempt in range(_ATTEMPTS):
            world = make_world(name, str(draw(f"key {attempt}").random()), lexicon, config)
            asked = list(time_questions(draw("questions"), world[1], lexicon))
            kinds = {probe.category for probe, _ in asked}
            if len(kinds) == len(SUBTYPES) or attempt == _ATTEMPTS - 1:
                return with_questions(world, asked[: self.probes])
        raise AssertionError("the last world is always taken")

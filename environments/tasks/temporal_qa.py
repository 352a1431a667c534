"""Questions of time: the day of an event, and the state or the event on a given day.

The world is that of `synthetic` with more revisions; only its questions of time are
asked. Turns say "last Friday" and answers are days, so a memory that keeps the words
without the date of the session fails.
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
from environments.worlds.language.lexicon import Lexicon
from environments.worlds.world import World, make_world


class TemporalQA(Generated):
    """At most `probes` questions of time over `sessions` sessions."""

    name = "temporal_qa"

    def __init__(self, *, sessions: int = 8, probes: int = 16, **shared: Unpack[Shared]) -> None:
        """Raise `EnvironmentFault` for numbers below 1."""
        super().__init__(**shared)
        require_at_least(1, sessions=sessions, probes=probes)
        self.sessions, self.probes = sessions, probes

    def make(self, name: str, draw: Draw, lexicon: Lexicon) -> World:
        """Make one episode."""
        config = replace(self.world.config, sessions=self.sessions, overwrite=0.4, probes=1_000_000)
        world = make_world(name, str(draw("key").random()), lexicon, config)
        asked = [
            (probe, origin)
            for probe, origin in zip(world[0].probes, world[1].probes, strict=True)
            if origin.ask in ("when", "then") and not probe.unanswerable
        ]
        return with_questions(world, asked[: self.probes])

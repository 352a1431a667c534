"""Questions of time: on which day something happened, and what held or happened on a given day.

The world is that of `synthetic` with more revisions; only its questions of time are
asked. Turns say "last Friday", answers are days, so whoever keeps the words without the
date of the session is lost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from environments.datasets.synthetic import LEVELS
from environments.tasks.generated import Draw, Generated, Shared, World, asking, at_least
from environments.worlds.lexicon import Lexicon
from environments.worlds.world import make_world


class TemporalQA(Generated):
    """At most `probes` questions of time over `sessions` sessions."""

    name = "temporal_qa"

    def __init__(self, *, sessions: int = 8, probes: int = 16, **shared: Unpack[Shared]) -> None:
        """Raises `EnvironmentFault` for knobs below 1."""
        super().__init__(**shared)
        at_least(1, sessions=sessions, probes=probes)
        self.sessions, self.probes = sessions, probes

    def make(self, name: str, draw: Draw, lexicon: Lexicon) -> World:
        """One episode."""
        knobs = replace(LEVELS[self.level], sessions=self.sessions, overwrite=0.4, probes=1_000_000)
        world = make_world(name, str(draw("key").random()), lexicon, knobs)
        pairs = zip(world[0].probes, world[1].probes, strict=True)
        asked = [
            pair for pair in pairs if pair[1].ask in ("when", "then") and not pair[0].unanswerable
        ]
        return asking(world, asked[: self.probes])

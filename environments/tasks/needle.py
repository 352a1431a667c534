"""Accurate retrieval: facts told once each, in long talk about similar facts of others.

Every question is about one fact, told in a session before the last; bystanders are said
to have other values of the same relations. A memory that kept the turn answers; one
that holds only the last session does not.
"""

from __future__ import annotations

from typing import Unpack

from environments.tasks.generated import (
    Draw,
    Generated,
    Shared,
    draw_questions,
    require_at_least,
    with_questions,
)
from environments.tasks.script import Script
from environments.worlds.language.lexicon import Lexicon
from environments.worlds.world import World


class Needle(Generated):
    """`needles` facts in `sessions` sessions, `distractors` look-alikes a session."""

    name = "needle"

    def __init__(
        self,
        *,
        sessions: int = 16,
        needles: int = 4,
        distractors: int = 4,
        **shared: Unpack[Shared],
    ) -> None:
        """Raise `EnvironmentFault` below two sessions, or for too many needles."""
        super().__init__(**shared)
        require_at_least(2, sessions=sessions)
        require_at_least(1, needles=needles)
        require_at_least(0, distractors=distractors)
        self.sessions, self.needles, self.distractors = sessions, needles, distractors

    def make(self, name: str, draw: Draw, lexicon: Lexicon) -> World:
        """Make one episode."""
        config = self.config(sessions=self.sessions, distractors=self.distractors)
        script = Script(name, draw, lexicon, config)
        keys = script.keys(
            "state", "preference", ask="now", least=2, count=self.needles, argument="needles"
        )
        for speaker, relation in keys:
            session = script.rng.randrange(self.sessions - 1)
            script.tell(session, (speaker, relation), script.values(relation, 1)[0])
        world = script.world(relation for _, relation in keys)
        return with_questions(world, draw_questions(draw("questions"), world[1], lexicon, "now"))

"""Accurate retrieval: facts told once each, somewhere in long talk about others who resemble them.

Every question is about one fact, told in a session before the last; bystanders are told
to have other values of the same relations. Whoever kept the turn answers; whoever
remembers the last session only does not.
"""

from __future__ import annotations

from typing import Unpack

from environments.tasks.generated import Draw, Generated, Shared, World, asking, at_least, questions
from environments.tasks.script import Script, enough
from environments.worlds.lexicon import Lexicon


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
        """Raises `EnvironmentFault` for fewer than two sessions or more needles than
        the language has room for.
        """
        super().__init__(**shared)
        at_least(2, sessions=sessions)
        at_least(1, needles=needles)
        at_least(0, distractors=distractors)
        self.sessions, self.needles, self.distractors = sessions, needles, distractors

    def make(self, name: str, draw: Draw, lexicon: Lexicon) -> World:
        """One episode."""
        knobs = self.knobs(sessions=self.sessions, distractors=self.distractors)
        script = Script(name, draw, lexicon, knobs)
        keys = enough(
            script.keys("state", "preference", ask="now", least=2), self.needles, knob="needles"
        )
        for speaker, relation in keys:
            session = script.rng.randrange(self.sessions - 1)
            script.tell(session, speaker, relation, script.values(relation, 1)[0])
        world = script.world(relation for _, relation in keys)
        asked = questions(
            draw("questions"),
            world[1],
            lexicon,
            lambda probe, how: how.ask == "now" and not probe.unanswerable,
        )
        return asking(world, asked)

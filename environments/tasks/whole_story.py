"""Long-range understanding: questions that only all sessions together answer.

Events and possessions of the speakers are spread over the whole episode, never two of a
kind in one session. The questions ask how many there were, or are, and which: a memory
of any single session is wrong.
"""

from __future__ import annotations

from datetime import date
from itertools import pairwise
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
from environments.worlds.language.spec import Person, Relation
from environments.worlds.truth import Act
from environments.worlds.world import World


class WholeStory(Generated):
    """`threads` series of events or possessions over `sessions` sessions."""

    name = "whole_story"

    def __init__(self, *, sessions: int = 12, threads: int = 4, **shared: Unpack[Shared]) -> None:
        """Raise `EnvironmentFault` below three sessions, or for too many threads."""
        super().__init__(**shared)
        require_at_least(3, sessions=sessions)
        require_at_least(1, threads=threads)
        self.sessions, self.threads = sessions, threads

    def make(self, name: str, draw: Draw, lexicon: Lexicon) -> World:
        """Make one episode."""
        script = Script(name, draw, lexicon, self.config(sessions=self.sessions))
        most = min(6, self.sessions)
        keys = script.keys(
            "event", "set", ask="count", least=most, count=self.threads, argument="threads"
        )
        for speaker, relation in keys:
            _strew(script, speaker, relation, script.rng.randint(3, most), self.sessions)
        world = script.world(relation for _, relation in keys)
        asked = draw_questions(draw("questions"), world[1], lexicon, "count", "now")
        return with_questions(world, asked)


def _strew(script: Script, speaker: Person, relation: Relation, count: int, sessions: int) -> None:
    """Tell `count` members, one in each of as many stretches of the episode.

    Some possessions are lost later; at least two stay.
    """
    bounds = [round(part * sessions / count) for part in range(count + 1)]
    places = [script.rng.randrange(low, high) for low, high in pairwise(bounds)]
    beats = [
        script.tell(place, (speaker, relation), value, day=_day(script, relation, place))
        for place, value in zip(places, script.values(relation, count), strict=True)
    ]
    if relation.kind == "set":
        for beat in script.rng.sample(beats[:-2], len(beats[:-2]) // 2):
            later = [place for place in range(beat.session + 1, sessions) if place not in places]
            if later:
                script.tell(
                    script.rng.choice(later),
                    (speaker, relation),
                    beat.value,
                    act=Act.REMOVE,
                    of=beat,
                )


def _day(script: Script, relation: Relation, place: int) -> date | None:
    """Return the session's day for an event, None for what has no day."""
    return script.story.dates[place] if relation.kind == "event" else None

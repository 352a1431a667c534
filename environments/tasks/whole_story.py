"""Long-range understanding: questions whose answer lies in no single session, but in
all of them together.

Events and possessions of the speakers are strewn over the whole of the episode, never
two of a kind in one session. Asked is how many there were, or are, and which: whoever
heard any one session only is wrong.
"""

from __future__ import annotations

from datetime import date
from itertools import pairwise
from typing import Unpack

from environments.tasks.generated import Draw, Generated, Shared, World, asking, at_least, questions
from environments.tasks.script import Script, enough
from environments.worlds.lexicon import Lexicon
from environments.worlds.spec import Person, Relation
from environments.worlds.truth import Act


class WholeStory(Generated):
    """`threads` series of events or possessions over `sessions` sessions."""

    name = "whole_story"

    def __init__(self, *, sessions: int = 12, threads: int = 4, **shared: Unpack[Shared]) -> None:
        """Raises `EnvironmentFault` for fewer than three sessions or more threads than
        the language has room for.
        """
        super().__init__(**shared)
        at_least(3, sessions=sessions)
        at_least(1, threads=threads)
        self.sessions, self.threads = sessions, threads

    def make(self, name: str, draw: Draw, lexicon: Lexicon) -> World:
        """One episode."""
        script = Script(name, draw, lexicon, self.knobs(sessions=self.sessions))
        most = min(6, self.sessions)
        found = script.keys("event", "set", ask="count", least=most)
        keys = enough(found, self.threads, knob="threads")
        for speaker, relation in keys:
            _strew(script, speaker, relation, script.rng.randint(3, most), self.sessions)
        world = script.world(relation for _, relation in keys)
        asked = questions(
            draw("questions"),
            world[1],
            lexicon,
            lambda probe, how: how.ask in ("count", "now") and not probe.unanswerable,
        )
        return asking(world, asked)


def _strew(script: Script, speaker: Person, relation: Relation, count: int, sessions: int) -> None:
    """Tell `count` members, one in each of as many stretches of the episode; of
    possessions some are lost later, two at least stay.
    """
    bounds = [round(part * sessions / count) for part in range(count + 1)]
    places = [script.rng.randrange(low, high) for low, high in pairwise(bounds)]
    told = [
        script.tell(place, speaker, relation, value, day=_day(script, relation, place))
        for place, value in zip(places, script.values(relation, count), strict=True)
    ]
    if relation.kind == "set":
        for beat in script.rng.sample(told[:-2], len(told[:-2]) // 2):
            later = [place for place in range(beat.session + 1, sessions) if place not in places]
            if later:
                script.tell(
                    script.rng.choice(later), speaker, relation, beat.value, act=Act.REMOVE, of=beat
                )


def _day(script: Script, relation: Relation, place: int) -> date | None:
    """Events have days: that of their session."""
    return script.story.dates[place] if relation.kind == "event" else None

"""A stream of related tasks whose solutions can be reused: success should rise along it.

A task is a question, asked *before* the session that tells its solution. It comes from
one of `families` families; each time the task and the solution are put in other words.
Nobody can solve the first task of a family; a memory that kept its solution solves
every later one. `success_slope` measures it: 0 for an agent without a memory, above 0
for one that learns. After Evo-Memory (Wei et al. 2025), which asks whether memory helps
along a stream of tasks.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Unpack

from environments.records import Episode, Score
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
from environments.worlds.story.beats import Beat
from environments.worlds.truth import Act, Key, Truth
from environments.worlds.world import World


class TaskStream(Generated):
    """`tasks` tasks of `families` families; categories are `new` and `reuse`."""

    name = "task_stream"

    def __init__(self, *, tasks: int = 16, families: int = 4, **shared: Unpack[Shared]) -> None:
        """Raise `EnvironmentFault` below three tasks, or for too many families."""
        super().__init__(**shared)
        require_at_least(3, tasks=tasks)
        require_at_least(1, families=families)
        self.tasks, self.families = tasks, families

    def make(self, name: str, draw: Draw, lexicon: Lexicon) -> World:
        """Make one episode."""
        script = Script(name, draw, lexicon, self.config(sessions=self.tasks))
        keys = script.keys(
            "state", "preference", ask="now", least=2, count=self.families, argument="families"
        )
        values = [script.values(relation, 1)[0] for _, relation in keys]
        stream = [script.rng.randrange(self.families) for _ in range(self.tasks)]
        first: dict[int, Beat] = {}
        for place, family in enumerate(stream):
            speaker, relation = keys[family]
            known = first.get(family)
            act = Act.ADD if known is None else Act.REPEAT
            beat = script.tell(place, (speaker, relation), values[family], act=act, of=known)
            first.setdefault(family, beat)
        world = script.world(relation for _, relation in keys)
        wordings = [
            _wordings(draw(f"questions {turn}"), world[1], lexicon)
            for turn in range(max(map(stream.count, stream)))
        ]
        asked: list[Asked] = []
        for place, family in enumerate(stream[1:], start=1):
            speaker, relation = keys[family]
            probe, origin = wordings[stream[:place].count(family)][speaker.name, relation.name]
            reuse = first[family].session < place
            changed = {
                "category": "reuse" if reuse else "new",
                "after_session": world[1].session_ids[place - 1],
                "evidence_turn_ids": probe.evidence_turn_ids if reuse else (),
            }
            asked.append((probe.model_copy(update=changed), origin))
        return with_questions(world, asked)


def _wordings(rng: random.Random, truth: Truth, lexicon: Lexicon) -> dict[Key, Asked]:
    """Return a question for the solution of every family."""
    return {
        (origin.subject, origin.relation): (probe, origin)
        for probe, origin in draw_questions(rng, truth, lexicon, "now")
    }


def success_slope(episode: Episode, score: Score) -> float:
    """Return the least-squares slope of success (0 to 1) over the stream.

    The first question is at 0, the last at 1; the slope is 0 below two answers.
    """
    rewards = {
        probe.probe_id: reward for probe in score.probes if (reward := probe.reward) is not None
    }
    probe_ids = [probe.id for probe in episode.probes]
    points = [
        (place / max(1, len(probe_ids) - 1), rewards[probe_id])
        for place, probe_id in enumerate(probe_ids)
        if probe_id in rewards
    ]
    return _slope(points)


def _slope(points: Sequence[tuple[float, float]]) -> float:
    if len(points) < 2:
        return 0.0
    across, up = (sum(values) / len(points) for values in zip(*points, strict=True))
    below = sum((x - across) ** 2 for x, _ in points)
    return sum((x - across) * (y - up) for x, y in points) / below

"""`topic_switch`: a talk over several topics, a corpus, and questions that name no topic.

A user talks of one thing after the other and asks "which is its number?", at the end for
the number of the third thing, the first, and so on. The numbers stand in the documents of
a corpus, among those of other things. Only what the agent still sees of the talk, or
folded into a note, tells what to search for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from environments.acting.planned import PlannedTask
from environments.acting.task import Observation, TaskSet
from memagent.core.exchange import ModelRequest
from memagent.core.records import MemoryItem
from memagent.core.trials import Trial, TrialStep
from memagent.core.workspace import workspace_of

TOPICS: Final[tuple[str, ...]] = ("printer", "garden", "bicycle", "piano", "boiler", "passport")
OTHERS: Final[tuple[str, ...]] = ("kettle", "ladder", "camera", "scarf", "lantern", "anvil")
TALK: Final = "let us talk of the {}"
STILL: Final = "and then there is so much more to tell of it today"
FILLER: Final = "and then there is the {topic}, of which there is so much to tell today"
GO_ON: Final = "say go on"


class TopicTask(PlannedTask[tuple[int, int]]):
    """One talk; a state is the turn and the number of right answers."""

    def __init__(
        self,
        name: str,
        turns: Sequence[tuple[str, str]],
        corpus: Mapping[str, int] | None = None,
    ) -> None:
        """Take what the user says with the replies expected, and the numbers in documents."""
        self.name, self.turns, self.corpus = name, tuple(turns), corpus or {}
        search = ", search THING for its document" if corpus else ""
        says = (f"say {number}" for number in range(1_000, 2_000))
        actions = (GO_ON, *(f"search {thing}" for thing in self.corpus), *says)
        text = f"listen to {name} and answer{search}; begin with: {GO_ON}"
        super().__init__(text, actions, (0, 0))

    def moved(self, state: tuple[int, int], action: str) -> tuple[tuple[int, int], Observation]:
        """Return the state after a reply; each right answer earns its share of the reward."""
        turn, right = state
        verb, _, thing = action.partition(" ")
        if verb == "search":
            return state, Observation(text=f"the {thing} has number {self.corpus[thing]}")
        asked = sum(reply != GO_ON for _, reply in self.turns)
        expected = self.turns[turn - 1][1] if turn else GO_ON
        fits = expected != GO_ON and action == expected
        right, share = right + fits, fits / asked
        if turn == len(self.turns):
            success = right == asked
            return state, Observation(text="Goodbye.", reward=share, done=True, success=success)
        return (turn + 1, right), Observation(text=self.turns[turn][0], reward=share)

    def solution(self) -> tuple[str, ...]:
        """Return the expected replies."""
        return (GO_ON, *(reply for _, reply in self.turns))


def topic_switch(seed: int, count: int, *, pause: int = 4) -> list[TopicTask]:
    """Return talks; equal seeds give equal tasks."""
    rng = Random(f"topic_switch {seed}")
    talks: list[TopicTask] = []
    things = (*TOPICS, *OTHERS)
    for number in range(count):
        corpus: dict[str, int] = dict(
            zip(things, rng.sample(range(1_000, 2_000), len(things)), strict=True)
        )
        order = rng.sample(things, len(TOPICS))
        turns: list[tuple[str, str]] = []
        for topic in order:
            turns += [(TALK.format(topic), GO_ON), *[(STILL, GO_ON)] * pause]
            turns.append(("which is its number?", f"say {corpus[topic]}"))
        turns += [
            (f"which is the number of thing {place} that we talked of?", f"say {corpus[topic]}")
            for place, topic in rng.sample(list(enumerate(order, start=1)), len(order))
        ]
        talks.append(TopicTask(f"talk{seed}x{number}", turns, corpus))
    return talks


def short_talks(seed: int, count: int, *, topics: int = 2, fillers: int = 4) -> list[TopicTask]:
    """Return talks of a few turns, notes and fillers in any order; equal seeds give equal ones."""
    rng = Random(f"short_talks {seed}")
    talks: list[TopicTask] = []
    for number in range(count):
        chosen = rng.sample(TOPICS, topics)
        values = dict(zip(chosen, rng.sample(range(1_000, 2_000), topics), strict=True))
        turns = [
            (f"let us note that the {topic} has number {value}", GO_ON)
            for topic, value in values.items()
        ]
        turns += [(FILLER.format(topic=rng.choice(TOPICS)), GO_ON) for _ in range(fillers)]
        rng.shuffle(turns)
        turns += [(f"back to the {topic}: which was its number?", f"say {values[topic]}")
                  for topic in rng.sample(chosen, topics)]  # fmt: skip
        talks.append(TopicTask(f"short{seed}x{number}", turns))
    return talks


@dataclass(frozen=True, kw_only=True)
class TopicPlayer:
    """Answers from the numbers that its workspace shows."""

    window: int | None = None
    """Words at the end of the workspace that it reads, as a model of short context does."""

    async def act(
        self,
        task: TopicTask,  # noqa: ARG002 - interface
        memories: Sequence[MemoryItem],  # noqa: ARG002 - interface
        trial: Trial,
    ) -> str | None:
        """Return the reply to the last thing said, or a search for what it is about."""
        last = trial.steps[-1] if trial.steps else TrialStep(action="", observation="")
        words = workspace_of(trial).prompt.split()
        read = " ".join(words if self.window is None else words[-self.window :])
        told = re.match(
            r"back to the (\w+):|which is .*?(\d*)( that we talked of)?\?", last.observation
        )
        if last.action.startswith("search"):
            return f"say {last.observation.split()[-1]}"
        if told is None:
            return GO_ON
        if told[1]:
            shown = re.findall(rf"{told[1]} has number (\d+)", read)
            return f"say {shown[-1]}" if shown else GO_ON
        topics = re.findall(TALK.format(r"(\w+)"), read)
        place = int(told[2] or len(topics))
        meant = topics[place - 1 : place]
        return f"search {meant[0]}" if meant else GO_ON


def drop_fillers(request: ModelRequest) -> str:
    """Drop the first segment without a number; the first one where all have some."""
    shown = request.messages[-1].content.split("<steps>")[1]
    segments = re.findall(r"^\((\d+)\) (.+?)(?=^\(\d+\)|\Z)", shown, re.MULTILINE | re.DOTALL)
    empty = [int(place) for place, text in segments if "has number" not in text]
    return json.dumps({"folds": [empty[0] if empty else 0]})


def shortest_talks(seed: int, count: int) -> list[TopicTask]:
    """Return short talks of eight turns, which a tiny policy learns to edit."""
    return short_talks(seed, count, fillers=3)


SHORT_TALKS: Final = TaskSet(
    stream=shortest_talks, player=lambda _: TopicPlayer(window=50), editor=drop_fillers
)
"""Short talks with a player that reads the last 50 words only, so that edits decide."""
TASKS: Final = TaskSet(stream=topic_switch, player=lambda _: TopicPlayer())

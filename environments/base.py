"""The base class of environments.

An environment gives episodes and scores trajectories; it never runs an agent through an
episode itself (`play.rollout` does). With an `answering` agent, `score` asks the probes of a
trajectory that was played without asking, on forks of the memories recorded in it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from environments.errors import EnvironmentFault
from environments.play.rollout import MemoryAgent, answer_probes
from environments.records import Episode, Score, Trajectory
from environments.rewards.scoring import Scoring

Split = Literal["train", "validation", "test", "all"]
"""A split of the episodes; `all` is every one."""


class Environment(ABC):
    """Episodes and their scores.

    `check_environment` proves that one keeps its promises.
    """

    name: str
    scoring: Scoring = Scoring()

    def __init__(self, *, answering: MemoryAgent | None = None) -> None:
        """`answering` answers the probes of trajectories that were played without asking."""
        self.answering = answering

    @abstractmethod
    def episodes(self, split: Split = "all") -> Iterable[Episode]:
        """Return the episodes of a split, the same ones in the same order every time.

        Raises `EnvironmentFault`.
        """

    async def score(self, episode: Episode, trajectory: Trajectory) -> Score:
        """Score a trajectory of this episode.

        Raises `EnvironmentFault` when it belongs to another, or nobody can answer.
        """
        if trajectory.episode_id != episode.id:
            raise EnvironmentFault(
                f"a trajectory of episode {trajectory.episode_id!r} is not one of {episode.id!r}"
            )
        if episode.probes and trajectory.traces and not trajectory.answers:
            if self.answering is None:
                raise EnvironmentFault(
                    f"the trajectory of episode {episode.id!r} has no answers; play with "
                    "ask=True, or give an answering agent"
                )
            answers = await answer_probes(self.answering, episode, trajectory)
            trajectory = replace(trajectory, answers=answers)
        return self.scoring.score(episode, trajectory)

"""How good a policy is: episodes played greedily, scored per episode, so that intervals
can be drawn over them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from statistics import fmean

from environments.base import Environment
from environments.datasets.synthetic import Synthetic
from environments.evaluation.play_figures import episode_figures, marked
from environments.play.rollout import MemoryAgent, answer_probes, play
from environments.records import Episode
from memagent.async_agent import AsyncAgent
from memagent.core.exchange import Sampling
from memagent.core.snapshot import EMPTY
from train.rollouts.collect import EpisodeModel, policy_only
from train.sampling.policy import PolicyModel

GREEDY = Sampling(temperature=0.0)
REPLIES = 6
"""Replies kept of an episode."""


@dataclass(frozen=True, kw_only=True)
class EpisodeFigures:
    """What one episode showed."""

    episode_id: str
    figures: Mapping[str, float]
    """By name: f1, exact, reward, overwritten, lost, memory_share, add, update, delete,
    noop, rejected, unreadable, failed.
    """
    memory: tuple[str, ...] = ()
    """What was held at the end, newest last."""
    replies: tuple[tuple[str, str], ...] = ()
    """(role, text) of the first things said while listening."""


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Means over episodes with their parts."""

    episodes: tuple[EpisodeFigures, ...]

    @property
    def figures(self) -> dict[str, float]:
        """Means over the episodes that have the figure."""
        names = sorted({name for one in self.episodes for name in one.figures})
        return {
            name: fmean([one.figures[name] for one in self.episodes if name in one.figures])
            for name in names
        }

    def interval(self, name: str, *, draws: int = 2_000, seed: int = 0) -> tuple[float, float]:
        """95 % percentile bootstrap interval of a mean over episodes; (nan, nan) without data."""
        values = [one.figures[name] for one in self.episodes if name in one.figures]
        return bootstrap(values, draws=draws, seed=seed)


def bootstrap(values: Sequence[float], *, draws: int = 2_000, seed: int = 0) -> tuple[float, float]:
    """95 % percentile bootstrap interval of the mean of independent values."""
    if not values:
        return float("nan"), float("nan")
    chance = random.Random(seed)
    means = sorted(fmean(chance.choices(values, k=len(values))) for _ in range(draws))
    return means[int(0.025 * draws)], means[int(0.975 * draws) - 1]


async def evaluate_policy(
    policy: PolicyModel | None,
    agent: AsyncAgent,
    env: Environment,
    episodes: Sequence[Episode],
    *,
    answering: MemoryAgent | None = None,
    episode_model: EpisodeModel = policy_only,
    sampling: Sampling = GREEDY,
    key: str = "eval",
) -> Evaluation:
    """Play and score the episodes; `policy` None plays the agent with its own model,
    `answering` None lets the played agent answer.

    `episode_model` makes an episode's model of the policy's view of it, as it did in training.
    """

    async def one(episode: Episode) -> EpisodeFigures:
        view = (
            None
            if policy is None
            else policy.bound(f"{key}/{episode.id}", sampling=_filled(sampling, policy))
        )
        player = (
            agent.at(EMPTY)
            if view is None
            else agent.at(EMPTY).with_model(episode_model(episode, view))
        )
        with policy.participant() if policy is not None else nullcontext():
            trajectory = await play(player, episode, ask=False)
            answers = await answer_probes(answering or player, episode, trajectory)
        score = env.scoring.score(episode, replace(trajectory, answers=answers))
        return EpisodeFigures(
            episode_id=episode.id,
            figures=episode_figures(
                marked(score, env.truth(episode)) if isinstance(env, Synthetic) else score
            ),
            memory=tuple(item.text for item in trajectory.end.items.values()),
            replies=tuple(
                (call.role.value, call.response.text)
                for call in (view.calls if view else ())[:REPLIES]
            ),
        )

    return Evaluation(episodes=tuple(await asyncio.gather(*(one(episode) for episode in episodes))))


def _filled(sampling: Sampling, policy: PolicyModel) -> Sampling:
    return (
        sampling
        if sampling.max_tokens
        else sampling.model_copy(update={"max_tokens": policy.sampling.max_tokens})
    )

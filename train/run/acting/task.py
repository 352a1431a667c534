"""The task of a run whose tasks are acted in: its step source and its evaluation."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import cast

from environments.acting.play import Player
from environments.acting.task import ActingTask
from environments.records import Episode
from memagent.core.snapshot import EMPTY
from memagent.core.workspace import workspace_of
from memagent.protocols import ChatModel
from train.ranks import joined, shared
from train.rollouts.acting import ActingExperience, PolicyPlayer, WatchedPlayer
from train.run.config import LoGoGRPOConfig
from train.run.evaluation import REPLIES, EpisodeFigures, Evaluation, greedy
from train.run.plans import credit_plan
from train.sampling.policy import PolicyModel
from train.settings.acting import ActingWorld
from train.sync import run_sync


@dataclass(kw_only=True)
class ActingTrainingTask(ActingWorld):
    """A set of tasks with who acts and how a policy is tested."""

    def experience(
        self, args: LoGoGRPOConfig, policy: PolicyModel, episodes: Sequence[Episode]
    ) -> ActingExperience:
        """Return the source of steps that a configuration describes."""
        return ActingExperience(
            policy=policy,
            agent=self.agent,
            tasks=self.stream("train", len(episodes)),
            player=self.player,
            members=args.num_generations or 1,
            plan=credit_plan(args),
            seed=args.seed,
        )

    def player(self, model: ChatModel) -> Player:
        """Return who acts: the policy, or the scripted player of the set."""
        if self.settings.agent.acting == "policy":
            return PolicyPlayer(model=model)
        return cast("Player", self.tasks.player(self.settings.environment.seed))

    def evaluate(self, policy: PolicyModel, split: str, count: int, *, skip: int = 0) -> Evaluation:
        """Play the tasks of a split greedily.

        Processes that train together play a share each and all get the whole.
        """
        every = list(self.stream(split, count, skip=skip).items())
        with policy.faults_raised():
            played = run_sync(self._evaluated(policy, shared(every)))
        return Evaluation(episodes=tuple(joined(played, count=len(every))))

    async def _evaluated(
        self, policy: PolicyModel, tasks: Sequence[tuple[str, ActingTask]]
    ) -> Sequence[EpisodeFigures]:
        return await asyncio.gather(*(self._acted(policy, name, task) for name, task in tasks))

    async def _acted(self, policy: PolicyModel, name: str, task: ActingTask) -> EpisodeFigures:
        with policy.participant():
            view = policy.bound(f"eval/{name}", sampling=greedy(policy))
            watched = WatchedPlayer(player=self.player(view), model=view)
            trial = await watched.attempt(deepcopy(task), self.agent.at(EMPTY))
        outcome = trial.outcome
        figures = {
            "success": float(outcome is not None and outcome.good),
            "reward": outcome.reward if outcome is not None else 0.0,
            "steps": float(len(trial.steps)),
            "words": float(workspace_of(trial).words),
            "edits": float(len(trial.edits)),
            "failed": float(outcome is not None and bool(outcome.detail)),
            "rejected": float(sum(bool(edit.refused) for edit in trial.edits)),
        }
        return EpisodeFigures(
            episode_id=name,
            figures=figures,
            memory=(workspace_of(trial).prompt,),
            replies=tuple((call.role.value, call.response.text) for call in view.calls[:REPLIES]),
        )

"""One step of experience from tasks that are acted in, with credit by segments.

The agent's design edits the workspace through the policy (`mem_act`), and the player may
ask the policy for actions. All runs of a task are one group; each run starts from the
same memory. `ActingExperience` stands in the trainer where `Experience` stands for
conversations, and gives the same `Step`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from statistics import fmean
from time import perf_counter
from typing import Any, TypeVar

from environments.acting.play import Player, play_task
from environments.acting.task import ActingTask
from environments.records import Episode
from memagent.async_agent import AsyncAgent
from memagent.core.errors import ModelError
from memagent.core.exchange import Message, ModelRequest, ModelResponse, Role
from memagent.core.records import MemoryItem
from memagent.core.snapshot import EMPTY
from memagent.core.trials import Outcome, Trial
from memagent.core.workspace import credit_segments, workspace_of
from memagent.protocols import ChatModel
from train.credit.groups import CreditGroup, EntropyReader, GroupKey, Member
from train.errors import TrainFault
from train.rollouts.allocation import SuccessHistory
from train.rollouts.anchors import SessionSpread
from train.rollouts.experience import Step, credit_groups, sampled_of
from train.rollouts.grading import CreditPlan
from train.sampling.policy import BoundPolicy, PolicyModel

# Credit by segments of a trial whose prompt was edited (DCPO of MemAct, arXiv 2510.12635).
#
# An edit of the workspace breaks the prefix of everything after it, so a trial is cut at
# the edits that held. Each segment has the advantage of its trial and weighs the same,
# however many responses it holds. One response stays one row, with the sampler's own
# tokens: its share of its segment's tokens goes into its advantage, and the mean is over
# segments. The surprise: that is the gradient of one row a segment, without a prompt that
# is tokenised again.

T = TypeVar("T")


def segmented(trial: Trial, generated: Sequence[Sequence[T]]) -> list[tuple[T, ...]]:
    """Cut what was generated in a trial at the edits that held; empty segments are left out.

    `generated` has an entry for each step: what chose the action, then what edited the
    workspace after it. A player that gave up has one entry more. Raises `TrainFault` for
    another number of entries, and for two edits after one step.
    """
    if len(generated) - len(trial.steps) not in (0, 1):
        raise TrainFault(
            f"trial {trial.id} has {len(trial.steps)} steps, and what was generated is told "
            f"for {len(generated)}"
        )
    held = {edit.at for edit in trial.edits if not edit.refused}
    if len(credit_segments(trial)) != len(held) + 1:
        raise TrainFault(f"trial {trial.id} has two edits after one step")
    segments: list[list[T]] = [[]]
    for number, parts in enumerate(generated, start=1):
        segments[-1] += parts
        if number in held:
            segments.append([])
    return [tuple(segment) for segment in segments if segment]


def segment_shares(segments: Sequence[Sequence[ModelResponse]]) -> Mapping[str, float]:
    """Return the share of its segment's tokens that each response has, by response id.

    Raises `TrainFault` for a response without tokens, or in two segments.
    """
    shares: dict[str, float] = {}
    for segment in segments:
        tokens = {response.id: _length(response) for response in segment}
        if twice := tokens.keys() & shares.keys():
            raise TrainFault(f"response {min(twice)!r} stands in two segments")
        shares |= {key: count / sum(tokens.values()) for key, count in tokens.items()}
    return shares


def _length(response: ModelResponse) -> int:
    if response.tokens is None or not response.tokens.completion_ids:
        raise TrainFault(f"response {response.id!r} has no tokens; was it the policy's?")
    return len(response.tokens.completion_ids)


MakePlayer = Callable[[ChatModel], Player]
"""Makes a player for one run; the model is the policy as that run sees it."""


@dataclass(frozen=True, kw_only=True)
class PolicyPlayer:
    """Acts by the model: its reply to the workspace is the action."""

    model: ChatModel
    instructions: str = "Act: reply with the next action and nothing else."

    async def act(
        self,
        task: Any,  # noqa: ARG002 - interface
        memories: Sequence[MemoryItem],
        trial: Trial,
    ) -> str | None:
        """Return the reply; None, which gives up, for an empty one."""
        shown = [workspace_of(trial).prompt, *(f"memory: {item.text}" for item in memories)]
        messages = (
            Message(role="system", content=self.instructions),
            Message(role="user", content="\n".join(shown)),
        )
        reply = await self.model.complete(ModelRequest(role=Role.ANSWERER, messages=messages))
        return reply.text.strip() or None


@dataclass(frozen=True, kw_only=True)
class ActedRun:
    """One run of a task, with the policy's responses in their segments."""

    trial: Trial
    segments: tuple[tuple[ModelResponse, ...], ...]
    roles: Mapping[str, Role]
    """The role that said each response, by its id: its adapter is the one that is trained."""

    @property
    def reward(self) -> float:
        """The reward of the trial."""
        return self.trial.outcome.reward if self.trial.outcome is not None else 0.0

    @property
    def failed(self) -> bool:
        """Whether the model failed on the way; the outcome's detail says how."""
        return self.trial.outcome is not None and bool(self.trial.outcome.detail)


@dataclass(kw_only=True)
class WatchedPlayer:
    """A player that notes how many calls its run had made before each action."""

    player: Player
    model: BoundPolicy
    begun: list[int] = field(default_factory=list[int])
    seen: Trial | None = None
    """The trial before the last action."""

    async def act(self, task: Any, memories: Sequence[MemoryItem], trial: Trial) -> str | None:
        """Return the player's action."""
        self.begun.append(len(self.model.calls))
        self.seen = trial
        return await self.player.act(task, memories, trial)

    async def attempt(self, task: ActingTask, agent: AsyncAgent) -> Trial:
        """Play a task; where the model fails, as with a full context, it ends unsolved.

        Raises `ModelError` for a failure before the first action.
        """
        try:
            return await play_task(task, self, agent=agent.with_model(self.model))
        except ModelError as error:
            if self.seen is None:
                raise
            reward = sum(step.reward or 0.0 for step in self.seen.steps)
            detail = f"{type(error).__name__}: {error}"
            outcome = Outcome(reward=reward, success=False, detail=detail)
            return self.seen.model_copy(update={"outcome": outcome})

    def generated(self) -> list[list[ModelResponse]]:
        """Return the responses for each action, with those of the edit after it."""
        ends = [*self.begun[1:], len(self.model.calls)]
        said = [call.response for call in self.model.calls]
        return [said[begin:end] for begin, end in zip(self.begun, ends, strict=True)]


@dataclass(kw_only=True)
class ActingExperience:
    """Gathers steps from tasks: groups of runs, credited by segments."""

    policy: PolicyModel
    agent: AsyncAgent
    """Its memory is where every run starts; nothing that a run stores stays."""
    tasks: Mapping[str, ActingTask]
    """By the id of the episode that stands for it (`task_episodes`)."""
    player: MakePlayer
    members: int = 8
    """Runs of a task in a step."""
    plan: CreditPlan = field(default_factory=CreditPlan)
    """The credit; what it says of sessions, questions and chunks means nothing here."""
    seed: int = 0
    read_entropies: EntropyReader | None = None
    read_logps: EntropyReader | None = None
    spread: SessionSpread = field(default_factory=SessionSpread)
    history: SuccessHistory = field(default_factory=SuccessHistory)

    @property
    def collector(self) -> ActingExperience:
        """The part with `spread` and `history` that a checkpoint keeps."""
        return self

    async def gather(self, episodes: Sequence[Episode], *, step: int) -> Step:
        """Play and credit the tasks of one step."""
        began = perf_counter()
        with self.policy.faults_raised():
            groups = await asyncio.gather(
                *(
                    self.played(episode.id, key=f"{self.seed}/{step}/{place}")
                    for place, episode in enumerate(episodes)
                )
            )
        done = perf_counter()
        made = self.credited(groups, [episode.id for episode in episodes], step=step)
        seconds = {"rollout": done - began, "score": 0.0, "credit": perf_counter() - done}
        return replace(made, seconds=seconds)

    async def played(self, name: str, *, key: str) -> list[ActedRun]:
        """Return the runs of one task; calls of all are batched."""
        runs = (self._run(name, f"{key}/{member}") for member in range(self.members))
        return list(await asyncio.gather(*runs))

    async def _run(self, name: str, key: str) -> ActedRun:
        with self.policy.participant():
            model = self.policy.bound(key)
            watched = WatchedPlayer(player=self.player(model), model=model)
            trial = await watched.attempt(deepcopy(self.tasks[name]), self.agent.at(EMPTY))
        segments = tuple(segmented(trial, watched.generated()))
        roles = {call.response.id: call.role for call in model.calls}
        return ActedRun(trial=trial, segments=segments, roles=roles)

    def credited(
        self, groups: Sequence[Sequence[ActedRun]], names: Sequence[str], *, step: int
    ) -> Step:
        """Return the step of groups of runs: advantages by segment, the mean over segments."""
        runs = [run for group in groups for run in group]
        segments = [segment for run in runs for segment in run.segments]
        responses = [response for segment in segments for response in segment]
        traces = {each.id: each.tokens for each in responses if each.tokens is not None}
        roles = {key: role for run in runs for key, role in run.roles.items() if key in traces}
        sampled = sampled_of(traces, roles, entropies=self.read_entropies)
        compared = tuple(
            CreditGroup(
                key=GroupKey(branch="global", role=Role.MANAGER, episode_id=f"{step}/{name}"),
                members=tuple(
                    self._member(run, f"{step}/{place}") for place, run in enumerate(group)
                ),
                sampled=sampled,
            )
            for name, group in zip(names, groups, strict=True)
        )
        credit, marks = credit_groups(compared, self.plan, seed=f"{self.seed}/{step}")
        shares = segment_shares(segments)
        weighed = {key: value * shares[key] for key, value in credit.advantages.items()}
        offsets = {
            key: tuple(value * shares[key] for value in values)
            for key, values in credit.offsets.items()
        }
        return Step(
            credit=replace(credit, advantages=weighed, offsets=offsets),
            traces=traces,
            roles=roles,
            groups=compared,
            marks=marks,
            rollouts=(),
            metrics={
                "reward/mean": fmean(run.reward for run in runs) if runs else 0.0,
                "segments": float(len(segments)),
                "failed": float(sum(run.failed for run in runs)),
                "edits/refused": float(
                    sum(bool(edit.refused) for run in runs for edit in run.trial.edits)
                ),
            },
            counted=len(segments),
            seconds={},
        )

    def _member(self, run: ActedRun, key: str) -> Member:
        drawn = random.Random(f"{self.seed}/{key}/{run.trial.id}").random()
        return Member(
            reward=drawn if self.plan.control == "random_reward" else run.reward,
            response_ids=tuple(each.id for segment in run.segments for each in segment),
            version=self.policy.version,
        )

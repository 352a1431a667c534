"""Credit for lessons in chains of tasks, mixed by weights as in `[trainer] credit`.

    terminal   success over the whole chain, against the other chains of the group
    session    success in the later tasks of the same chain
    asof       success in the later tasks on forks of the memory that the lesson leaves
    gain       that, less the same on forks without the lesson
    local      the same task again from the memory that one chain had, several times;
               success in the later tasks on forks of what each rerun left

Forks say nothing, so `asof` and `gain` cost no token, and `local` none beyond the reruns.

`bonus` adds a reward for a lesson that was written and shown in a later task that was
solved, to `terminal` and `session` (as SAGE does). Rewards tell their parts, so estimators
that weigh parts can be named in `[trainer] estimator`.

With `selects` the policy also chooses, right after the recall, which case is done again.
That call is compared by itself, and its own task counts too:

    terminal         as above
    session          success in this and the later tasks
    asof, local      success in this task, and in the later ones on forks
    gain             that, less the success in all these on forks of the memory before

Then each member tells the outcome of its task, the value of the case it followed and the
best value it was shown, as the estimator `skill1` asks. `forks = true` makes reruns of a
task begin at its most uncertain call: a rerun that parts at the lesson plays the task as
it was. Choice and lesson then are one run with one reward, of which `tree_calls` gives
each call what it decided.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from time import perf_counter
from typing import Any, cast

from chain_world import (
    NO_LEARNER,
    TASKS,
    ChosenValue,
    Link,
    Worth,
    agent_of,
    chain_of,
    late_third,
    linked,
    played_chain,
)

from environments.acting.play import CasePlayer
from environments.acting.task import ActingTask
from environments.records import Episode
from memagent.core.errors import ConfigError
from memagent.core.exchange import ModelResponse, Role
from memagent.core.snapshot import MemorySnapshot
from memagent.designs.base import MemoryDesign
from memagent.plugins import load
from train.credit.advantages import leave_one_out
from train.credit.groups import CreditGroup, GroupKey, Member
from train.ranks import joined, shared
from train.rollouts.acting import ActingExperience
from train.rollouts.anchors import fork_at
from train.rollouts.experience import Step, credit_groups, sampled_of
from train.run.config import LoGoGRPOConfig
from train.run.plans import EpisodeFigures, Evaluation, credit_plan
from train.run.task import TrainingTask
from train.sampling.policy import Call, PolicyModel
from train.sync import run_sync
from train.techniques.credit.tree_calls import tree_calls


def used_later(links: Sequence[Link], place: int) -> bool:
    """Tell whether the lesson of one task was written and shown in a later solved task."""
    before, after = links[place].before.items, links[place].after.items
    written = {
        (item.id, item.version)
        for item in after.values()
        if item.active and before.get(item.id) != item
    }
    return any(
        link.success and written & {(use.id, use.version) for use in link.trial.shown}
        for link in links[place + 1 :]
    )


@dataclass(frozen=True, kw_only=True)
class PlayedGroup:
    """The chains of one group as they were played, and what is compared."""

    chains: Sequence[Sequence[Link]]
    reruns: Sequence[Link]
    groups: Sequence[CreditGroup]

    @property
    def said(self) -> dict[str, ModelResponse]:
        """Every reply by its id."""
        return {call.response.id: call.response for call in self._calls}

    @property
    def roles(self) -> dict[str, Role]:
        """The role of every reply by its id."""
        return {call.response.id: call.role for call in self._calls}

    @property
    def _calls(self) -> list[Call]:
        links = [*self.reruns, *(link for links in self.chains for link in links)]
        return [call for link in links for call in link.calls]


@dataclass(kw_only=True)
class ChainExperience(ActingExperience):
    """Gathers steps from chains: groups of chains, and reruns of single tasks."""

    tasks: Mapping[str, ActingTask] = field(default_factory=dict[str, ActingTask])
    player: Any = CasePlayer
    worth: Worth = field(default_factory=lambda: Worth(agent=agent_of(NO_LEARNER)))
    length: int = TASKS
    """Tasks of a chain."""
    local_probability: float = 0.5
    reruns: int = 4
    bonus: float = 0.0
    """For a lesson that was written and shown in a later task that was solved."""
    selects: bool = False
    """Whether the policy chooses the case that is done again."""
    forks: bool = False
    """Whether reruns of a task repeat its anchor up to the most uncertain call."""

    async def gather(self, episodes: Sequence[Episode], *, step: int) -> Step:
        """Play and credit the chains of one step."""
        began = perf_counter()
        with self.policy.faults_raised():
            played = [await self.group(episode.id, step) for episode in episodes]
        done = perf_counter()
        said = {key: reply for each in played for key, reply in each.said.items()}
        roles = {key: role for each in played for key, role in each.roles.items()}
        traces = {key: reply.tokens for key, reply in said.items() if reply.tokens is not None}
        sampled = sampled_of(traces, roles, entropies=self.read_entropies)
        groups = [replace(group, sampled=sampled) for each in played for group in each.groups]
        credit, marks = credit_groups(groups, self.plan, seed=f"{self.seed}/{step}")
        kept = {key: value for key, value in credit.advantages.items() if key in said}
        links = [link for each in played for links in each.chains for link in links]
        return Step(
            credit=replace(credit, advantages=kept),
            traces={key: traces[key] for key in kept},
            roles={key: roles[key] for key in kept},
            groups=tuple(groups),
            rollouts=(),
            marks=marks,
            metrics={
                "reward/mean": fmean(link.success for link in links),
                "rollouts/reruns": float(sum(len(each.reruns) for each in played)),
                "tokens/completion": float(len(said)),
            },
            seconds={"rollout": done - began, "score": 0.0, "credit": perf_counter() - done},
        )

    async def group(self, name: str, step: int) -> PlayedGroup:
        """Play a group of runs of one chain, and the reruns of its tasks."""
        self.worth.known.clear()
        chain, key = chain_of(name, self.length), f"{self.seed}/{step}/{name}"
        draws = random.Random(key)
        members = range(self.members)
        chains = await asyncio.gather(
            *(self.chain(chain, f"{key}/{m}", str(step)) for m in members)
        )
        groups: list[CreditGroup] = []
        again: list[Link] = []
        paid = self.bonus and not self.plan.control
        for place in range(len(chain)):
            here = [links[place] for links in chains]
            used = [float(used_later(links, place)) for links in chains] if paid else ()
            for credit in self.plan.credits:
                lent = used if credit in ("terminal", "session") else ()
                for role in self._roles:
                    rewards = await self.rewards(credit, chain, place, chains, role=role)
                    groups.append(self._compared(credit, key, place, here, rewards, lent, role))
            if self.plan.local_weight and draws.random() < self.local_probability:
                anchor = draws.choice(here)
                at = fork_at(anchor.calls, self.read_entropies) if self.forks else 0
                rerun = await self.rerun(
                    chain, place, anchor.before, f"{key}/s{place}", str(step), anchor.responses[:at]
                )
                every = [*rerun, replace(anchor, calls=anchor.calls[at:])]
                left = await self._worths(chain, place, [link.after for link in every])
                ahead = len(chain) - place - 1
                whole = [
                    link.success + ahead * value for link, value in zip(every, left, strict=True)
                ]
                for role in self._roles if self.plan.estimator is not tree_calls else (None,):
                    values = left if role is Role.MANAGER else whole
                    groups.append(self._compared("local", key, place, every, values, (), role))
                again += rerun
        return PlayedGroup(chains=chains, reruns=again, groups=groups)

    async def rewards(
        self,
        credit: str,
        chain: Sequence[ActingTask],
        place: int,
        chains: Sequence[Sequence[Link]],
        *,
        role: Role = Role.MANAGER,
    ) -> list[float]:
        """Return what a credit gives the lesson of each run after one task, or its choice.

        The choice is that of the planner; the outcome of the task itself is its own.
        """
        own = int(role is not Role.MANAGER)
        if credit == "terminal":
            return [fmean(link.success for link in links) for links in chains]
        if credit == "session":
            return [sum(link.success for link in links[place + 1 - own :]) for links in chains]
        left = await self._worths(chain, place, [links[place].after for links in chains])
        ahead = len(chain) - place - 1
        if own:
            played = [links[place].success for links in chains]
            left = [one + ahead * other for one, other in zip(played, left, strict=True)]
        if credit == "asof":
            return left
        before = [links[place].before for links in chains]
        without = await self._worths(chain, place - own, before)
        scale = ahead + 1 if own else 1
        return [one - scale * other for one, other in zip(left, without, strict=True)]

    @property
    def _roles(self) -> tuple[Role, ...]:
        """The roles whose calls are compared by themselves."""
        return (Role.PLANNER, Role.MANAGER) if self.selects else (Role.MANAGER,)

    async def _worths(
        self, chain: Sequence[ActingTask], place: int, memories: Sequence[MemorySnapshot]
    ) -> list[float]:
        """Return what memories are worth after a task; zeros where rewards are random."""
        if self.plan.control == "random_reward":
            return [0.0] * len(memories)
        return [await self.worth.of(chain, place + 1, memory) for memory in memories]

    async def chain(self, chain: Sequence[ActingTask], key: str, draw: str) -> list[Link]:
        """Play one chain with the draws of a key."""
        with self.policy.participant():
            model = self.policy.bound(key)
            return await played_chain(
                self.agent, chain, model=model, draw=draw, selects=self.selects
            )

    async def rerun(
        self, chain: Sequence[ActingTask], place: int, memory: MemorySnapshot, key: str,
        draw: str, given: Sequence[ModelResponse] = (),
    ) -> list[Link]:  # fmt: skip
        """Play one task several times from one memory; the first replies may be given."""

        async def again(number: int) -> Link:
            with self.policy.participant():
                view = self.policy.bound(f"{key}/{number}", given=given)
                return await linked(
                    self.agent, chain, place, memory, model=view, draw=draw, selects=self.selects
                )

        links = list(await asyncio.gather(*map(again, range(self.reruns))))
        assert {link.before.digest for link in links} == {memory.digest}
        return links

    def _compared(  # noqa: PLR0913 (what a comparison rests on)
        self,
        credit: str,
        key: str,
        place: int,
        links: Sequence[Link],
        rewards: Sequence[float],
        used: Sequence[float] = (),
        role: Role | None = Role.MANAGER,
    ) -> CreditGroup:
        """Return what is compared: the calls of a role, or with None all of them.

        `used` says how much of the bonus each run earns.
        """
        branch: Any = self.plan.credits.get(credit, credit)
        if self.plan.control == "random_reward":
            draws = random.Random(f"{key}/{credit}/{place}")
            rewards = [draws.random() for _ in links]
        start = links[0].before.digest if branch == "local" else None
        members = tuple(
            Member(
                reward=reward + self.bonus * bonus,
                parts={"success": reward, "used": bonus} | self._skills(link, reward),
                weights={"success": 1.0, "used": self.bonus},
                response_ids=tuple(
                    call.response.id for call in link.calls if role is None or call.role is role
                ),
                start=start,
                version=self.policy.version,
            )
            for link, reward, bonus in zip(links, rewards, used or [0.0] * len(links), strict=True)
        )
        group = GroupKey(
            branch=branch,
            role=role or Role.MANAGER,
            episode_id=key,
            session=place,
            start=start,
        )
        return CreditGroup(key=group, members=members)

    def _skills(self, link: Link, reward: float) -> dict[str, float]:
        """Return what `skill1` reads; {} without a choice, draws where rewards are random."""
        if not self.selects:
            return {}
        if self.plan.control == "random_reward":
            return {"outcome": reward, "trend": reward, "best": 0.0}
        return {"outcome": link.success, "trend": link.trend, "best": link.best}

    async def probed(
        self, episode: Episode, number: int
    ) -> tuple[Sequence[CreditGroup], dict[str, ModelResponse], list[str], Any]:
        """Return for `memagent-train probe` what one group of chains says.

        These are its groups, its replies, the ids of those outside of reruns, and the
        advantages of the measure: success in the last third (`end`), and in all later
        tasks (`as of`).
        """
        played = await self.group(episode.id, number)
        chains, whole = played.chains, list[str]()
        found: dict[str, dict[str, float]] = {"end": {}, "as of": {}}
        for place in range(self.length):
            returns = {
                "end": [late_third(links) for links in chains],
                "as of": [
                    sum(link.success for link in links[place + 1 :]) / self.length
                    for links in chains
                ],
            }
            for name, values in returns.items():
                for links, advantage in zip(chains, leave_one_out(values), strict=True):
                    for reply in links[place].responses:
                        found[name][reply.id] = advantage
            own = leave_one_out([sum(link.success for link in ls[place:]) for ls in chains])
            for links, advantage in zip(chains, own, strict=True):
                for call in links[place].calls:
                    if call.role is Role.PLANNER:  # its own task is one of those it decides
                        found["as of"][call.response.id] = advantage / self.length
            whole += [reply.id for links in chains for reply in links[place].responses]
        return played.groups, played.said, whole, found


@dataclass(kw_only=True)
class ChainTask(TrainingTask):
    """The task of a run that trains on chains."""

    def experience(
        self,
        args: LoGoGRPOConfig,
        policy: PolicyModel,
        episodes: Sequence[Episode],  # noqa: ARG002 - interface
    ) -> Any:
        """Return the source of steps that a configuration describes.

        Raises `ConfigError` for forks of tasks in which the policy says one word.
        """
        if args.forks and not self.selects:
            raise ConfigError(
                "trainer.forks: a task has one call, so a fork is a rerun; set "
                "environment.options.selects"
            )
        return ChainExperience(
            policy=policy,
            agent=self._agent(),
            plan=credit_plan(args),
            members=args.num_generations or 1,
            seed=args.seed,
            length=self.sessions,
            local_probability=args.local_probability,
            reruns=args.reruns,
            bonus=getattr(self.env, "bonus", 0.0),
            selects=self.selects,
            forks=args.forks,
        )

    @property
    def selects(self) -> bool:
        """Whether the policy chooses the case that is done again."""
        return bool(getattr(self.env, "selects", False))

    def evaluate(self, policy: PolicyModel, split: str, count: int, *, skip: int = 0) -> Evaluation:
        """Play the chains of a split; the policy samples, as in training.

        Processes that train together play a share each and all get the whole.
        """
        names = [episode.id for episode in self.episodes(split, count, skip=skip)]
        with policy.faults_raised():
            played = run_sync(self._evaluated(policy, shared(names)))
        return Evaluation(episodes=tuple(joined(played, count=len(names))))

    async def _evaluated(
        self, policy: PolicyModel, names: Sequence[str]
    ) -> Sequence[EpisodeFigures]:
        agent = self._agent()
        sampling = policy.sampling.model_copy(update={"temperature": 1.0})

        async def one(name: str) -> EpisodeFigures:
            with policy.participant():
                view = policy.bound(f"eval/{name}", sampling=sampling)
                chain = chain_of(name, self.sessions)
                links = await played_chain(
                    agent, chain, model=view, draw="test", selects=self.selects
                )
            figures = {
                "success": fmean(link.success for link in links),
                "last_third": late_third(links),
            }
            return EpisodeFigures(
                episode_id=name,
                figures=figures,
                memory=tuple(item.text for item in links[-1].after.items.values() if item.active),
                replies=tuple((call.role.value, call.response.text) for call in view.calls),
            )

        return await asyncio.gather(*map(one, names))

    def _agent(self) -> Any:
        """Return the agent of the run's design, whose clock stands still."""
        design = cast(MemoryDesign, load("designs", self.settings.agent.design))
        return agent_of(replace(design, feedback=ChosenValue()) if self.selects else design)

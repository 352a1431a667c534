"""Chains of tasks: the lesson that a policy decides on, and how chains are played.

A chain is some tasks over new things that share something hidden, which changes once,
somewhere in the middle; `chain_sets` has the four sets that they are made of. A scripted
player does again what a case says has worked, else what no case shows as tried. After each
task a policy of one word is told the outcome: keep the trial as a case, leave it out, write
it over an older case, or drop one. The memory goes on to the next task; every trial is
journalled as in an app.

With `selects` the same policy also says, right after the recall, which case is done again,
or that something else is tried; each case then has a value, a moving average of the
outcomes of the tasks that followed it.

`ChainWorld` stands in a run file as `[environment] kind = "chain_world:ChainWorld"`, with
`[agent] design = "chain_world:DESIGN"`; its option `tasks_of` names the set. A session of an
episode is a task.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from statistics import fmean
from types import SimpleNamespace
from typing import Any, Final

from chain_sets import SETS, number_of, set_of, sort_of

from environments.acting.play import play_task
from environments.acting.task import ActingTask, TaskSet
from environments.base import Environment, Split
from environments.errors import EnvironmentFault
from environments.records import Episode
from memagent.async_agent import AsyncAgent
from memagent.build import open_store
from memagent.core.exchange import Message, ModelRequest, ModelResponse, Role
from memagent.core.ops import Delete, MemoryOp, Update
from memagent.core.records import ItemStats, MemoryItem, Scope, Session, Turn
from memagent.core.snapshot import EMPTY, MemorySnapshot
from memagent.core.trials import SUCCEEDED, Trial
from memagent.designs.base import Lesson, MemoryDesign, RunningValue, SlotContext
from memagent.designs.experience.exp_rag import DESIGN as EXP_RAG
from memagent.designs.learned_policy import LEVELS, MEMORIES, PAIR, STATEMENT, read_reply
from memagent.designs.parts.lessons import case_of
from memagent.testing import FunctionModel

NOON: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
TASKS: Final = 8
FORKS: Final = 8
"""Times that the later tasks are played on a fork, each with other draws."""


# -- the world -------------------------------------------------------------------------


def chain_of(seed: str, tasks: int = TASKS) -> tuple[ActingTask, ...]:
    """Return a chain; equal seeds, equal chains.

    "tiny_shop/c0" is one of the set `tiny_shop`, a seed without a slash one of procedures.
    Raises `EnvironmentFault` for a set that there is not.
    """
    name, _, own = seed.rpartition("/")
    name = name or "procedures"
    if name not in SETS:
        raise EnvironmentFault(f"no set of tasks {name!r}; there are {', '.join(SETS)}")
    key = own if name == "procedures" else seed
    return tuple(SETS[name].drawn(random.Random(f"chain {key}"), own, tasks))


# -- the lesson ------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class DecidingLearner:
    """Asks a model for one word about a trial that has ended: what becomes of it."""

    async def __call__(self, trial: Trial, ctx: SlotContext, /) -> Lesson:
        """Return the op that the word means."""
        cases = sorted(
            (item for item in ctx.bank.state.active() if item.kind == "case"),
            key=lambda item: item.id,
        )[:MEMORIES]
        text = described(trial, cases)
        response = await ctx.call(Role.MANAGER, [Message(role="user", content=text)], call=0)
        decision, fresh = read_reply(response.text, range(len(cases))), case_of(trial)
        case = cases[decision.target] if decision.target is not None else None
        ops: list[MemoryOp] = [fresh]
        if decision.op in ("skip", "same"):
            ops = []
        elif decision.op == "update" and case is not None:
            ops = [
                Update(
                    id=case.id,
                    text=fresh.fact.text,
                    tags=fresh.tags,
                    source_turn_ids=trial.turn_ids,
                )
            ]
        elif decision.op == "delete" and case is not None:
            ops = [Delete(id=case.id, source_turn_ids=trial.turn_ids)]
        return Lesson(ops=tuple(ops))


def described(trial: Trial, cases: Sequence[MemoryItem]) -> str:
    """Return what is known of a trial and of each case, as the words of a decision."""
    good = trial.outcome is not None and trial.outcome.good
    deed_of = set_of(trial.task).deed
    moves = deed_of(case_of(trial).fact.text)
    rows = [[float(good), len(moves) / 2]]
    for place, case in enumerate(cases):
        worked, own = SUCCEEDED in case.tags, deed_of(case.text)
        rows.append(
            [
                float(worked),
                float(worked == good),
                float(own == moves),
                float(own[: len(moves)] == moves),
                float(moves[: len(own)] == own),
                float(sort_of(case.text) == sort_of(trial.task)),
                float(worked and not good and own == moves),
                place / MEMORIES,
                1.0,
            ]
        )
    assert all(len(row) == (PAIR if place else STATEMENT) for place, row in enumerate(rows))
    return " ".join(f"f{round(value * (LEVELS - 1))}" for row in rows for value in row)


DESIGN: Final[MemoryDesign] = replace(EXP_RAG, name="deciding", learner=DecidingLearner())
NO_LEARNER: Final[MemoryDesign] = replace(EXP_RAG, name="no_learner", learner=None)


def agent_of(design: MemoryDesign, *, path: str = ":memory:") -> AsyncAgent:
    """Return an agent whose own model is never asked; its clock stands still.

    A rerun then leaves the same memory to the bit, and memories that are alike have the
    same digest.
    """
    store = open_store(path=path, embedder="hashing", clock=lambda: NOON)
    return store.agent(Scope(user_id="chain"), model=FunctionModel(str), design=design)


# -- the choice ------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class ChosenValue(RunningValue):
    """Moves the value of the case that was followed, and of no other."""

    def __call__(self, trial: Trial, stats: Mapping[str, ItemStats], /) -> Mapping[str, float]:
        """Return the new value of the case that the trial's steps name."""
        used = {item_id for step in trial.steps for item_id in step.used}
        values = super().__call__(trial, stats)
        return {item_id: value for item_id, value in values.items() if item_id in used}


@dataclass
class SelectingPlayer:
    """Asks a model which case to do again; else tries what no case shows as tried."""

    player: Any
    """The script that acts on what it is shown."""
    model: Any
    stats: Mapping[str, ItemStats] = field(default_factory=dict)
    used: tuple[str, ...] = ()
    """The case that is followed."""
    shown: Sequence[MemoryItem] = ()

    async def act(self, task: Any, memories: Sequence[MemoryItem], trial: Trial) -> str | None:
        """Return the next action by the case that was chosen at the first."""
        if not trial.steps:
            cases = sorted(memories, key=lambda item: item.id)[:MEMORIES]
            message = Message(role="user", content=shown_choice(cases, self.stats))
            reply = await self.model.complete(ModelRequest(role=Role.PLANNER, messages=(message,)))
            target = read_reply(reply.text, range(len(cases))).target
            if target is None:
                self.shown = set_of(task.text).tried(cases)
            else:
                self.used = (cases[target].id,)
                self.shown = [cases[target].model_copy(update={"tags": (SUCCEEDED,)})]
        return await self.player.act(task, self.shown, trial)


def shown_choice(cases: Sequence[MemoryItem], stats: Mapping[str, ItemStats]) -> str:
    """Return what is known of each case, as the words of a decision."""
    rows = [[0.5, len(cases) / MEMORIES]]
    for place, case in enumerate(cases):
        own = stats.get(case.id, ItemStats())
        told = number_of(case.text)
        rows.append(
            [
                float(SUCCEEDED in case.tags),
                min(1.0, max(0.0, own.q_value)),
                float(own.q_value > 0.0),
                len(set_of(case.text).deed(case.text)) / 2,
                sum(number_of(other.text) < told for other in cases) / MEMORIES,
                min(1.0, told / TASKS),
                float(told == max(number_of(other.text) for other in cases)),
                place / MEMORIES,
                1.0,
            ]
        )
    assert all(len(row) == (PAIR if place else STATEMENT) for place, row in enumerate(rows))
    return " ".join(f"f{round(value * (LEVELS - 1))}" for row in rows for value in row)


# -- playing ---------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Link:
    """One task of a chain as it was played."""

    trial: Trial
    before: MemorySnapshot
    after: MemorySnapshot
    calls: tuple[Any, ...] = ()
    """What the policy said about it, call by call, but for what it was given."""

    @property
    def responses(self) -> tuple[ModelResponse, ...]:
        """What the policy said about it."""
        return tuple(call.response for call in self.calls)

    @property
    def success(self) -> float:
        """Whether the task was solved."""
        return float(self.trial.outcome is not None and self.trial.outcome.good)

    @property
    def trend(self) -> float:
        """The value, before the task, of the case that was followed; 0 without one."""
        return max((self.value(key) for step in self.trial.steps for key in step.used), default=0.0)

    @property
    def best(self) -> float:
        """The highest value, before the task, of the cases that were shown; 0 without any."""
        return max((self.value(use.id) for use in self.trial.shown), default=0.0)

    def value(self, item_id: str) -> float:
        """Return the value of a case before the task."""
        return self.before.stats.get(item_id, ItemStats()).q_value


async def linked(  # noqa: PLR0913 (a task, its memory and who speaks)
    agent: AsyncAgent, chain: Sequence[ActingTask], place: int, memory: MemorySnapshot,
    *, model: Any = None, draw: str = "", selects: bool = False,
) -> Link:  # fmt: skip
    """Play one task from a memory, which stays as it is; with `selects` the model chooses.

    The player's draws depend on the task and `draw` alone, so that a rerun from the same
    memory differs in what the policy says and in nothing else.
    """
    own = agent.at(memory) if model is None else agent.at(memory).with_model(model)
    task, said = deepcopy(chain[place]), len(getattr(model, "calls", ()))
    player = player_of(task, draw, model=model if selects else None, stats=memory.stats)
    trial = await play_task(task, player, agent=own)
    calls = tuple(getattr(model, "calls", ())[said:])
    return Link(trial=trial, before=memory, after=own.snapshot(), calls=calls)


def player_of(
    task: ActingTask,
    draw: str,
    *,
    model: Any = None,
    stats: Mapping[str, ItemStats] | None = None,
) -> Any:
    """Return the player, with draws of its own for each task; a script without a model."""
    player = set_of(task.text).player()
    player.rng = random.Random(f"player {task.text} {draw}")
    if model is None:
        return player
    return SelectingPlayer(player=player, model=model, stats=stats or {})


@dataclass
class _Fork:
    """What a scripted player reads of a trial, without the rest of it."""

    steps: list[Any] = field(default_factory=list)


async def solved(task: ActingTask, player: Any, cases: Sequence[MemoryItem]) -> bool:
    """Play a task on a fork, which leaves nothing, and tell whether it was solved."""
    fork, seen = _Fork(), task.reset(0)
    while not seen.done:
        action = await player.act(task, cases, fork)
        if action is None:
            break
        seen = task.step(action)
        fork.steps.append(SimpleNamespace(action=action, observation=seen.text))
    return bool(seen.success)


async def played_chain(
    agent: AsyncAgent, chain: Sequence[ActingTask], *, model: Any = None, draw: str = "",
    selects: bool = False,
) -> list[Link]:  # fmt: skip
    """Play a chain; the memory that a task leaves is where the next begins."""
    links: list[Link] = []
    memory = EMPTY
    for place in range(len(chain)):
        links.append(
            await linked(agent, chain, place, memory, model=model, draw=draw, selects=selects)
        )
        memory = links[-1].after
    return links


def late_third(links: Sequence[Link]) -> float:
    """Return the success in the last third of a chain."""
    late = -(-len(links) // 3)
    return fmean(link.success for link in links[-late:])


@dataclass(kw_only=True)
class Worth:
    """What a memory is worth for the tasks to come: their success on forks, no lesson taken."""

    agent: AsyncAgent
    """Of a design without a learner."""
    forks: int = FORKS
    draws: str = "fork"
    """Names the player's draws on forks; worths of other names share none."""
    known: dict[tuple[str, int, str], float] = field(default_factory=dict)

    async def of(self, chain: Sequence[ActingTask], place: int, memory: MemorySnapshot) -> float:
        """Return the mean success in the tasks from `place` on; 0 when there are none."""
        key = (chain[0].text, place, memory.digest)
        if key not in self.known:
            played: list[float] = []
            own = self.agent.at(memory)
            for task in map(deepcopy, chain[place:]):
                recall = await own.recall(task.text, k=40)
                cases = [hit.item for hit in recall.hits if hit.item is not None]
                for fork in range(self.forks):
                    player = player_of(task, f"{self.draws} {fork}")
                    played.append(float(await solved(task, player, cases)))
            self.known[key] = fmean(played) if played else 0.0
        return self.known[key]


# -- the environment of a run ----------------------------------------------------------


def task_set(name: str) -> TaskSet:
    """Return one chain as a set of tasks."""

    def player(seed: int) -> Any:
        made = SETS[name].player()
        made.rng = random.Random(f"player {seed}")
        return made

    return TaskSet(stream=lambda seed, count: chain_of(f"{name}/play{seed}", count), player=player)


TASK_SET: Final = task_set("procedures")
"""Chains for `memagent-eval play chain_world:TASK_SET`, and of the other sets likewise."""
SHOP: Final = task_set("tiny_shop")
HOUSE: Final = task_set("tiny_house")
LAB: Final = task_set("hidden_rule")


class ChainWorld(Environment):
    """Chains as episodes: a session is a task, and nothing is asked."""

    name = "chains"
    skills_by = "selects"
    """The option with which the policy chooses what it follows."""

    def __init__(
        self,
        *,
        seed: int = 0,
        sessions: int = TASKS,
        episodes: int = 400,
        bonus: float = 0.0,
        selects: bool = False,
        tasks_of: str = "procedures",
    ) -> None:
        """Make chains of some tasks of a set.

        `bonus` rewards a lesson that was written and shown in a later solved task; with
        `selects` the policy chooses the case that is done again. Raises `EnvironmentFault`
        for a set that there is not.
        """
        super().__init__()
        self.begins = "" if tasks_of == "procedures" else f"{tasks_of}/"
        chain_of(f"{self.begins}0", 1)
        self.seed, self.tasks, self.count = seed, sessions, episodes
        self.bonus, self.selects = bonus, selects

    def episodes(self, split: Split = "all") -> Iterator[Episode]:
        """Yield the chains of a split: so many to train on, endless ones for tests."""
        numbers = range(self.count) if split in ("train", "all") else count()
        return (self.episode(f"{self.begins}{split}{self.seed}x{number}") for number in numbers)

    def episode(self, name: str) -> Episode:
        """Return the episode that stands for a chain."""
        sessions = tuple(
            Session(
                id=f"{name}:{place}",
                turns=(Turn(id=f"{name}:{place}:0", speaker="task", text=task.text),),
            )
            for place, task in enumerate(chain_of(name, self.tasks))
        )
        return Episode(id=name, sessions=sessions)

    def calls(self, sessions: int) -> float:
        """Return the policy's calls in an episode: one a task, two where it selects."""
        return float(sessions) * (1 + self.selects)

    def training_task(self, task: Any) -> Any:
        """Return the task of a run, which plays and credits chains."""
        from chain_credit import ChainTask

        return ChainTask(settings=task.settings, env=self, agent=task.agent, sessions=self.tasks)

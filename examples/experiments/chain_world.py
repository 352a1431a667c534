"""Chains of tasks: the world, the lesson that a policy decides on, and how chains are played.

A chain is some tasks of one procedure over new objects. Its procedure is hidden, and it
changes once, somewhere in the middle. A scripted player does again what a case says has
worked, else what no case shows as tried. After each task a policy of one word is told the
outcome: keep the trial as a case, leave it out, write it over an older case, or drop one.
The memory goes on to the next task; every trial is journalled as in an app.

`ChainWorld` stands in a run file as `[environment] kind = "chain_world:ChainWorld"`, with
`[agent] design = "chain_world:DESIGN"`. A session of an episode is a task.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import count
from statistics import fmean
from typing import Any, Final

from environments.acting.play import CasePlayer, play_task
from environments.acting.procedures import MOVES, VERBS, ProcedureTask
from environments.acting.task import TaskSet
from environments.base import Environment, Split
from environments.records import Episode
from memagent.async_agent import AsyncAgent
from memagent.build import open_store
from memagent.core.exchange import Message, ModelResponse, Role
from memagent.core.ops import Delete, MemoryOp, Update
from memagent.core.records import MemoryItem, Scope, Session, Turn
from memagent.core.snapshot import EMPTY, MemorySnapshot
from memagent.core.trials import SUCCEEDED, Trial
from memagent.designs.base import Lesson, MemoryDesign, SlotContext
from memagent.designs.experience.exp_rag import DESIGN as EXP_RAG
from memagent.designs.learned_policy import LEVELS, MEMORIES, PAIR, STATEMENT, read_reply
from memagent.designs.parts.lessons import case_of
from memagent.testing import FunctionModel

NOON: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
TASKS: Final = 8
CHOICES: Final = 3
"""Moves that a procedure is made of; it takes two of them, in order."""
FORKS: Final = 8
"""Times that the later tasks are played on a fork, each with other draws."""


# -- the world -------------------------------------------------------------------------


def chain_of(seed: str, tasks: int = TASKS) -> tuple[ProcedureTask, ...]:
    """Return a chain whose procedure changes once, near its middle; equal seeds, equal chains."""
    draws = random.Random(f"chain {seed}")
    verb, first = draws.choice(VERBS), tuple(draws.sample(MOVES[:CHOICES], 2))
    second = first
    while second == first:
        second = tuple(draws.sample(MOVES[:CHOICES], 2))
    change = tasks // 2 + draws.choice((-1, 0, 1))
    return tuple(
        ProcedureTask(
            verb, f"thing{seed}x{place}", first if place < change else second, MOVES[:CHOICES]
        )
        for place in range(tasks)
    )


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
    moves = _moves(case_of(trial).fact.text)
    rows = [[float(good), len(moves) / 2]]
    for place, case in enumerate(cases):
        worked, own = SUCCEEDED in case.tags, _moves(case.text)
        rows.append(
            [
                float(worked),
                float(worked == good),
                float(own == moves),
                float(own[: len(moves)] == moves),
                float(moves[: len(own)] == own),
                float(case.text.split()[:1] == trial.task.split()[:1]),
                float(worked and not good and own == moves),
                place / MEMORIES,
                1.0,
            ]
        )
    assert all(len(row) == (PAIR if place else STATEMENT) for place, row in enumerate(rows))
    return " ".join(f"f{round(value * (LEVELS - 1))}" for row in rows for value in row)


def _moves(text: str) -> list[str]:
    return [line.split()[0] for line in text.split("\n")[1:]]


DESIGN: Final[MemoryDesign] = replace(EXP_RAG, name="deciding", learner=DecidingLearner())
NO_LEARNER: Final[MemoryDesign] = replace(EXP_RAG, name="no_learner", learner=None)


def agent_of(design: MemoryDesign, *, path: str = ":memory:") -> AsyncAgent:
    """Return an agent whose own model is never asked; its clock stands still.

    A rerun then leaves the same memory to the bit, and memories that are alike have the
    same digest.
    """
    store = open_store(path=path, embedder="hashing", clock=lambda: NOON)
    return store.agent(Scope(user_id="chain"), model=FunctionModel(str), design=design)


# -- playing ---------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Link:
    """One task of a chain as it was played."""

    trial: Trial
    before: MemorySnapshot
    after: MemorySnapshot
    responses: tuple[ModelResponse, ...] = ()
    """What the policy said about it."""

    @property
    def success(self) -> float:
        """Whether the task was solved."""
        return float(self.trial.outcome is not None and self.trial.outcome.good)


async def linked(
    agent: AsyncAgent, chain: Sequence[ProcedureTask], place: int, memory: MemorySnapshot,
    *, model: Any = None, draw: str = "",
) -> Link:  # fmt: skip
    """Play one task from a memory, which stays as it is.

    The player's draws depend on the task and `draw` alone, so that a rerun from the same
    memory differs in what the policy says and in nothing else.
    """
    own = agent.at(memory) if model is None else agent.at(memory).with_model(model)
    task, said = deepcopy(chain[place]), len(getattr(model, "calls", ()))
    trial = await play_task(task, player_of(task, draw), agent=own)
    calls = getattr(model, "calls", ())[said:]
    return Link(
        trial=trial,
        before=memory,
        after=own.snapshot(),
        responses=tuple(call.response for call in calls),
    )


def player_of(task: ProcedureTask, draw: str) -> CasePlayer:
    """Return the scripted player, with draws of its own for each task."""
    player = CasePlayer(length=2)
    player.rng = random.Random(f"player {task.text} {draw}")
    return player


async def played_chain(
    agent: AsyncAgent, chain: Sequence[ProcedureTask], *, model: Any = None, draw: str = ""
) -> list[Link]:
    """Play a chain; the memory that a task leaves is where the next begins."""
    links: list[Link] = []
    memory = EMPTY
    for place in range(len(chain)):
        links.append(await linked(agent, chain, place, memory, model=model, draw=draw))
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

    async def of(self, chain: Sequence[ProcedureTask], place: int, memory: MemorySnapshot) -> float:
        """Return the mean success in the tasks from `place` on; 0 when there are none."""
        key = (chain[0].thing, place, memory.digest)
        if key not in self.known:
            played: list[float] = []
            own = self.agent.at(memory)
            for task in chain[place:]:
                recall = await own.recall(task.text, k=40)
                cases = [hit.item for hit in recall.hits if hit.item is not None]
                for fork in range(self.forks):
                    plan = player_of(task, f"{self.draws} {fork}").plan(task, cases)
                    played.append(float(tuple(plan) == task.solution()))
            self.known[key] = fmean(played) if played else 0.0
        return self.known[key]


# -- the environment of a run ----------------------------------------------------------


def _chain(seed: int, count: int) -> tuple[ProcedureTask, ...]:
    """Return one chain of so many tasks."""
    return chain_of(f"play{seed}", count)


TASK_SET: Final = TaskSet(stream=_chain, player=lambda seed: CasePlayer(seed, length=2))
"""One chain as a set of tasks: `memagent-eval play chain_world:TASK_SET`."""


class ChainWorld(Environment):
    """Chains as episodes: a session is a task, and nothing is asked."""

    name = "chains"

    def __init__(
        self, *, seed: int = 0, sessions: int = TASKS, episodes: int = 400, bonus: float = 0.0
    ) -> None:
        """`bonus` rewards a lesson that was written and shown in a later solved task."""
        super().__init__()
        self.seed, self.tasks, self.count, self.bonus = seed, sessions, episodes, bonus

    def episodes(self, split: Split = "all") -> Iterator[Episode]:
        """Yield the chains of a split: so many to train on, endless ones for tests."""
        numbers = range(self.count) if split in ("train", "all") else count()
        return (self.episode(f"{split}{self.seed}x{number}") for number in numbers)

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
        """Return the policy's calls in an episode: one a task."""
        return float(sessions)

    def training_task(self, task: Any) -> Any:
        """Return the task of a run, which plays and credits chains."""
        from chain_credit import ChainTask

        return ChainTask(settings=task.settings, env=self, agent=task.agent, sessions=self.tasks)

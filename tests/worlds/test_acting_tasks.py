"""Tasks that are acted in: what a task promises, the players, and a stream that is learned."""

from __future__ import annotations

from statistics import fmean

import pytest
from learning_kit import agent_of

from environments.acting.play import CasePlayer, EmptyPlayer, OraclePlayer, Player, play_task
from environments.acting.procedures import ProcedureTask, task_stream
from environments.acting.task import Observation, check_task
from environments.errors import EnvironmentFault
from memagent.async_agent import AsyncAgent
from memagent.core.trials import Trial
from memagent.designs.experience.exp_rag import DESIGN as EXP_RAG


def won(trials: list[Trial]) -> list[bool]:
    return [trial.outcome is not None and trial.outcome.good for trial in trials]


async def played(
    player: Player, *, seed: int, tasks: int = 90, agent: AsyncAgent | None = None
) -> list[bool]:
    stream = task_stream(seed, tasks)
    return won([await play_task(task, player, agent=agent) for task in stream])


def rise(won: list[bool]) -> float:
    third = len(won) // 3
    return (sum(won[-third:]) - sum(won[:third])) / third


def test_every_task_of_a_stream_is_sound() -> None:
    for task in task_stream(3, 12):
        check_task(task)
    first, again, other = ([(t.text, t.moves) for t in task_stream(s, 5)] for s in (3, 3, 4))
    assert first == again != other


async def test_the_oracle_wins_always_and_who_does_nothing_never() -> None:
    assert all(await played(OraclePlayer(), seed=0, tasks=12))
    assert not any(await played(EmptyPlayer(), seed=0, tasks=12))


async def test_a_stream_is_learned_with_cases_and_not_without() -> None:
    """The first tasks are won by chance alone: the player draws otherwise than the stream."""
    risen = [
        rise(await played(CasePlayer(seed), seed=seed, agent=agent_of(EXP_RAG)))
        for seed in range(2)
    ]
    assert min(risen) >= 0.4
    flat = [await played(CasePlayer(seed), seed=seed) for seed in range(20)]
    assert abs(fmean(rise(run) for run in flat)) <= 0.02 + 0.02
    assert fmean(fmean(run) for run in flat) == pytest.approx(1 / 24, abs=0.02)


async def test_no_action_of_a_solution_stands_in_an_earlier_text() -> None:
    agent = agent_of(EXP_RAG)
    player = CasePlayer(1)
    for task in task_stream(1, 30):
        state = await agent.bank.sync()
        texts = {item.text for item in state.items.values()}
        texts |= {turn.said for told in state.sessions.values() for turn in told.turns}
        assert not any(action in text for action in task.solution() for text in texts)
        await play_task(task, player, agent=agent)


class Telling(ProcedureTask):
    """A task that shows its goal."""

    def reset(self, seed: int) -> Observation:
        super().reset(seed)
        return Observation(text=f"First {', then '.join(self.solution())}.")


class Forgetful(ProcedureTask):
    """A task that restores nothing."""

    def restore(self, point: str) -> None:
        self.taken.append(point)


class Unsolvable(ProcedureTask):
    """A task whose solution is another's."""

    def solution(self) -> tuple[str, ...]:
        return tuple(reversed(super().solution()))


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        (Telling, "shows its solution"),
        (Forgetful, "restored point"),
        (Unsolvable, "does not solve"),
    ],
)
def test_the_checker_finds_a_task_that_cheats(kind: type[ProcedureTask], fault: str) -> None:
    with pytest.raises(EnvironmentFault, match=fault):
        check_task(kind("polish", "lamp", ("rub", "rinse", "heat")))


async def test_a_point_of_another_task_is_refused_and_an_unknown_action_is_answered() -> None:
    first, second = task_stream(0, 2)
    first.reset(0)
    assert first.step("dance").text == "Nothing happens."
    for point in (second.snapshot(), "{", "[]", "{}"):
        with pytest.raises(EnvironmentFault):
            first.restore(point)
    trial = await play_task(first, OraclePlayer())
    assert trial.outcome is not None and trial.outcome.reward == 1.0

"""The shipped sets of acting tasks: sound, won by the oracle, and not by chance."""

from __future__ import annotations

import asyncio
from itertools import product
from statistics import fmean

import pytest
from learning_kit import agent_of

from environments.acting import schedule
from environments.acting.hidden_rule import OBJECTS, RULES, RuleTask, holds
from environments.acting.play import EmptyPlayer, OraclePlayer, Player, RandomPlayer, play_task
from environments.acting.schedule import Job, length, solve
from environments.acting.task import ActingTask, Observation, TaskSet, check_task
from environments.acting.tiny_house import HouseTask
from environments.errors import EnvironmentFault
from memagent.async_agent import AsyncAgent
from memagent.core.trials import Trial
from memagent.designs.experience.exp_rag import DESIGN as EXP_RAG
from memagent.plugins import available, load

NAMES = available("tasks")


def task_set(name: str) -> TaskSet:
    loaded = load("tasks", name)
    assert isinstance(loaded, TaskSet)
    return loaded


async def share_won(
    name: str, player: Player, *, seed: int = 1, count: int = 6, agent: AsyncAgent | None = None
) -> float:
    tasks = task_set(name).stream(seed, count)
    trials = [await play_task(task, player, agent=agent) for task in tasks]
    return fmean(trial.outcome is not None and trial.outcome.good for trial in trials)


@pytest.mark.parametrize("name", NAMES)
async def test_every_set_is_sound_and_only_the_oracle_wins_it_blindly(name: str) -> None:
    stream = task_set(name).stream
    for task in stream(3, 3):
        check_task(task)
    assert [task.text for task in stream(1, 4)] == [task.text for task in stream(1, 4)]
    assert [task.solution() for task in stream(1, 9)] != [task.solution() for task in stream(2, 9)]
    assert await share_won(name, OraclePlayer()) == 1.0
    assert await share_won(name, EmptyPlayer()) == 0.0
    assert await share_won(name, RandomPlayer(0), count=12) <= 0.34


@pytest.mark.parametrize("name", NAMES)
def test_no_observation_before_the_end_tells_the_solution(name: str) -> None:
    """Other actions than those of the solution show at most what was found out by them."""
    for task in task_set(name).stream(5, 2):
        task.reset(0)
        seen = [task.step(action) for action in (*task.actions[:3], "dance")]
        text = " ".join(observation.text for observation in seen if not observation.done)
        assert not all(action in text for action in task.solution())
        assert task.step("dance").reward == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_a_point_restores_exactly_and_a_foreign_one_is_refused(name: str) -> None:
    first, second = task_set(name).stream(2, 2)
    first.reset(0)
    begun = first.step(first.solution()[0])
    point = first.snapshot()
    rest = [first.step(action) for action in first.solution()[1:]]
    first.restore(point)
    assert first.snapshot() == point
    assert [first.step(action) for action in first.solution()[1:]] == rest
    assert (rest or [begun])[-1].success
    for wrong in (second.snapshot(), "{", "[]", "{}", '{"task": 1, "taken": 2}'):
        with pytest.raises(EnvironmentFault):
            first.restore(wrong)


@pytest.mark.parametrize("name", ["tiny_house", "tiny_shop"])
async def test_memory_of_other_things_raises_success(name: str) -> None:
    """Every thing is new; what carries over is where its kind is kept, or a brand's material."""
    play = task_set(name).player
    with_memory = [
        await share_won(name, play(seed), seed=seed, count=30, agent=agent_of(EXP_RAG))
        for seed in range(2)
    ]
    without = [await share_won(name, play(seed), seed=seed, count=30) for seed in range(6)]
    assert fmean(with_memory) >= fmean(without) + 0.25


@pytest.mark.parametrize("name", ["tiny_house", "tiny_shop", "procedures"])
def test_no_task_of_a_stream_repeats_an_action_that_names_its_thing(name: str) -> None:
    tasks = task_set(name).stream(1, 20)
    named = [{a for a in task.solution() if any(sign.isdigit() for sign in a)} for task in tasks]
    assert all(named) and sum(map(len, named)) == len(set().union(*named))


def test_the_planner_finds_shortest_solutions() -> None:
    task = HouseTask("mug1x1", "shelf", "drawer")
    assert task.solution() == (
        "go to shelf", "take mug1x1", "go to sink", "wash mug1x1", "go to drawer", "open drawer",
        "put mug1x1",
    )  # fmt: skip
    unreachable = HouseTask("mug1x1", "cellar", "drawer")
    with pytest.raises(EnvironmentFault, match="no solution"):
        unreachable.solution()


def test_the_solver_of_schedules_is_exact() -> None:
    """Compared with every plan there is, on small ones."""
    for task in schedule.schedules(4, 6):
        jobs: dict[str, Job] = dict(list(task.jobs.items())[:3])
        horizon = range(sum(job.days for job in jobs.values()))
        plans = (dict(zip(jobs, days, strict=True)) for days in product(horizon, repeat=3))
        best = min(length(jobs, plan) for plan in plans if not any(schedule.faults(jobs, plan)))
        assert length(jobs, solve(jobs)) == best
        assert not any(schedule.faults(jobs, solve(jobs)))


async def test_one_job_after_the_other_always_holds_and_is_seldom_shortest() -> None:
    tasks = schedule.schedules(1, 12)
    trials = [await play_task(task, schedule.OneByOnePlayer()) for task in tasks]
    rewards = [trial.outcome.reward for trial in trials if trial.outcome]
    assert min(rewards) == 0.5 and fmean(rewards) < 0.8


def test_tests_tell_every_two_rules_apart() -> None:
    answers = {tuple(holds(rule, thing) for thing in OBJECTS) for rule in RULES}
    assert len(answers) == len(RULES)


@pytest.mark.parametrize("name", ["hidden_rule", "execution_horizon", "topic_switch"])
async def test_what_the_workspace_shows_is_enough(name: str) -> None:
    assert await share_won(name, task_set(name).player(0)) == 1.0


class Showing(RuleTask):
    """A lab that shows its goal state."""

    def reset(self, seed: int) -> Observation:
        super().reset(seed)
        return Observation(text=f"You should claim {self.rule}.")


def test_the_checker_finds_a_task_that_shows_its_goal() -> None:
    with pytest.raises(EnvironmentFault, match="shows its solution"):
        check_task(Showing("lab", "red"))


def test_gymnasium_plays_them() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    from gymnasium.utils.env_checker import check_env

    from environments.acting.gym import TaskGym, register_tasks

    register_tasks()
    register_tasks()
    for title in ("TinyHouse", "TopicSwitch"):
        env = gymnasium.make(f"memagent/{title}-v0", disable_env_checker=True)
        check_env(env.unwrapped, skip_render_check=True)
    gym = TaskGym("tiny_house", seed=2, count=3, most_steps=2)
    with pytest.raises(EnvironmentFault, match="reset"):
        gym.step("dance")
    text, info = gym.reset(seed=0, options={"task": 1})
    task: ActingTask = gym.tasks[1]
    assert text.startswith(task.text) and info["actions"] == task.actions
    for action in task.solution():
        _, reward, done, late, info = gym.step(action)
    assert (reward, done, late, info["success"]) == (1.0, True, False, True)
    gym.reset(seed=0)
    gym.step("dance")
    assert gym.step("dance")[2:4] == (False, True)


def test_a_trial_of_every_set_can_be_stored_and_reported() -> None:
    async def one(name: str) -> Trial:
        (task,) = task_set(name).stream(0, 1)
        return await play_task(task, OraclePlayer(), agent=agent_of(EXP_RAG))

    for name in NAMES:
        trial = asyncio.run(one(name))
        assert trial.outcome is not None and trial.outcome.good and trial.steps

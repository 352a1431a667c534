"""The shipped sets of acting tasks: sound, won by the oracle, and not by chance."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from statistics import fmean

import pytest
from learning_kit import agent_of

from environments.acting.execution import SumPlayer, SumTask, execution_horizon
from environments.acting.hidden_rule import GENES, LAMPS, Lab, RulePlayer, RuleTask, hidden_rule
from environments.acting.play import EmptyPlayer, OraclePlayer, Player, RandomPlayer, play_task
from environments.acting.schedule import JOBS, faults, length, over, read, schedules, solve
from environments.acting.task import ActingTask, Observation, TaskSet, check_task
from environments.acting.tiny_house import HouseTask
from environments.acting.topics import TOPICS, topic_switch
from environments.errors import EnvironmentFault
from memagent.async_agent import AsyncAgent
from memagent.core.records import MemoryItem
from memagent.core.trials import Edit, Trial
from memagent.core.workspace import Workspace
from memagent.designs.base import MemoryDesign, SlotContext
from memagent.designs.experience.exp_rag import DESIGN as EXP_RAG
from memagent.designs.verbatim import DESIGN as VERBATIM
from memagent.plugins import available, load

NAMES = available("tasks")
SESSION = {"schedule": 1, "topic_switch": 6, "hidden_rule": 12}
"""Steps of a session: one sitting of the talk, one topic, about a tenth of a lab's tests."""


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
    """Compared with every plan there is in a horizon that none of the shortest needs."""
    for task in schedules(4, 4):
        horizon = range(length(task.facts, task.best) + 1)
        plans = (dict(zip(JOBS, days, strict=True)) for days in product(horizon, repeat=3))
        best = min(length(task.facts, plan) for plan in plans if not any(faults(task.facts, plan)))
        assert length(task.facts, solve(task.facts)) == best
        assert not any(faults(task.facts, solve(task.facts)))


def test_each_of_the_six_kinds_of_constraints_is_told_and_binds() -> None:
    told = (
        "paint is done by Ana. wire is done by Ana. tile is done by Ben. paint takes 3 days of "
        "work. Ana rests a day after 2 days on end on one job. Ana never works on weekday 4. Ana "
        "is away on day 5. Ana wants 2 days off between two jobs. wire begins once paint is over. "
        "tile begins a day or more after wire has begun."
    )
    facts = read(told)
    assert over(facts, "paint", 0) == 4  # two days, a rest, one day
    assert over(facts, "paint", 3) == 8  # day 3, the weekday off, the day away, 6 and 7
    for day in (4, 5, 11):
        assert "Ana does not work on day" in next(faults(facts, {"paint": day}))
    assert list(faults(facts, {"paint": 0, "wire": 6})) == []
    assert "paint and then wire" in " ".join(faults(facts, {"paint": 6, "wire": 10}))
    assert "before paint is over" in " ".join(faults(facts, {"paint": 6, "wire": 3}))
    assert "after wire" in " ".join(faults(facts, {"paint": 0, "wire": 6, "tile": 6}))
    for task in schedules(1, 5):
        kinds = {kind for kind, _ in task.facts}
        assert kinds == {"who", "takes", "after", "beside", "gap", "row", "off", "away"}


async def test_a_plan_of_what_was_told_first_fails_since_sessions_correct_it() -> None:
    right = 0
    for task in schedules(1, 20):
        first: dict[tuple[str, str], str] = {}
        for told in task.told:
            first = {**read(told), **first}
        assert sum(first[key] != value for key, value in task.facts.items()) == 4
        plan = solve(first)
        holds = not any(faults(task.facts, plan))
        right += holds and length(task.facts, plan) == length(task.facts, task.best)
    assert right <= 4


@pytest.mark.parametrize("lab", [LAMPS, GENES], ids=["lamps", "genes"])
def test_tests_tell_every_two_rules_apart(lab: Lab) -> None:
    answers = {tuple(lab.answer(rule, test) for test in lab.tests) for rule in lab.rules}
    assert len(answers) == len(lab.rules)


@pytest.mark.parametrize("lab", [LAMPS, GENES], ids=["lamps", "genes"])
async def test_a_lab_takes_sixty_calls_and_more_on_average(lab: Lab) -> None:
    trials = [await play_task(task, RulePlayer()) for task in hidden_rule(0, 4, labs=(lab,))]
    assert all(trial.outcome and trial.outcome.good for trial in trials)
    assert fmean(len(trial.steps) for trial in trials) >= 60


@pytest.mark.parametrize("name", ["schedule", "hidden_rule", "execution_horizon", "topic_switch"])
async def test_what_the_workspace_shows_is_enough(name: str) -> None:
    assert await share_won(name, task_set(name).player(0)) == 1.0


def showing(last: int) -> AsyncAgent:
    """Return an agent whose workspace shows the last steps alone."""

    async def cut(workspace: Workspace, _: SlotContext, /) -> Edit | None:
        places = tuple(range(max(len(workspace.segments) - last, 0)))
        return Edit(at=0, folds=places) if places else None

    design: MemoryDesign = replace(VERBATIM, compactor=cut)
    return agent_of(design)


@pytest.mark.parametrize("name", ["schedule", "hidden_rule", "execution_horizon", "topic_switch"])
async def test_a_reader_without_memory_is_at_chance(name: str) -> None:
    tasks = task_set(name)
    trials = [
        await play_task(task, tasks.player(0), agent=showing(0)) for task in tasks.stream(1, 6)
    ]
    assert not any(trial.outcome and trial.outcome.good for trial in trials)
    assert fmean(trial.outcome.reward for trial in trials if trial.outcome) <= 0.15


@pytest.mark.parametrize("name", SESSION)
async def test_a_window_of_one_session_fails(name: str) -> None:
    player, agent = task_set(name).player(0), showing(SESSION[name])
    assert await share_won(name, player, agent=agent) == 0.0


async def test_execution_goes_on_after_an_error() -> None:
    """A wrong sum costs its turn and the success; the turns after it still earn."""

    class Erring(SumPlayer):
        async def act(
            self, task: SumTask, memories: Sequence[MemoryItem], trial: Trial
        ) -> str | None:
            said = await super().act(task, memories, trial) or ""
            return f"say {int(said.split()[1]) + 1}" if len(trial.steps) == 4 else said

    for task in execution_horizon(1, 3):
        trial = await play_task(task, Erring())
        rewards = [step.reward or 0.0 for step in trial.steps]
        assert len(rewards) == 31 and [place for place, r in enumerate(rewards) if not r] == [4]
        assert trial.outcome is not None and not trial.outcome.good
        assert trial.outcome.reward == pytest.approx(30 / 31)


def test_questions_of_a_talk_name_no_topic_and_the_talk_tells_no_number() -> None:
    for task in topic_switch(1, 3):
        said = [text for text, _ in task.turns]
        asked = [text for text in said if text.endswith("?")]
        assert len(asked) == 2 * len(TOPICS)
        assert not any(thing in text for text in asked for thing in task.corpus)
        assert not any(str(number) in text for text in said for number in task.corpus.values())
        assert len(task.corpus) == 2 * len(TOPICS)


class Showing(RuleTask):
    """A lab that shows its goal state."""

    def reset(self, seed: int) -> Observation:
        super().reset(seed)
        return Observation(text=" ".join(self.solution()))


def test_the_checker_finds_a_task_that_shows_its_goal() -> None:
    with pytest.raises(EnvironmentFault, match="shows its solution"):
        check_task(Showing("lab", LAMPS, LAMPS.rules[:8]))


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

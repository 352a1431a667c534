"""Chains of tasks: a rerun is the same to the bit, forks leak nothing, the journal replays, and
local credit has the sign of what a lesson does.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tomllib
from dataclasses import replace
from functools import reduce
from itertools import accumulate, pairwise
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import Any

import pytest
from places import ROOT

from environments.acting.play import OraclePlayer, play_task
from environments.acting.task import check_task
from environments.errors import EnvironmentFault
from memagent.core.exchange import Role
from memagent.core.snapshot import EMPTY
from memagent.state.fold import EMPTY_STATE, apply
from memagent.state.versions import rebuilt
from memagent.testing import FunctionModel
from train.credit.advantages import group_zscore
from train.credit.groups import ScoredGroup
from train.rollouts.grading import CreditPlan
from train.run.probe import run_probe
from train.run.runs import train_run
from train.sampling.policy import PolicyModel
from train.settings.run import checked_run
from train.settings.world import preview
from train.techniques.credit.skill1 import Skill1


@pytest.fixture(scope="module")
def chains() -> ModuleType:
    """The experiment as a module."""
    folder = str(ROOT / "examples" / "experiments")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    import chains as module

    return module


@pytest.mark.parametrize("name", ["tiny_shop", "tiny_house", "hidden_rule"])
def test_a_run_trains_on_chains_of_every_set(chains: ModuleType, tmp_path: Path, name: str) -> None:
    """One update of the run file with the set as its option, where the policy chooses too."""
    values = tomllib.loads((ROOT / "examples/training/chains.toml").read_text("utf-8"))
    values |= {"folder": str(tmp_path / "run")}
    values["environment"]["options"] = {"tasks_of": name, "selects": True}
    values["stage"][0] |= {"steps": 1, "sessions": 4}
    values["validation"] |= {"every": 1, "episodes": 1, "test_episodes": 2}
    summary = train_run(checked_run(values), say=lambda _: None)
    assert summary["test"]["init@4"].keys() == {"success", "last_third"}
    [line] = (tmp_path / "run/stage0/steps.jsonl").read_text("utf-8").splitlines()
    groups = json.loads(line)["groups"]
    assert {group["episode"].split("/")[2] for group in groups} == {name}
    assert {group["role"] for group in groups} == {"planner", "manager"}
    del chains


@pytest.fixture(scope="module")
def world(chains: ModuleType) -> ModuleType:
    """The world of chains, which the experiment has brought."""
    return sys.modules[chains.ChainWorld.__module__]


def _experience(chains: ModuleType, policy: PolicyModel, **options: Any) -> Any:
    return chains.ChainExperience(policy=policy, agent=chains.agent_of(chains.DESIGN), **options)


def test_the_procedure_of_a_chain_changes_once(chains: ModuleType) -> None:
    for number in range(50):
        chain = chains.chain_of(f"c{number}")
        assert len(chain) == chains.TASKS == 8
        moves = [task.moves for task in chain]
        changes = [place for place in range(1, 8) if moves[place] != moves[place - 1]]
        assert len(changes) == 1 and changes[0] in (3, 4, 5)
        assert len({task.thing for task in chain}) == 8
    told = [[vars(task) for task in chains.chain_of(name)] for name in ("c0", "c0", "c1")]
    assert told[0] == told[1] != told[2]


HIDDEN = {
    "procedures": lambda task: task.moves,
    "tiny_shop": lambda task: {b for b, (_, sold) in task.offers.items() if sold == task.wish[1]},
    "tiny_house": lambda task: task.home,
    "hidden_rule": lambda task: task.hidden,
}
"""What the tasks of a chain share, by their set."""


@pytest.mark.parametrize("name", HIDDEN)
def test_what_a_chain_hides_changes_once_and_its_tasks_are_sound(
    chains: ModuleType, name: str
) -> None:
    assert HIDDEN.keys() == chains.SETS.keys()
    for number in range(20):
        chain = chains.chain_of(f"{name}/c{number}")
        hidden = [HIDDEN[name](task) for task in chain]
        assert len([1 for one, other in pairwise(hidden) if one != other]) == 1
        assert len({task.text for task in chain}) == len(chain) == chains.TASKS
        for task in chain:
            check_task(task)
    with pytest.raises(EnvironmentFault, match="no set of tasks 'shop'; there are procedures"):
        chains.ChainWorld(tasks_of="shop")


@pytest.mark.parametrize("name", HIDDEN)
async def test_a_player_with_the_case_of_a_solved_task_solves_the_next(
    chains: ModuleType, world: ModuleType, name: str
) -> None:
    """It does so nearly always, and much less often with no case or with an outdated one."""
    told: dict[str, list[float]] = {"knows": [], "knew": [], "empty": []}
    for number in range(40):
        chain = chains.chain_of(f"{name}/p{number}")
        hidden = [HIDDEN[name](task) for task in chain]
        fresh = next(place for place in range(1, 8) if hidden[place] != hidden[place - 1])
        cases = {"empty": []}
        for which, place in (("knows", fresh), ("knew", fresh - 1)):
            agent = chains.agent_of(chains.EXP_RAG)
            await play_task(chain[place], OraclePlayer(), agent=agent)
            cases[which] = [item for item in agent.snapshot().items.values() if item.active]
            assert len(cases[which]) == 1 and "succeeded" in cases[which][0].tags
        for which, own in cases.items():
            player = world.player_of(chain[fresh + 1], "0")
            told[which].append(float(await world.solved(chain[fresh + 1], player, own)))
    shares = {which: fmean(each) for which, each in told.items()}
    assert shares["knows"] >= (0.6 if name == "tiny_shop" else 0.9), "of a brand, one colour"
    assert shares["knows"] > shares["empty"] + 0.2 > shares["knew"], shares


async def test_a_rerun_of_one_task_is_the_same_to_the_bit(chains: ModuleType) -> None:
    policy = chains.random_policy(0)
    experience, chain = _experience(chains, policy, reruns=3), chains.chain_of("a")
    played = await experience.chain(chain, "a", "0")
    for place in (0, 3, 7):
        start = played[place].before
        first = await experience.rerun(chain, place, start, f"a/{place}", "0")
        again = await experience.rerun(chain, place, start, f"a/{place}", "0")
        assert [link.after.digest for link in first] == [link.after.digest for link in again]
        assert [link.responses[0].tokens for link in first] == [
            link.responses[0].tokens for link in again
        ]
        assert {link.before.digest for link in first} == {start.digest}
        assert len({link.trial.steps for link in first}) == 1, "only the lesson is said anew"


async def test_forks_leak_nothing_over_a_thousand_reruns(
    chains: ModuleType, world: ModuleType
) -> None:
    """Each leaves what it leaves alone, in a store of its own from the memory's content."""
    policy = chains.random_policy(0)
    experience, chain = _experience(chains, policy, reruns=125), chains.chain_of("b")
    played = await experience.chain(chain, "b", "0")
    left: list[str] = []
    alone: list[str] = []
    for place, link in enumerate(played):
        content = rebuilt(link.before).digest()
        other = chains.agent_of(chains.DESIGN)
        copied = replace(link.before, live=None)
        for each in await experience.rerun(chain, place, link.before, f"b/{place}", "0"):
            left.append(each.after.digest)
            said = FunctionModel(lambda _, text=each.responses[0].text: text)
            again = await world.linked(other, chain, place, copied, model=said, draw="0")
            alone.append(again.after.digest)
        assert rebuilt(link.before).digest() == content == link.before.digest
    assert len(left) == 1_000
    assert [one for one, other in zip(left, alone, strict=True) if one != other] == []
    assert len(set(left)) > len(played), "the reruns wrote different lessons"


async def test_the_journal_of_chains_replays_to_the_same_digest_after_every_task(
    chains: ModuleType, world: ModuleType, tmp_path: Path
) -> None:
    """The agent of a store on disk plays chains as an app would, and is opened again."""
    policy = chains.random_policy(0)
    own = chains.agent_of(chains.DESIGN, path=str(tmp_path / "chain.db"))
    own, digests = own.with_model(policy.bound("c")), list[str]()
    for task in (task for number in range(10) for task in chains.chain_of(f"c{number}")):
        await play_task(task, world.player_of(task, "0"), agent=own)
        digests.append(own.snapshot().digest)
    assert len(set(digests)) == len(digests) == 10 * chains.TASKS
    again = chains.agent_of(chains.DESIGN, path=str(tmp_path / "chain.db"))
    await again.bank.sync()
    assert again.snapshot().digest == digests[-1]
    assert again.snapshot().items == own.snapshot().items
    assert len(again.snapshot().trials) == len(digests)
    rows = [row async for row in again.bank.rows()]
    passed = [state.digest() for state in accumulate(rows, apply, initial=EMPTY_STATE)]
    assert [digest for digest in dict.fromkeys(passed) if digest in digests] == digests
    writes = [
        place for place, row in enumerate(rows) if getattr(row.entry, "changes", ())
    ]  # a lesson that writes nothing leaves the digest, which knows no raw text, as it was
    assert len(writes) > chains.TASKS
    for place in writes[:: chains.TASKS]:
        without = [*rows[:place], *rows[place + 1 :]]
        assert reduce(apply, without, EMPTY_STATE).digest() != digests[-1]


async def test_the_worth_of_a_memory_is_what_the_later_tasks_earn_with_it(
    chains: ModuleType,
) -> None:
    chain = chains.chain_of("d")
    worth = chains.Worth(agent=chains.agent_of(chains.NO_LEARNER), forks=200)
    agent = chains.agent_of(chains.EXP_RAG)
    task = chain[-2]
    await play_task(task, OraclePlayer(), agent=agent)
    knowing = agent.snapshot()
    assert await worth.of(chain, 8, knowing) == 0.0
    assert await worth.of(chain, 7, knowing) == 1.0, "the case of the same procedure is repeated"
    assert await worth.of(chain, 7, EMPTY) == pytest.approx(1 / 6, abs=0.08)


def test_the_run_file_trains_on_chains_and_can_be_probed(
    chains: ModuleType, tmp_path: Path
) -> None:
    """Two updates from the file as it is, with fewer chains to test on."""
    values = tomllib.loads((ROOT / "examples/training/chains.toml").read_text("utf-8"))
    values["folder"] = str(tmp_path / "run")
    values["stage"][0] |= {"steps": 2, "sessions": 4}
    values["validation"] |= {"every": 2, "episodes": 2, "test_episodes": 3}
    settings = checked_run(values)
    assert preview(settings)["stages"][0]["rows"] == 2 * (8 * 4 + 0.5 * 4 * 4)
    summary = train_run(settings, say=lambda _: None)
    assert summary["test"].keys() == {"init@4", "stage0/best@4"}
    assert summary["test"]["init@4"].keys() == {"success", "last_third"}
    found = run_probe(settings, episodes=3, sessions=4, policy=None, say=lambda _: None)
    told = {row["credit"]: row for row in found["credits"]}
    assert {"terminal", "session", "asof", "gain", "local", "terminal + local"} <= told.keys()
    assert told["gain"]["tokens"] == told["terminal"]["tokens"] == 8 * 4, "forks say nothing"
    assert told["local"]["tokens"] > 8 * 4, "reruns are counted"


async def test_a_lesson_that_helped_later_earns_the_bonus(chains: ModuleType) -> None:
    """Each reward tells its parts; the bonus goes to lessons that a solved task was shown."""
    plan = CreditPlan(credit={"terminal": 1.0, "session": 1.0, "gain": 1.0}, local_weight=0.0)
    experience = _experience(chains, chains.random_policy(0), plan=plan, bonus=0.25, members=4)
    played = await experience.group("e", 0)
    paid: list[float] = []
    for group in played.groups:
        place = group.key.session
        for links, member in zip(played.chains, group.members, strict=True):
            link, used = links[place], member.parts["used"]
            fresh = {
                (item.id, item.version)
                for item in link.after.items.values()
                if item.active and set(item.source_turn_ids) & set(link.trial.turn_ids)
            }
            solved = [later.trial.shown for later in links[place + 1 :] if later.success]
            helped = any((use.id, use.version) in fresh for shown in solved for use in shown)
            assert used == float(helped and group.key.branch != "gain")
            assert member.reward == member.parts["success"] + 0.25 * used
            paid.append(used)
    assert 0 < sum(paid) < len(paid)


def test_an_estimator_that_weighs_parts_trains_on_chains(
    chains: ModuleType, tmp_path: Path
) -> None:
    assert chains.ChainWorld(bonus=0.5).bonus == 0.5
    values = tomllib.loads((ROOT / "examples/training/chains.toml").read_text("utf-8"))
    values |= {"folder": str(tmp_path / "run")}
    values["environment"]["options"] = {"bonus": 0.5}
    values["trainer"] |= {"estimator": "gdpo"}
    values["stage"][0] |= {"steps": 1, "sessions": 3}
    values["validation"] |= {"every": 1, "episodes": 1, "test_episodes": 0}
    train_run(checked_run(values), say=lambda _: None)
    [line] = (tmp_path / "run/stage0/steps.jsonl").read_text("utf-8").splitlines()
    groups = [each for each in json.loads(line)["groups"] if each["branch"] == "global"]
    rewards = {round(reward, 4) for each in groups for reward in each["rewards"]}
    assert rewards & {0.8333, 1.1667, 1.5}, "a third or more of the tasks, and the bonus"


async def test_the_value_of_a_case_follows_the_tasks_that_followed_it(
    chains: ModuleType, world: ModuleType
) -> None:
    """The policy says what to do: the first case is written, then followed until it fails."""
    said = ["add", "add", *["same0", "skip"] * 7]
    policy = FunctionModel(lambda _: said.pop(0))
    design = replace(chains.DESIGN, feedback=world.ChosenValue())
    chain = [
        task for task in chains.chain_of("v", 8) if task.moves == chains.chain_of("v")[0].moves
    ]
    agent = chains.agent_of(design)
    memory, links = EMPTY, []
    for place in range(len(chain)):
        links.append(
            await world.linked(agent, chain, place, memory, model=policy, draw="0", selects=True)
        )
        memory = links[-1].after
    first, second, *rest = links
    assert (first.trend, first.best) == (0.0, 0.0) and not first.trial.shown
    [case] = first.after.items.values()
    worked = first.success
    value = 0.0
    for link in (second, *rest):
        assert {key for step in link.trial.steps for key in step.used} == {case.id}
        assert link.success == worked, "what worked is done again, and what failed fails again"
        assert link.trend == link.best == pytest.approx(value), "before the task"
        value += 0.3 * (link.success - value)
    assert memory.stats[case.id].q_value == pytest.approx(value)
    idle = await world.linked(
        agent, chain, 0, memory, model=FunctionModel(lambda _: "skip"), draw="1", selects=True
    )
    assert (idle.trend, idle.best) == (0.0, pytest.approx(value)), "nothing was followed"
    assert idle.after.stats[case.id].q_value == pytest.approx(value)


def test_a_run_whose_policy_chooses_trains_by_trend_and_deviation(
    chains: ModuleType, tmp_path: Path
) -> None:
    """Each call is compared with its like, by what its part of the outcome is."""
    values = tomllib.loads((ROOT / "examples/training/chains.toml").read_text("utf-8"))
    values |= {"folder": str(tmp_path / "run")}
    values["environment"]["options"] = {"selects": True}
    values["trainer"] |= {"estimator": "skill1"}
    values["stage"][0] |= {"steps": 1, "sessions": 4}
    values["validation"] |= {"every": 1, "episodes": 1, "test_episodes": 0}
    assert preview(checked_run(values))["stages"][0]["rows"] == 2 * 2 * (8 * 4 + 0.5 * 4 * 4)
    train_run(checked_run(values), say=lambda _: None)
    [line] = (tmp_path / "run/stage0/steps.jsonl").read_text("utf-8").splitlines()
    assert {group["role"] for group in json.loads(line)["groups"]} == {"planner", "manager"}
    plan = CreditPlan(credit={"session": 1.0}, local_weight=0.0, estimator=Skill1())
    experience = _experience(chains, chains.random_policy(0), plan=plan, selects=True, members=12)
    experience.agent = chains.agent_of(
        replace(chains.DESIGN, feedback=sys.modules["chain_world"].ChosenValue())
    )
    played = asyncio.run(experience.group("f", 0))
    trends = []
    for group in played.groups:
        place, told = group.key.session, ScoredGroup(group)
        links = [chain[place] for chain in played.chains]
        own = [link.success for link in links]
        counted = [link.trend for link in links]
        if group.key.role is Role.MANAGER:
            counted = [one - link.best for one, link in zip(own, links, strict=True)]
        trends += counted if group.key.role is Role.PLANNER else []
        assert Skill1()(told) == pytest.approx(group_zscore(counted))
        later = [chain[place + (group.key.role is Role.MANAGER) :] for chain in played.chains]
        assert list(told) == [sum(link.success for link in each) for each in later]
    assert any(trends), "some choices had a trend"


def test_local_credit_has_the_sign_of_the_effect_and_global_credit_seldom(
    chains: ModuleType,
) -> None:
    told = asyncio.run(chains.signs(1))
    assert told["lessons"] > 15
    assert told["right"]["local, 32 forks"]["mean"] >= 0.95
    assert told["right"]["global"]["mean"] <= 0.70

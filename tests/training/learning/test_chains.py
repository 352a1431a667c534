"""Chains of tasks: a rerun is the same to the bit, forks leak nothing, the journal replays, and
local credit has the sign of what a lesson does.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from places import ROOT

from environments.acting.play import OraclePlayer
from memagent.core.snapshot import EMPTY
from train.sampling.policy import PolicyModel


@pytest.fixture(scope="module")
def chains() -> ModuleType:
    """The experiment as a module."""
    folder = str(ROOT / "examples" / "experiments")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    import chains as module

    return module


def _experience(chains: ModuleType, policy: PolicyModel, **options: Any) -> Any:
    return chains.ChainExperience(
        policy=policy,
        agent=chains.agent_of(chains.DESIGN),
        tasks={},
        player=chains.CasePlayer,
        weights={},
        **options,
    )


def test_the_procedure_of_a_chain_changes_once(chains: ModuleType) -> None:
    for number in range(50):
        chain = chains.chain_of(f"c{number}")
        assert len(chain) == chains.TASKS == 8
        moves = [task.moves for task in chain]
        changes = [place for place in range(1, 8) if moves[place] != moves[place - 1]]
        assert len(changes) == 1 and changes[0] in (3, 4, 5)
        assert len({task.thing for task in chain}) == 8
    assert chains.chain_of("c0") == chains.chain_of("c0") != chains.chain_of("c1")


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


async def test_forks_leak_nothing_into_the_memory_they_start_from(chains: ModuleType) -> None:
    """A thousand reruns; each begins from the memory of the chain and leaves it as it was."""
    policy = chains.random_policy(0)
    experience, chain = _experience(chains, policy, reruns=125), chains.chain_of("b")
    played = await experience.chain(chain, "b", "0")
    digests = [link.before.digest for link in played]
    left: set[str] = set()
    for place, link in enumerate(played):
        held = [item.text for item in link.before.items.values()]
        left |= {
            each.after.digest
            for each in await experience.rerun(chain, place, link.before, f"b/{place}", "0")
        }
        assert [item.text for item in link.before.items.values()] == held
    assert [link.before.digest for link in played] == digests
    assert len(left) > len(played), "the reruns wrote different lessons"
    again = await experience.chain(chain, "b", "0")
    assert [link.after.digest for link in again] == [link.after.digest for link in played]


async def test_the_journal_of_a_chain_replays_to_the_same_digest(
    chains: ModuleType, tmp_path: Path
) -> None:
    """The agent of a store on disk plays the chain as an app would, and is opened again."""
    policy, chain = chains.random_policy(0), chains.chain_of("c")
    agent = chains.agent_of(chains.DESIGN, path=str(tmp_path / "chain.db"))
    own = agent.with_model(policy.bound("c"))
    for task in chain:
        await chains.play_task(task, chains.player_of(task, "0"), agent=own)
    digest, trials = own.snapshot().digest, len(own.snapshot().trials)
    again = chains.agent_of(chains.DESIGN, path=str(tmp_path / "chain.db"))
    await again.recall("anything")
    assert trials == len(chain)
    before = {key: trial for key, trial in again.snapshot().trials.items() if trial.outcome}
    assert before == dict(own.snapshot().trials)
    assert again.snapshot().items == own.snapshot().items
    assert digest != EMPTY.digest


async def test_the_worth_of_a_memory_is_what_the_later_tasks_earn_with_it(
    chains: ModuleType,
) -> None:
    chain = chains.chain_of("d")
    worth = chains.Worth(agent=chains.agent_of(chains.NO_LEARNER), forks=200)
    agent = chains.agent_of(chains.EXP_RAG)
    task = chain[-2]
    await chains.play_task(task, OraclePlayer(), agent=agent)
    knowing = agent.snapshot()
    assert await worth.of(chain, 8, knowing) == 0.0
    assert await worth.of(chain, 7, knowing) == 1.0, "the case of the same procedure is repeated"
    assert await worth.of(chain, 7, EMPTY) == pytest.approx(1 / 6, abs=0.08)


def test_local_credit_has_the_sign_of_the_effect_and_global_credit_seldom(
    chains: ModuleType,
) -> None:
    told = asyncio.run(chains.signs(1))
    assert told["lessons"] > 15
    assert told["local"] >= 0.95
    assert told["global"] <= 0.70

"""Claims that hold for every design that learns: killed, erased, searched, and over seeds."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from crash_child import watch
from learning_kit import agent_of

from memagent.async_agent import AsyncAgent
from memagent.core.exchange import ModelRequest
from memagent.core.trials import Edit, TrialEnded, TrialStep
from memagent.designs.base import MemoryDesign
from memagent.designs.experience import mem_rl, mistake_notebook
from memagent.designs.parts.lessons import no_worse
from memagent.memory.facade import Memory
from memagent.plugins import load
from memagent.testing import FunctionModel

LEARNING = ("ace", "case_bank", "exp_rag", "mem_rl", "mistake_notebook", "re_mem")
CASES = [f"open the steel cabinet of room {n}\ntake the iron key {n}" for n in range(5)]
CASES.append("open the cabinet\ntake the brass key")


async def opened_doors(agent: AsyncAgent, begin: int, end: int) -> None:
    """Report on tasks from one number to another; the brass key alone opens."""
    for number in range(begin, end):
        recall = await agent.recall(f"open the steel cabinet of room {number}", k=1)
        action = recall.hits[0].text.split("\n")[-1]
        steps = (TrialStep(action=action, used=(recall.hits[0].id,)),)
        await agent.report(recall, 1.0 if "brass" in action else -1.0, steps=steps)


async def ranking(agent: AsyncAgent) -> list[tuple[str, float]]:
    """What a further task is shown, with the value of each."""
    stats = (await agent.bank.sync()).stats
    snapshot = agent.at(agent.snapshot())
    hits = (await snapshot.recall("open the steel cabinet of room 99", k=5)).hits
    return [(hit.text, stats[hit.id].q_value if hit.id in stats else 0.0) for hit in hits]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
@pytest.mark.parametrize("fatal", [4, 7, 21])
def test_the_ranking_of_mem_rl_survives_kill_nine(tmp_path: Path, fatal: int) -> None:
    """Killed within a report, the memory ranks as one that never was killed."""
    path = tmp_path / "m.db"

    async def begin() -> None:
        async with agent_of(mem_rl.DESIGN, path) as agent:
            await agent.memory.add_many(CASES, kind="case")

    asyncio.run(begin())
    if not (child := os.fork()):
        passed = 0

        def die(name: str) -> None:
            nonlocal passed
            passed += name == "bank.appended"
            if passed == fatal:
                os.kill(os.getpid(), signal.SIGKILL)

        async def work() -> None:
            async with agent_of(mem_rl.DESIGN, path) as agent:
                watch(die)
                await opened_doors(agent, 0, 20)

        asyncio.run(work())
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL

    async def compare() -> None:
        async with agent_of(mem_rl.DESIGN, path) as agent:
            await agent.resume()
            ended = [row async for row in agent.bank.rows() if isinstance(row.entry, TrialEnded)]
            whole = agent_of(mem_rl.DESIGN)
            await whole.memory.add_many(CASES, kind="case")
            await opened_doors(whole, 0, len(ended))
            assert 0 < len(ended) < 20
            assert await ranking(agent) == await ranking(whole)
            # A trial that was begun and not reported is there; go on behind it.
            await opened_doors(agent, len(ended), 20)
            await opened_doors(whole, len(ended), 20)
            assert await ranking(agent) == await ranking(whole)

    asyncio.run(compare())


async def test_the_words_of_a_report_with_edits_are_erased_to_the_byte(tmp_path: Path) -> None:
    """Trial, edit, refusal, outcome, counters and lesson go with the user."""
    words = ("quokkatask", "quokkastep", "quokkaseen", "quokkanote", "quokkarefused", "quokkawhy")
    task, did, saw, note, refused, why = words
    other = tmp_path / "export.jsonl"
    agent = replace(
        agent_of(load_design("exp_rag"), tmp_path / "m.db"), model=FunctionModel(lambda _: "{}")
    )
    async with agent:
        key = await agent.memory.add("A door opens with a key.", id="key")
        recall = await agent.recall(f"open {task}", k=3)
        steps = [TrialStep(action=f"{did} {n}", observation=saw, used=(key.id,)) for n in (1, 2)]
        edits = [Edit(at=1, folds=(0,), text=note), Edit(at=2, folds=(9,), refused=refused)]
        learned = await agent.report(recall, 1.0, steps=steps, edits=edits, detail=why)
        assert learned.lesson is not None and len(learned.trial.edits) == 2
        await agent.memory.export(other)
        before = raw_bytes(tmp_path, "m.db*")
        assert all(word.encode() in before for word in words), "the control: they are stored"
        await agent.memory.reset(user_id="default")
        state = await agent.bank.sync()
        assert not len(state.trials) and not len(state.stats) and not len(state.items)
    after = raw_bytes(tmp_path, "m.db*")
    for word in (*words, "helpful", "q_value"):
        assert word.encode() not in after, f"{word} is still there"


def raw_bytes(folder: Path, pattern: str) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.rglob(pattern)) if file.is_file())


def load_design(name: str) -> MemoryDesign:
    design = load("designs", name)
    assert isinstance(design, MemoryDesign)
    return design


@pytest.mark.parametrize("name", LEARNING)
async def test_nothing_that_retrieval_reads_holds_a_reward(name: str) -> None:
    """Reward, success and detail are in no item, turn or node, whatever the design keeps."""
    agent = replace(agent_of(load_design(name)), model=FunctionModel(lambda _: "{}"))
    await agent.memory.add_many(CASES, kind="case")
    for number, reward in enumerate((0.734125, -0.734125, -0.734125, -0.734125)):
        recall = await agent.recall(f"open the cabinet of room {number}")
        steps = (TrialStep(action="take the brass key", observation="a click", reward=reward),)
        await agent.report(recall, reward, steps=steps, detail="zanzibar quokka")
    state = await agent.bank.sync()
    assert len(state.trials) == 4
    texts = [item.text for item in state.items.values()]
    texts += [turn.said for session in state.sessions.values() for turn in session.turns]
    texts += [node.summary for node in state.graph.all_nodes()]
    for word in ("734125", "zanzibar", "quokka"):
        assert not [text for text in texts if word in text]
        assert not [hit for hit in await agent.search(word) if word in hit.text]


# -- the notebook, over ten seeds ------------------------------------------------------

GOOD, BAD = "To get km from m, divide by 1000.", "Always multiply by ten."


async def solved(memory: Memory, task: str) -> float:
    notes = [item.text for item in await memory.get_all() if item.kind == "note"]
    return float(any("divide" in note for note in notes) and not any("ten" in n for n in notes))


async def scores_of(seed: int, *, gated: bool) -> tuple[list[float], bool]:
    """Scores of tasks that no lesson is accepted on, and whether a note was poisoned."""
    rng, poisoned = Random(seed), False
    accept = no_worse([f"convert {seed + n} m to km" for n in (50, 51)], solved, evaluation=["x"])
    agent = agent_of(mistake_notebook.DESIGN)
    scores = [await solved(agent.memory, "convert 7 m to km")]
    for batch in range(5):
        text = BAD if rng.random() < 0.5 else GOOD
        poisoned = poisoned or (text == BAD and batch > 0)
        reply = json.dumps({"notes": [{"subject": "units", "text": text}]})

        def write(_: ModelRequest, reply: str = reply) -> str:
            return reply

        writer = agent.with_model(FunctionModel(write))
        for number in range(3):
            recall = await writer.recall(f"convert {batch * 3 + number} mm to m")
            if gated:
                await writer.report(recall, 0.0, accept=accept)
            else:
                await writer.report(recall, 0.0)
        scores.append(await solved(agent.memory, "convert 7 m to km"))
    return scores, poisoned


async def test_a_batch_score_of_the_notebook_never_falls_over_ten_seeds() -> None:
    fallen = 0
    for seed in range(10):
        gated, _ = await scores_of(seed, gated=True)
        assert gated == sorted(gated), f"seed {seed}: {gated}"
        free, _ = await scores_of(seed, gated=False)
        fallen += free != sorted(free)
    assert fallen >= 3, "the control: without the gate scores fall"

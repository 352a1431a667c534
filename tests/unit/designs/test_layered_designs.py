"""Designs with caps by kind, and the cache of answers that earned a reward."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from random import Random

from learning_kit import noon

from memagent.async_agent import AsyncAgent
from memagent.core.exchange import ModelRequest
from memagent.designs import mem_alpha
from memagent.designs.base import MemoryDesign
from memagent.designs.experience import aoi, semantic_cache
from memagent.designs.parts.lessons import Layers
from memagent.embed.static import HashEmbedder
from memagent.memory.bank import MemoryBank
from memagent.testing import FunctionModel

SILENT = FunctionModel(lambda _: "{}")


def agent_with(design: MemoryDesign, model: FunctionModel | None = None) -> AsyncAgent:
    bank = MemoryBank(embedder=HashEmbedder(dim=64), clock=noon)
    return AsyncAgent(design=design, bank=bank, clock=noon, model=model)


async def kinds_of(agent: AsyncAgent) -> Counter[str]:
    return Counter(item.kind for item in await agent.memory.get_all(limit=None))


async def test_capped_kinds_stay_under_their_cap_through_a_thousand_random_ops() -> None:
    caps = {"core": 3, "episodic": 20, "semantic": 15}
    agent = agent_with(replace(mem_alpha.DESIGN, keeper=Layers(caps=caps)), SILENT)
    rng, over = Random(5), 0
    for round_ in range(50):
        ids = [item.id for item in await agent.memory.get_all(limit=None)]
        for number in range(20):
            if ids and rng.random() < 0.2:
                await agent.memory.delete(ids.pop(rng.randrange(len(ids))))
            else:
                kind = rng.choice(list(caps))
                await agent.memory.add(f"note {round_} {number}", kind=kind)
        counted = await kinds_of(agent)
        over += any(counted[kind] > cap for kind, cap in caps.items())
        await agent.tidy()
        counted = await kinds_of(agent)
        assert all(counted[kind] <= cap for kind, cap in caps.items())
    assert over > 40, "the control: without the keeper the caps do not hold"


async def test_what_earned_stays_when_a_kind_is_over_its_cap() -> None:
    agent = agent_with(mem_alpha.DESIGN, SILENT)
    items = await agent.memory.add_many([f"core fact {n}" for n in range(12)], kind="core")
    await agent.memory.add_many([f"seen {n}" for n in range(5)], kind="episodic")
    for item in items[:2]:
        await agent.report(await agent.recall("a task"), 1.0, credit={item.id: 1.0})
    digest = agent.bank.state.digest()
    commit = await agent.tidy()
    assert commit is not None and len(commit.changes) == 2
    assert await kinds_of(agent) == {"core": 10, "episodic": 5}
    kept = {item.id for item in await agent.memory.get_all()}
    assert {items[0].id, items[1].id} <= kept
    await agent.memory.undo(commit.id)
    assert agent.bank.state.digest() == digest


async def test_mem_alpha_sorts_what_is_said_into_kinds() -> None:
    def sorting(request: ModelRequest) -> str:
        source = "t:0" if "t:0" in request.messages[-1].content else ""
        texts = {"core": "Ana is blind.", "episodic": "Ana met Bo.", "semantic": "Bo is a vet."}
        facts = [{"text": text, "kind": kind, "source": source} for kind, text in texts.items()]
        return json.dumps({"facts": facts})

    agent = agent_with(mem_alpha.DESIGN, FunctionModel(sorting))
    said = "I am blind. I met Bo. Bo is a vet."
    await agent.remember([{"id": "t:0", "name": "Ana", "content": said}])
    assert await kinds_of(agent) == {"core": 1, "episodic": 1, "semantic": 1}


async def test_aoi_moves_cases_down_its_layers_and_finds_them_in_each() -> None:
    agent = agent_with(aoi.DESIGN)
    for number in range(100):
        recall = await agent.recall(f"restart service {number}", k=3)
        await agent.report(recall, 0.0, credit={}, success=number % 2 == 0)
        if number % 10 == 9:
            await agent.tidy()
    assert await kinds_of(agent) == {"case": 20, "task": 60, "longterm": 20}
    found = (await agent.recall("restart service 0", k=100)).hits
    assert {hit.item.kind for hit in found if hit.item} == {"case", "task", "longterm"}
    commit = await agent.tidy(28)
    assert commit is not None and sum((await kinds_of(agent)).values()) <= 28


# -- the cache -------------------------------------------------------------------------

QUESTION = "Where does Ana live?"


def counting(calls: list[str]) -> FunctionModel:
    def answer(request: ModelRequest) -> str:
        prompt = request.messages[-1].content
        calls.append(prompt)
        where = "Porto" if "Porto" in prompt else "Lisbon"
        return json.dumps({"citations": ["key"], "answer": where, "abstain": False})

    return FunctionModel(answer)


async def test_a_cached_answer_saves_the_call_until_its_evidence_changes() -> None:
    calls: list[str] = []
    agent = agent_with(semantic_cache.DESIGN, counting(calls))
    await agent.memory.add("Ana lives in Lisbon.", id="key")
    first = await agent.ask(QUESTION)
    assert first.text == "Lisbon" and len(calls) == 1
    await agent.ask(QUESTION)
    assert len(calls) == 2, "an answer that nobody praised is not cached"
    await agent.report(first, 1.0)
    again = await agent.ask("where does ana live")
    assert (again.text, len(calls)) == ("Lisbon", 2)
    assert again.citations and any("cache" in note for note in again.notes)
    await agent.ask("Where does Ben work?")
    assert len(calls) == 3, "another question is asked"
    await agent.memory.update("key", "Ana lives in Porto.")
    fresh = await agent.ask(QUESTION)
    assert (fresh.text, len(calls)) == ("Porto", 4), "changed evidence makes an entry stale"


async def test_a_bad_or_punished_answer_is_not_served() -> None:
    calls: list[str] = []
    agent = agent_with(semantic_cache.DESIGN, counting(calls))
    await agent.memory.add("Ana lives in Lisbon.", id="key")
    await agent.report(await agent.ask(QUESTION), 0.0)
    assert "cached" not in await kinds_of(agent)
    await agent.report(await agent.ask(f"{QUESTION} Please."), 1.0)
    served = await agent.ask(f"{QUESTION} Please.")
    assert len(calls) == 2
    await agent.report(served, -1.0)
    await agent.ask(f"{QUESTION} Please.")
    assert len(calls) == 3

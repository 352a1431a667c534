"""Every effect fails once: calls of the model, of the embedder, and appends to the journal.

A scenario is played with its n-th effect failing, for n from 1 until the scenario ends
untouched. After each failure the memory is opened anew and the step is done again. In the
end memory is what it is without any failure. A seeded simulation fails effects at random;
it prints its seed when it does not end so.
"""

from __future__ import annotations

import json
import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from model_faults import FAULTS

from memagent.async_agent import AsyncAgent
from memagent.core.errors import (
    EmbeddingError,
    MemAgentError,
    ModelUnavailable,
    StoreUnavailable,
)
from memagent.core.exchange import ModelRequest, ModelResponse, Role
from memagent.core.records import Session, Turn
from memagent.embed.static import HashEmbedder
from memagent.journal.open_database import DatabaseJournal
from memagent.protocols import Matrix
from memagent.testing.models import FunctionModel

Step = Callable[[AsyncAgent], Awaitable[object]]
MOST_EFFECTS = 60


def session(name: str, text: str) -> Session:
    return Session(id=name, turns=(Turn(id=f"{name}:1", speaker="Ana", text=text),))


def good_reply(request: ModelRequest) -> str:
    """Answer as a model does that reads its prompt."""
    prompt = request.messages[-1].content
    city = "Lisbon" if "Lisbon" in prompt else "Porto"
    name = "s2" if "Lisbon" in prompt else "s1"
    if request.role is Role.EXTRACTOR:
        fact = {"text": f"Ana lives in {city}", "subject": "Ana", "source": f"{name}:1"}
        return json.dumps({"facts": [fact]})
    if request.role is Role.MANAGER:
        return json.dumps({"ops": [{"op": "ADD", "fact": 0}]})
    return "Porto."


async def add_key(agent: AsyncAgent) -> None:
    known = {item.text for item in await agent.memory.get_all()}
    if "Ana has a key" not in known:
        await agent.memory.add("Ana has a key")


STEPS: tuple[Step, ...] = (
    lambda agent: agent.remember(session("s1", "I live in Porto.")),
    add_key,
    lambda agent: agent.memory.search("key", k=2),
    lambda agent: agent.ask("Where does Ana live?"),
    lambda agent: agent.remember(session("s2", "My sister Eva lives in Lisbon.")),
    lambda agent: agent.resume(),
)


class Effects:
    """Counts effects and has those fail that `fails` chooses by their number, from 1."""

    def __init__(self, fails: Callable[[int], bool]) -> None:
        self.count = self.failed = 0
        self._fails = fails

    def due(self) -> bool:
        """Count an effect and tell whether it fails."""
        self.count += 1
        fails = self._fails(self.count)
        self.failed += fails
        return fails

    def model(self) -> FunctionModel:
        """A model that fails when it is due."""

        def answer(request: ModelRequest) -> str:
            if self.due():
                raise ModelUnavailable("the model was told to fail")
            return good_reply(request)

        return FunctionModel(answer)

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        """Let appends and embeddings fail when they are due: before, or after they landed."""
        append, embed = DatabaseJournal.append_many, HashEmbedder.embed

        async def failing_append(journal: Any, *args: Any, **named: Any) -> Any:
            if self.due():
                raise StoreUnavailable("the journal was told to fail before it wrote")
            rows = await append(journal, *args, **named)
            if self.due():
                raise StoreUnavailable("the journal was told to fail after it wrote")
            return rows

        async def failing_embed(embedder: Any, texts: Sequence[str]) -> Matrix:
            if self.due():
                raise EmbeddingError("the embedder was told to fail")
            return await embed(embedder, texts)

        patch.setattr(DatabaseJournal, "append_many", failing_append)
        patch.setattr(HashEmbedder, "embed", failing_embed)


def agent_at(path: Path, model: FunctionModel) -> AsyncAgent:
    return AsyncAgent(model=model, path=path, embedder="hashing", design="memory_r1", user_id="ana")


async def played(path: Path, effects: Effects, patch: pytest.MonkeyPatch) -> list[str]:
    """Play all steps, each until it succeeds; return the texts of the memory."""
    left = list(STEPS)
    with patch.context() as own:
        effects.patch(own)
        for _ in range(MOST_EFFECTS):
            try:
                async with agent_at(path, effects.model()) as agent:
                    while left:
                        await left[0](agent)
                        left.pop(0)
                break
            except MemAgentError:
                continue
    assert not left, "a step never succeeded"
    async with agent_at(path, FunctionModel(good_reply)) as agent:
        texts = sorted(item.text for item in await agent.memory.get_all())
        hits = [hit.item.text for hit in await agent.memory.search("key", k=1) if hit.item]
        assert hits == ["Ana has a key"]
        assert {one.id for one in await agent.memory.sessions()} == {"s1", "s2"}
    return texts


@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.full), 4])
async def test_each_effect_may_fail_once_and_nothing_is_lost_or_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stride: int
) -> None:
    """Every fourth effect, and every one on demand."""
    untouched = Effects(lambda _: False)
    whole = await played(tmp_path / "whole.db", untouched, monkeypatch)
    assert len(whole) == 3 and untouched.count > 12
    n = 1 - stride
    while True:
        n += stride
        effects = Effects(lambda number, n=n: number == n)
        assert await played(tmp_path / f"{n}.db", effects, monkeypatch) == whole, n
        if not effects.failed:
            break
    assert n > 12, "hardly any effect was reached"


@pytest.mark.parametrize("seed", range(4))
async def test_effects_that_fail_at_random_end_in_the_same_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    whole = await played(tmp_path / "whole.db", Effects(lambda _: False), monkeypatch)
    rng = random.Random(seed)
    effects = Effects(lambda _: rng.random() < 0.15)
    assert await played(tmp_path / "m.db", effects, monkeypatch) == whole, f"seed {seed}"


async def remember_and_ask(agent: AsyncAgent) -> None:
    await agent.remember(session("s1", "I live in Porto."))
    await agent.ask("Where does Ana live?")


SITES: dict[str, tuple[Role, Step]] = {
    "extractor": (Role.EXTRACTOR, lambda agent: agent.remember(session("s1", "I live in Porto."))),
    "manager": (Role.MANAGER, lambda agent: agent.remember(session("s1", "I live in Porto."))),
    "answerer": (Role.ANSWERER, remember_and_ask),
    "chat": (Role.ANSWERER, lambda agent: agent.chat("Where does Ana live?")),
}


@pytest.mark.parametrize("site", SITES)
async def test_every_kind_of_fault_at_every_call_site_is_an_error_or_data_and_passes(
    site: str,
) -> None:
    role, step = SITES[site]
    for place, fault in enumerate(FAULTS):
        broken = [True]

        def answer(
            request: ModelRequest,
            fault: type[Exception] | str | ModelResponse = fault,
            broken: list[bool] = broken,
        ) -> str | ModelResponse:
            if not broken or request.role is not role:
                return good_reply(request)
            if isinstance(fault, type):
                raise fault("told to fail")
            return fault

        async with AsyncAgent(
            model=FunctionModel(answer),
            path=":memory:",
            embedder="hashing",
            design="memory_r1",
            user_id="ana",
        ) as agent:
            failed = False
            try:
                await step(agent)
            except MemAgentError:
                failed = True
            assert failed or not isinstance(fault, type), (site, place)
            stored = {one.id for one in await agent.memory.sessions()}
            assert stored, (site, place)
            broken.clear()
            await agent.resume()
            await agent.remember(session("s1", "I live in Porto."))
            assert (await agent.ask("Where does Ana live?")).text, (site, place)
    assert len(FAULTS) >= 20


class Broken(HashEmbedder):
    """Gives vectors of a wrong kind, or fails."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault: str | None = fault

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """The vectors, spoiled."""
        vectors = await super().embed(texts)
        match self.fault:
            case "error":
                raise EmbeddingError("told to fail")
            case "bug":
                raise RuntimeError("told to fail")
            case "nan":
                return vectors * float("nan")
            case "long":
                return vectors * 3
            case "few":
                return vectors[:-1]
            case "narrow":
                return vectors[:, :-1]
            case "nothing":
                return None  # type: ignore[return-value]
            case _:
                return vectors


@pytest.mark.parametrize("fault", "error bug nan long few narrow nothing".split())
async def test_an_embedder_that_fails_loses_nothing_and_is_made_good(fault: str) -> None:
    embedder = Broken(fault)
    async with AsyncAgent(
        model=FunctionModel(good_reply),
        path=":memory:",
        embedder=embedder,
        design="memory_r1",
        user_id="ana",
    ) as agent:
        for step in STEPS[:5]:
            try:
                await step(agent)
            except MemAgentError:
                continue
        embedder.fault = None
        await agent.resume()
        for step in (*STEPS[:5], STEPS[2]):
            await step(agent)
        assert len(await agent.memory.get_all()) == 3
        hits = await agent.memory.search("Ana has a key and lives in Porto or Lisbon", k=3)
        assert len(hits) == 3 and not [
            hit for hit in hits if hit.item is not None and hit.item.embedding_missing
        ]

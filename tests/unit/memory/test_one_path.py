"""The agent that serves, the one that is played and the one that replays are one: same
requests to the model, same memory in the end.
"""

from __future__ import annotations

import rollout_kit as kit

from environments import play, replay_session
from environments.play.snapshots import snapshot_to_json
from memagent import Agent
from memagent.core.exchange import ModelRequest, Role
from memagent.core.snapshot import EMPTY, MemorySnapshot
from memagent.memory.incoming import split_session
from memagent.testing import ScriptedModel

WORLD = kit.episode(4, turns=10)  # two chunks a session


async def script() -> list[str]:
    """The answers of the world's model, in order, written down once."""

    async def run() -> list[str]:
        model = kit.model()
        async with kit.open_r2() as agent:
            played = await play(agent.with_model(model).at(EMPTY), WORLD, ask=False)
        return [
            one.text
            for trace in played.traces
            for chunk in trace.report.chunks
            for one in chunk.responses
        ]

    return await run()


def content(snapshot: MemorySnapshot) -> str:
    """All of a snapshot but its place in a journal."""
    text = snapshot_to_json(snapshot)
    return text.rpartition(',"seq":')[0]


async def test_served_played_and_replayed_memories_are_one() -> None:
    answers = await script()
    assert len(answers) == 4 * 2 * 2
    models = {name: ScriptedModel(answers) for name in ("served", "played", "replayed", "graph")}
    ends: dict[str, MemorySnapshot] = {}

    with Agent(models["served"], path=":memory:", design="memory_r2", embedder="hashing") as agent:
        for session in WORLD.sessions:
            report = agent.remember(session)
            assert not report.failed_chunks
        ends["served"] = agent.snapshot()

    async with kit.open_r2() as agent:
        played = await play(agent.with_model(models["played"]).at(EMPTY), WORLD, ask=False)
        assert played.failure is None
        ends["played"] = played.end

        anchor, replaying = EMPTY, agent.with_model(models["replayed"])
        for place in range(len(WORLD.sessions)):
            trace = await replay_session(replaying, WORLD, session=place, anchor=anchor)
            assert trace.after.digest == played.traces[place].after.digest
            anchor = trace.after
        ends["replayed"] = anchor

        own = agent.with_model(models["graph"]).at(EMPTY)
        for session in WORLD.sessions:  # the compiled graph itself, called by hand
            await own.bank.store_session(session)
            for chunk in split_session(session, chunk_turns=own.design.chunk_turns):
                await own.graphs.ingest.ainvoke(
                    {"session": session, "chunk": chunk}, context=own.context
                )
        ends["graph"] = own.snapshot()
    assert {name: end.digest for name, end in ends.items()} == dict.fromkeys(
        ends, ends["served"].digest
    )
    assert ends["served"].digest != EMPTY.digest
    assert {content(end) for end in ends.values()} == {content(ends["served"])}
    assert {model.remaining for model in models.values()} == {0}
    requests = {name: model.requests for name, model in models.items()}
    assert requests["played"] == requests["served"], "the model must not be able to tell"
    assert requests["replayed"] == requests["served"]
    assert requests["graph"] == requests["served"]
    assert [request.role for request in requests["served"]] == [Role.EXTRACTOR, Role.MANAGER] * 8


async def test_questions_reach_the_model_the_same_way() -> None:
    seen: dict[str, list[ModelRequest]] = {}
    said: dict[str, list[str]] = {}
    world = WORLD.model_copy(update={"probes": WORLD.probes[:3]})
    last = WORLD.sessions[-1].at

    model = kit.model()
    with Agent(model, path=":memory:", design="memory_r2", embedder="hashing") as agent:
        for session in world.sessions:
            agent.remember(session)
        said["served"] = [
            agent.ask(probe.as_question(at=last, k=30)).text for probe in world.probes
        ]
        seen["served"] = model.requests

    model = kit.model()
    async with kit.open_r2() as agent:
        played = await play(agent.with_model(model).at(EMPTY), world)
        said["played"] = [one.answer.text for one in played.answers if one.answer]
        seen["played"] = model.requests
    assert said["played"] == said["served"]
    assert seen["played"] == seen["served"]

"""`memory_r1` and `memory_r2` through litellm and real HTTP, against a scripted
OpenAI-compatible server on loopback.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripted_server import Body, Reply, ScriptedServer

from memagent.build import open_agent
from memagent.config import AgentSettings, HashingEmbedderSettings, ModelSettings
from memagent.core.answers import AsOf, Verdict
from memagent.core.ops import RejectReason
from memagent.core.records import Event, EventEdge, NodeKind, Relation, Session, Turn
from memagent.core.snapshot import Commit, GraphDelta
from memagent.designs.base import MemoryDesign
from memagent.designs.memory_r1 import DESIGN as MEMORY_R1
from memagent.designs.memory_r2 import DESIGN as MEMORY_R2

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("litellm") is None,
    reason='needs the extra: pip install "memagent[llm]"',
)

SAID = {
    "one": (
        "2024-03-04T18:00:00",
        [
            ("Bo", "She spends every weekend out on the water."),
            ("Ana", "Yes, since I bought the yacht!"),
        ],
    ),
    "two": ("2024-05-06T18:00:00", [("Ana", "I sold my yacht last week."), ("Bo", "A pity.")]),
}
FACTS = {
    "D1:1": {"text": "Every weekend is spent out on the water.", "subject": "Ana"},
    "D1:2": {"text": "Ana bought the yacht.", "subject": "Ana"},
    "D2:1": {"text": "Ana sold her yacht.", "subject": "Ana", "when": "last week"},
}
STALE = "Every weekend is spent out on the water."


def sessions() -> list[Session]:
    return [
        Session.model_validate(
            {
                "id": name,
                "at": at,
                "turns": [
                    Turn(id=f"D{number}:{i}", speaker=who, text=text)
                    for i, (who, text) in enumerate(said, 1)
                ],
            }
        )
        for number, (name, (at, said)) in enumerate(SAID.items(), 1)
    ]


def prompt_of(body: Body) -> tuple[str, str]:
    messages = body["messages"]
    assert isinstance(messages, list)
    texts = [str(message["content"]) for message in messages if isinstance(message, dict)]
    return texts[0], texts[-1]


def shown_id(prompt: str, text: str) -> str | None:
    found = re.search(r"\[(mem_\d+)\][^\n]*" + re.escape(text), prompt)
    return found.group(1) if found else None


def scripted(body: Body, _: int) -> Reply:
    """Extracts the known facts; adds each; updates the stale memory when it is shown;
    now and then says something wrong.
    """
    system, user = prompt_of(body)
    usage: dict[str, Any] = {
        "prompt_tokens": len(system.split()) + len(user.split()),
        "completion_tokens": 20,
    }
    if "keep the notes" in system:
        dialogue = user.split("Turns to take notes of:")[-1]
        facts = [
            {**fact, "source": turn} for turn, fact in FACTS.items() if f"[{turn}]" in dialogue
        ]
        return Reply(text="```json\n" + json.dumps({"facts": facts}) + "\n```", **usage)
    if "manage a memory" in system:
        count = len(re.findall(r"^\d+\. ", user, flags=re.MULTILINE))
        ops: list[dict[str, object]] = [{"op": "ADD", "fact": i} for i in range(count)]
        if "sold her yacht" in user:
            ops.append({"op": "DELETE", "id": "mem_00000000000000000000", "fact": 0})
            ops.append({"op": "FORGET", "id": "mem_1"})
            stale = shown_id(user, STALE)
            if stale is not None:
                ops.append(
                    {
                        "op": "UPDATE",
                        "id": stale,
                        "text": "Ana spent every weekend out on the water until she sold her yacht.",
                        "fact": 0,
                    }
                )
        return Reply(text=json.dumps({"ops": ops}), **usage)
    cited = re.findall(r"\[(mem_\d+)[^\n]*out on the water", user)
    return Reply(
        text=json.dumps({"citations": cited[:1], "answer": "On the water", "abstain": False}),
        **usage,
    )


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(scripted) as running:
        yield running


def settings_for(server: ScriptedServer) -> AgentSettings:
    model = ModelSettings(
        model="openai/priced-model",
        base_url=server.url,
        api_key="test-key",
        attempts=3,
        extra={"input_cost_per_token": 0.000001, "output_cost_per_token": 0.000002},
    )
    return AgentSettings(model=model, embedder=HashingEmbedderSettings(dim=1024))


async def link_the_two(agent: object) -> None:
    """The owning of the yacht makes the weekends possible: the only road from the one to the other."""
    bank = agent.bank  # type: ignore[attr-defined]
    by_text = {item.text: item.id for item in bank.state.active()}
    edge = EventEdge(
        source=by_text["Ana bought the yacht."], target=by_text[STALE], relation=Relation.ENABLES
    )
    await bank.index(GraphDelta(edges=(edge,)))


@pytest.mark.parametrize("graph", [True, False], ids=["graph on", "graph off"])
async def test_a_contradiction_without_a_shared_word_is_reached_by_an_edge(
    server: ScriptedServer, tmp_path: Path, graph: bool
) -> None:
    design = replace(MEMORY_R2, relate=replace(MEMORY_R2.relate, graph=graph))
    async with open_agent(
        path=tmp_path / "memory.db", design=design, settings=settings_for(server)
    ) as agent:
        first, second = sessions()
        await agent.remember(first)
        await link_the_two(agent)
        (chunk,) = (await agent.remember(second)).chunks
        updated = [applied.item_id for applied in chunk.applied if applied.op.op == "UPDATE"]
        stale = [item for item in agent.bank.state.active() if item.text == STALE]
        assert bool(updated) == graph
        assert bool(stale) != graph
        if graph:
            versions = agent.bank.state.versions(updated[0] or "")
            assert [item.text for item in versions] == [
                STALE,
                "Ana spent every weekend out on the water until she sold her yacht.",
            ]
            assert set(versions[-1].source_turn_ids) == {"D1:1", "D2:1"}


@pytest.mark.parametrize("design", [MEMORY_R1, MEMORY_R2], ids=lambda design: design.name)
async def test_every_op_is_in_the_log_with_reasons_tokens_and_cost(
    server: ScriptedServer, tmp_path: Path, design: MemoryDesign
) -> None:
    async with open_agent(
        path=tmp_path / "memory.db", design=design, settings=settings_for(server)
    ) as agent:  # type: ignore[arg-type]
        reports = [await agent.remember(session) for session in sessions()]
        before = agent.snapshot()
        commits = [row.entry async for row in agent.bank.rows() if isinstance(row.entry, Commit)]
        told = [
            (len(chunk.applied), len(chunk.rejected))
            for report in reports
            for chunk in report.chunks
        ]
        assert told == [(len(commit.ops), len(commit.rejected)) for commit in commits]
        reasons = {one.reason for commit in commits for one in commit.rejected}
        assert {RejectReason.UNKNOWN_ID, RejectReason.UNKNOWN_OP} <= reasons
        assert all(one.detail or one.raw for commit in commits for one in commit.rejected)
        assert all(commit.source.response_ids for commit in commits)
        usage = reports[0].usage + reports[1].usage
        assert usage.calls == len(server.requests)
        assert usage.prompt_tokens > 100
        assert usage.cost_usd == pytest.approx(
            usage.prompt_tokens * 1e-6 + usage.completion_tokens * 2e-6
        )

        answer = await agent.ask("Where does Ana spend her weekends?")
        assert answer.verdict is Verdict.SUPPORTED
        assert answer.citations[0].turn_id in {"D1:1", "D1:2", "D2:1"}
        assert answer.usage.cost_usd

        sold = next(
            item for item in agent.bank.state.active() if item.text == "Ana sold her yacht."
        )
        assert sold.valid is not None
        assert sold.valid.start is not None
        assert sold.valid.start.date().isoformat() == "2024-04-29"
        assert [entry.op.op for entry in await agent.memory.history(sold.id) if entry.op] == ["ADD"]

        past = await agent.memory.as_of(AsOf.model_validate({"said": "2024-04-01"}))
        assert {item.text for item in await past.get_all()} == {STALE, "Ana bought the yacht."}
        undone = await agent.memory.undo()
        assert undone.undoes == commits[-1].id
        change = await agent.memory.diff(before)
        assert [item.id for item in change.removed] == [sold.id]
        await agent.memory.undo(undone.id)
        assert agent.snapshot() == before

        written = await agent.memory.export(tmp_path / "all.jsonl")
    async with open_agent(
        path=tmp_path / "other.db", design=design, settings=settings_for(server)
    ) as other:  # type: ignore[arg-type]
        read = await other.memory.import_(tmp_path / "all.jsonl")
        assert read.digest == written.digest == other.snapshot().digest == before.digest
        assert [entry.commit_id for entry in await other.memory.history(sold.id)] == [
            commits[-1].id,
            undone.id,
            f"c{read.rows}",
        ]


@pytest.mark.parametrize(
    "fault",
    [
        Reply.rate_limited(),
        Reply.failing(500),
        Reply.failing(503),
        Reply.truncated(),
        Reply.dropped(),
        Reply.misshapen(),
    ],
    ids=["429", "500", "503", "truncated", "dropped", "misshapen"],
)
async def test_a_passing_fault_costs_a_retry_and_a_lasting_one_loses_nothing(
    tmp_path: Path, fault: Reply
) -> None:
    async def story() -> None:
        broken = True
        calls = 0

        def faulty(body: Body, index: int) -> Reply:
            nonlocal calls
            calls += 1
            return fault if broken else scripted(body, index)

        with ScriptedServer(faulty) as server:
            settings = settings_for(server).model_copy(
                update={"model": settings_for(server).model.model_copy(update={"attempts": 2})}  # type: ignore[union-attr]
            )
            async with open_agent(
                path=tmp_path / "memory.db", design=MEMORY_R2, settings=settings
            ) as agent:
                first = sessions()[0]
                report = await agent.remember(first, on_error="keep")
                failed = report.failed_chunks
                assert (report.stored_turns, len(failed), calls) == (2, 1, 2)
                assert agent.bank.state.turn("D1:1") is not None
                broken = False
                assert [session.id for session in await agent.unfinished()] == ["one"]
                (again,) = await agent.resume()
                assert again.op_counts["ADD"] == 2
                assert await agent.unfinished() == []

    await story()


async def test_events_can_be_changed_by_ops(server: ScriptedServer, tmp_path: Path) -> None:
    async def story() -> None:
        def ending(body: Body, index: int) -> Reply:
            system, user = prompt_of(body)
            shown = re.search(r"\[(evt_\d+)\]", user)
            if "manage a memory" in system and "sold her yacht" in user and shown:
                return Reply(
                    text=json.dumps({"ops": [{"op": "DELETE", "id": shown.group(1), "fact": 0}]})
                )
            return scripted(body, index)

        with ScriptedServer(ending) as running:
            async with open_agent(
                path=tmp_path / "memory.db", design=MEMORY_R2, settings=settings_for(running)
            ) as agent:
                first, second = sessions()
                await agent.remember(first)
                owner = next(
                    item.id
                    for item in agent.bank.state.active()
                    if item.text == "Ana bought the yacht."
                )
                event = Event(
                    id="evt_sailing",
                    kind=NodeKind.EVENT,
                    summary="Ana sails at weekends",
                    source_turn_ids=("D1:1",),
                )
                edge = EventEdge(source=owner, target=event.id, relation=Relation.ENABLES)
                await agent.bank.index(GraphDelta(nodes=(event,), edges=(edge,)))
                (chunk,) = (await agent.remember(second)).chunks
                assert [
                    applied.item_id for applied in chunk.applied if applied.op.op == "DELETE"
                ] == ["evt_sailing"], chunk.rejected
                node = agent.bank.state.graph.node("evt_sailing")
                assert node is not None
                assert node.closed
                await agent.memory.undo((await last_commit(agent)).id)

    async def last_commit(agent: object) -> Commit:
        commits = [row.entry async for row in agent.bank.rows() if isinstance(row.entry, Commit)]  # type: ignore[attr-defined]
        return commits[-1]

    await story()

"""A trial through Python, REST, MCP, LangGraph and the command line ends in one entry."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from command_line_kit import got, run
from service_kit import serving

from memagent.agent import Agent
from memagent.async_agent import AsyncAgent
from memagent.build import open_agent
from memagent.client.async_client import AsyncClient
from memagent.client.sync_client import Client
from memagent.core.records import ItemStats
from memagent.core.trials import TrialEnded, TrialStarted

TASK, TEXT, DETAIL = "open the lab door", "The lab door opens with the brass key.", "it fitted"
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def prepared(folder: Path) -> Path:
    """A store with one memory of a fixed id."""
    path = folder / "m.db"
    with Agent(path=path, embedder="hashing", design="verbatim") as agent:
        agent.memory.add(TEXT, id="key")
    return path


async def through_python(path: Path) -> None:
    async with AsyncAgent(path=path, embedder="hashing", design="verbatim") as agent:
        recall = await agent.recall(TASK)
        assert [hit.id for hit in recall.hits] == ["key"]
        await agent.report(recall, 1.0, detail=DETAIL)


async def through_the_synchronous_agent(path: Path) -> None:
    def play() -> None:
        with Agent(path=path, embedder="hashing", design="verbatim") as agent:
            agent.report(agent.recall(TASK), 1.0, detail=DETAIL)

    await asyncio.to_thread(play)


async def through_rest(path: Path) -> None:
    def play() -> None:
        with serving(path, design="verbatim") as served, served.http() as http:
            begun = http.post("/v1/trials", json={"task": TASK})
            assert begun.status_code == 201, begun.text
            assert [hit["item"]["id"] for hit in begun.json()["hits"]] == ["key"]
            trial_id = begun.json()["trial"]["id"]
            for _ in range(2):
                ended = http.post(
                    f"/v1/trials/{trial_id}/report", json={"reward": 1, "detail": DETAIL}
                )
                assert ended.status_code == 200, ended.text
            assert http.get(f"/v1/trials/{trial_id}").json() == ended.json()["trial"]
            assert [entry["id"] for entry in http.get("/v1/trials").json()["items"]] == [trial_id]
            other = http.post(f"/v1/trials/{trial_id}/report", json={"reward": 0})
            assert other.status_code == 422 and "already" in other.text
            assert http.post("/v1/trials/trl_none/report", json={"reward": 0}).status_code == 404
            page = http.get("/ui/trials").text
            assert TASK in page and "reward 1" in page and trial_id in page
            assert "helpful" in http.get("/ui/memories/key").text

    await asyncio.to_thread(play)


async def through_the_client(path: Path) -> None:
    def play() -> None:
        with serving(path, design="verbatim") as served, Client(served.url) as client:
            client.report(client.recall(TASK), 1.0, detail=DETAIL)
            assert client.tidy() is None

    await asyncio.to_thread(play)


async def through_mcp(path: Path) -> None:
    mcp = pytest.importorskip("mcp")
    from mcp_kit import Tools

    from memagent.integrations.mcp_server import build_mcp_server

    async with (
        open_agent(path=path, embedder="hashing", design="verbatim") as agent,
        mcp.Client(build_mcp_server(agent)) as client,
    ):
        tools = Tools(client)
        begun = await tools("recall", task=TASK)
        assert [memory["id"] for memory in begun["memories"]] == ["key"]
        told = await tools("report", trial_id=begun["trial_id"], reward=1.0, detail=DETAIL)
        assert told["counted"] == ["key"]


async def through_langgraph(path: Path) -> None:
    from memagent.integrations.langgraph_tools import report_node, trial_node

    async with AsyncAgent(path=path, embedder="hashing", design="verbatim") as agent:
        state: dict[str, Any] = {"task": TASK, "outcome": {"reward": 1.0, "detail": DETAIL}}
        state |= await trial_node(agent).ainvoke(state)
        state |= await report_node(agent).ainvoke(state)
        assert state["trial"]["trial"]["outcome"]["reward"] == 1.0


async def through_the_command_line(path: Path) -> None:
    place = ("--path", str(path), "--embedder", "hashing", "--json")

    def play() -> None:
        begun = got(run("recall", TASK, *place))
        trial_id = begun["trial"]["id"]
        got(run("report", trial_id, "1", "--detail", DETAIL, *place))
        assert [trial["id"] for trial in got(run("trials", "--path", str(path), "--json"))] == [
            trial_id
        ]
        shown = run("trials", trial_id, "--path", str(path))
        assert shown.exit_code == 0 and DETAIL in shown.stdout
        assert got(run("tidy", "--path", str(path), "--json")) == {"commit": None}

    await asyncio.to_thread(play)


FACES: list[Callable[[Path], Awaitable[None]]] = [
    through_python,
    through_the_synchronous_agent,
    through_rest,
    through_the_client,
    through_mcp,
    through_langgraph,
    through_the_command_line,
]


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)
async def test_a_trial_ends_in_the_same_entry_through_every_face(
    face: Callable[[Path], Awaitable[None]], tmp_path: Path
) -> None:
    path = await asyncio.to_thread(prepared, tmp_path)
    await face(path)
    async with AsyncAgent(path=path, embedder="hashing", read_only=True) as agent:
        entries = [
            row.entry
            async for row in agent.bank.rows()
            if isinstance(row.entry, TrialStarted | TrialEnded)
        ]
        stats = (await agent.bank.sync()).stats["key"]
    assert stats == ItemStats(q_value=0.3, uses=1, last_reward=1.0, counters={"helpful": 1.0})
    started, ended = (entry.model_dump_json(exclude={"trial": {"at"}}) for entry in entries)
    assert started == STARTED and ended == ENDED


STARTED = (
    '{"kind":"trial_started","schema_version":1,"trial":{"id":"trl_859600cbadfffe093482",'
    '"task":"open the lab door","shown":[{"id":"key","version":1}],"steps":[],"outcome":null,'
    '"credit":[],"gated":false,"taught":false}}'
)
ENDED = (
    '{"kind":"trial_ended","schema_version":1,"trial":{"id":"trl_859600cbadfffe093482",'
    '"task":"open the lab door","shown":[{"id":"key","version":1}],"steps":[],'
    '"outcome":{"reward":1.0,"success":null,"detail":"it fitted"},'
    '"credit":[{"id":"key","version":1,"reward":1.0}],"gated":false,"taught":false},'
    '"stats":[["key",{"q_value":0.3,"uses":1,"last_reward":1.0,"counters":{"helpful":1.0}}]]}'
)
"""The journal's own bytes, so that a changed format fails here."""


def test_the_asynchronous_client_has_the_same_verbs() -> None:
    assert {"recall", "report", "tidy"} <= set(dir(AsyncClient)) & set(dir(Client))

"""A trial through Python, REST, MCP, LangGraph and the command line ends in one entry."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from command_line_kit import got, run
from service_kit import serving

from memagent.agent import Agent
from memagent.async_agent import AsyncAgent
from memagent.build import open_agent
from memagent.client.async_client import AsyncClient, Client
from memagent.client.wire import TrialOutcome
from memagent.core.records import ItemStats
from memagent.core.trials import TrialEnded, TrialStarted

TASK, TEXT, DETAIL = "open the lab door", "The lab door opens with the brass key.", "it fitted"
COURSE: dict[str, Any] = {
    "success": True,
    "steps": [
        {"action": "push", "observation": "it stays shut"},
        {"action": "turn the brass key", "observation": "it opens", "used": ["key"]},
    ],
    "credit": {"key": 0.5},
    "edits": [{"at": 1, "folds": [0], "text": "pushing does nothing"}],
}
"""What happened in a trial, as every face takes it."""
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def spoken() -> dict[str, Any]:
    """The course in the records of Python's own verbs."""
    outcome = TrialOutcome.model_validate({**COURSE, "reward": 1.0, "detail": DETAIL})
    return {**outcome.arguments()}


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
        await agent.report(recall, 1.0, **spoken())


async def through_the_synchronous_agent(path: Path) -> None:
    def play() -> None:
        with Agent(path=path, embedder="hashing", design="verbatim") as agent:
            agent.report(agent.recall(TASK), 1.0, **spoken())

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
                    f"/v1/trials/{trial_id}/report", json={"reward": 1, "detail": DETAIL, **COURSE}
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
            client.report(client.recall(TASK), 1.0, **spoken())
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
        told = await tools(
            "report", trial_id=begun["trial_id"], reward=1.0, detail=DETAIL, **COURSE
        )
        assert told["counted"] == ["key"]


async def through_langgraph(path: Path) -> None:
    from memagent.integrations.langgraph_tools import report_node, trial_node

    async with AsyncAgent(path=path, embedder="hashing", design="verbatim") as agent:
        state: dict[str, Any] = {
            "task": TASK,
            "outcome": {"reward": 1.0, "detail": DETAIL, **COURSE},
        }
        state |= await trial_node(agent).ainvoke(state)
        state |= await report_node(agent).ainvoke(state)
        assert state["trial"]["trial"]["outcome"]["reward"] == 1.0


async def through_the_command_line(path: Path) -> None:
    place = ("--path", str(path), "--embedder", "hashing", "--json")

    def play() -> None:
        begun = got(run("recall", TASK, *place))
        trial_id = begun["trial"]["id"]
        course = path.with_name("course.json")
        course.write_text(json.dumps(COURSE), encoding="utf-8")
        told = ("--detail", DETAIL, "--outcome", str(course))
        got(run("report", trial_id, "1", *told, *place))
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
    assert stats == ItemStats(q_value=0.15, uses=1, last_reward=0.5, counters={"helpful": 1.0})
    started, ended = (entry.model_dump_json(exclude={"trial": {"at"}}) for entry in entries)
    if face is through_mcp:  # a model worded the task
        worded = '"trust":"assistant",'
        assert started.count(worded) == ended.count(worded) == 1
        started, ended = started.replace(worded, ""), ended.replace(worded, "")
    assert started == STARTED and ended == ENDED


STARTED = (
    '{"kind":"trial_started","schema_version":1,"trial":{"id":"trl_859600cbadfffe093482",'
    '"task":"open the lab door","shown":[{"id":"key","version":1}],"steps":[],"outcome":null,'
    '"credit":[],"gated":false,"taught":false}}'
)
ENDED = (
    '{"kind":"trial_ended","schema_version":1,"trial":{"id":"trl_859600cbadfffe093482",'
    '"task":"open the lab door","shown":[{"id":"key","version":1}],'
    '"steps":[{"action":"push","observation":"it stays shut","reward":null,"used":[]},'
    '{"action":"turn the brass key","observation":"it opens","reward":null,"used":["key"]}],'
    '"edits":[{"at":1,"folds":[0],"text":"pushing does nothing","opens":null,"refused":""}],'
    '"outcome":{"reward":1.0,"success":true,"detail":"it fitted"},'
    '"credit":[{"id":"key","version":1,"reward":0.5}],"gated":false,"taught":false},'
    '"stats":[["key",{"q_value":0.15,"uses":1,"last_reward":0.5,"counters":{"helpful":1.0}}]]}'
)
"""The journal's own bytes, so that a changed format fails here."""


def test_the_asynchronous_client_has_the_same_verbs() -> None:
    assert {"recall", "report", "tidy"} <= set(dir(AsyncClient)) & set(dir(Client))


@pytest.mark.parametrize(
    "told", ["", "[]", '{"reward": 1}', '{"steps": "none"}', '{"edits": [{"at": -1}]}', "{"]
)
def test_an_outcome_that_cannot_be_read_changes_nothing(told: str, tmp_path: Path) -> None:
    place = ("--path", str(prepared(tmp_path)), "--embedder", "hashing")
    trial_id = got(run("recall", TASK, *place, "--json"))["trial"]["id"]
    course = tmp_path / "course.json"
    course.write_text(told, encoding="utf-8")
    for file in (course, tmp_path / "none.json"):
        refused = run("report", trial_id, "1", "--outcome", str(file), *place)
        assert refused.exit_code != 0 and file.name in refused.output + refused.stderr
    with Agent(path=place[1], embedder="hashing", design="verbatim") as agent:
        assert agent.snapshot().trials[trial_id].outcome is None

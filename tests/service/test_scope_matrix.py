"""REST and MCP allow a key the same: every verb that both have, for every set of scopes.

A tool that is not in `VERBS`, or a scope that is new, fails here until it has its row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import httpx
import pytest
from service_kit import Served, serving

from memagent.service.data.leases import SCOPES

pytest.importorskip("mcp", reason='needs pip install "memagent[mcp]"')

from memagent.integrations.mcp_server import TOOLS

HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
SETS = [chosen for size in range(len(SCOPES) + 1) for chosen in combinations(SCOPES, size)]


@dataclass(frozen=True)
class Ground:
    """What a call is about: made anew for each face, so that both find the same."""

    memory: str
    trial: str


@dataclass(frozen=True)
class Verb:
    """One verb through REST, and its arguments through MCP."""

    rest: Callable[[httpx.Client, Ground], httpx.Response]
    arguments: Callable[[Ground], dict[str, Any]]


VERBS = {
    "search": Verb(
        lambda http, _: http.post("/v1/search", json={"text": "tea"}), lambda _: {"query": "tea"}
    ),
    "ask": Verb(
        lambda http, _: http.post("/v1/questions", json={"text": "Who drinks tea?"}),
        lambda _: {"question": "Who drinks tea?"},
    ),
    "list": Verb(lambda http, _: http.get("/v1/memories"), lambda _: {}),
    "fetch": Verb(
        lambda http, on: http.get(f"/v1/memories/{on.memory}"), lambda on: {"id": on.memory}
    ),
    "history": Verb(
        lambda http, on: http.get(f"/v1/memories/{on.memory}/history"),
        lambda on: {"memory_id": on.memory},
    ),
    "add": Verb(
        lambda http, _: http.post("/v1/memories", json={"text": "Bo has a dog"}),
        lambda _: {"text": "Bo has a dog"},
    ),
    "forget": Verb(
        lambda http, on: http.delete(f"/v1/memories/{on.memory}"),
        lambda on: {"memory_id": on.memory},
    ),
    # the last commit added the memory, so this takes it away
    "undo": Verb(lambda http, _: http.post("/v1/undo", json={}), lambda _: {}),
    "erase": Verb(
        lambda http, on: http.post(f"/v1/memories/{on.memory}/erase"),
        lambda on: {"memory_id": on.memory, "confirm": on.memory},
    ),
    "recall": Verb(
        lambda http, _: http.post("/v1/trials", json={"task": "Make tea"}),
        lambda _: {"task": "Make tea"},
    ),
    "report": Verb(
        lambda http, on: http.post(f"/v1/trials/{on.trial}/report", json={"reward": 1.0}),
        lambda on: {"trial_id": on.trial, "reward": 1.0},
    ),
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("matrix") / "memory.db") as running:
        yield running


def ground(served: Served, user: str) -> Ground:
    with served.http(served.key(user)) as http:
        trial = http.post("/v1/trials", json={"task": "Make tea"}).json()
        added = http.post("/v1/memories", json={"text": "Ana drinks tea"})
        return Ground(added.json()["id"], trial.get("trial", trial)["id"])


def through_mcp(http: httpx.Client, tool: str, arguments: dict[str, Any]) -> bool:
    """Whether the tool did its work; a tool that is not offered did not."""
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments},
    }
    tools = "connector" if tool == "fetch" else "all"
    answer = http.post("/mcp", params={"tools": tools}, json=call, headers=HEADERS)
    if answer.status_code == 403:
        return False
    assert answer.status_code == 200, answer.text
    told = answer.json()
    done = "result" in told and not told["result"].get("isError")
    if not done:
        assert any(word in answer.text for word in ("Unknown tool", "not allowed")), answer.text
    return done


def test_every_tool_has_a_row() -> None:
    assert set(VERBS) == set(TOOLS)


@pytest.mark.parametrize("scopes", SETS, ids=lambda chosen: "+".join(chosen) or "none")
def test_both_faces_allow_the_same(served: Served, scopes: tuple[Any, ...]) -> None:
    if not scopes:
        pytest.skip("a key has a scope")
    allowed: dict[str, tuple[bool, bool]] = {}
    for name, verb in VERBS.items():
        faces: list[bool] = []
        for face in ("rest", "mcp"):
            user = f"{name}-{face}-{SETS.index(scopes)}"
            on = ground(served, user)
            with served.http(served.key(user, *scopes)) as http:
                if face == "rest":
                    answer = verb.rest(http, on)
                    assert answer.status_code in (200, 201, 204, 403), answer.text
                    faces.append(answer.status_code != 403)
                else:
                    faces.append(through_mcp(http, name, verb.arguments(on)))
        allowed[name] = faces[0], faces[1]
    assert {name: pair for name, pair in allowed.items() if pair[0] is not pair[1]} == {}
    for name, needed in (("search", "memory:read"), ("add", "memory:write"), ("ask", "chat")):
        assert allowed[name][0] is (needed in scopes)
    assert allowed["recall"][0] is ({"memory:read", "memory:write"} <= set(scopes)), (
        "it shows memories and begins a trial"
    )
    for name in ("forget", "erase"):
        assert allowed[name][0] is ("memory:delete" in scopes)
    if "memory:delete" not in scopes:
        assert not allowed["undo"][0], "an undo that takes a memory away"

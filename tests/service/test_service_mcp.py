"""MCP inside the service: the official client over real HTTP, with the keys, scopes and
limits that REST has.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp_kit import Tools
from service_kit import Served, served_process, serving

from memagent.config import ServiceSettings
from memagent.core.exchange import ModelRequest, ModelResponse
from memagent.service.app import create_app

mcp = pytest.importorskip("mcp", reason='needs pip install "memagent[mcp]"')

import httpx2  # noqa: E402
from mcp.client.streamable_http import streamable_http_client  # noqa: E402

ALL = ["search", "ask", "list", "history", "add", "forget", "undo", "recall", "report"]
SECRETS = {"ann": "heliotrope", "bob": "chartreuse"}
HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


@asynccontextmanager
async def connected(
    url: str, key: str | None = None, *, mode: str = "auto", query: str = "", **headers: str
) -> AsyncGenerator[Tools]:
    """The official client at `/mcp`; `legacy` is the handshake of older clients."""
    sent = {**({"Authorization": f"Bearer {key}"} if key else {}), **headers}
    http = httpx2.AsyncClient(headers=sent, timeout=60, trust_env=False)
    async with (
        http,
        mcp.Client(
            streamable_http_client(f"{url}/mcp{query}", http_client=http), mode=mode
        ) as client,
    ):
        yield Tools(client)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("mcp") / "memory.db") as running:
        yield running


@pytest.fixture(scope="module")
def keys(served: Served) -> dict[str, str]:
    made = {user: served.key(user) for user in SECRETS}
    for user, word in SECRETS.items():
        with served.http(made[user]) as http:
            for number in range(5):
                body = {"text": f"{word} fact {number}", "id": f"{user}-{number}"}
                assert http.post("/v1/memories", json=body).status_code == 201
    return made


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_without_keys_the_local_user_has_every_tool_on_the_memory_that_rest_serves(
    mode: str,
) -> None:
    async def run(url: str) -> None:
        async with connected(url, mode=mode) as tools:
            assert await tools.names() == ALL
            added = await tools("add", text="Ana drinks green tea", user_id="bo", user="bo")
            assert added["trust"] == "assistant"
            assert [one["id"] for one in (await tools("search", query="tea"))["memories"]] == [
                added["id"]
            ]
            assert "tea" in (await tools("ask", question="What does Ana drink?"))["text"]
            await tools("forget", memory_id=added["id"])
            assert (await tools("undo"))["memories"] == [added["id"]]

    with serving() as running, running.http() as http:
        await run(running.url)
        assert [item["text"] for item in http.get("/v1/memories").json()["items"]] == [
            "Ana drinks green tea"
        ]
        series = http.get("/metrics").text
        assert 'memagent_requests_total{method="POST",route="/mcp",status="200"}' in series


async def test_two_users_at_once_reach_their_own_memory_alone(
    served: Served, keys: dict[str, str]
) -> None:
    """Foreign ids, cursors, session ids and names of users, over both handshakes, at the same time."""

    async def as_user(me: str, other: str, mode: str, seed: int) -> int:
        chance = random.Random(seed)
        forged = {"Mcp-Session-Id": f"{chance.getrandbits(128):032x}"}
        answered = 0
        async with connected(served.url, keys[me], mode=mode, **forged) as tools:
            foreign = [f"{other}-{number}" for number in range(5)]
            cursors = [
                base64.urlsafe_b64encode(json.dumps(one).encode()).decode() for one in foreign
            ]
            extra = [{}, {"user_id": other}, {"scope": {"user_id": other}}, {"agent_id": other}]
            for _ in range(60):
                more = chance.choice(extra)
                name, arguments = chance.choice(
                    [
                        ("search", {"query": SECRETS[other], "k": 100}),
                        ("list", {"limit": 200}),
                        ("list", {"cursor": chance.choice(cursors)}),
                        ("history", {"memory_id": chance.choice(foreign)}),
                        ("forget", {"memory_id": chance.choice(foreign)}),
                        ("undo", {"commit_id": f"c{chance.randrange(100, 200)}"}),
                        ("ask", {"question": f"Which {SECRETS[other]} facts are there?"}),
                    ]
                )
                told = json.dumps(await tools(name, **{**arguments, **more}))
                answered += SECRETS[me] in told
                assert SECRETS[other] not in told.replace(
                    str(arguments.get("question", "-")), ""
                ), (name, arguments)
        return answered

    async def run() -> list[int]:
        users = [
            ("ann", "bob", "auto"),
            ("bob", "ann", "auto"),
            ("ann", "bob", "legacy"),
            ("bob", "ann", "legacy"),
        ]
        return await asyncio.gather(*(as_user(*one, seed) for seed, one in enumerate(users)))

    assert min(await run()) > 10, "calls must get answers, or the run is vacuous"
    for user, key in keys.items():
        with served.http(key) as http:
            ids = {item["id"] for item in http.get("/v1/memories").json()["items"]}
        assert ids == {f"{user}-{number}" for number in range(5)}


async def test_a_key_cannot_name_another_user_and_one_bound_to_nobody_must_name_one(
    served: Served, keys: dict[str, str]
) -> None:
    with served.http(keys["ann"], **HEADERS) as http:
        for params, headers in (({"user_id": "bob"}, {}), ({}, {"X-User-Id": "bob"})):
            answer = http.post("/mcp", json=LIST, params=params, headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (403, "forbidden")
        assert http.post("/mcp", json=LIST, headers={"X-Run-Id": "x" * 300}).status_code == 422
    unbound = served.key(None, "memory:read")
    with served.http(unbound, **HEADERS) as http:
        assert http.post("/mcp", json=LIST).json()["code"] == "invalid_request"

    async def run() -> Any:
        async with connected(served.url, unbound, **{"X-User-Id": "ann"}) as tools:
            return await tools("search", query="heliotrope")

    assert len((await run())["memories"]) == 5


@pytest.mark.parametrize(
    ("scopes", "tools"),
    [
        (["memory:read"], ["search", "list", "history"]),
        (
            ["memory:read", "memory:write"],
            ["search", "list", "history", "add", "undo", "recall", "report"],
        ),
        (["memory:read", "memory:delete"], ["search", "list", "history", "forget"]),
        (["chat"], ["ask"]),
    ],
)
async def test_a_key_is_offered_the_tools_its_scopes_allow_and_can_call_no_other(
    served: Served, keys: dict[str, str], scopes: list[str], tools: list[str]
) -> None:
    key = served.key("ann", *scopes)
    arguments = {
        "add": {"text": "x"},
        "forget": {"memory_id": "ann-1"},
        "undo": {},
        "ask": {"question": "x"},
    }

    async def run() -> None:
        for mode in ("auto", "legacy"):
            async with connected(served.url, key, mode=mode) as client:
                assert await client.names() == tools
                for name in arguments.keys() - set(tools):
                    assert "Unknown tool" in await client(name, **arguments[name])

    with served.http(keys["ann"]) as http:
        before = http.get("/v1/oplog?limit=1000").json()
        await run()
        assert http.get("/v1/oplog?limit=1000").json() == before


async def test_what_cannot_be_undone_and_the_connectors_pair_are_offered_by_name(
    served: Served, keys: dict[str, str]
) -> None:
    key = keys["ann"]
    async with connected(served.url, key, query="?tools=all") as tools:
        assert "erase" in await tools.names() and "fetch" not in await tools.names()
    async with connected(served.url, key, query="?tools=connector") as tools:
        assert await tools.names() == ["search", "fetch"]
        [first, *_] = (await tools("search", query="fact 1"))["results"]
        assert first.keys() == {"id", "title", "url"} and first["url"]
        assert (await tools("fetch", id=first["id"]))["id"] == first["id"]
    with served.http(key, **HEADERS) as http:
        refusal = http.post("/mcp?tools=everything", json=LIST)
    assert refusal.status_code == 422 and "?tools=connector" in refusal.json()["detail"]


def test_a_key_without_any_such_scope_is_refused(served: Served) -> None:
    with served.http(served.key("ann", "admin"), **HEADERS) as http:
        assert http.post("/mcp", json=LIST).json()["code"] == "forbidden"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_key_revoked_in_the_middle_is_refused_at_once(
    served: Served, keys: dict[str, str], mode: str
) -> None:
    key = served.key("ann", "memory:read")

    async with connected(served.url, key, mode=mode) as tools:
        assert (await tools("list", limit=1))["memories"]
        served.service.keys.revoke(key.split("_")[1], at=served.service.store.clock())
        served.service.keys._read_at = float("-inf")  # pyright: ignore[reportPrivateUsage]
        with pytest.raises(Exception, match="error response"):
            await tools("list", limit=1)
    with served.http(key, **HEADERS) as http:
        answer = http.post("/mcp", json=LIST)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


async def test_agent_and_run_name_another_memory_of_the_same_user_in_the_query_or_by_headers(
    served: Served,
) -> None:
    key = served.key("eve")

    async with connected(served.url, key, **{"X-Agent-Id": "helper", "X-Run-Id": "r1"}) as tools:
        await tools("add", text="Eve is planning a surprise")
    async with connected(served.url, key) as tools:
        assert (await tools("list"))["memories"] == []
    with served.http(key, **HEADERS) as http:
        named = {"agent_id": "helper", "run_id": "r1"}
        assert len(http.get("/v1/memories", params=named).json()["items"]) == 1
        call = {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "list", "arguments": {}},
        }
        answer = http.post("/mcp", params=named, json=call, headers={"X-Run-Id": "another"})
        assert len(answer.json()["result"]["structuredContent"]["memories"]) == 1, (
            "the query comes first"
        )


@pytest.mark.parametrize(
    "headers",
    [{"Host": "evil.example"}, {"Origin": "https://evil.example"}, {"X-Forwarded-For": "10.0.0.1"}],
    ids=["host", "origin", "proxy"],
)
def test_without_a_key_foreign_hosts_origins_and_proxies_are_refused(
    headers: dict[str, str],
) -> None:
    with serving() as running, running.http(**HEADERS) as http:
        assert http.post("/mcp", json=LIST).status_code == 200
        assert http.post("/mcp", json=LIST, headers=headers).status_code in (401, 421)


async def test_rate_size_and_number_in_flight_are_limited_as_for_rest() -> None:
    class Slow:
        async def complete(self, request: ModelRequest) -> ModelResponse:
            await asyncio.sleep(0.4)
            return ModelResponse(id="r", text="I do not know.")

    limits = ServiceSettings(requests_per_minute=4, max_body_bytes=2_000, drain_s=1.0)
    with serving(settings=limits) as running, running.http(**HEADERS) as http:
        assert (
            http.post("/mcp", json={**LIST, "params": {"filler": "x" * 3_000}}).status_code == 413
        )
        codes = [http.post("/mcp", json=LIST).status_code for _ in range(6)]
        assert codes[:4] == [200] * 4 and codes[4:] == [429, 429]
    limits = limits.model_copy(update={"requests_per_minute": None})
    with serving(settings=limits) as running, running.http(**HEADERS) as http:
        assert http.post("/mcp", content=iter([b" " * 1_000] * 5)).status_code == 413

    async def crowd(url: str) -> list[int]:
        call = {
            "jsonrpc": "2.0",
            "id": 2,
            "method": "tools/call",
            "params": {"name": "ask", "arguments": {"question": "x"}},
        }
        async with httpx.AsyncClient(
            base_url=url, headers=HEADERS, timeout=30, trust_env=False
        ) as http:
            await http.post("/mcp", json=LIST)
            answers = await asyncio.gather(*(http.post("/mcp", json=call) for _ in range(4)))
        return sorted(answer.status_code for answer in answers)

    settings = ServiceSettings(max_in_flight=2, drain_s=1.0)
    with serving(settings=settings, model=Slow(), design="add_only") as running:
        with running.http() as http:
            http.post("/v1/memories", json={"text": "x marks the spot"})
        assert await crowd(running.url) == [200, 200, 503, 503]


def test_there_are_no_streams_that_hold_a_place(served: Served, keys: dict[str, str]) -> None:
    with served.http(keys["ann"], **HEADERS) as http:
        for method in ("GET", "DELETE"):
            answer = http.request(method, "/mcp", headers={"Mcp-Session-Id": "0" * 32})
            assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
        before = served.service.metrics.in_flight
        version = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "subscriptions/listen"}
        answer = http.post(
            "/mcp",
            json={"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen"},
            headers=version,
        )
        assert answer.status_code >= 400
        assert served.service.metrics.in_flight <= before


def test_what_is_no_message_is_told_and_nothing_fails(served: Served, keys: dict[str, str]) -> None:
    chance = random.Random(3)
    with served.http(keys["ann"], **HEADERS) as http:
        for _ in range(60):
            method = chance.choice(["", "nonsense", "tools/call", "x" * 5_000])
            messages = [
                json.dumps(one).encode()
                for one in ({**LIST, "id": None}, {**LIST, "method": method})
            ]
            body = chance.choice(
                [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"jsonrpc":"2.0"}', *messages]
            )
            version = chance.choice(
                [{}, {"MCP-Protocol-Version": chance.choice(["2026-07-28", "1999-01-01", "x"])}]
            )
            answer = http.post("/mcp", content=body, headers=version)
            assert answer.status_code < 500, (body, answer.text)


def test_without_the_extra_the_service_starts_and_mcp_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server", None)
    with serving() as running, running.http(**HEADERS) as http:
        assert http.get("/readyz").status_code == 200
        answer = http.post("/mcp", json=LIST)
        assert (answer.status_code, answer.json()["code"]) == (501, "missing_extra")
        assert 'pip install "memagent[mcp]"' in answer.json()["detail"]
        assert http.post("/v1/memories", json={"text": "all else works"}).status_code == 201


async def test_mcp_is_loaded_at_the_first_request_and_stops_with_the_service(
    tmp_path: Path,
) -> None:
    code = "import sys, memagent.service.app as app; app.create_app(); print('mcp' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip()
        == "False"
    )

    async def run(url: str) -> None:
        async with connected(url, mode="legacy") as tools:
            await tools("add", text="Ana drinks green tea")

    with served_process(tmp_path / "memory.db", "--embedder", "hashing") as (process, url):
        await run(url)
        process.terminate()
        assert process.wait(60) == 0


def test_the_openapi_document_does_not_know_mcp() -> None:
    assert not [path for path in create_app().openapi()["paths"] if "mcp" in path]

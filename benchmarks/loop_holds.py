"""Longest time that a request of each route holds the event loop.

The service runs in this process, without a model, over a store in a file. Its memory holds
turns, memories and their graph. Every route of the app is called as listed from the app
itself; routes with a body once more with 4 MB. The CPU time of every callback of the loop
is taken, so other processes do not count; what Python loads at first use is loaded before.
The yardstick is the time that `json.loads` of a body of 4 MB takes in the same run. Prints
the table, and exits with 1 if a route is above the limit or ends with a server's error.

    python benchmarks/loop_holds.py --page docs/research/loop-holds.md
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from loop_stalls import JSON, Longest

from memagent.build import open_store
from memagent.config import AgentSettings
from memagent.service.app import build_routes, create_app
from memagent.service.gate import Gate
from memagent.service.hosting import Service, serving_interpreter

BODY_BYTES = 3_900_000
TEXT = "Ana moved to Porto in May 2019 and likes the sea. "
TOWNS = ("Porto", "Rome", "Oslo", "Lima", "Kyoto", "Quito", "Dakar", "Perth")
QUESTION = {"text": "Where did Ana move in May 2019?"}
HELLO = {"messages": [{"role": "user", "content": "Hello"}]}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
FORM = {"content-type": "application/x-www-form-urlencoded"}
SMALL: dict[str, Any] = {
    "POST /v1/memories": {"text": "Ana has a cat"},
    "POST /v1/memories/batch": {"texts": ["Ana has a cat", "Bo has a dog"]},
    "POST /v1/search": {**QUESTION, "recipe": "balanced", "evidence": True},
    "POST /v1/context": QUESTION,
    "POST /v1/questions": QUESTION,
    "POST /v1/undo": {},
    "POST /v1/tidy": {},
    "PATCH /v1/memories/{memory_id:path}": {"text": "Ana has a dog"},
    "POST /v1/sources/touched": {"trusts": ["tool"]},
    "POST /v1/sources/exclude": {"trusts": ["tool"]},
    "POST /v1/sources/roll-back": {"trusts": ["tool"]},
    "POST /v1/sessions": {"turns": [{"speaker": "Ana", "text": TEXT}] * 20},
    "POST /v1/chat": {"text": "I live in Lisbon"},
    "POST /v1/chat/completions": HELLO,
    "POST /v1/responses": {"input": "Where do I live?", "model": "memagent"},
    "POST /v1/embeddings": {"input": TEXT, "model": "memagent"},
    "POST /v1/trials": {"task": "Write to Ana"},
    "POST /v1/trials/{trial_id}/report": {"reward": 1.0},
    "POST /v1/snapshots": {"name": "now"},
    "POST /mcp": CALL,
}
"""A body that each route accepts, of usual size."""
QUERIES = {
    "GET /v1/memories": ("limit=500", "include_deleted=true&tag=x", "as_of_seq=50"),
    "GET /v1/graph": ("", "format=html", "format=graphml", "as_of_seq=50"),
    "GET /v1/oplog": ("limit=500",),
    "GET /ui/memories": ("", "q=sea"),
    "GET /ui/memory": ("id=m5",),
    "GET /ui/graph/data": ("", "most=0"),
    "GET /ui/graph/list": ("", "q=sea"),
    "GET /ui/graph/node": ("id=m5",),
    "DELETE /v1/memories": ("confirm=u",),
}
LAST = ("/restore", "/erase", "DELETE /v1/memories", "roll-back", "/exclude")
"""Routes that take much away come last, in this order."""


def large_bodies() -> dict[str, Any]:
    """Return bodies of 4 MB that the routes accept."""
    messages = [{"role": "user", "content": f"{n} {TEXT * 85}"} for n in range(900)]
    turns = [{"speaker": "Ana", "text": f"{n} {TEXT * 190}"} for n in range(400)]
    return {
        "POST /v1/memories/batch": {"texts": [f"{n} {TEXT * 390}" for n in range(100)]},
        "POST /v1/sessions": {"turns": turns},
        "POST /v1/chat/completions": {"messages": [*messages, HELLO["messages"][0]]},
        "POST /v1/responses": {"input": messages, "model": "memagent"},
        "POST /v1/embeddings": {"input": [TEXT * 390] * 200, "model": "memagent"},
        "POST /mcp": CALL | {"params": {"padding": "x" * BODY_BYTES}},
    }


@dataclass
class Row:
    """The longest holds of one route, in milliseconds."""

    usual: float = 0.0
    large: float | None = None
    statuses: list[int] = field(default_factory=list[int])
    what: str = ""


def routes_of(app: FastAPI) -> list[str]:
    """Return `METHOD path` of every route of the app, what takes much away last."""
    names: list[str] = []
    for outer in app.router.routes:
        inner = getattr(outer, "original_router", None)
        for route in [outer] if inner is None else inner.routes:
            path = getattr(route, "path", None)
            methods = sorted(getattr(route, "methods", None) or ("POST",))
            names += [f"{method} {path}" for method in methods if path and method != "HEAD"]
    order = {name: at for name in names for at, end in enumerate(LAST, 1) if end in name}
    order["POST /v1/users/{user_id}/erase"] = len(LAST) + 2
    order["DELETE /v1/memories"] = len(LAST) + 1
    return sorted(dict.fromkeys(names), key=lambda name: order.get(name, 0))


class Caller:
    """Sends requests, and keeps the ids that the answers name."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self.names = {"memory_id:path": "m5", "event_id:path": "m5", "user_id": "u"}
        self.names |= {"name": "style.css", "number": "1", "model": "memagent"}
        self.archive = b""

    async def fill(self, items: int) -> None:
        """Store that many memories, half of them by their ids, and one of each other thing."""
        post = self.client.post
        for start in range(0, items // 2, 100):
            some = range(start, start + 100)
            texts = [f"{n} Ana moved to {TOWNS[n % 8]} in May 2019" for n in some]
            body = {"texts": texts, "subject": f"Ana {start % 700}"}
            (await post("/v1/memories/batch?user_id=u", json=body)).raise_for_status()
        for n in range(items // 2):
            body = {"text": f"Bo saw the sea at {TOWNS[n % 8]} with Eva {n}", "id": f"m{n}"}
            (await post("/v1/memories?user_id=u", json=body)).raise_for_status()
        for kind, body in (
            ("trial", {"task": "Write"}),
            ("snapshot", {"name": "first"}),
            ("response", SMALL["POST /v1/responses"]),
        ):
            answer = (await post(f"/v1/{kind}s?user_id=u", json=body)).json()
            self.names[f"{kind}_id"] = answer.get("trial", answer)["id"]

    def url(self, name: str, query: str, user: str) -> str:
        """Return the address of a route, with the ids known so far in their places."""
        path = name.partition(" ")[2]
        if path == "/v1/users/{user_id}/import":
            return f"/v1/users/{user}-import/import"
        for key in set(self.names) | {"session_id", "job_id", "change_id", "rest:path"}:
            known = user if key == "user_id" else self.names.get(key, "none")
            path = path.replace("{" + key + "}", known)
        own = "" if path.startswith("/v1/users/") else f"user_id={user}"
        return f"{path}?{query}&{own}".replace("?&", "?")

    async def send(self, name: str, url: str, content: bytes) -> httpx.Response:
        """Send a request, wait for the job that it begins, and keep what its answer names."""
        method, _, path = name.partition(" ")
        headers = JSON | {"accept": "application/json, text/event-stream"}
        if path.endswith("/import"):
            headers = {"content-type": "application/x-ndjson"}
        elif path.startswith("/ui"):
            headers = FORM
        answer = await self.client.request(method, url, content=content, headers=headers)
        told = answer.json() if answer.status_code == 202 else {}
        while told.get("state") in ("queued", "running"):
            await asyncio.sleep(0.05)
            told = (await self.client.get(f"/v1/jobs/{told['id']}?user_id=u")).json()
        if "session_id" in told and "user_id=u&" in f"{url}&":
            self.names |= {"session_id": told["session_id"], "job_id": told["id"]}
        if path.endswith("/export") and "/u/" in url:
            files = await self.client.get(f"/v1/jobs/{told['id']}/files/1?user_id=u")
            self.archive = files.content
        return answer

    def bodies(self, name: str) -> Iterator[tuple[bool, bytes]]:
        """Yield (whether it has 4 MB, the body) for each request of a route."""
        if name.startswith(("GET", "DELETE")):
            yield False, b""
            return
        if name.endswith("/import"):
            yield False, self.archive
            yield True, (self.archive * 20)[:BODY_BYTES]
            return
        if " /ui" in name:
            yield False, b"text=hello"
            yield True, b"text=" + b"a" * BODY_BYTES
            return
        small = SMALL.get(name, {})
        yield False, json.dumps(small).encode()
        padded = {**small, "text": "a" * BODY_BYTES} if small else None
        large = large_bodies().get(name, padded)
        if large is not None:
            yield True, json.dumps(large).encode()

    async def measure(self, name: str, row: Row) -> None:
        """Send every request of a route, and note the longest hold of each kind."""
        if not (name.startswith("DELETE") or name.endswith(LAST)):
            for _, content in list(self.bodies(name))[:1]:
                await self.send(name, self.url(name, "", "warm"), content)
        for query in QUERIES.get(name, ("",)):
            for is_large, content in self.bodies(name):
                gc.collect(1)
                longest = Longest()
                with longest.watching():
                    sent = self.send(name, self.url(name, query, "u"), content)
                    row.statuses.append((await asyncio.create_task(sent)).status_code)
                if is_large:
                    row.large = max(row.large or 0.0, longest.ms)
                else:
                    row.usual = max(row.usual, longest.ms)
                if longest.ms == max(row.usual, row.large or 0.0):
                    row.what = longest.what


async def measured(options: argparse.Namespace, place: str) -> dict[str, Row]:
    """Call every route; return the rows by `METHOD path`."""
    store = open_store(AgentSettings(), path=place, embedder="hashing")
    app = create_app()
    app.state.service = service = Service(store)
    build_routes(app)
    transport = httpx.ASGITransport(app=Gate(app, service), client=("127.0.0.1", 50_000))
    given: dict[str, Any] = {"transport": transport, "timeout": 600}
    rows: dict[str, Row] = {}
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(base_url="http://127.0.0.1:8377", **given) as client,
    ):
        caller = Caller(client)
        await caller.fill(options.items)
        with serving_interpreter():
            for name in routes_of(app):
                if options.only and not any(word in name for word in options.only):
                    continue
                await caller.measure(name, rows.setdefault(name, Row()))
                sys.stderr.write(f"{name} {rows[name]}\n")
    return rows


def yardstick_ms() -> float:
    """Return the CPU time of `json.loads` of a body of 4 MB."""
    body = json.dumps(large_bodies()["POST /v1/sessions"])
    began = time.thread_time()
    for _ in range(5):
        json.loads(body)
    return (time.thread_time() - began) * 200


def table(rows: dict[str, Row], unit: float) -> str:
    """Return the rows in Markdown, the longest holds first."""
    lines = [
        "| route | usual, ms | 4 MB, ms | longest in yardsticks |",
        "| --- | --- | --- | --- |",
    ]
    for name, row in sorted(rows.items(), key=lambda pair: -max(pair[1].usual, pair[1].large or 0)):
        large = "" if row.large is None else f"{row.large:.1f}"
        times = max(row.usual, row.large or 0.0) / unit
        lines.append(f"| `{name}` | {row.usual:.1f} | {large} | {times:.1f} |")
    return "\n".join(lines) + "\n"


def page(rows: dict[str, Row], unit: float, options: argparse.Namespace) -> str:
    """Return the page of the documentation."""
    return (
        "# How long each route holds the event loop\n\n"
        f"`python benchmarks/loop_holds.py` calls each of the {len(rows)} routes of the service,\n"
        f"as the app lists them, over a memory of {options.items:,} items in a file, and those\n"
        "with a body once more with 4 MB. A figure is the CPU time of the longest callback of\n"
        f"the event loop until the answer and its job have ended; {options.limit_ms:g} ms is the\n"
        "limit. What Python loads at first use is loaded before. The yardstick is `json.loads`\n"
        f"of a body of 4 MB, {unit:.1f} ms in this run, with a load of {os.getloadavg()[0]:.1f}\n"
        f"on {os.cpu_count()} cores.\n\n" + table(rows, unit)
    )


def main() -> int:
    """Measure all routes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--limit-ms", type=float, default=50.0)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(measured(options, f"{folder}/memory.db"))
    unit = yardstick_ms()
    sys.stdout.write(table(rows, unit))
    if options.page is not None:
        options.page.write_text(page(rows, unit, options), encoding="utf-8")
    late = {
        name: row
        for name, row in rows.items()
        if max(row.usual, row.large or 0.0) > options.limit_ms or max(row.statuses) >= 500
    }
    for name, row in late.items():
        sys.stderr.write(f"LATE {name}: {row}\n")
    return int(bool(late))


if __name__ == "__main__":
    sys.exit(main())

"""Send a request to every route of a large memory, and print how long each holds the loop.

The service runs in this process, without a model. The memory holds turns, memories and
their graph; the largest bodies have 4 MB. The CPU time of every callback of the loop is
taken, so other processes do not count. Prints a table in Markdown, and exits with 1 if a
route is above the limit.

    python scripts/route_stalls.py --limit-ms 50
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import sys
from typing import Any

import httpx
from loop_stalls import JSON, Longest

from memagent.build import open_store
from memagent.config import AgentSettings
from memagent.service.app import build_routes, create_app
from memagent.service.connections import serving_interpreter
from memagent.service.gate import Gate
from memagent.service.hosting import Service

TOWNS = ("Porto", "Rome", "Oslo", "Lima", "Kyoto", "Quito", "Dakar", "Perth")
WARM: dict[str, Any] = {
    "/v1/chat": {"text": "Hello"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Hello"}]},
    "/v1/responses": {"input": "Hello", "model": "memagent"},
    "/v1/trials": {"task": "Warm up"},
}
TEXT = "Ana moved to Porto in May 2019 and likes the sea. "


def requests(items: int) -> list[tuple[str, str, Any]]:
    """Return (method, path, body) of every route that reads or writes a memory."""
    turns = [{"speaker": "Ana", "text": f"{n} " + TEXT * 190} for n in range(400)]
    messages = [{"role": "user", "content": f"{n} {TEXT}"} for n in range(900)]
    large = {"messages": [*messages, {"role": "user", "content": "Where do I live?"}]}
    reads = (
        *("/v1/memories?limit=500", "/v1/memories?include_deleted=true&tag=x", "/v1/sessions"),
        *("/v1/memories?as_of_seq=50", "/v1/memories?as_of_said=2020-01-01T00:00:00Z"),
        *("/v1/memories/m5", "/v1/memories/m5/history", "/v1/events", "/v1/events/m5/neighbors"),
        *("/v1/graph", "/v1/graph?format=html", "/v1/graph?format=graphml", "/v1/graph/stats"),
        *("/v1/graph?as_of_seq=50", "/v1/oplog?limit=500", "/v1/trials", "/v1/users", "/v1/jobs"),
        *("/v1/quarantine", "/v1/snapshots", "/v1/models", "/healthz", "/readyz", "/metrics"),
        *(
            "/docs",
            "/openapi.json",
            "/ui",
            "/ui/memories",
            "/ui/memories?q=sea",
            "/ui/memory?id=m5",
        ),
        *("/ui/graph", "/ui/graph/data", "/ui/graph/data?most=0", "/ui/graph/list"),
        *("/ui/graph/list?q=sea", "/ui/graph/timeline", "/ui/graph/node?id=m5", "/ui/turns"),
        *("/ui/snapshots", "/ui/review", "/ui/users", "/ui/jobs", "/ui/health", "/ui/ask"),
    )
    question = {"text": "Where did Ana move in May 2019?"}
    writes: list[tuple[str, str, Any]] = [
        ("POST", "/v1/search", question),
        ("POST", "/v1/search", {**question, "recipe": "balanced", "evidence": True}),
        ("POST", "/v1/context", question),
        ("POST", "/v1/questions", question),
        ("POST", "/v1/memories", {"text": "Ana has a cat"}),
        ("POST", "/v1/memories/batch", {"texts": [f"{n} {TEXT * 390}" for n in range(100)]}),
        ("PATCH", "/v1/memories/m5", {"text": "Ana has a dog"}),
        ("DELETE", "/v1/memories/m6", None),
        ("POST", "/v1/undo", {}),
        ("POST", "/v1/sessions", {"turns": turns}),
        ("POST", "/v1/chat", {"text": "I live in Lisbon"}),
        ("POST", "/v1/chat/completions", large),
        ("POST", "/v1/responses", {"input": "Where do I live?", "model": "memagent"}),
        ("POST", "/v1/trials", {"task": "Write to Ana"}),
        ("POST", "/v1/snapshots", {"name": "now"}),
        ("POST", "/v1/users/u/export", None),
        ("POST", "/v1/users/v/import", None),
        ("POST", f"/v1/memories/m{items // 2 - 1}/erase", None),
        ("DELETE", "/v1/memories?confirm=u", None),
        ("POST", "/v1/users/u/erase", None),
    ]
    return [*(("GET", path, None) for path in reads), *writes]


async def fill(client: httpx.AsyncClient, items: int) -> None:
    """Store that many memories, half of them by their ids."""
    for start in range(0, items // 2, 100):
        texts = [f"{n} Ana moved to {TOWNS[n % 8]} in May 2019" for n in range(start, start + 100)]
        body = {"texts": texts, "subject": f"Ana {start % 700}"}
        (await client.post("/v1/memories/batch?user_id=u", json=body)).raise_for_status()
    for n in range(items // 2):
        body = {"text": f"Bo saw the sea at {TOWNS[n % 8]} with Eva {n}", "id": f"m{n}"}
        (await client.post("/v1/memories?user_id=u", json=body)).raise_for_status()


async def ended(client: httpx.AsyncClient, answer: httpx.Response) -> httpx.Response:
    """Wait for the job that an answer tells of; return what it came to."""
    place = f"/v1/jobs/{answer.json()['id']}?user_id=u"
    for _ in range(12_000):
        job = await client.get(place)
        if job.json()["state"] not in ("queued", "running"):
            return job
        await asyncio.sleep(0.05)
    raise TimeoutError(place)


async def longest_of(
    client: httpx.AsyncClient, method: str, path: str, *, archive: bytes, body: Any
) -> tuple[Longest, httpx.Response]:
    """Send a request, and wait for its job; return what held the loop longest, and the end."""
    url = path if path.startswith("/v1/users/") else f"{path}{'&?'['?' not in path]}user_id=u"
    content, headers = json.dumps(body).encode() if body is not None else b"", JSON
    if path.endswith("/import"):
        content, headers = archive, {"content-type": "application/x-ndjson"}
    # what is loaded at first use is no matter of size
    if method == "GET":
        await client.get(url)
    elif path.startswith("/v1/chat") or path.endswith(("responses", "trials")):
        await client.request(method, url.replace("user_id=u", "user_id=warm"), json=WARM[path])
    gc.collect(1)
    longest = Longest()
    with longest.watching():
        request = client.request(method, url, content=content, headers=headers)
        answer = await asyncio.create_task(request)
        if answer.status_code == 202:
            answer = await ended(client, answer)
    return longest, answer


async def measure(options: argparse.Namespace) -> list[tuple[float, str, int, str]]:
    """Send everything and return (worst ms, route, status, callback)."""
    store = open_store(AgentSettings(), path=options.db, embedder="hashing")
    app = create_app()
    app.state.service = service = Service(store)
    build_routes(app)
    transport = httpx.ASGITransport(app=Gate(app, service), client=("127.0.0.1", 50_000))
    rows: list[tuple[float, str, int, str]] = []
    archive = b""
    place = {"transport": transport, "base_url": "http://127.0.0.1:8377", "timeout": 600}
    async with app.router.lifespan_context(app), httpx.AsyncClient(**place) as client:
        await fill(client, options.items)
        app.state.document()
        with serving_interpreter():
            for method, path, body in requests(options.items):
                if options.only and not any(word in path for word in options.only):
                    continue
                longest, end = await longest_of(client, method, path, archive=archive, body=body)
                if path.endswith("/export"):
                    file = f"/v1/jobs/{end.json()['id']}/files/1?user_id=u"
                    archive = (await client.get(file)).content
                rows.append((longest.ms, f"{method} {path}", end.status_code, longest.what))
                print(f"{longest.ms:8.1f} {end.status_code} {path}", file=sys.stderr, flush=True)
    return rows


def main() -> int:
    """Measure all routes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--limit-ms", type=float, default=50.0)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--db", default=":memory:")
    parser.add_argument("--only", nargs="*", default=[])
    options = parser.parse_args()
    rows = asyncio.run(measure(options))
    print("| request | longest callback, ms |\n| --- | --- |")
    for ms, route, _, _ in rows:
        print(f"| `{route}` | {ms:.1f} |")
    late = [row for row in rows if row[0] > options.limit_ms or row[2] >= 500]
    for row in late:
        print(row, file=sys.stderr)
    return int(bool(late))


if __name__ == "__main__":
    sys.exit(main())

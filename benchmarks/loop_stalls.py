"""Send requests at their documented limits, and print how long each holds the event loop.

The service runs in this process with a memory of some hundred items, without a model.
Each text is one repeated piece, as long as the limit of its field. The CPU time of every
callback of the loop is taken, so other processes do not count. Prints the worst of each
route as a JSON line, and exits with 1 if one is above the limit.

    python benchmarks/loop_stalls.py --limit-ms 50
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from asyncio import events
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx
from fastapi import FastAPI

from memagent.build import open_store
from memagent.config import AgentSettings
from memagent.core.answers import MAX_QUESTION_CHARS
from memagent.core.records import MAX_TURN_CHARS
from memagent.memory.options import MAX_TEXT_CHARS
from memagent.service.app import create_app
from memagent.service.gate import Gate
from memagent.service.hosting import Service, serving_interpreter

PIECES = (
    *("x", " ", "\n", "1 ", "a ", ".", "-", "[", "<", '"', "A.B.", "Aa Bb ", "I'm ", "the "),
    *("in 2020 ", "last week ", "on Friday ", "1st May ", "not ", "hi ", "say ", "moved to "),
    *("I said June ", "where ", "Ana's ", "ß", "日本", "word%d "),
)
BODY_CHARS = 3_900_000
JSON = {"content-type": "application/json"}
Request = Callable[[str], tuple[str, dict[str, Any]]]


def repeated(piece: str, chars: int) -> str:
    """Return a text of one piece; `%d` in it stands for a number that grows."""
    if "%d" not in piece:
        return (piece * (chars // len(piece) + 1))[:chars]
    return "".join(piece % number for number in range(chars // len(piece)))[:chars]


def requests() -> dict[str, tuple[int, Request]]:
    """Return, for each name, the longest text and what makes path and body of it."""
    few, many = 20, 400
    return {
        "search": (MAX_QUESTION_CHARS, lambda t: ("search", {"text": t, "k": 50})),
        "search, graph": (
            MAX_QUESTION_CHARS,
            lambda t: ("search", {"text": t, "recipe": "balanced", "evidence": True}),
        ),
        "context": (MAX_QUESTION_CHARS, lambda t: ("context", {"text": t})),
        "question": (MAX_QUESTION_CHARS, lambda t: ("questions", {"text": t})),
        "memory": (MAX_TEXT_CHARS, lambda t: ("memories", {"text": t})),
        "memories": (
            MAX_TEXT_CHARS,
            lambda t: ("memories/batch", {"texts": [f"{n} {t[:-4]}" for n in range(100)]}),
        ),
        "session, one turn": (
            MAX_TURN_CHARS,
            lambda t: ("sessions", {"turns": [{"speaker": "A", "text": t}]}),
        ),
        "session, whole body": (
            MAX_TURN_CHARS,
            lambda t: ("sessions", {"turns": [{"speaker": "A", "text": t[:190_000]}] * few}),
        ),
        "session, many turns": (
            BODY_CHARS // many,
            lambda t: ("sessions", {"turns": [{"speaker": "A", "text": t}] * many}),
        ),
        "trial": (
            MAX_TURN_CHARS,
            lambda t: ("trials", {"task": t}),
        ),
    }


class Longest:
    """The longest callback of the loop, in milliseconds of CPU time."""

    def __init__(self) -> None:
        self.ms = 0.0
        self.what = ""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Take the time of every callback."""
        plain = events.Handle._run  # noqa: SLF001 - the one place that every callback passes

        def run(handle: events.Handle) -> None:
            began = time.thread_time()
            plain(handle)
            took = (time.thread_time() - began) * 1000
            if took > self.ms:
                self.ms, self.what = took, repr(handle)[:200]

        events.Handle._run = run  # type: ignore[method-assign]  # noqa: SLF001
        try:
            yield
        finally:
            events.Handle._run = plain  # type: ignore[method-assign]  # noqa: SLF001


async def finished(client: httpx.AsyncClient, job: str) -> None:
    """Wait until a job has ended."""
    for _ in range(2_400):
        if (await client.get(job)).json()["state"] not in ("queued", "running"):
            return
        await asyncio.sleep(0.05)


async def worst_of(
    client: httpx.AsyncClient,
    name: str,
    chars: int,
    make: Request,
    *,
    pieces: Sequence[str],
    verbose: bool,
) -> dict[str, object]:
    """Send a request with each of the texts; return the one that held the loop longest."""
    worst: dict[str, object] = {"request": name, "ms": 0.0}
    path, body = make("Where did Ana move to in May 2019, and who came along with her?")
    for user in ("warm", "u"):
        (await client.post(f"/v1/{path}?user_id={user}", json=body)).raise_for_status()
    await asyncio.sleep(0.5)
    for number, piece in enumerate(pieces):
        path, body = make(repeated(piece, chars))
        user = "u" if path in ("search", "context", "questions") else f"{name}{number}"
        sent = {"content": json.dumps(body).encode(), "headers": JSON}
        longest = Longest()
        with longest.watching():
            post = client.post(f"/v1/{path}", params={"user_id": user}, **sent)
            answer = await asyncio.create_task(post)
            if answer.status_code == 202:
                await finished(client, f"/v1/jobs/{answer.json()['id']}?user_id={user}")
        row = {"request": name, "ms": round(longest.ms, 1), "piece": piece}
        row["status"] = answer.status_code
        if verbose:
            print(json.dumps(row | {"callback": longest.what}), flush=True)
        if longest.ms > float(str(worst["ms"])):
            worst = row
    return worst


async def measure(options: argparse.Namespace) -> list[dict[str, object]]:
    """Send everything once and return the worst of each request."""
    store = open_store(AgentSettings(), path=":memory:", embedder=options.embedder)
    app = create_app()
    app.state.service = service = Service(store)
    transport = httpx.ASGITransport(app=Gate(app, service), client=("127.0.0.1", 50_000))
    rows: list[dict[str, object]] = []
    with serving_interpreter():  # as in a process that serves
        await _send_all(app, transport, options, rows)
    return rows


async def _send_all(
    app: FastAPI,
    transport: httpx.ASGITransport,
    options: argparse.Namespace,
    rows: list[dict[str, object]],
) -> None:
    pieces = options.pieces or PIECES[:: options.every]
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8377") as client,
    ):
        known = [f"Ana moved to town {n} in May {2000 + n % 25}." for n in range(300)]
        for start in range(0, 300, 100):
            body = {"texts": known[start : start + 100]}
            (await client.post("/v1/memories/batch?user_id=u", json=body)).raise_for_status()
        for name, (chars, make) in requests().items():
            if not options.only or any(word in name for word in options.only):
                row = await worst_of(
                    client, name, chars, make, pieces=pieces, verbose=options.verbose
                )
                print(json.dumps(row), flush=True)
                rows.append(row)


def main() -> int:
    """Measure all routes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--limit-ms", type=float, default=50.0)
    parser.add_argument("--embedder", default="hashing")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--every", type=int, default=1, help="send every n-th text only")
    parser.add_argument("--pieces", nargs="*", default=[], help="send texts of these alone")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    rows = asyncio.run(measure(options))
    return int(any(float(str(row["ms"])) > options.limit_ms for row in rows))


if __name__ == "__main__":
    sys.exit(main())

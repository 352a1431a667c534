"""Requests a second of the REST service under a mixed load, beside the ceiling of the framework in the same run.

Nine in ten requests search, one in ten adds a memory, each for a user chosen at random. The server, and the bare FastAPI app beside it,
run in processes of their own with one worker each. The load comes from one asyncio client here, over plain sockets; on two cores it is
itself part of what is measured, so the ratio to the bare app and the server's processor time a request say most.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from memagent import Scope
from memagent.build import open_store
from memagent.memory.facade import Memory

Make = Callable[[random.Random], tuple[str, str]]
WORDS = (
    "cat dog tea rain Oslo Lisbon chess bread garden piano train river winter letter cousin harbour lamp violin".split()
)
BARE = """
from fastapi import FastAPI, Response
from pydantic import BaseModel
class Body(BaseModel):
    text: str
    k: int = 10
app = FastAPI()
@app.post("/v1/search")
async def search(body: Body) -> Response:
    return Response(b'{"hits":[]}', media_type="application/json")
@app.post("/v1/memories", status_code=201)
async def add(body: Body) -> Response:
    return Response(b'{}', 201, media_type="application/json")
"""


def sentence(chance: random.Random) -> str:
    return f"{' '.join(chance.sample(WORDS, 6))} {chance.randrange(10_000)}"


async def fill(path: Path, *, memories: int, users: int) -> None:
    """Write the memories, evenly over the users."""
    chance = random.Random(1)
    store = open_store(path=path)
    try:
        for user in range(users):
            memory = Memory(store.bank(Scope(user_id=f"u{user}")))
            await memory.add_many([sentence(chance) for _ in range(memories // users)])
    finally:
        store.close()


@contextmanager
def running(command: list[str], port: int) -> Iterator[int]:
    """A server process that listens on a port: its id."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield process.pid
    finally:
        process.terminate()
        process.wait(60)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def load(
    port: int, make: Make, *, connections: int, seconds: float = 1e9, requests: int = 10**9
) -> tuple[float, list[float], int]:
    """(requests a second, seconds of each, answers that were no 2xx)."""
    taken: list[float] = []
    bad = started = 0
    until = time.perf_counter() + seconds

    async def one(seed: int) -> None:
        nonlocal bad, started
        chance = random.Random(seed)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < until and started < requests:
            started += 1
            path, body = make(chance)
            began = time.perf_counter()
            writer.write(
                f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n{body}".encode()
            )
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
            await reader.readexactly(int(length.partition(b":")[2]))
            taken.append(time.perf_counter() - began)
            bad += head[9:10] != b"2"
        writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(one(seed) for seed in range(connections)))
    return len(taken) / (time.perf_counter() - began), sorted(taken), bad


def search_of(user: int, words: str = "cat tea") -> tuple[str, str]:
    """A search of one user's memory."""
    return f"/v1/search?user_id=u{user}", json.dumps({"text": words, "k": 10})


def mixed(users: int, writes: float) -> Make:
    def make(chance: random.Random) -> tuple[str, str]:
        user = f"?user_id=u{chance.randrange(users)}"
        if chance.random() < writes:
            return f"/v1/memories{user}", json.dumps({"text": sentence(chance)})
        return search_of(chance.randrange(users), " ".join(chance.sample(WORDS, 2)))

    return make


def cpu_s(pid: int) -> float:
    """Processor time that a process has used, where the system tells."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(name: str, pid: int, port: int, make: Make, **terms: Any) -> dict[str, object]:
    """Load a server and print what came of it."""
    before = cpu_s(pid)
    rate, taken, bad = asyncio.run(load(port, make, **terms))
    cpu_ms = (cpu_s(pid) - before) * 1_000 / len(taken)
    p50, p95 = (taken[int(len(taken) * share)] * 1_000 for share in (0.5, 0.95))
    print(f"{name:<30} {rate:9.0f} {p50:9.2f} {p95:9.2f} {cpu_ms:9.2f} {bad:7d}", flush=True)
    return {
        "name": name,
        "requests_per_s": round(rate),
        "p50_ms": round(p50, 2),
        "p95_ms": round(p95, 2),
        "server_cpu_ms": round(cpu_ms, 3),
        "errors": bad,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memories", type=int, default=50_000)
    parser.add_argument("--users", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--connections", type=int, default=16)
    given = parser.parse_args()
    found: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asyncio.run(fill(folder / "memory.db", memories=given.memories, users=given.users))
        (folder / "bare.py").write_text(BARE, encoding="utf-8")
        print(
            f"{given.memories:,} memories of {given.users} users, {given.connections} connections, {os.cpu_count()} cores"
        )
        print(f"load average before: {os.getloadavg()[0]:.1f}")
        print(f"{'':<30} {'req/s':>9} {'p50 ms':>9} {'p95 ms':>9} {'CPU ms':>9} {'errors':>7}")
        bare_port, port = free_port(), free_port()
        bare = [
            sys.executable,
            "-m",
            "uvicorn",
            "bare:app",
            "--app-dir",
            name,
            "--port",
            str(bare_port),
            "--no-access-log",
        ]
        bare += ["--log-level", "warning"]
        ours = [sys.executable, "-m", "memagent.cli", "serve", "--db", str(folder / "memory.db"), "--port", str(port)]
        terms = {"seconds": given.seconds, "connections": given.connections}
        everyone, readers = mixed(given.users, 0.1), mixed(given.users, 0.0)
        with running(bare, bare_port) as pid:
            found.append(measure("bare FastAPI, the same bodies", pid, bare_port, everyone, **terms))
        with running(ours, port) as pid:
            every = iter(range(given.users))
            opening = {"requests": given.users, "connections": given.connections}
            found.append(measure("first touch of every user", pid, port, lambda _: search_of(next(every)), **opening))
            found.append(measure("mixed 90/10", pid, port, everyone, **terms))
            found.append(measure("search only", pid, port, readers, **terms))
        print(f"load average after: {os.getloadavg()[0]:.1f}")
    print(json.dumps({"benchmark": "service", **vars(given), "load": os.getloadavg()[0], "results": found}))


if __name__ == "__main__":
    main()

"""Crowd the door of a service with connections that have no key, and time a caller that has.

The service runs in a process of its own. Crowds come one after another: 1,000 sockets
that send a byte of a body every half second, 1,000 that never finish a head, 10,000
connections one after another that are left open, and heads of 100 MB. Meanwhile one caller
with a key searches. Then each path that answers without a key is asked as fast as four
connections can, and so are wrong keys, unknown paths and large bodies. Prints the p99 of
its searches, idle and in each crowd, and the largest resident memory of the service; exits
with 1 if a p99 is more than `--times` the idle one.

    python scripts/door_crowds.py --searches 300
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, Self

import httpx
import uvicorn

from memagent.build import open_store
from memagent.config import AgentSettings, ServiceSettings
from memagent.memory.bank import system_clock
from memagent.service.app import serve_app
from memagent.service.hosting import Service
from memagent.service.server import ServerConfig

BODY = (
    b"POST /v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: 1000\r\n\r\n{"
)
HEAD_BYTES = 100_000_000


class Crowd:
    """Connections without a key, opened and kept busy by one thread."""

    def __init__(self, port: int, *, size: int, first: bytes, then: bytes) -> None:
        self._port, self.size, self._first, self._then = port, size, first, then
        self.opened = 0
        self._open: list[socket.socket] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        while self.opened < min(self.size, 500) and self._thread.is_alive():
            time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for connection in self._open:
            connection.close()

    def _run(self) -> None:
        while len(self._open) < self.size and not self._stop.is_set():
            with suppress(OSError):
                connection = socket.create_connection(("127.0.0.1", self._port), timeout=10)
                self._open.append(connection)
                connection.sendall(self._first)
            self.opened += 1
        while self._then and not self._stop.wait(0.5):
            for place, connection in enumerate(self._open):
                try:
                    connection.sendall(self._then)
                except OSError:  # the service closed it; another comes
                    connection.close()
                    with suppress(OSError):
                        fresh = socket.create_connection(("127.0.0.1", self._port), timeout=10)
                        self._open[place] = fresh
                        fresh.sendall(self._first)


class Heads(Crowd):
    """One head of 100 MB after another."""

    def _run(self) -> None:
        piece = b"a" * 1_000_000
        while not self._stop.is_set():
            with (
                suppress(OSError),
                socket.create_connection(("127.0.0.1", self._port), timeout=10) as connection,
            ):
                connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: ")
                for _ in range(HEAD_BYTES // len(piece)):
                    connection.sendall(piece)
            self.opened += 1


class Flood(Crowd):
    """Whole requests without a key, one after another on each connection, by a process apart."""

    def _run(self) -> None:
        process = os.fork()
        if process == 0:
            os.nice(19)  # the one core that is left belongs to the caller
            with ThreadPoolExecutor(self.size) as pool:
                list(pool.map(lambda _: self._ask(), range(self.size)))
            os._exit(0)
        self.opened = self.size
        self._stop.wait()
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)

    def _ask(self) -> None:
        while True:
            with (
                suppress(OSError),
                socket.create_connection(("127.0.0.1", self._port), timeout=10) as connection,
            ):
                answer = connection.makefile("rb")
                while _sent(connection, self._first) and _received(answer):
                    pass


def _sent(connection: socket.socket, request: bytes) -> bool:
    connection.sendall(request)
    return True


def _received(answer: BinaryIO) -> bool:
    """Read one answer; False where the connection ends with it."""
    size, last = 0, False
    while (line := answer.readline()) not in (b"\r\n", b""):
        name, _, value = line.lower().partition(b":")
        size = int(value) if name == b"content-length" else size
        last |= name == b"connection" and b"close" in value
    answer.read(size)
    return line != b"" and not last


def asked(path: str, *headers: str, body: str = "") -> bytes:
    """Return a whole request without a good key."""
    method = "POST" if body else "GET"
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *headers]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return ("\r\n".join([*lines, "", ""]) + body).encode()


KEYLESS = {
    **{path: asked(path) for path in ("/healthz", "/readyz", "/metrics", "/docs", "/openapi.json")},
    **{path: asked(path) for path in ("/docs/style.css", "/ui", "/ui/sign-in", "/nowhere")},
    "a wrong key": asked("/v1/memories", "Authorization: Bearer mk_wrong"),
    "sign-in": asked("/ui/sign-in", body='{"key": "mk_wrong"}'),
    "a large body": asked("/v1/search", body='{"text": "' + "a" * 3_900_000 + '"}'),
    "MCP": asked("/mcp", body='{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}'),
}
"""A request for each path that answers without a key, and ways to be refused."""


@contextmanager
def served(folder: Path) -> Iterator[tuple[int, int, str]]:
    """Serve a store in a forked process: (its id, its port, a key)."""
    settings = AgentSettings(service=ServiceSettings(drain_s=1.0))
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1_024)
        reading, writing = os.pipe()
        process = os.fork()
        if process == 0:
            try:
                store = open_store(settings, path=str(folder / "m.db"), embedder="hashing")
                service = Service(store)
                scopes = ("memory:read", "memory:write")
                _, key = service.keys.create(
                    name="caller", scopes=scopes, user_id="ana", at=system_clock()
                )
                os.write(writing, key.encode())
                config = ServerConfig(
                    serve_app(service), settings.service, host="127.0.0.1", port=0
                )
                uvicorn.Server(config).run(sockets=[listening])
            finally:
                os._exit(1)
        port = listening.getsockname()[1]
    try:
        yield process, port, os.read(reading, 1_000).decode()
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def p99_ms(http: httpx.Client, searches: int) -> float:
    """Return the p99 of searches in milliseconds; every one must succeed."""
    took: list[float] = []
    for _ in range(searches):
        began = time.perf_counter()
        http.post("/v1/search", json={"text": "tea"}).raise_for_status()
        took.append(time.perf_counter() - began)
    return round(sorted(took)[int(searches * 0.99)] * 1000, 1)


def resident_mb(process: int) -> float:
    """Return the largest resident memory that the process ever had."""
    lines = Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines()
    peak = next(line for line in lines if line.startswith("VmHWM"))
    return round(int(peak.split()[1]) / 1024, 1)


def main() -> int:
    """Run the crowds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--searches", type=int, default=300)
    parser.add_argument("--flooders", type=int, default=4, help="connections of a flood")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--times", type=float, default=3.0)
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 30_000), hard))
    worst = 0.0
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as (process, port, key):
        crowds: dict[str, Callable[[], Crowd]] = {
            "1,000 slow bodies": lambda: Crowd(port, size=1_000, first=BODY, then=b" "),
            "1,000 slow heads": lambda: Crowd(port, size=1_000, first=BODY[:40], then=b"a"),
            "10,000 connections": lambda: Crowd(port, size=10_000, first=b"", then=b""),
            "heads of 100 MB": lambda: Heads(port, size=1, first=b"", then=b""),
            **{
                name: partial(Flood, port, size=options.flooders, first=first, then=b"")
                for name, first in KEYLESS.items()
            },
        }
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}",
            headers={"Authorization": f"Bearer {key}"},
            timeout=60,
            trust_env=False,
        ) as http:
            http.post("/v1/memories", json={"text": "Ana drinks tea"}).raise_for_status()
            p99_ms(http, 50)
            for name, crowd in crowds.items():
                if options.only and name not in options.only:
                    continue
                idle = p99_ms(http, options.searches)
                with crowd() as people:
                    crowded = p99_ms(http, options.searches)
                    while people.opened < people.size:
                        crowded = max(crowded, p99_ms(http, options.searches))
                worst = max(worst, crowded / idle)
                row = {"crowd": name, "opened": people.opened, "idle_p99_ms": idle}
                row |= {"p99_ms": crowded, "times": round(crowded / idle, 2)}
                print(json.dumps(row | {"peak_mb": resident_mb(process)}), flush=True)
    return int(worst > options.times)


if __name__ == "__main__":
    sys.exit(main())

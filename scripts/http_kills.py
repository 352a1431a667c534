"""Kill a service with SIGKILL under four clients, and check what it acknowledged.

Each round forks a process that serves the store, lets four clients add, delete, change
one shared memory and send sessions with idempotency keys, kills the process after a
random time, and serves the store again. The checker holds the answers against each other
and against the store: no acknowledged write is lost or comes back after its deletion, no
two changes were acknowledged for one version, the history of the shared memory holds
every acknowledged change and nothing that was never sent, and a session sent again is
answered as it was first. Prints one line of JSON and exits with 1 for a fault.

    python scripts/http_kills.py --kills 200 --seed 1
    python scripts/http_kills.py --kills 200 --seed 1 --postgres
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from memagent.build import open_store
from memagent.config import AgentSettings, ServiceSettings
from memagent.service.app import serve_app
from memagent.service.hosting import Service
from memagent.service.server import ServerConfig

CLIENTS = 4
USER = {"user_id": "ann"}


@dataclass
class History:
    """What the clients sent and what was acknowledged."""

    kept: dict[str, str] = field(default_factory=dict[str, str])
    deleted: set[str] = field(default_factory=set[str])
    unsure: set[str] = field(default_factory=set[str])
    changes: dict[int, str] = field(default_factory=dict[int, str])
    sent: set[str] = field(default_factory=lambda: {"first"})
    sessions: dict[str, tuple[dict[str, Any], bytes]] = field(
        default_factory=dict[str, tuple[dict[str, Any], bytes]]
    )
    faults: list[str] = field(default_factory=list[str])
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def acknowledged(self) -> int:
        """The number of acknowledged writes."""
        return len(self.kept) + len(self.deleted) + len(self.changes) + len(self.sessions)


@contextmanager
def served(place: str) -> Iterator[tuple[int, str]]:
    """Serve a store in a forked process: (its id, its address)."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(128)
        process = os.fork()
        if process == 0:
            _serve(place, listening)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    try:
        yield process, url
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)


def _serve(place: str, listening: socket.socket) -> None:
    try:
        settings = AgentSettings(service=ServiceSettings(drain_s=1.0))
        service = Service(open_store(settings, path=place, embedder="hashing"))
        config = ServerConfig(serve_app(service), settings.service, host="127.0.0.1", port=0)
        uvicorn.Server(config).run(sockets=[listening])
    finally:
        os._exit(1)


def work(url: str, history: History, name: str, rng: random.Random) -> None:
    """Write until the service is gone."""
    with httpx.Client(base_url=f"{url}/v1", params=USER, timeout=30, trust_env=False) as http:
        number = 0
        while True:
            number += 1
            chosen = rng.choice((_add, _add, _delete, _change, _change, _session))
            try:
                chosen(http, history, f"{name}-{number}", rng)
            except httpx.TransportError:
                return


def _add(http: httpx.Client, history: History, name: str, _: random.Random) -> None:
    if http.post("/memories", json={"id": name, "text": f"text of {name}"}).status_code == 201:
        with history.lock:
            history.kept[name] = f"text of {name}"


def _delete(http: httpx.Client, history: History, name: str, rng: random.Random) -> None:
    own = name.rpartition("-")[0]
    with history.lock:
        mine = [known for known in history.kept if known.startswith(own)]
        if not mine:
            return
        chosen = rng.choice(mine)
        history.kept.pop(chosen)
        history.unsure.add(chosen)
    if http.delete(f"/memories/{chosen}").is_success:
        with history.lock:
            history.unsure.discard(chosen)
            history.deleted.add(chosen)


def _change(http: httpx.Client, history: History, name: str, _: random.Random) -> None:
    etag = http.get("/memories/shared").headers["etag"]
    with history.lock:
        history.sent.add(name)
    answer = http.patch("/memories/shared", json={"text": name}, headers={"If-Match": etag})
    if answer.is_success:
        version = int(answer.json()["version"])
        with history.lock:
            if version in history.changes:
                history.faults.append(f"version {version} was acknowledged twice")
            history.changes[version] = name


def _session(http: httpx.Client, history: History, name: str, _: random.Random) -> None:
    body = {"id": name, "turns": [{"speaker": "Ann", "text": f"I bought {name}."}]}
    answer = http.post("/sessions", json=body, headers={"Idempotency-Key": name})
    if answer.status_code == 202:
        with history.lock:
            history.sessions[name] = (body, answer.content)


def check(url: str, history: History, rng: random.Random, *, whole: bool) -> None:
    """Hold the store against the history; `whole` reads all, else the newest and some."""
    with httpx.Client(base_url=f"{url}/v1", params=USER, timeout=60, trust_env=False) as http:
        names = list(history.kept)
        for name in names if whole else names[-60:]:
            answer = http.get(f"/memories/{name}")
            if answer.status_code != 200 or answer.json()["text"] != history.kept[name]:
                history.faults.append(f"{name} was acknowledged and is {answer.status_code}")
        gone = sorted(history.deleted)
        for name in gone if whole else rng.sample(gone, min(20, len(gone))):
            if http.get(f"/memories/{name}").status_code != 404:
                history.faults.append(f"{name} was deleted and is back")
        entries = http.get("/memories/shared/history").json()["entries"]
        texts = {row["item"]["version"]: row["item"]["text"] for row in entries if row["item"]}
        for version, text in history.changes.items():
            if texts.get(version) != text:
                history.faults.append(f"version {version} is {texts.get(version)}, not {text}")
        if not set(texts.values()) <= history.sent:
            history.faults.append("the shared memory has a text that nobody sent")
        sessions = list(history.sessions.items())
        for name, (body, first) in sessions if whole else sessions[-10:]:
            again = http.post("/sessions", json=body, headers={"Idempotency-Key": name})
            if (again.status_code, again.content) != (202, first):
                history.faults.append(f"session {name} is answered {again.status_code} anew")


def run(place: str, *, kills: int, seed: int) -> dict[str, object]:
    """Run all rounds on a store."""
    rng, history, began = random.Random(seed), History(), time.monotonic()
    with served(place) as (_, url), httpx.Client(base_url=f"{url}/v1", timeout=60) as http:
        first = http.post("/memories", params=USER, json={"id": "shared", "text": "first"})
        first.raise_for_status()
    for number in range(kills):
        with served(place) as (process, url):
            check(url, history, rng, whole=False)
            clients = [
                threading.Thread(
                    target=work,
                    args=(url, history, f"r{number}-c{client}", random.Random(rng.random())),
                )
                for client in range(CLIENTS)
            ]
            for client in clients:
                client.start()
            deadline, before = time.monotonic() + 20, history.acknowledged
            while history.acknowledged == before and time.monotonic() < deadline:
                time.sleep(0.005)
            time.sleep(rng.uniform(0.02, 0.5))
            os.kill(process, signal.SIGKILL)
            for client in clients:
                client.join()
    with served(place) as (_, url):
        check(url, history, rng, whole=True)
    took = round(time.monotonic() - began, 1)
    return {
        "kills": kills,
        "seed": seed,
        "acknowledged": history.acknowledged,
        "changes": len(history.changes),
        "faults": history.faults[:10],
        "s": took,
    }


def main() -> int:
    """Run the rounds on SQLite or PostgreSQL."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--postgres", action="store_true", help="a server of its own")
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        place = str(Path(folder) / "memory.db")
        if options.postgres:
            sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "kits"))
            from postgres_kit import running_postgres

            place = stack.enter_context(stack.enter_context(running_postgres()).schema())
        for name in ("ingest", "answer", "flow"):  # before any fork
            import_module(f"memagent.graphs.{name}")
        figures = run(place, kills=options.kills, seed=options.seed)
    figures["database"] = "postgresql" if options.postgres else "sqlite"
    print(json.dumps(figures))
    return int(bool(figures["faults"]))


if __name__ == "__main__":
    sys.exit(main())

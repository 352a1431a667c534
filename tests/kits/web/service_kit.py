"""What the tests of the service share: a real uvicorn server on loopback, in this
process or in ones of its own, on both databases.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
import uvicorn
from postgres_kit import Postgres

from memagent.build import open_store
from memagent.config import AgentSettings, ServiceSettings
from memagent.memory.bank import system_clock
from memagent.protocols import ChatModel, Clock
from memagent.service.app import serve_app
from memagent.service.data.leases import SCOPES
from memagent.service.hosting import Service
from memagent.service.server import ServerConfig

DATABASES = ("sqlite", "postgres")
"""What a suite of the service runs on; PostgreSQL where there is one."""


@contextmanager
def place_on(database: str, request: pytest.FixtureRequest, folder: Path) -> Generator[str]:
    """An empty place for a store: a file in the folder, or a schema of the session's server."""
    if database == "sqlite":
        yield str(folder / "memory.db")
        return
    server: Postgres = request.getfixturevalue("postgres")
    with server.schema() as url:
        yield url


class Served:
    """A running server."""

    def __init__(self, service: Service, url: str) -> None:
        self.service, self.url = service, url

    def key(self, user_id: str | None, *scopes: str) -> str:
        """A new API key."""
        chosen = scopes or tuple(scope for scope in SCOPES if scope != "admin")
        return self.service.keys.create(
            name="test", scopes=chosen, user_id=user_id, at=system_clock()
        )[1]

    def http(self, key: str | None = None, **headers: str) -> httpx.Client:
        """A plain HTTP client."""
        sent = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(
            base_url=self.url, headers={**sent, **headers}, timeout=60, trust_env=False
        )


@contextmanager
def serving(
    path: Path | str = ":memory:",
    *,
    model: ChatModel | None = None,
    settings: ServiceSettings | None = None,
    design: str = "auto",
    clock: Clock = system_clock,
) -> Generator[Served]:
    """A server in a thread of this process."""
    chosen = AgentSettings(service=settings or ServiceSettings(drain_s=2.0), design=design)
    store = open_store(chosen, path=path, embedder="hashing", clock=clock)
    service = Service(store, model=model)
    config = ServerConfig(serve_app(service), chosen.service, host="127.0.0.1", port=0)
    server = uvicorn.Server(config)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        deadline = time.monotonic() + 60
        while not server.started and thread.is_alive() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.started
        try:
            yield Served(service, f"http://127.0.0.1:{listening.getsockname()[1]}")
        finally:
            server.should_exit = True
            thread.join(60)
            assert not thread.is_alive()


@contextmanager
def served_process(
    path: Path | str, *options: str, environment: Mapping[str, str] | None = None
) -> Generator[tuple[subprocess.Popen[str], str]]:
    """`memagent serve` in a process of its own: (process, its address)."""
    command = [
        sys.executable,
        "-m",
        "memagent.cli.app",
        "serve",
        "--db",
        str(path),
        "--port",
        "0",
        *options,
    ]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        cwd=path.parent if isinstance(path, Path) else "/",
        env=dict(environment) if environment is not None else None,
    )
    assert process.stderr is not None
    reader: threading.Thread | None = None
    try:
        for line in process.stderr:  # a resumed job may be told before
            if " serves http://" in line:
                break
        else:
            raise AssertionError("the service ended before it listened")
        reader = threading.Thread(target=process.stderr.read, daemon=True)
        reader.start()
        yield process, line.split("serves ")[1].split()[0]
    finally:
        if process.poll() is None and "--workers" in options:
            process.terminate()  # which ends its workers; they would else notice a moment later
            with suppress(subprocess.TimeoutExpired):
                process.wait(30)
        process.kill()
        process.wait(30)
        if reader is not None:
            reader.join(30)
        process.stderr.close()

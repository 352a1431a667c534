"""The ground that stock clients are tried on: `memagent serve` in a process of its own,
with a scripted provider in place of the hosted model.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from scripted_provider import provider
from scripted_server import Handler, ScriptedServer
from service_kit import served_process


@dataclass(frozen=True)
class Ground:
    """A running service and the provider behind it."""

    url: str
    provider: ScriptedServer

    @property
    def base_url(self) -> str:
        """The address for OpenAI's clients."""
        return f"{self.url}/v1"

    @property
    def sent(self) -> dict[str, Any]:
        """The last request that reached the provider."""
        return dict(self.provider.requests[-1])

    def turns(self, user: str) -> list[str]:
        """The words that the memory of a user holds as said."""
        with httpx.Client(base_url=self.url, trust_env=False) as http:
            params = {"user_id": user, "limit": 100}
            sessions = http.get("/v1/sessions", params=params).json()["items"]
        return [turn["text"] for session in sessions for turn in session["turns"]]

    def add(self, user: str, text: str) -> None:
        """Add a memory."""
        with httpx.Client(base_url=self.url, trust_env=False) as http:
            http.post("/v1/memories", params={"user_id": user}, json={"text": text})


@contextmanager
def client_ground(folder: Path, script: Handler = provider) -> Generator[Ground]:
    """Serve from an empty store until the block ends."""
    with ScriptedServer(script) as server:
        environment = {
            **{name: value for name, value in os.environ.items() if "proxy" not in name.lower()},
            "OPENAI_API_KEY": "not-a-key",
            "OPENAI_BASE_URL": server.url,
        }
        options = ("--model", "openai/test-model", "--design", "verbatim", "--embedder", "hashing")
        place = folder / "memory.db"
        with served_process(place, *options, environment=environment) as (_, url):
            yield Ground(url, server)

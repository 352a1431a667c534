"""A world behind OpenEnv's own server, played by OpenEnv's own client."""

# pyright: reportMissingImports=false

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from worlds_played import adding

pytest.importorskip("openenv", reason="needs pip install openenv-core gymnasium")
pytest.importorskip("gymnasium", reason="needs pip install openenv-core gymnasium")

WORLD: dict[str, Any] = {"knobs": {"sessions": 2}, "embedder": "hashing"}


@pytest.fixture
def url() -> Iterator[str]:
    import uvicorn
    from openenv.core.env_server.http_server import create_fastapi_app

    from environments.openenv_adapter import MemoryCall, MemoryEnvironment, MemoryReply

    world = partial(MemoryEnvironment, "synthetic", **WORLD)
    app = create_fastapi_app(world, MemoryReply, MemoryCall, max_concurrent_envs=2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]}, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.05)
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"
        server.should_exit = True
        thread.join(20)


@pytest.mark.filterwarnings("ignore")
def test_a_client_plays_an_episode_for_its_reward_beside_another(url: str) -> None:
    from openenv.core.generic_client import GenericEnvClient

    with GenericEnvClient(base_url=url).sync() as one, GenericEnvClient(base_url=url).sync() as two:
        other = two.reset(episode=1).observation["text"]
        call, steps = one.reset(episode=0), 0
        assert call.observation["text"] != other and not call.done
        while not call.done:
            call, steps = one.step({"text": adding(call.observation["text"])}), steps + 1
        assert call.reward is not None and call.reward > 0.5
        assert call.observation["info"]["calls"] == steps == one.state()["step_count"] == 2
        assert one.reset(episode=1).observation["text"] == other
        assert two.step({"text": adding(other)}).observation["text"]

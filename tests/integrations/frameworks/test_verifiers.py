"""A world as a taskset of verifiers, played by its own chat program against a local endpoint."""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from scripted_server import Reply, ScriptedServer
from worlds_played import adding

pytest.importorskip("verifiers.v1", reason="needs pip install verifiers gymnasium uv")
pytest.importorskip("gymnasium", reason="needs pip install verifiers gymnasium uv")

WORLD: dict[str, Any] = {"knobs": {"sessions": 2}, "embedder": "hashing"}
PLUGIN = """
from environments.verifiers_adapter import MemoryEnv, MemoryTaskset

__all__ = ["MemoryEnv", "MemoryTaskset"]
"""


@pytest.mark.filterwarnings("ignore")
def test_each_call_of_an_episode_is_a_run_that_earns_what_the_memory_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import verifiers.v1 as vf

    from environments.verifiers_adapter import MemoryEnv, MemoryEnvConfig

    (tmp_path / "memory_world.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv(
        "PATH", os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    )
    shown: list[str] = []

    def policy(body: Any, _: int) -> Reply:
        shown.append(body["messages"][-1]["content"])
        return Reply(text=adding(shown[-1]))

    async def play(url: str) -> tuple[Any, int]:
        taskset: Any = {"id": "memory_world", "episodes": 3, "options": WORLD}
        env = MemoryEnv(MemoryEnvConfig(taskset=taskset))
        tasks = list(env.taskset)
        context = vf.ModelContext("any", vf.EvalClientConfig(base_url=url))
        async with env.serving():
            return await env.run_episode(tasks[1], context), len(tasks)

    with ScriptedServer(policy) as server:
        episode, tasks = asyncio.run(play(server.url))
    assert episode.ok and tasks == 3 and len(episode.traces) == len(shown) == 2
    earned = {trace.rewards["memory"].score for trace in episode.traces}
    assert len(earned) == 1 and earned.pop() > 0.5
    assert episode.traces[0].last_reply == adding(shown[0]) != "" and "<facts>" in shown[0]

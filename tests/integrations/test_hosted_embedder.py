"""`LiteLLMEmbedder` against a real /v1/embeddings endpoint on this machine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from litellm_marks import LITELLM_MARKS
from scripted_server import Body, Reply, ScriptedServer

from memagent import Agent, AsyncAgent
from memagent.config import AgentSettings, LiteLLMEmbedderSettings
from memagent.core.errors import ConfigError, EmbeddingError
from memagent.embed.local_models import LiteLLMEmbedder
from memagent.embed.static import HashEmbedder
from memagent.testing.kits import check_embedder

pytestmark = LITELLM_MARKS
WIDTH = 48


def embedded(body: Body, index: int = 0) -> Reply:
    """Answer with vectors of any length, in reversed order with their places."""
    texts: Any = body["input"]
    width: Any = body.get("dimensions") or WIDTH
    rows = asyncio.run(HashEmbedder(dim=width).embed(texts)) * 3.0
    data: list[Any] = [
        {"object": "embedding", "index": place, "embedding": [float(value) for value in row]}
        for place, row in enumerate(rows)
    ]
    usage: Any = {"prompt_tokens": 1, "total_tokens": 1}
    return Reply(
        body={"object": "list", "model": "e", "data": list(reversed(data)), "usage": usage}
    )


def hosted(server: ScriptedServer, **options: Any) -> LiteLLMEmbedder:
    return LiteLLMEmbedder("openai/e", base_url=server.url, api_key="k", **options)


async def test_a_hosted_embedder_keeps_the_promises_of_an_embedder() -> None:
    with ScriptedServer(embedded) as server:
        await check_embedder(lambda: hosted(server))
        shorter = hosted(server, extra={"dimensions": 16})
        assert (await shorter.embed(["a boat"])).shape == (1, 16)
        assert (shorter.dim, shorter.id) == (16, "litellm/openai/e@16")
        rows = await hosted(server).embed([f"boat {number}" for number in range(300)])
        right = await HashEmbedder(dim=WIDTH).embed([f"boat {number}" for number in range(300)])
        assert np.allclose(rows, right, atol=1e-6)
        sent: Any = [len(body["input"]) for body in server.requests[-2:]]  # type: ignore[arg-type]
        assert sent == [256, 44]


async def test_a_store_remembers_the_width_and_vectors_are_embedded_once(tmp_path: Path) -> None:
    with ScriptedServer(embedded) as server:
        settings = AgentSettings(
            embedder=LiteLLMEmbedderSettings(model="openai/e", api_base=server.url, api_key="k")
        )
        for _ in range(2):
            async with AsyncAgent(path=tmp_path / "m.db", settings=settings) as agent:
                await agent.remember("I moved to Porto in May.", session_id="s1", at="2024-05-20")
                assert "Porto" in (await agent.ask("Where did I move?")).text
        texts: list[Any] = [text for body in server.requests for text in body["input"]]  # type: ignore[union-attr]
        assert len(texts) == len(set(texts)), "each text once, and the width asked once"
        assert texts[0] == "width"
        with pytest.raises(ConfigError, match="reembed"):
            Agent(path=tmp_path / "m.db", embedder="static")


async def test_failures_are_plain_embedding_errors_and_lose_no_turn(tmp_path: Path) -> None:
    broken = False

    def reply(body: Body, index: int) -> Reply:
        return Reply.failing(401, error="Incorrect API key") if broken else embedded(body)

    with ScriptedServer(reply) as server:
        async with AsyncAgent(path=tmp_path / "m.db", embedder=hosted(server)) as agent:
            broken = True
            await agent.remember("I moved to Porto in May.")
            assert agent.bank.degraded is not None, "keywords alone, until it answers again"
            assert "refused the API key (Incorrect API key)" in agent.bank.degraded
            assert "Porto" in (await agent.ask("Where did I move?")).text
        broken = False
        async with AsyncAgent(path=tmp_path / "m.db", embedder=hosted(server)) as agent:
            assert "Porto" in (await agent.ask("Where did I move?")).text
            assert agent.bank.degraded is None
    absent = LiteLLMEmbedder("openai/e", base_url="http://127.0.0.1:9/v1", api_key="k")
    with pytest.raises(EmbeddingError, match="no server answers at") as caught:
        await absent.embed(["a boat"])
    assert caught.value.retryable
    with pytest.raises(EmbeddingError, match="no server answers at"):
        Agent(path=":memory:", embedder=absent)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"data": []}, "answered with 0 vectors for 1 texts"),
        ({"data": [{"index": 0, "embedding": [0.0, 0.0]}]}, "no direction"),
        ({"data": [{"index": 0, "embedding": [1.0, 0.0, 0.0]}]}, "of .3. dimensions where 2 were"),
    ],
)
async def test_unusable_vectors_are_refused(answer: Any, message: str) -> None:
    reply = Reply(body={"object": "list", "model": "e", **answer})
    with (
        ScriptedServer(lambda body, index: reply) as server,
        pytest.raises(EmbeddingError, match=message),
    ):
        await hosted(server, dim=2).embed(["a boat"])

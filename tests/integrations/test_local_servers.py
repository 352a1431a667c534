"""The recipes of docs/faq.md for Ollama, vLLM and servers of one's own:
against loopback servers of their shapes, with scripted answers and with a real small model.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from litellm_marks import LITELLM_MARKS
from local_servers import answers_of, server_of
from scripted_server import ScriptedServer

from memagent import AsyncAgent
from memagent.config import AgentSettings
from memagent.core.exchange import Message, ModelRequest, Role, Sampling
from memagent.embed.local_models import LiteLLMEmbedder
from memagent.opening.open_store import build_model
from memagent.plugins import load

pytestmark = LITELLM_MARKS
RECIPES = [
    ("ollama_chat/smol", "", None, "ollama/nomic-embed-text"),
    ("hosted_vllm/smol", "/v1", None, "hosted_vllm/e"),
    ("openai/smol", "/v1", "none", "openai/e"),
]
SMALL = Path(
    os.environ.get("MEMAGENT_SMALL_MODEL")
    or Path.home() / ".cache" / "memagent" / "smollm2-135m-instruct"
)


def scripted(messages: list[dict[str, Any]]) -> str:
    """Extract one fact from the dialogue, then add it."""
    if any("ADD" in message["content"] for message in messages):
        return '{"ops": [{"op": "ADD", "fact": 0}]}'
    fact = {"text": "The user moved to Porto", "subject": None, "source": "s1:1"}
    return json.dumps({"facts": [fact | {"when": None, "kind": "event"}]})


@pytest.mark.parametrize(("name", "path", "key", "embedder"), RECIPES)
async def test_a_recipe_remembers_and_embeds(
    name: str, path: str, key: str | None, embedder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with ScriptedServer(server_of(scripted)) as server:
        base = server.url.removesuffix("/v1") + path
        vectors = LiteLLMEmbedder(embedder, base_url=base, api_key=key)
        async with AsyncAgent(
            name, path=":memory:", base_url=base, api_key=key, embedder=vectors
        ) as agent:
            report = await agent.remember("I moved to Porto in May.", session_id="s1")
            assert report.op_counts["ADD"] == 1
            (hit,) = await agent.search("Where did the user move?")
            assert hit.text == "The user moved to Porto"
            assert "dense" in (hit.why.arms if hit.why is not None else {})
            assert agent.embedder.dim == 32


@pytest.mark.torch
@pytest.mark.timeout(600)
@pytest.mark.skipif(
    not (SMALL / "model.safetensors").exists(),
    reason="needs the small model: python scripts/fetch_small_model.py",
)
@pytest.mark.parametrize(("name", "path", "key", "_"), RECIPES)
async def test_a_recipe_reaches_a_real_small_model(
    name: str, path: str, key: str | None, _: str, small: Any
) -> None:
    """A 135M model answers in words and cannot write the facts' JSON, which is told."""
    with ScriptedServer(server_of(answers_of(small, max_tokens=12))) as server:
        base = server.url.removesuffix("/v1") + path
        model = build_model(name, AgentSettings(), base_url=base, api_key=key)
        assert model is not None
        request = ModelRequest(
            role=Role.ANSWERER,
            messages=(Message(role="user", content="What is the capital of France?"),),
            sampling=Sampling(temperature=0.0, max_tokens=12),
        )
        assert "Paris" in (await model.complete(request)).text
        agent = AsyncAgent(model, path=":memory:", embedder="hashing", design="memory_r2_brief")
        report = await agent.remember("I moved to Porto in May.", session_id="s1")
        assert "could not be read" in report.chunks[0].note
        assert [item.text for item in await agent.memory.get_all()] == ["I moved to Porto in May."]


@pytest.fixture(scope="module")
def small() -> Any:
    loader: Any = load("models", "hf")
    return loader(str(SMALL))

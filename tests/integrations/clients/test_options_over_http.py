"""The fields of OpenAI's format that a client's request brings, on the wire to a provider."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from litellm_marks import LITELLM_MARKS
from scripted_server import Reply, ScriptedServer

from memagent.core.errors import RequestRefused
from memagent.core.exchange import Message, ModelRequest, ModelResponse, Role
from memagent.llm.litellm_model import LiteLLMModel

pytestmark = LITELLM_MARKS
KEY = "not-a-key"
HELLO = (Message(role="user", content="hello"),)
SCHEMA: Any = {"type": "object", "properties": {"city": {"type": "string"}}}


def complete(
    request: ModelRequest, server: ScriptedServer, name: str = "openai/test-model"
) -> ModelResponse:
    async def story() -> ModelResponse:
        model = LiteLLMModel(name, base_url=server.url, api_key=KEY)
        try:
            return await model.complete(request)
        finally:
            await model.aclose()

    return asyncio.run(story())


def test_options_go_as_they_are_and_what_the_provider_cannot_do_is_refused() -> None:
    options = {"logit_bias": {"7": 1.0}, "presence_penalty": 0.5}
    asked = ModelRequest(role=Role.ANSWERER, messages=HELLO, schema=SCHEMA, options=options)
    with ScriptedServer(["yes"]) as server:
        complete(asked, server)
    assert {name: server.requests[0].get(name) for name in options} == options
    with ScriptedServer([Reply.failing(400, error="invalid response_format")]) as server:
        with pytest.raises(RequestRefused, match="response_format"):
            complete(asked, server)
        assert len(server.requests) == 1, "the schema is not left out in silence"
    with ScriptedServer(["yes"]) as server:
        with pytest.raises(RequestRefused, match="logit_bias"):
            complete(asked, server, "ollama_chat/small")
        assert server.requests == ()


def test_images_go_beside_the_words_and_are_never_fetched_to_count_tokens() -> None:
    part = {"type": "image_url", "image_url": {"url": "http://images.invalid/a.png"}}
    looked = ModelRequest(
        role=Role.ANSWERER, messages=(Message(role="user", content="Look", parts=(part,)),)
    )
    with ScriptedServer([Reply(text="A cat.", with_usage=False)] * 2) as server:
        whole = complete(looked, server)
        assert whole.usage.prompt_tokens > 0
        assert server.requests[0]["messages"] == [
            {"role": "user", "content": [{"type": "text", "text": "Look"}, part]}
        ]


def test_the_providers_models_are_listed_and_a_request_may_name_one() -> None:
    extras = {"verbosity": "low", "reasoning_effort": "low", "top_k": 3}
    with ScriptedServer(["a", "b"]) as server:
        names = LiteLLMModel("openai/test-model", base_url=server.url, api_key=KEY).model_names
        assert asyncio.run(names()) == ("test-model",)
        for options in ({"model": "another/one", **extras}, {}):
            complete(ModelRequest(role=Role.ANSWERER, messages=HELLO, options=options), server)
    assert [body["model"] for body in server.requests] == ["another/one", "test-model"]
    assert {name: server.requests[0][name] for name in extras} == extras


@pytest.mark.parametrize("variable", ["OPENAI_BASE_URL", "OPENAI_API_BASE"])
def test_the_models_are_listed_at_the_address_that_calls_go_to(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ScriptedServer(["a"]) as server:
        monkeypatch.setenv(variable, server.url)
        model = LiteLLMModel("openai/test-model", api_key=KEY)
        assert asyncio.run(model.model_names()) == ("test-model",)
        asked = ModelRequest(role=Role.ANSWERER, messages=HELLO)
        assert asyncio.run(model.complete(asked)).text == "a"


def test_a_provider_that_lists_nothing_leaves_the_names_open() -> None:
    with ScriptedServer([]) as server:
        elsewhere = f"{server.url}/nowhere"
    names = LiteLLMModel("openai/x", base_url=elsewhere, api_key=KEY).model_names
    assert asyncio.run(names()) == ()
    assert asyncio.run(LiteLLMModel("some-model").model_names()) == ()

"""Where the models of a provider are listed, and what it means that none are."""

from __future__ import annotations

import asyncio

import pytest
from litellm_marks import LITELLM_MARKS
from scripted_server import ScriptedServer

from memagent.llm.litellm_model import LiteLLMModel

pytestmark = LITELLM_MARKS

KEY = "sk-a-secret-of-the-tests"


@pytest.mark.parametrize("variable", ["OPENAI_BASE_URL", "OPENAI_API_BASE"])
def test_models_are_listed_where_calls_go(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer([]) as server:
        monkeypatch.setenv(variable, server.url)
        names = LiteLLMModel("openai/x", api_key=KEY).model_names
        assert asyncio.run(names()) == ("test-model",)


def test_a_provider_that_lists_nothing_leaves_the_names_open() -> None:
    with ScriptedServer([]) as server:
        elsewhere = f"{server.url}/nowhere"
    names = LiteLLMModel("openai/x", base_url=elsewhere, api_key=KEY).model_names
    assert asyncio.run(names()) == ()
    assert asyncio.run(LiteLLMModel("some-model").model_names()) == ()

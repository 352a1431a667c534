"""What stock OpenAI clients send: tools, structured output, usage, and errors they can show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from service_kit import Served, serving

from memagent.core.errors import ModelRateLimited
from memagent.core.exchange import FinishReason, ModelRequest, ModelResponse, ToolCall, Usage
from memagent.testing.models import FunctionModel

TOOL: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tell the weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
USER: Any = {"role": "user", "content": "How is the weather where I live?"}


def upstream(request: ModelRequest) -> ModelResponse | str:
    """Call the offered tool, then answer from its result."""
    if "too fast" in request.messages[-1].content:
        raise ModelRateLimited("slow down")
    if request.schema_ is not None:
        return '{"city": "Lisbon"}'
    if request.messages[-1].role == "tool":
        return f"It is {request.messages[-1].content}."
    if not request.tools:
        return "No tools."
    return ModelResponse(
        id="r",
        tool_calls=(ToolCall(id="c1", name="weather", arguments='{"city": "Lisbon"}'),),
        finish=FinishReason.TOOL_CALLS,
        usage=Usage(calls=1, prompt_tokens=7, completion_tokens=3),
    )


@pytest.fixture(scope="module")
def model() -> FunctionModel:
    return FunctionModel(upstream)


@pytest.fixture(scope="module")
def served(model: FunctionModel) -> Iterator[Served]:
    with serving(model=model, design="verbatim") as running:
        yield running


@pytest.fixture
def client(served: Served) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as opened:
        yield opened


def texts(served: Served) -> list[str]:
    with served.http() as http:
        sessions = http.get("/v1/sessions").json()["items"]
    return [turn["text"] for session in sessions for turn in session["turns"]]


def test_an_agent_loop_calls_a_tool_and_the_exchange_is_remembered_once(
    served: Served, client: Any, model: FunctionModel
) -> None:
    with served.http() as http:
        http.post("/v1/memories", json={"text": "Ana lives in Lisbon"})
    messages: list[Any] = [USER]
    asked = client.chat.completions.create(model="memagent", messages=messages, tools=[TOOL])
    choice = asked.choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content is None
    [call] = choice.message.tool_calls
    assert (call.function.name, json.loads(call.function.arguments)) == (
        "weather",
        {"city": "Lisbon"},
    )
    assert asked.usage.total_tokens == 10
    [offered] = model.requests[-1].tools
    assert offered.parameters == TOOL["function"]["parameters"]
    assert "Ana lives in Lisbon" in "\n".join(one.content for one in model.requests[-1].messages)
    messages += [
        choice.message.model_dump(exclude_none=True) | {"content": None},
        {"role": "tool", "tool_call_id": call.id, "content": "sunny"},
    ]
    done = client.chat.completions.create(model="memagent", messages=messages, tools=[TOOL])
    assert done.choices[0].message.content == "It is sunny."
    assert done.choices[0].finish_reason == "stop"
    sent = model.requests[-1].messages
    assert [one.role for one in sent[-3:]] == ["user", "assistant", "tool"]
    assert sent[-1].tool_call_id == "c1" and sent[-2].tool_calls[0].id == "c1"
    messages += [
        {"role": "assistant", "content": "It is sunny."},
        {"role": "user", "content": "Thanks!"},
    ]
    client.chat.completions.create(
        model="memagent", messages=messages, tools=[TOOL], tool_choice="none"
    )
    assert model.requests[-1].tools == ()
    said = texts(served)
    assert [said.count(text) for text in (USER["content"], "It is sunny.", "Thanks!")] == [1, 1, 1]


def test_a_stream_carries_tool_calls_and_usage(client: Any) -> None:
    chunks = list(
        client.chat.completions.create(
            model="memagent",
            messages=[USER],
            tools=[TOOL],
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    calls = [
        call
        for chunk in chunks
        if chunk.choices
        for call in chunk.choices[0].delta.tool_calls or ()
    ]
    assert [(call.index, call.id, call.function.name) for call in calls] == [(0, "c1", "weather")]
    assert chunks[-2].choices[0].finish_reason == "tool_calls"
    assert chunks[-1].choices == [] and chunks[-1].usage.total_tokens == 10
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_structured_output_stop_and_seed_reach_the_model(client: Any, model: FunctionModel) -> None:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    answer = client.chat.completions.create(
        model="memagent",
        messages=[{"role": "user", "content": [{"type": "text", "text": "Where do I live?"}]}],
        response_format={"type": "json_schema", "json_schema": {"name": "c", "schema": schema}},
        stop="END",
        seed=7,
    )
    assert json.loads(answer.choices[0].message.content) == {"city": "Lisbon"}
    request = model.requests[-1]
    assert request.schema_ == schema
    assert (request.sampling.stop, request.sampling.seed) == (("END",), 7)


IMAGE: Any = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("n", {"n": 2}),
        ("logprobs", {"logprobs": True}),
        ("presence_penalty", {"presence_penalty": 1}),
        ("tool_choice", {"tool_choice": "required", "tools": [TOOL]}),
        ("response_format", {"response_format": {"type": "grammar"}}),
        ("reasoning_effort", {"reasoning_effort": "high"}),
        ("messages", {"messages": [{"role": "user", "content": IMAGE}]}),
        ("temperature", {"temperature": 9}),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_not_supported_is_refused_by_name(
    client: Any, field: str, given: dict[str, Any], stream: bool
) -> None:
    arguments = {"model": "memagent", "messages": [USER], "stream": stream, **given}
    with pytest.raises(openai.BadRequestError, match=field) as refused:
        client.chat.completions.create(**arguments)
    assert refused.value.type == "invalid_request_error" and refused.value.code


def test_errors_have_openais_shape_and_statuses(client: Any) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="gpt-4o", messages=[USER])
    assert missing.value.code == "model_not_found" and "gpt-4o" in missing.value.message
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-4o")
    assert client.models.retrieve("memagent").id == "memagent"
    fast: Any = [{"role": "user", "content": "too fast"}]
    with pytest.raises(openai.RateLimitError) as limited:
        client.chat.completions.create(model="memagent", messages=fast)
    assert limited.value.type == "rate_limit_error"
    with pytest.raises(openai.APIError, match="slow down"):
        list(client.chat.completions.create(model="memagent", messages=fast, stream=True))


@pytest.mark.parametrize("encoding", ["float", "base64", None])
def test_embeddings_are_the_memorys_own(client: Any, encoding: Any) -> None:
    given = {"encoding_format": encoding} if encoding else {}
    answer = client.embeddings.create(model="memagent", input=["green tea", "a dog"], **given)
    vectors = [row.embedding for row in answer.data]
    if encoding == "base64":
        assert all(isinstance(vector, str) for vector in vectors)
        return
    assert len(vectors) == 2 and vectors[0] != vectors[1]
    assert sum(number**2 for number in vectors[0]) == pytest.approx(1, abs=1e-4)

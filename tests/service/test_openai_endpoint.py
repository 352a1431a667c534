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


PIXEL: Any = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
FAR: Any = {"type": "image_url", "image_url": {"url": "http://10.0.0.1/secret.png"}}
VIDEO: Any = {"type": "video_url", "video_url": {"url": "data:,"}}


def said(*parts: Any) -> Any:
    return [{"role": "user", "content": list(parts)}]


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("n", {"n": 0}),
        ("audio", {"audio": {"voice": "alloy", "format": "wav"}}),
        ("modalities", {"modalities": ["text", "audio"]}),
        ("prediction", {"prediction": {"type": "content", "content": "x"}}),
        ("functions", {"functions": [{"name": "f"}]}),
        ("tool_choice", {"tool_choice": "required"}),
        ("tool_choice", {"tool_choice": {"type": "function", "function": {"name": "no"}}}),
        ("tools", {"tools": [{"type": "custom", "custom": {"name": "x"}}]}),
        ("response_format", {"response_format": {"type": "grammar"}}),
        ("web_search_options", {"web_search_options": {}}),
        ("metadata", {"metadata": {"memagent.memory": "maybe"}}),
        ("metadata", {"metadata": {"memagent.memroy": "off"}}),
        ("messages", {"messages": said(VIDEO)}),
        ("messages", {"messages": said(FAR)}),
        ("temperature", {"temperature": 9}),
        ("api_base", {"extra_body": {"api_base": "http://127.0.0.1:1"}}),
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


@pytest.mark.parametrize("stream", [False, True])
def test_extras_go_to_the_model_or_are_named_as_dropped(
    client: Any, model: FunctionModel, stream: bool
) -> None:
    extras = {"top_k": 5, "min_p": 0.1, "keep_alive": "5m", "reasoning": {"exclude": True}}
    answer = client.chat.completions.with_raw_response.create(
        model="memagent",
        messages=[USER],
        store=True,
        stream=stream,
        user="extras",
        extra_body=extras,
    )
    assert answer.headers["x-memagent-dropped"] == "keep_alive, reasoning, store"
    if stream:
        list(answer.parse())
    assert model.requests[-1].options == {"top_k": 5, "min_p": 0.1}
    plain = client.chat.completions.with_raw_response.create(
        model="memagent", messages=[USER], store=False, user="extras"
    )
    assert "x-memagent-dropped" not in plain.headers


def test_images_and_the_models_own_settings_go_through(client: Any, model: FunctionModel) -> None:
    words = {"type": "text", "text": "What is on my desk?"}
    history = said(words, PIXEL)
    forced = {"type": "function", "function": {"name": "weather"}}
    answer = client.chat.completions.create(
        model="memagent",
        messages=history,
        tools=[TOOL],
        tool_choice=forced,
        parallel_tool_calls=False,
        logit_bias={"7": -1},
        presence_penalty=0.5,
        reasoning_effort="low",
    )
    assert answer.choices[0].message.tool_calls
    sent = model.requests[-1]
    assert sent.messages[-1].parts == (PIXEL,)
    assert sent.options == {
        "tools": [TOOL],
        "tool_choice": forced,
        "parallel_tool_calls": False,
        "logit_bias": {"7": -1.0},
        "presence_penalty": 0.5,
        "reasoning_effort": "low",
    }
    history += [{"role": "assistant", "content": "A lamp."}, {"role": "user", "content": "Lit?"}]
    client.chat.completions.create(model="memagent", messages=history)
    shown = model.requests[-1].messages
    assert [message.parts for message in shown if message.role == "user"] == [(PIXEL,), ()]
    client.chat.completions.create(model="memagent", messages=said(PIXEL))
    assert "[image]" in model.requests[-1].messages[-1].content
    assert model.requests[-1].messages[-1].parts == (PIXEL,)


LOGPROBS: Any = {"content": [{"token": "a", "logprob": -0.1, "bytes": [97], "top_logprobs": []}]}


@pytest.fixture
def drawing() -> FunctionModel:
    def answer(request: ModelRequest) -> ModelResponse:
        seed = request.sampling.seed
        asked = bool((request.options or {}).get("logprobs"))
        text = "Once upon a time" if "long" in request.messages[-1].content else f"Draw {seed}"
        finish = FinishReason.LENGTH if text.startswith("Once") else FinishReason.STOP
        used = Usage(calls=1, prompt_tokens=5, completion_tokens=2)
        told = LOGPROBS if asked else None
        return ModelResponse(id="r", text=text, usage=used, finish=finish, logprobs=told)

    return FunctionModel(answer)


@pytest.mark.parametrize("stream", [False, True])
def test_choices_log_probabilities_and_length_come_back(
    drawing: FunctionModel, stream: bool
) -> None:
    with (
        serving(model=drawing, design="verbatim") as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as client,
    ):
        asked: Any = {"model": "memagent", "n": 3, "seed": 4, "logprobs": True, "top_logprobs": 2}
        asked["messages"] = [{"role": "user", "content": "Draw!"}]
        if stream:
            words, ends, spent = ["", "", ""], {}, 0
            options: Any = {"include_usage": True}
            chunks: Any = client.chat.completions.create(
                **asked, stream=True, stream_options=options
            )
            for chunk in chunks:
                spent = chunk.usage.total_tokens if chunk.usage else 0
                for choice in chunk.choices:
                    words[choice.index] += choice.delta.content or ""
                    if choice.finish_reason:
                        ends[choice.index] = choice.logprobs.content[0].token
            assert (words, spent) == (["Draw 4", "Draw 5", "Draw 6"], 21)
            assert ends == {0: "a", 1: "a", 2: "a"}
        else:
            answer = client.chat.completions.create(**asked)
            assert [choice.index for choice in answer.choices] == [0, 1, 2]
            contents = [choice.message.content for choice in answer.choices]
            assert contents == ["Draw 4", "Draw 5", "Draw 6"]
            assert answer.usage.total_tokens == 21
            assert answer.choices[1].logprobs.content[0].logprob == -0.1
        assert drawing.requests[-1].options == {"logprobs": True, "top_logprobs": 2}
        assert texts(running) == ["Draw!", "Draw 4"], "the first choice is the one remembered"
        cut = client.chat.completions.create(
            model="memagent", messages=[{"role": "user", "content": "A long one"}]
        )
        assert cut.choices[0].finish_reason == "length" and len(cut.choices) == 1
        assert cut.choices[0].logprobs is None


class Plain:
    """A model that heeds no options."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        return ModelResponse(id="r", text="yes")


@pytest.mark.parametrize("has_model", [True, False])
def test_what_the_model_cannot_do_is_refused(has_model: bool) -> None:
    with (
        serving(model=Plain() if has_model else None, design="verbatim") as running,
        openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0) as client,
    ):
        hello: Any = [{"role": "user", "content": "Hello"}]
        wishes: list[Any] = [{"logprobs": True}, {"presence_penalty": 1}, {"messages": said(PIXEL)}]
        if not has_model:
            wishes += [{"n": 2}, {"response_format": {"type": "json_object"}}, {"tools": [TOOL]}]
        for wish in wishes:
            with pytest.raises(openai.BadRequestError, match=f"`{next(iter(wish))}`"):
                client.chat.completions.create(**{"model": "memagent", "messages": hello, **wish})
        assert texts(running) == []
        neutral: Any = {"logprobs": False, "presence_penalty": 0, "n": 1, "store": False}
        client.chat.completions.create(model="memagent", messages=hello, **neutral)


@pytest.mark.parametrize("stream", [False, True])
def test_memory_off_recalls_and_stores_nothing(
    served: Served, client: Any, model: FunctionModel, stream: bool
) -> None:
    with served.http() as http:
        http.post("/v1/memories", json={"text": "Ana plays the cello"})
    asked: Any = [
        {"role": "user", "content": f"Hello {stream}"},
        {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": f"Who plays the cello, {stream}?"},
    ]
    answer = client.chat.completions.create(
        model="memagent",
        messages=asked,
        metadata={"memagent.memory": "off"},
        stream=stream,
        user="nobody",
    )
    if stream:
        list(answer)
    shown = [message.content for message in model.requests[-1].messages]
    assert shown == [message["content"] for message in asked], "the provider gets what was sent"
    assert not any("Ana plays" in text for text in shown)
    assert not any(str(stream) in text for text in texts(served))
    client.chat.completions.create(model="memagent", messages=asked[2:])
    assert "Ana plays the cello" in "\n".join(one.content for one in model.requests[-1].messages)


def test_the_user_field_names_the_memory_where_the_key_allows_it(
    served: Served, client: Any
) -> None:
    hello: Any = [{"role": "user", "content": "I collect stamps."}]
    answer = client.chat.completions.create(
        model="memagent", messages=hello, user="dora", extra_headers={"X-Memagent-Thread": "t1"}
    )
    assert answer.memagent["thread"] == "t1"
    with served.http() as http:
        [session] = http.get("/v1/sessions", params={"user_id": "dora"}).json()["items"]
    assert session["turns"][0]["text"] == "I collect stamps." and session["thread"] == "t1"
    assert "I collect stamps." not in texts(served)
    with pytest.raises(openai.BadRequestError, match="two users"):
        client.chat.completions.create(
            model="memagent", messages=hello, user="dora", extra_query={"user_id": "eva"}
        )


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


@pytest.mark.parametrize("stream", [False, True])
def test_a_text_is_completed_by_the_model_alone(
    served: Served, client: Any, model: FunctionModel, stream: bool
) -> None:
    before = texts(served)
    options: Any = {"stream_options": {"include_usage": True}} if stream else {}
    answer = client.completions.create(
        model="memagent", prompt=["Once upon a time"], max_tokens=9, stream=stream, **options
    )
    chunks: list[Any] = list(answer) if stream else [answer]
    choices = [choice for chunk in chunks for choice in chunk.choices]
    assert "".join(choice.text for choice in choices) == "No tools."
    assert choices[-1].finish_reason == "stop" and chunks[-1].usage is not None
    [message] = model.requests[-1].messages
    assert (message.role, message.content) == ("user", "Once upon a time")
    assert model.requests[-1].sampling.max_tokens == 9
    assert texts(served) == before
    for name, value in (("suffix", "end"), ("echo", True), ("best_of", 2), ("logprobs", 1)):
        with pytest.raises(openai.BadRequestError, match=name):
            client.completions.create(model="memagent", prompt="Once", **{name: value})
    with pytest.raises(openai.BadRequestError, match="prompt"):
        client.completions.create(model="memagent", prompt=[1, 2])

"""`LiteLLMModel` against a real HTTP server on this machine: answers, tools, streams,
and every way a provider fails.

The vendor's import takes seconds and happens once, in the first test that needs it,
under the suite's network guard.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.request import urlopen

import pytest
from litellm_marks import LITELLM_MARKS
from scripted_server import Handler, Reply, ScriptedServer

from memagent.core.errors import (
    BudgetExceeded,
    ConfigError,
    ContextOverflow,
    ModelAuthError,
    ModelError,
    ModelNotFound,
    ModelRateLimited,
    ModelTimeout,
    ModelUnavailable,
    QuotaExhausted,
    RequestRefused,
)
from memagent.core.exchange import (
    Delta,
    FinishReason,
    Message,
    ModelRequest,
    ModelResponse,
    Role,
    Sampling,
    ToolCall,
    ToolSpec,
)
from memagent.llm.litellm_model import LiteLLMModel
from memagent.llm.wrappers import BudgetedModel, RetryingModel
from memagent.testing.models import check_chat_model

pytestmark = LITELLM_MARKS

KEY = "sk-a-secret-of-the-tests"
TOOL = ToolSpec(
    name="lookup",
    description="Weather.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}},
)
CALLS = (
    ToolCall(id="c1", name="lookup", arguments='{"city": "Oslo"}'),
    ToolCall(id="c2", name="lookup", arguments="{}"),
)
SCHEMA = {
    "title": "Facts",
    "type": "object",
    "properties": {"facts": {"type": "array", "items": {"type": "string"}}},
}
Script = Handler | Sequence[Reply | str]
T = TypeVar("T")


def ask(text: str = "hello", **fields: Any) -> ModelRequest:
    return ModelRequest(
        role=Role.EXTRACTOR, messages=(Message(role="user", content=text),), **fields
    )


def run(server: ScriptedServer, work: Callable[[LiteLLMModel], Awaitable[T]], **settings: Any) -> T:
    """Let `work` use a model of the server on a loop of its own."""

    async def main() -> T:
        model = LiteLLMModel(
            "openai/test-model",
            base_url=server.url,
            **{"api_key": KEY, "timeout_s": 5.0, **settings},
        )
        try:
            return await work(model)
        finally:
            await model.aclose()

    return asyncio.run(main())


def answer(script: Script, request: ModelRequest | None = None, **settings: Any) -> ModelResponse:
    with ScriptedServer(script) as server:
        return run(server, lambda model: model.complete(request or ask()), **settings)


def stream(script: Script, request: ModelRequest | None = None, **settings: Any) -> list[Delta]:
    async def collect(model: LiteLLMModel) -> list[Delta]:
        return [delta async for delta in model.stream(request or ask())]

    with ScriptedServer(script) as server:
        return run(server, collect, **settings)


@pytest.fixture(autouse=True)
def _tracing_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables that make tracing libraries phone home where somebody listens to them."""
    for name in ("LANGSMITH_TRACING", "LANGCHAIN_TRACING_V2"):
        monkeypatch.setenv(name, "true")
    for name in (
        "LANGSMITH_API_KEY",
        "LANGFUSE_SECRET_KEY",
        "LANGFUSE_PUBLIC_KEY",
        "HELICONE_API_KEY",
    ):
        monkeypatch.setenv(name, "not-a-key")


# The network


def test_import_and_calls_reach_nothing_but_the_given_server(
    network_attempts: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(".env").write_text("MEMAGENT_TEST_LEAK=1\n")
    assert answer(["hello"]).text == "hello"
    assert stream(["hello"])[-1].response is not None
    assert answer([Reply(text="uncounted", with_usage=False)], ask("x")).usage.completion_tokens > 0
    assert network_attempts == []
    assert os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] == "True"
    assert "MEMAGENT_TEST_LEAK" not in os.environ


# Answers


def test_an_answer_carries_text_tokens_time_and_a_fresh_id() -> None:
    with ScriptedServer(
        lambda body, index: Reply(text="the answer", prompt_tokens=30, completion_tokens=4)
    ) as server:

        async def twice(model: LiteLLMModel) -> tuple[ModelResponse, ModelResponse]:
            return await model.complete(ask()), await model.complete(ask())

        first, second = run(server, twice)
    assert (first.text, first.finish, first.model) == (
        "the answer",
        FinishReason.STOP,
        "test-model",
    )
    assert (first.usage.calls, first.usage.prompt_tokens, first.usage.completion_tokens) == (
        1,
        30,
        4,
    )
    assert first.usage.seconds > 0
    assert first.id != second.id
    assert first.tokens is None


def test_a_known_price_is_reported_and_an_unknown_one_is_none() -> None:
    assert answer(["hello"]).usage.cost_usd is None
    with ScriptedServer(["hello"]) as server:

        async def priced(_: LiteLLMModel) -> ModelResponse:
            return await LiteLLMModel(
                "openai/gpt-4o-mini", base_url=server.url, api_key=KEY
            ).complete(ask())

        response = run(server, priced)
    assert response.usage.cost_usd == pytest.approx(11 * 0.15e-6 + 7 * 0.6e-6)


def test_sampling_and_extra_settings_go_over_the_wire_and_unset_ones_do_not() -> None:
    sampling = Sampling(temperature=0.25, top_p=0.5, max_tokens=9, seed=3, stop=("END",))
    with ScriptedServer(["a", "b"]) as server:
        run(
            server,
            lambda model: model.complete(ask(sampling=sampling)),
            extra={"extra_body": {"top_k": 5}},
        )
        run(server, lambda model: model.complete(ask()))
    first, second = server.requests
    assert {
        name: first[name]
        for name in ("temperature", "top_p", "max_tokens", "seed", "stop", "top_k")
    } == {
        "temperature": 0.25,
        "top_p": 0.5,
        "max_tokens": 9,
        "seed": 3,
        "stop": ["END"],
        "top_k": 5,
    }
    assert set(second) <= {"model", "messages"}


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_text_hidden_in_a_reasoning_field_is_found(field: Any) -> None:
    hidden = Reply(text="", reasoning="the answer", reasoning_field=field)
    assert answer([hidden]).text == "the answer"
    assert [delta.text for delta in stream([hidden])] == ["the answer"]
    beside = Reply(text="the answer", reasoning="a thought", reasoning_field=field)
    assert answer([beside]).text == "the answer"
    assert "".join(delta.text for delta in stream([beside])) == "the answer"


def test_thoughts_in_the_content_are_left_out_whole_and_streamed() -> None:
    thinking = Reply(text="<think>first this, a > b, then that</think>\n\nthe answer")
    deltas = stream([thinking])
    assert answer([thinking]).text.strip() == "the answer"
    assert "".join(delta.text for delta in deltas).strip() == "the answer"
    assert len(deltas) > 2


def test_an_empty_or_malformed_text_is_an_answer() -> None:
    assert answer([Reply(text="")]).text == ""
    assert answer(['{"facts": [tru'], ask(schema=SCHEMA)).text == '{"facts": [tru'
    assert answer([Reply(text="cut of", finish="length")]).finish is FinishReason.LENGTH
    cut = answer([Reply(text="half", finish="content_filter")])
    assert (cut.text, cut.finish) == ("half", FinishReason.CONTENT_FILTER)


def test_tokens_a_server_does_not_count_are_estimated_without_a_price() -> None:
    usage = answer(
        [Reply(text="one two three four", with_usage=False)], ask("five words of a prompt")
    ).usage
    assert usage.prompt_tokens >= 5
    assert usage.completion_tokens >= 4
    assert usage.cost_usd is None


# Tools


def test_tool_calls_come_back_and_their_results_go_out() -> None:
    with ScriptedServer([Reply(tool_calls=CALLS), "4 degrees"]) as server:

        async def converse(model: LiteLLMModel) -> tuple[ModelResponse, ModelResponse]:
            offered = await model.complete(ask(tools=(TOOL,)))
            messages = (
                *ask().messages,
                Message(role="assistant", tool_calls=offered.tool_calls),
                *(
                    Message(role="tool", content="4", tool_call_id=call.id)
                    for call in offered.tool_calls
                ),
            )
            return offered, await model.complete(
                ModelRequest(role=Role.EXTRACTOR, messages=messages, tools=(TOOL,))
            )

        offered, final = run(server, converse)
    assert offered.tool_calls == CALLS
    assert (offered.finish, offered.text, final.text) == (FinishReason.TOOL_CALLS, "", "4 degrees")
    first, second = server.requests
    tools: Any = first["tools"]
    assert tools[0]["function"] == {
        "name": "lookup",
        "description": "Weather.",
        "parameters": TOOL.parameters,
    }
    messages: Any = second["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool"]
    assert messages[1]["tool_calls"][0]["function"] == {
        "name": "lookup",
        "arguments": '{"city": "Oslo"}',
    }
    assert messages[3]["tool_call_id"] == "c2"


def test_streamed_tool_calls_are_put_together() -> None:
    response = stream([Reply(text="let me look", tool_calls=CALLS)], ask(tools=(TOOL,)))[
        -1
    ].response
    assert response is not None
    assert (response.tool_calls, response.text, response.finish) == (
        CALLS,
        "let me look",
        FinishReason.TOOL_CALLS,
    )


# Structured output


def test_the_schema_is_sent_and_strict_only_where_it_may_be() -> None:
    closed = {**SCHEMA, "additionalProperties": False, "required": ["facts"]}
    with ScriptedServer(["{}", "{}", "{}"]) as server:
        for schema, mode in ((SCHEMA, "auto"), (closed, "always"), (closed, "never")):
            run(
                server,
                lambda model, schema=schema: model.complete(ask(schema=schema)),
                json_schema=mode,
            )
    formats: list[Any] = [body.get("response_format") for body in server.requests]
    assert [one and one["json_schema"]["strict"] for one in formats] == [False, True, None]
    assert formats[0]["json_schema"]["name"] == "Facts"
    assert formats[0]["json_schema"]["schema"] == SCHEMA


def test_always_sends_the_schema_even_to_a_model_that_litellm_thinks_unfit() -> None:
    with ScriptedServer(["{}", "{}"]) as server:

        async def both(_: LiteLLMModel) -> None:
            for mode in ("auto", "always"):
                model = LiteLLMModel(
                    "openai/gpt-4", base_url=server.url, api_key=KEY, json_schema=mode
                )
                await model.complete(ask(schema=SCHEMA))

        run(server, both)
    assert ["response_format" in body for body in server.requests] == [False, True]


def refuses_schemas(body: Any, index: int) -> Reply:
    if "response_format" in body:
        return Reply.failing(
            400, error="'response_format' of type 'json_schema' is not supported with this model"
        )
    return Reply(text="{}")


def test_a_refused_schema_is_left_out_once_and_for_all() -> None:
    with ScriptedServer(refuses_schemas) as server:

        async def three(model: LiteLLMModel) -> None:
            for _ in range(2):
                assert (await model.complete(ask(schema=SCHEMA))).text == "{}"
            assert [delta async for delta in model.stream(ask(schema=SCHEMA))][
                -1
            ].response is not None

        run(server, three)
    assert ["response_format" in body for body in server.requests] == [True, False, False, False]


def test_a_refusal_that_is_not_about_the_answers_schema_is_not_remembered() -> None:
    with ScriptedServer(
        [Reply.failing(400, error="invalid schema of a tool")] * 2 + ["{}"]
    ) as server:

        async def twice(model: LiteLLMModel) -> None:
            with pytest.raises(ModelError, match="invalid schema of a tool"):
                await model.complete(ask(schema=SCHEMA))
            await model.complete(ask(schema=SCHEMA))

        run(server, twice)
    assert ["response_format" in body for body in server.requests] == [True, False, True]


def test_a_refused_schema_is_an_error_when_it_must_be_kept() -> None:
    with pytest.raises(ModelError, match="not supported with this model") as caught:
        answer(refuses_schemas, ask(schema=SCHEMA), json_schema="always")
    assert not caught.value.retryable


def test_another_bad_request_is_not_repeated_without_the_schema() -> None:
    with (
        ScriptedServer([Reply.failing(400, error="unknown model")]) as server,
        pytest.raises(ModelError, match="unknown model"),
    ):
        run(server, lambda model: model.complete(ask(schema=SCHEMA)))
    assert len(server.requests) == 1


# Failures

FAULTS: list[tuple[Reply, type[ModelError], bool]] = [
    (Reply.rate_limited(retry_after_s=1.5), ModelRateLimited, True),
    (
        Reply(status=429, error="You exceeded your quota", error_code="insufficient_quota"),
        QuotaExhausted,
        False,
    ),
    (Reply.failing(500), ModelUnavailable, True),
    (Reply.failing(502), ModelUnavailable, True),
    (Reply.failing(503), ModelUnavailable, True),
    (Reply.failing(529), ModelUnavailable, True),
    (Reply.failing(408), ModelTimeout, True),
    (Reply.failing(504), ModelTimeout, True),
    (Reply.failing(401), ModelAuthError, False),
    (Reply.failing(403), ModelAuthError, False),
    (Reply.failing(400), RequestRefused, False),
    (Reply.failing(404), ModelNotFound, False),
    (Reply.failing(422), RequestRefused, False),
    (
        Reply(
            status=400,
            error="maximum context length is 8 tokens",
            error_code="context_length_exceeded",
        ),
        ContextOverflow,
        False,
    ),
    (Reply.hanging(), ModelTimeout, True),
    (Reply.truncated(), ModelUnavailable, True),
    (Reply.dropped(), ModelUnavailable, True),
    (Reply.misshapen(), ModelUnavailable, True),
    (Reply(body=[]), ModelUnavailable, True),
    (Reply(body={"id": "x", "choices": []}), ModelUnavailable, True),
    (Reply(body={"error": {"message": "no"}}), RequestRefused, False),
]


@pytest.mark.parametrize(
    ("fault", "kind", "retryable"),
    FAULTS,
    ids=[f"{fault.status}-{kind.__name__}" for fault, kind, _ in FAULTS],
)
def test_each_failure_is_one_typed_error_after_one_request(
    fault: Reply, kind: type[ModelError], retryable: bool
) -> None:
    with ScriptedServer(lambda body, index: fault) as server, pytest.raises(ModelError) as caught:
        run(server, lambda model: model.complete(ask()), timeout_s=0.3 if fault.delay_s else 5.0)
    error = caught.value
    assert type(error) is kind
    assert error.retryable is retryable
    assert "openai/test-model" in str(error)
    assert len(server.requests) == 1


def test_the_vendors_exception_is_kept_as_the_cause() -> None:
    with pytest.raises(ModelUnavailable) as caught:
        answer([Reply.failing(500)])
    assert type(caught.value.__cause__).__name__ == "InternalServerError"


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        ("1.5", 1.5, 1.5),
        ("0", 0.0, 0.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0, 0.0),
        ("soon", None, None),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(
    value: str, low: float | None, high: float | None
) -> None:
    with pytest.raises(ModelRateLimited) as caught:
        answer([Reply(status=429, headers={"Retry-After": value})])
    wait_s = caught.value.retry_after
    assert wait_s is None if low is None or high is None else low <= wait_s <= high  # type: ignore[operator]


def test_no_credential_is_shown_by_an_error_its_chain_or_the_models_repr() -> None:
    leaks = [
        Reply.failing(401, error=f"Incorrect API key provided: {KEY}"),
        Reply.failing(500, error=f"upstream said: Authorization: Bearer {KEY}"),
    ]
    for leak in leaks:
        with pytest.raises(ModelError) as caught:
            answer([leak])
        shown = "".join(traceback.format_exception(caught.value))
        assert KEY not in shown
        assert "[key]" in str(caught.value)
    assert KEY not in repr(LiteLLMModel("openai/test-model", api_key=KEY))


def test_a_credential_among_the_extra_settings_is_not_shown_either() -> None:
    token = "a-token-without-a-known-shape"
    with pytest.raises(ModelError) as caught:
        answer(
            [Reply.failing(500, error=f"header x-auth was {token}")],
            extra={"extra_headers": {"x-auth": token}},
        )
    assert token not in "".join(traceback.format_exception(caught.value))


# Streams


def test_a_stream_gives_pieces_and_ends_with_the_whole_response() -> None:
    deltas = stream(
        [Reply(text="an answer in several pieces", prompt_tokens=30, completion_tokens=6)]
    )
    response = deltas[-1].response
    assert response is not None
    assert len(deltas) > 3
    assert "".join(delta.text for delta in deltas) == response.text == "an answer in several pieces"
    assert (response.usage.prompt_tokens, response.usage.completion_tokens) == (30, 6)
    assert response.finish is FinishReason.STOP


def test_pieces_come_before_the_answer_is_complete() -> None:
    async def first_piece_s(model: LiteLLMModel) -> tuple[float, float]:
        started = time.perf_counter()
        times = [time.perf_counter() - started async for delta in model.stream(ask()) if delta.text]
        return times[0], times[-1]

    with ScriptedServer([Reply(text="five and five and five", piece_delay_s=0.05)]) as server:
        first, last = run(server, first_piece_s)
    assert last - first > 0.1


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Reply.rate_limited(), ModelRateLimited),
        (Reply.failing(500), ModelUnavailable),
        (Reply.dropped(), ModelUnavailable),
        (Reply.misshapen(), ModelUnavailable),
        (Reply(text="a text without an end", unended=True), ModelUnavailable),
        (Reply(text="a text cut short", truncate_bytes=700), ModelUnavailable),
        (Reply(text="a text cut short", truncate_bytes=10), ModelUnavailable),
        (Reply.hanging(), ModelTimeout),
        (Reply(text="a text that stalls", piece_delay_s=30.0), ModelTimeout),
    ],
)
def test_a_broken_stream_is_a_typed_error(fault: Reply, kind: type[ModelError]) -> None:
    slow = fault.delay_s or fault.piece_delay_s
    with pytest.raises(ModelError) as caught:
        stream(lambda body, index: fault, timeout_s=0.3 if slow else 5.0)
    assert type(caught.value) is kind


def test_a_stream_that_is_given_up_leaves_the_model_usable() -> None:
    async def give_up(model: LiteLLMModel) -> str:
        deltas = model.stream(ask())
        async for _ in deltas:
            break
        await deltas.aclose()  # type: ignore[attr-defined]
        return (await model.complete(ask())).text

    with ScriptedServer([Reply(text="a long answer", piece_delay_s=0.02), "after all"]) as server:
        assert run(server, give_up) == "after all"


# The server itself


def test_an_exhausted_script_and_a_broken_handler_say_so() -> None:
    with pytest.raises(ModelError, match="the script has 0 replies; this is request 1"):
        answer([])

    def broken(body: object, index: int) -> str:
        raise LookupError("no such answer")

    async def swallow(model: LiteLLMModel) -> None:
        with pytest.raises(ModelError, match="the handler raised"):
            await model.complete(ask())

    server = ScriptedServer(broken)
    with pytest.raises(LookupError, match="no such answer"), server:
        run(server, swallow)


def test_leaving_the_server_wakes_hanging_replies() -> None:
    started = time.perf_counter()
    with pytest.raises(ModelTimeout, match=r"openai/test-model: .*(?:no answer within|timed out)"):
        answer([Reply.hanging(600.0)], timeout_s=0.2)
    assert time.perf_counter() - started < 300


def test_the_server_lists_its_model() -> None:
    with ScriptedServer([]) as server, urlopen(f"{server.url}/models", timeout=5) as reply:
        assert json.load(reply)["data"][0]["id"] == "test-model"


# The whole stack


def test_the_model_passes_the_checker() -> None:
    with ScriptedServer(lambda body, index: f"answer {index}") as server:

        async def check(_: LiteLLMModel) -> None:
            await check_chat_model(
                lambda: LiteLLMModel("openai/test-model", base_url=server.url, api_key=KEY)
            )

        run(server, check)


def test_retries_ride_out_a_rate_limit_and_a_failure_and_the_budget_counts_each_attempt() -> None:
    replies = [
        Reply.rate_limited(retry_after_s=0.02),
        Reply.failing(500),
        Reply.truncated(),
        "at last",
    ]
    with ScriptedServer(replies) as server:

        async def stacked(model: LiteLLMModel) -> tuple[str, int]:
            budgeted = BudgetedModel(model, max_calls=4)
            retrying = RetryingModel(budgeted, first_wait_s=0.001)
            text = (await retrying.complete(ask())).text
            with pytest.raises(BudgetExceeded):
                await retrying.complete(ask())
            return text, budgeted.spent.calls

        assert run(server, stacked) == ("at last", 4)
    assert len(server.requests) == 4


async def test_one_model_serves_several_event_loops_in_turn() -> None:
    with ScriptedServer(lambda body, index: f"answer {index}") as server:
        model = LiteLLMModel("openai/test-model", base_url=server.url, api_key=KEY)

        async def once() -> str:
            text = (await model.complete(ask())).text
            await model.aclose()
            return text

        assert [await once() for _ in range(3)] == ["answer 0", "answer 1", "answer 2"]


# Settings


def test_what_a_request_sets_comes_before_the_extra_settings() -> None:
    with ScriptedServer(["a", "b"]) as server:
        run(server, lambda model: model.complete(ask(sampling=Sampling(seed=2))), extra={"seed": 1})
        run(server, lambda model: model.complete(ask()), extra={"seed": 1})
    assert [body["seed"] for body in server.requests] == [2, 1]


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigError, match="name a provider"):
        LiteLLMModel(" ")
    with pytest.raises(ConfigError, match="timeout_s must be above 0"):
        LiteLLMModel("openai/x", timeout_s=0)
    with pytest.raises(ConfigError, match="must not set num_retries, stream"):
        LiteLLMModel("openai/x", extra={"num_retries": 3, "stream": True})

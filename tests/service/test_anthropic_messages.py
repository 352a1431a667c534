"""Anthropic's Messages format: blocks, tools, the order of events, errors, and counts."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from service_kit import Served, serving

from memagent.core.errors import ModelRateLimited
from memagent.core.exchange import Delta, FinishReason, ModelRequest, ModelResponse, ToolCall, Usage
from memagent.testing.models import FunctionModel

TOOL: Any = {
    "name": "weather",
    "description": "Tell the weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
ASKED: Any = {"role": "user", "content": "How is the weather where I live?"}
USED: Any = {"type": "tool_use", "id": "c1", "name": "weather", "input": {"city": "Lisbon"}}


def upstream(request: ModelRequest) -> ModelResponse | str:
    last = request.messages[-1]
    if "too fast" in last.content:
        raise ModelRateLimited("slow down")
    if "long" in last.content:
        return ModelResponse(id="r", text="Once", finish=FinishReason.LENGTH)
    if last.role == "tool":
        return f"It is {last.content}."
    if not request.tools:
        return "Hello there."
    call = ToolCall(id="c1", name="weather", arguments='{"city": "Lisbon"}')
    return ModelResponse(
        id="r",
        text="I look.",
        tool_calls=(call,),
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


def post(served: Served, body: Any, path: str = "/v1/messages", **headers: str) -> Any:
    with served.http(**headers) as http:
        return http.post(path, json={"model": "memagent", "max_tokens": 100, **body})


def events_of(text: str) -> list[Any]:
    events: list[Any] = []
    for block in text.strip().split("\n\n"):
        name, data = block.split("\n")
        value = json.loads(data.removeprefix("data: "))
        assert name == f"event: {value['type']}"
        events.append(value)
    return events


def test_a_tool_loop_is_answered_and_remembered_once(served: Served, model: FunctionModel) -> None:
    with served.http() as http:
        http.post("/v1/memories", json={"text": "Ana lives in Lisbon"})
    system: Any = [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]
    first = post(served, {"messages": [ASKED], "tools": [TOOL], "system": system}).json()
    assert (first["type"], first["role"], first["stop_reason"]) == (
        "message",
        "assistant",
        "tool_use",
    )
    assert first["content"] == [{"type": "text", "text": "I look."}, USED]
    assert first["usage"] == {"input_tokens": 7, "output_tokens": 3}
    request = model.requests[-1]
    assert request.messages[0].content == "Be brief."
    assert "Ana lives in Lisbon" in "\n".join(message.content for message in request.messages)
    assert request.tools[0].parameters == TOOL["input_schema"]
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "sunny"}
    messages: Any = [
        ASKED,
        {"role": "assistant", "content": [thought, *first["content"]]},
        {"role": "user", "content": [result]},
    ]
    second = post(served, {"messages": messages, "tools": [TOOL]}).json()
    assert second["content"] == [{"type": "text", "text": "It is sunny."}]
    assert second["stop_reason"] == "end_turn" and second["memagent"]["thread"]
    sent = model.requests[-1].messages
    assert [message.role for message in sent[-3:]] == ["user", "assistant", "tool"]
    assert sent[-1].tool_call_id == "c1" and sent[-2].tool_calls[0].id == "c1"
    with served.http() as http:
        sessions = http.get("/v1/sessions").json()["items"]
    said = [turn["text"] for session in sessions for turn in session["turns"]]
    assert said.count(ASKED["content"]) == 1 and said.count("It is sunny.") == 1


def test_events_come_in_anthropics_order(served: Served) -> None:
    body = {"messages": [ASKED], "tools": [TOOL], "stream": True, "metadata": {"user_id": "eve"}}
    events = events_of(post(served, body).text)
    kinds = [event["type"] for event in events if event["type"] != "ping"]
    text = ["content_block_start", *["content_block_delta"] * kinds.count("content_block_delta")]
    assert kinds == [
        "message_start",
        *text[:-1],
        "content_block_stop",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert events[0]["message"]["content"] == [] and events[0]["message"]["stop_reason"] is None
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert "".join(delta.get("text", "") for delta in deltas) == "I look."
    assert json.loads("".join(delta.get("partial_json", "") for delta in deltas)) == USED["input"]
    starts = [event for event in events if event["type"] == "content_block_start"]
    assert [start["index"] for start in starts] == [0, 1]
    assert starts[1]["content_block"] == {**USED, "input": {}}
    assert events[-2]["delta"] == {"stop_reason": "tool_use", "stop_sequence": None}
    assert events[-2]["usage"] == {"input_tokens": 7, "output_tokens": 3}


TEXTS = ("Hello.", "\n\n", "", "\n\nWell.\n")


def asked_of(request: ModelRequest) -> tuple[int, str]:
    """The case that the last message names; memories may stand before it."""
    number, words = re.findall(r"Case (\d): (.*)", request.messages[-1].content)[-1]
    return int(number), words


class Odd(FunctionModel):
    """Says the text that a message names, with or without a call, streamed or all at once."""

    def __init__(self) -> None:
        super().__init__(self._say)

    @staticmethod
    def _say(request: ModelRequest) -> ModelResponse:
        number, words = asked_of(request)
        call = ToolCall(id="c1", name="weather", arguments="{}")
        calls = (call,) if "call" in words else ()
        return ModelResponse(id="r", text=TEXTS[number], tool_calls=calls)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        if "abruptly" in asked_of(request)[1]:
            yield Delta(response=await self.complete(request))
        else:
            async for delta in super().stream(request):
                yield delta


def blocks_of(events: list[Any]) -> list[Any]:
    """What a client makes of the events; each block has to be opened and closed once."""
    blocks: list[Any] = []
    for event in events:
        match event:
            case {"type": "content_block_start", "content_block": block}:
                assert event["index"] == len(blocks)
                blocks.append({**block, "open": True})
            case {"type": "content_block_delta", "delta": delta}:
                assert blocks[event["index"]]["open"]
                blocks[event["index"]]["text"] = blocks[-1].get("text", "") + delta.get("text", "")
            case {"type": "content_block_stop"}:
                assert blocks[event["index"]]["open"]
                blocks[event["index"]]["open"] = False
            case _:
                pass
    assert not any(block["open"] for block in blocks)
    return blocks


def test_a_block_is_opened_once_and_closed_whatever_the_model_streams() -> None:
    with serving(model=Odd(), design="verbatim") as running:
        for number, text in enumerate(TEXTS):
            for words in ("plainly", "with a call", "abruptly", "abruptly with a call"):
                for name in ("memagent", "memagent:nomemory"):
                    said = {"role": "user", "content": f"Case {number}: {words}"}
                    asked = {"model": name, "messages": [said], "tools": [TOOL]}
                    blocks = blocks_of(events_of(post(running, {**asked, "stream": True}).text))
                    whole = post(running, asked).json()["content"]
                    told = text if name.endswith(":nomemory") else text.strip()
                    kinds = ["text"] * bool(told) + ["tool_use"] * ("call" in words)
                    assert [block["type"] for block in blocks] == kinds, (name, said)
                    assert [block["type"] for block in whole] == kinds, (name, said)
                    assert not told or (blocks[0]["text"].rstrip(), whole[0]["text"]) == (
                        told.rstrip(),
                        told,
                    )


def test_blocks_reach_the_model_and_length_is_told(served: Served, model: FunctionModel) -> None:
    pixel = {"type": "base64", "media_type": "image/png", "data": "AA"}
    blocks = [{"type": "text", "text": "A long look"}, {"type": "image", "source": pixel}]
    body = {"messages": [{"role": "user", "content": blocks}], "top_k": 4}
    answer = post(served, {**body, "thinking": {"type": "enabled", "budget_tokens": 1024}})
    assert answer.json()["stop_reason"] == "max_tokens"
    assert answer.headers["x-memagent-dropped"] == "thinking"
    [part] = model.requests[-1].messages[-1].parts
    assert part["image_url"]["url"] == "data:image/png;base64,AA"
    assert (model.requests[-1].options or {})["top_k"] == 4
    seen = [{"type": "image", "source": pixel}]
    result = {"type": "tool_result", "tool_use_id": "c1", "content": seen}
    turns: Any = [
        {"role": "user", "content": "Look again"},
        {"role": "assistant", "content": [USED]},
        {"role": "user", "content": [result, {"type": "text", "text": "And now?"}]},
    ]
    assert post(served, {"messages": turns}).status_code == 200


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ({"type": "any"}, "required"),
        (
            {"type": "tool", "name": "weather"},
            {"type": "function", "function": {"name": "weather"}},
        ),
        ({"type": "auto", "disable_parallel_tool_use": True}, None),
    ],
)
def test_tool_choices_are_kept(
    served: Served, model: FunctionModel, choice: Any, sent: Any
) -> None:
    body = {"messages": [ASKED], "tools": [TOOL], "tool_choice": choice}
    assert post(served, body).status_code == 200
    options = model.requests[-1].options or {}
    assert options.get("tool_choice") == sent
    assert ("parallel_tool_calls" in options) is ("disable_parallel_tool_use" in choice)


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("tools", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
        ("messages", {"messages": [{"role": "user", "content": [{"type": "video"}]}]}),
        ("container", {"container": "c"}),
        ("mcp_servers", {"mcp_servers": [{"type": "url", "url": "http://127.0.0.1:1"}]}),
        ("output_config", {"output_config": {"format": {"type": "json_schema"}}}),
        ("tool_choice", {"tool_choice": {"type": "tool", "name": "none"}}),
    ],
)
def test_what_would_change_the_meaning_is_refused(
    served: Served, field: str, given: dict[str, Any]
) -> None:
    refused = post(served, {"messages": [ASKED], **given})
    assert refused.status_code == 400
    error = refused.json()
    assert error["type"] == "error" and error["error"]["type"] == "invalid_request_error"
    assert field in error["error"]["message"]


def test_errors_have_anthropics_shape(served: Served) -> None:
    missing = post(served, {"model": "claude-x", "messages": [ASKED]})
    assert missing.status_code == 404 and missing.json()["error"]["type"] == "not_found_error"
    fast = {"messages": [{"role": "user", "content": "too fast"}]}
    limited = post(served, fast)
    assert limited.status_code == 429 and limited.json()["error"]["type"] == "rate_limit_error"
    last = events_of(post(served, {**fast, "stream": True}).text)[-1]
    assert last["type"] == "error" and "slow down" in last["error"]["message"]


def test_a_key_is_taken_from_x_api_key_and_needs_the_scopes_of_chat() -> None:
    body = {"model": "memagent", "messages": [{"role": "user", "content": "I own a kayak."}]}
    paths = ("/v1/messages", "/v1/chat/completions")
    with serving(model=FunctionModel(upstream), design="verbatim") as running:
        key = running.key("ana")
        for path in paths:
            assert post(running, body, path, **{"X-Api-Key": key}).status_code == 200
            wrong = post(running, body, path, **{"X-Api-Key": "ma_wrong"})
            assert wrong.status_code == 401
            assert wrong.json()["error"]["type"] == "authentication_error"
            nowhere = post(running, body, f"{path[:4]}nowhere", **{"X-Api-Key": "ma_wrong"})
            assert nowhere.status_code == 401
            assert nowhere.json()["error"]["type"] == "authentication_error"
            for scopes in (("chat",), ("memory:write",), ("memory:read", "memory:write")):
                lacking = running.key("ana", *scopes)
                assert post(running, body, path, **{"X-Api-Key": lacking}).status_code == 403
        reader = {"X-Api-Key": running.key("ana", "memory:read")}
        chatter = {"X-Api-Key": running.key("ana", "chat")}
        for path, asked in (
            ("/v1/messages/count_tokens", body),
            ("/v1/completions", {"model": "memagent", "prompt": "Once"}),
        ):
            assert post(running, asked, path, **reader).status_code == 403
            assert post(running, asked, path, **chatter).status_code == 200
        with running.http(key) as http:
            nowhere = http.get("/v1/nowhere")
            assert nowhere.status_code == 404 and nowhere.json()["error"]["message"]


def test_tokens_are_counted_without_asking_the_model(served: Served, model: FunctionModel) -> None:
    before = len(model.requests)
    path = "/v1/messages/count_tokens"
    few = post(served, {"messages": [ASKED]}, path).json()["input_tokens"]
    more = post(served, {"messages": [ASKED], "system": "A rule. " * 50}, path).json()
    assert 0 < few < more["input_tokens"] and len(model.requests) == before

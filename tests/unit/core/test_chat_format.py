"""The chat format that providers speak: what goes out, and what is read from the odd
shapes that come back.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest
from hypothesis import given, strategies as st

from memagent.core.errors import MissingExtra
from memagent.core.exchange import FinishReason, Message, ModelRequest, Role, ToolCall, ToolSpec
from memagent.llm.chat_format import (
    ThoughtFilter,
    allows_strict,
    chat_messages,
    chat_tools,
    count_of,
    find_text,
    find_tool_calls,
    finish_reason,
    request_body,
    response_format,
)
from memagent.llm.litellm_model import LiteLLMModel


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": "plain"}, "plain"),
        ({"content": "plain", "reasoning_content": "a thought"}, "plain"),
        ({"content": None, "reasoning_content": "hidden"}, "hidden"),
        ({"content": " ", "reasoning": "hidden"}, "hidden"),
        (
            {
                "content": "",
                "thinking_blocks": [{"type": "thinking", "thinking": "hid"}, {"thinking": "den"}],
            },
            "hidden",
        ),
        ({"content": "", "provider_specific_fields": {"reasoning": "hidden"}}, "hidden"),
        ({"content": None, "refusal": "I will not"}, "I will not"),
        (
            {"content": [{"type": "text", "text": "two "}, {"type": "text", "text": "parts"}]},
            "two parts",
        ),
        ({"content": "<think>hm</think>said"}, "said"),
        ({"content": "<thinking>a\n>b</thinking>\nsaid"}, "\nsaid"),
        ({"content": "<think>never closed"}, "<think>never closed"),
        ({"content": "said <think>later</think>"}, "said <think>later</think>"),
        ({"content": None, "reasoning": "why", "tool_calls": [{}]}, ""),
        ({"content": None}, ""),
        ({}, ""),
        ({"content": 5, "reasoning_content": {"deep": 1}}, ""),
    ],
)
def test_the_answer_is_found_wherever_the_provider_put_it(
    message: dict[str, Any], text: str
) -> None:
    assert find_text(message) == text


@given(
    thought=st.sampled_from(
        [
            "",
            "<think>a > b</think>",
            "<thinking>x</thinking>",
            " <think></think>",
            "<thin",
            "<think>",
            "<b>",
        ]
    ),
    answer=st.text(alphabet="ab<>/ \n", max_size=12),
    size=st.integers(min_value=1, max_value=9),
)
def test_streamed_pieces_add_up_to_the_answer_however_they_are_cut(
    thought: str, answer: str, size: int
) -> None:
    text = thought + answer
    thoughts = ThoughtFilter()
    shown = "".join(thoughts.feed(text[i : i + size]) for i in range(0, len(text), size))
    whole = find_text({"content": text})
    assert whole.startswith(shown)
    assert shown or not whole.strip() or whole.lstrip().startswith("<")


def test_tool_calls_without_id_name_or_arguments_can_still_be_answered() -> None:
    calls = find_tool_calls(
        {
            "tool_calls": [
                {"function": {"name": "f", "arguments": "{}"}},
                {"id": "c"},
                "odd",
                {"function": None},
            ]
        }
    )
    assert [call.id for call in calls] == ["call_0", "c", "call_2", "call_3"]
    assert [call.name for call in calls] == ["f", "unnamed", "unnamed", "unnamed"]
    assert {call.arguments for call in calls} == {"{}"}
    assert find_tool_calls({"tool_calls": None}) == ()


@pytest.mark.parametrize(
    ("raw", "tools", "reason"),
    [
        ("stop", False, FinishReason.STOP),
        ("stop", True, FinishReason.TOOL_CALLS),
        ("function_call", True, FinishReason.TOOL_CALLS),
        ("length", True, FinishReason.LENGTH),
        ("content_filter", False, FinishReason.CONTENT_FILTER),
        ("eos", False, FinishReason.OTHER),
        (None, False, FinishReason.OTHER),
    ],
)
def test_finish_reasons_are_read(raw: Any, tools: bool, reason: FinishReason) -> None:
    assert finish_reason(raw, asked_for_tools=tools) is reason


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (
            {
                "type": "object",
                "properties": {"a": {}},
                "required": ["a"],
                "additionalProperties": False,
            },
            True,
        ),
        (
            {
                "type": "object",
                "properties": {"a": {}},
                "required": [],
                "additionalProperties": False,
            },
            False,
        ),
        ({"type": "object", "properties": {"a": {}}, "required": ["a"]}, False),
        ({"type": "array", "items": {"type": "object"}}, False),
        ({"anyOf": [{"type": "string"}, {"properties": {"a": {}}}]}, False),
        ({"type": "string"}, True),
    ],
)
def test_strict_decoding_is_asked_for_only_where_every_object_is_closed(
    schema: Any, strict: bool
) -> None:
    assert allows_strict(schema) is strict


def test_the_schemas_name_is_one_that_providers_take() -> None:
    wire: Any = response_format(
        {"title": "Facts & more!" + "x" * 90, "type": "string"}, name="extractor"
    )
    assert wire["json_schema"]["name"] == ("Facts___more_" + "x" * 90)[:64]
    unnamed: Any = response_format({"type": "string"}, name="extractor")
    assert unnamed["json_schema"]["name"] == "extractor"


def test_messages_and_tools_take_the_wire_form() -> None:
    call = ToolCall(id="c", name="f", arguments='{"a": 1}')
    wire: Any = chat_messages(
        (
            Message(role="system", content="be brief"),
            Message(role="assistant", tool_calls=(call,)),
            Message(role="tool", content="1", tool_call_id="c"),
        )
    )
    assert wire[0] == {"role": "system", "content": "be brief"}
    assert wire[1]["content"] is None
    assert wire[1]["tool_calls"] == [
        {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    ]
    assert wire[2] == {"role": "tool", "content": "1", "tool_call_id": "c"}
    tools: Any = chat_tools((ToolSpec(name="f"),))
    assert tools[0]["function"]["parameters"] == {"type": "object", "properties": {}}


def test_only_what_was_asked_for_is_in_the_body() -> None:
    plain = ModelRequest(role=Role.JUDGE, messages=(Message(role="user", content="q"),))
    assert set(request_body(plain, with_schema=True)) == {"messages"}
    shaped = plain.model_copy(update={"schema_": {"type": "object"}})
    assert set(request_body(shaped, with_schema=True)) == {"messages", "response_format"}
    assert set(request_body(shaped, with_schema=False)) == {"messages"}


@pytest.mark.parametrize(
    ("usage", "count"),
    [({"n": 3}, 3), ({"n": -3}, 0), ({"n": None}, 0), ({"n": "3"}, 0), (None, 0)],
)
def test_counts_are_never_negative_and_never_missing(usage: Any, count: int) -> None:
    assert count_of(usage, "n") == count


def test_without_litellm_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "litellm", None)
    with pytest.raises(MissingExtra, match=r'pip install "memagent\[llm\]"'):
        LiteLLMModel("openai/x")

"""Personal data stays away from the model and from spans, and memory keeps it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from memagent import AsyncAgent
from memagent.config import AgentSettings, ModelSettings
from memagent.core.exchange import (
    Delta,
    Message,
    ModelRequest,
    ModelResponse,
    Role,
    ToolCall,
)
from memagent.llm import wrappers as redacting
from memagent.opening.open_store import build_model
from memagent.testing.models import FunctionModel
from memagent.tracing.masking import Mask

PRIVATE = (
    "ana.silva+home@example.org",
    "+351 912 345 678",
    "+351 912 345 6781",
    "(415) 555-0133",
    "0171 2345678",
    "4111 1111 1111 1111",
    "DE89 3704 0044 0532 0130 00",
    "078-05-1120",
)
BESIDE = (
    ("4111 1111 1111 1111ana@x.org", "PII-CARD-1"),
    ("Call (415) 555-0133 or 0171@x.org.", "Call PII-PHONE-1 or PII-EMAIL-2."),
)
"""Personal data that touches or holds other personal data."""
PUBLIC = (
    "I moved on 2024-05-01 at 10:30, to number 1204.",
    "The trip cost 1,200.50 euros; 4111 1111 1111 1112 is no card.",
    "Version 1.2.3, room 555 0199, order A-1234.",
)


def asking(text: str) -> ModelRequest:
    call = ToolCall(id="c1", name="mail", arguments=json.dumps({"to": text}))
    messages = (
        Message(role="user", content=f"Write to {text} now, {text}!"),
        Message(role="assistant", tool_calls=(call,)),
    )
    return ModelRequest(role=Role.ANSWERER, messages=messages)


@pytest.mark.parametrize("private", PRIVATE)
async def test_the_model_sees_a_placeholder_and_the_caller_the_value(private: str) -> None:
    seen: list[str] = []

    def answer(request: ModelRequest) -> ModelResponse:
        seen.append(request.model_dump_json())
        word = request.messages[0].content.split()[2]
        return ModelResponse(
            id="r1",
            text=f"I wrote to {word}.",
            tool_calls=(ToolCall(id="c2", name="mail", arguments=json.dumps({"to": word})),),
        )

    model = redacting.RedactingModel(FunctionModel(answer))
    response = await model.complete(asking(private))
    assert private not in seen[0] and seen[0].count("-1") >= 3
    assert response.text == f"I wrote to {private}."
    assert json.loads(response.tool_calls[0].arguments) == {"to": private}


@pytest.mark.parametrize("public", PUBLIC)
def test_dates_and_plain_numbers_stay(public: str) -> None:
    assert Mask().masked(public) == public


class Streaming:
    """A model that streams a text a character at a time."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        return ModelResponse(id="r1", text=request.messages[0].content)

    async def stream(self, request: ModelRequest) -> Any:
        text = request.messages[0].content
        for sign in text:
            yield Delta(text=sign)
        yield Delta(response=ModelResponse(id="r1", text=text))


async def test_a_stream_gives_no_half_of_a_placeholder() -> None:
    request = asking(PRIVATE[0])
    deltas = [delta async for delta in redacting.RedactingModel(Streaming()).stream(request)]
    words = request.messages[0].content
    assert "".join(delta.text for delta in deltas) == words
    assert not [delta for delta in deltas if "PII" in delta.text]
    assert deltas[-1].response is not None and deltas[-1].response.text == words


async def test_memory_keeps_what_the_model_did_not_see() -> None:
    prompts: list[str] = []

    def extract(request: ModelRequest) -> ModelResponse:
        prompts.append(request.model_dump_json())
        placeholder = next(
            word for word in request.messages[-1].content.split() if "PII-EMAIL" in word
        )
        text = f"The user's address is {placeholder.strip('.,')}"
        facts = {"facts": [{"text": text, "subject": None, "source": "s1:1", "when": None}]}
        return ModelResponse(id="r1", text=json.dumps(facts))

    model = redacting.RedactingModel(FunctionModel(extract))
    async with AsyncAgent(
        model=model, path=":memory:", embedder="hashing", design="add_only", user_id="ana"
    ) as agent:
        await agent.remember(f"My address is {PRIVATE[0]} since May.", session_id="s1")
        texts = [item.text for item in await agent.memory.get_all()]
    assert prompts and not [prompt for prompt in prompts if PRIVATE[0] in prompt]
    assert [text for text in texts if PRIVATE[0] in text]


def test_a_setting_turns_it_on() -> None:
    for redact in (False, True):
        settings = AgentSettings(model=ModelSettings(model="openai/x", redact=redact))
        model = build_model(None, settings)
        assert isinstance(model, redacting.RedactingModel) is redact


def test_hostile_text_takes_linear_time() -> None:
    for piece in ("a", "a.", "1 ", "1-", "+1 ", "0", "A1", "DE12 ", "x@", "("):
        took: list[float] = []
        for chars in (20_000, 80_000):
            text = (piece * chars)[:chars]
            began = time.thread_time()
            for _ in range(3):
                Mask().masked(text)
            took.append(time.thread_time() - began)
        assert took[1] < 12 * max(took[0], 0.002), piece


@pytest.mark.parametrize(("text", "masked"), BESIDE)
def test_what_overlaps_is_masked_as_one(text: str, masked: str) -> None:
    mask = Mask()
    assert mask.masked(text) == masked and mask.unmasked(masked) == text

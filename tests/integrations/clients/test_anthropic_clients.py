"""The checks of `docs/integrations/checks.md` with Anthropic's Python client, which refuses
what its own types do not allow. `scripts/framework_tests.py langchain` has the client.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from client_ground import Ground, client_ground
from litellm_marks import LITELLM_MARKS
from places import ROOT

pytestmark = [pytest.mark.process, *LITELLM_MARKS]
PAGE = ROOT / "docs" / "integrations" / "checks.md"
CITY: Any = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL: Any = {"name": "weather", "description": "Tell the weather", "input_schema": CITY}
Check = Callable[[Ground, str], None]
CHECKS: dict[str, Check] = {}


def check(says: str) -> Callable[[Check], Check]:
    """Enter a check under what it shows."""

    def enter(run: Check) -> Check:
        CHECKS[says] = run
        return run

    return enter


def vendor() -> Any:
    return importlib.import_module("anthropic")


def opened(ground: Ground, kind: str = "Anthropic") -> Any:
    strict = {"max_retries": 0, "_strict_response_validation": True}
    return getattr(vendor(), kind)(base_url=ground.url, api_key="any", **strict)


def asked(user: str, *messages: Any, **more: Any) -> dict[str, Any]:
    listed = [{"role": "user", "content": m} if isinstance(m, str) else m for m in messages]
    owner = {"metadata": {"user_id": user}}
    return {"model": "memagent", "max_tokens": 100, "messages": listed, **owner, **more}


@check("a message, with its usage, and its tokens counted")
def _(ground: Ground, user: str) -> None:
    with opened(ground) as client:
        message = client.messages.create(**asked(user, "I row", system="Be brief."))
        counted = client.messages.count_tokens(
            model="memagent", messages=[{"role": "user", "content": "I row"}]
        )
    assert [block.text for block in message.content] == ["You said: I row"]
    assert message.stop_reason == "end_turn" and message.usage.output_tokens > 0
    assert counted.input_tokens > 0
    assert ground.sent["messages"][0]["content"].startswith("Be brief.")
    assert ground.turns(user) == ["I row", "You said: I row"]


@check("what one conversation says, another one recalls, with its citation")
def _(ground: Ground, user: str) -> None:
    ground.add(user, "Ana's cat is called Bolt")
    with opened(ground) as client:
        message = client.messages.create(**asked(user, "What is my cat called?"))
    assert message.content[0].text == "Your cat is called Bolt."
    assert message.memagent["citations"][0]["hit_id"].startswith("mem_")


@check("the events of a stream, put together")
def _(ground: Ground, user: str) -> None:
    with opened(ground) as client, client.messages.stream(**asked(user, "I row")) as stream:
        kinds = [event.type for event in stream]
        message = stream.get_final_message()
    assert message.content[0].text == "You said: I row"
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")
    for kind in ("content_block_start", "content_block_stop", "message_delta"):
        assert kinds.count(kind) == 1
    assert message.stop_reason == "end_turn" and message.usage.output_tokens > 0


@check("the raw events of a stream are all of known types")
def _(ground: Ground, user: str) -> None:
    with opened(ground) as client:
        events = list(
            client.messages.create(**asked(user, "The weather?", tools=[TOOL]), stream=True)
        )
    assert {type(event).__name__ for event in events} == {
        "RawMessageStartEvent",
        "RawContentBlockStartEvent",
        "RawContentBlockDeltaEvent",
        "RawContentBlockStopEvent",
        "RawMessageDeltaEvent",
        "RawMessageStopEvent",
    }


@check("a streamed tool loop, written once")
def _(ground: Ground, user: str) -> None:
    messages: list[Any] = ["The weather?"]
    reasons: list[str] = []
    with opened(ground) as client:
        for _ in range(2):
            with client.messages.stream(**asked(user, *messages, tools=[TOOL])) as stream:
                said = stream.get_final_message()
            reasons.append(said.stop_reason)
            messages.append({"role": "assistant", "content": said.content})
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": block.id,
                    "content": f"sunny in {block.input['city']}",
                }
                for block in said.content
                if block.type == "tool_use"
            ]
            messages += [{"role": "user", "content": results}] if results else []
        client.messages.create(**asked(user, *messages, "Thanks!"))
    assert reasons == ["tool_use", "end_turn"]
    told = ["The weather?", "It is sunny in Lisbon.", "Thanks!", "You said: Thanks!"]
    assert ground.turns(user) == told


@check("a forced tool is called, and an image reaches the model")
def _(ground: Ground, user: str) -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "AA=="}
    look = {"role": "user", "content": [{"type": "image", "source": source}, text("Look")]}
    choice = {"type": "tool", "name": "weather"}
    with opened(ground) as client:
        forced = client.messages.create(**asked(user, "Hello", tools=[TOOL], tool_choice=choice))
        client.messages.create(**asked(user, look))
    assert forced.content[-1].type == "tool_use" and forced.stop_reason == "tool_use"
    assert "data:image/png;base64,AA==" in str(ground.sent["messages"][-1])


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


@check("errors have their classes, inside a stream too")
def _(ground: Ground, user: str) -> None:
    with opened(ground) as client:
        for words, kind in (("too fast", "RateLimitError"), ("refuse me", "BadRequestError")):
            with pytest.raises(getattr(vendor(), kind)):
                client.messages.create(**asked(user, words))
        with pytest.raises(vendor().NotFoundError):
            client.messages.create(**asked(user, "Hello", model="claude-x"))
        with (
            pytest.raises(vendor().APIError, match="quota"),
            client.messages.stream(**asked(user, "too fast")) as stream,
        ):
            stream.get_final_message()


@check("the asynchronous client streams")
def _(ground: Ground, user: str) -> None:
    async def story() -> str:
        async with (
            opened(ground, "AsyncAnthropic") as client,
            client.messages.stream(**asked(user, "I bake bread")) as stream,
        ):
            return "".join([piece async for piece in stream.text_stream])

    assert asyncio.run(story()) == "You said: I bake bread"


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with client_ground(tmp_path_factory.mktemp("clients")) as running:
        yield running


@pytest.mark.skipif(
    importlib.util.find_spec("anthropic") is None,
    reason="needs anthropic: python scripts/framework_tests.py langchain",
)
@pytest.mark.parametrize("number", range(len(CHECKS)), ids=lambda n: list(CHECKS)[n][:60])
def test_anthropics_client_is_at_home(number: int, ground: Ground) -> None:
    list(CHECKS.values())[number](ground, f"claude{number}")


def test_the_page_lists_these_checks() -> None:
    rows = re.findall(r"^\| \d+ \| anthropic \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.M)
    assert rows == list(CHECKS)

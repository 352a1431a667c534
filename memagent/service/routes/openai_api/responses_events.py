"""The events of a streamed response, in the order and the words of OpenAI's."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing
from typing import Any

from memagent.client.faults import problem_of
from memagent.core.answers import ReplyDelta
from memagent.core.errors import MemAgentError
from memagent.service.problems import openai_error
from memagent.service.routes.openai_api.responses_format import (
    Item,
    ResponseObject,
    message_item,
    text_part,
)

_CODES = {"rate_limit_error": "rate_limit_exceeded", "invalid_request_error": "invalid_prompt"}
Event = tuple[str, Item]


async def response_events(
    begun: ResponseObject, told: AsyncGenerator[ReplyDelta | ResponseObject]
) -> AsyncGenerator[str]:
    """Yield the events of a response, of which `told` yields the words and at last itself."""
    number = 0

    def written(event: Event) -> str:
        nonlocal number
        name, more = event
        data = {"type": name, "sequence_number": number, **more}
        number += 1
        return f"event: {name}\ndata: {json.dumps(data)}\n\n"

    speaking = False
    try:
        async with aclosing(told) as pieces:
            await anext(pieces)
            for name in ("response.created", "response.in_progress"):
                yield written((name, {"response": _plain(begun)}))
            async for piece in pieces:
                if isinstance(piece, ResponseObject):
                    for event in _end(piece, speaking=speaking):
                        yield written(event)
                elif piece.text:
                    for event in () if speaking else _opened(begun.key):
                        yield written(event)
                    speaking = True
                    delta: Item = {"delta": piece.text, "logprobs": []}
                    yield written(("response.output_text.delta", _place(begun.key) | delta))
    except MemAgentError as exc:
        error = openai_error(problem_of(exc))
        code = _CODES.get(error["type"], "server_error")
        failed = begun.model_copy(
            update={"status": "failed", "error": {"code": code, "message": error["message"]}}
        )
        yield written(("response.failed", {"response": _plain(failed)}))


def _place(key: str) -> Item:
    return {"item_id": f"msg_{key}", "output_index": 0, "content_index": 0}


def _opened(key: str) -> Generator[Event]:
    item = message_item(key, "", status="in_progress")
    yield "response.output_item.added", {"output_index": 0, "item": item}
    yield "response.content_part.added", _place(key) | {"part": text_part("")}


def _end(response: ResponseObject, *, speaking: bool) -> Generator[Event]:
    for index, item in enumerate(response.output):
        if item["type"] == "message":
            if not speaking:
                yield from _opened(response.key)
            yield from _spoken(response.key, item)
        else:
            yield from _called(index, item)
        yield "response.output_item.done", {"output_index": index, "item": item}
    yield f"response.{response.status}", {"response": _plain(response)}


def _spoken(key: str, item: Item) -> Generator[Event]:
    part = item["content"][0]
    words = {"text": part["text"], "logprobs": part["logprobs"]}
    yield "response.output_text.done", _place(key) | words
    yield "response.content_part.done", _place(key) | {"part": part}


def _called(index: int, item: Item) -> Generator[Event]:
    place = {"item_id": item["id"], "output_index": index}
    begun = {**item, "arguments": "", "status": "in_progress"}
    yield "response.output_item.added", {"output_index": index, "item": begun}
    arguments = item["arguments"]
    yield "response.function_call_arguments.delta", place | {"delta": arguments}
    done = {"name": item["name"], "arguments": arguments}
    yield "response.function_call_arguments.done", place | done


def _plain(response: ResponseObject) -> dict[str, Any]:
    return response.model_dump(mode="json")

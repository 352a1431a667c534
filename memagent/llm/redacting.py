"""A model that is never shown personal data that has a known form.

Addresses and numbers become placeholders in the request, and the values again in the
reply, so memory keeps them. The surprise: what a model computes from a value, such as
its last digits, it computes from the placeholder. Images are not looked at.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing

from memagent.core.exchange import Delta, Message, ModelRequest, ModelResponse, ToolCall
from memagent.llm.wrappers import ModelWrapper, stream_of
from memagent.tracing.masking import Mask


class RedactingModel(ModelWrapper):
    """Puts placeholders for personal data into requests and takes them out of replies."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer as the model does to the masked request."""
        mask = Mask()
        return _restored(await self._model.complete(_masked(request, mask)), mask)

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Stream as the model does; a placeholder comes in one piece."""
        mask = Mask()
        return _restored_stream(stream_of(self._model, _masked(request, mask)), mask)


def _masked(request: ModelRequest, mask: Mask) -> ModelRequest:
    messages = tuple(_masked_message(message, mask) for message in request.messages)
    return request.model_copy(update={"messages": messages})


def _masked_message(message: Message, mask: Mask) -> Message:
    calls = tuple(
        call.model_copy(update={"arguments": mask.masked(call.arguments)})
        for call in message.tool_calls
    )
    update = {"content": mask.masked(message.content), "tool_calls": calls}
    return message.model_copy(update=update)


def _restored(response: ModelResponse, mask: Mask) -> ModelResponse:
    calls: tuple[ToolCall, ...] = tuple(
        call.model_copy(update={"arguments": mask.unmasked(call.arguments)})
        for call in response.tool_calls
    )
    update = {"text": mask.unmasked(response.text), "tool_calls": calls}
    return response.model_copy(update=update)


async def _restored_stream(
    stream: AsyncGenerator[Delta], mask: Mask
) -> AsyncGenerator[Delta, None]:
    held = ""
    async with aclosing(stream):
        async for delta in stream:
            held += delta.text
            end = len(held) if delta.response is not None else mask.finished(held)
            text, held = held[:end], held[end:]
            response = delta.response and _restored(delta.response, mask)
            if text or response is not None:
                yield Delta(text=mask.unmasked(text), response=response)
    if held:
        yield Delta(text=mask.unmasked(held))

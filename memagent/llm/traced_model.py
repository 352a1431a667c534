"""A model whose calls are spans, by the conventions for generative AI: who was asked,
in which role, tokens, cost, and how it ended.

Put around everything else, so that one span covers a call with all its retries. Prompts
and answers are told only below a span that may tell texts (`memagent.tracing`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

from memagent.core.exchange import Delta, Message, ModelRequest, ModelResponse
from memagent.llm.wrappers import name_of, stream_of
from memagent.protocols import ChatModel
from memagent.tracing import (
    NO_SPAN,
    Attributes,
    Span,
    made_id,
    messages_content,
    span,
    tracing,
    usage_figures,
    within,
)

_PROVIDERS: Final = {
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "vertex_ai": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}
"""Providers that the conventions call otherwise than litellm does."""


class TracedModel:
    """Tells of every call in a span; the answers are the model's own."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model

    def name_for(self, request: ModelRequest) -> str:
        """Name of the model that would answer."""
        return name_of(self._model, request)

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer as the model does."""
        with self._span(request) as one:
            response = await self._model.complete(request)
            _tell(one, request, response)
            return response

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Stream as the model does; the span ends with the stream."""
        one = self._span(request)
        one.put({"gen_ai.request.stream": True})
        return within(one, _told(one, request, stream_of(self._model, request)))

    def _span(self, request: ModelRequest) -> Span:
        if not tracing():
            return NO_SPAN
        asked = name_of(self._model, request)
        name = f"chat {asked.rpartition('/')[2]}".rstrip()
        return span(name, kind="client", attributes=_call_figures(request, asked))


def traced(model: ChatModel) -> ChatModel:
    """The model with a span for each call, or the model itself where nothing is traced."""
    return TracedModel(model) if tracing() else model


async def _told(
    one: Span, request: ModelRequest, stream: AsyncGenerator[Delta]
) -> AsyncGenerator[Delta]:
    try:
        async for delta in stream:
            if delta.response is not None:
                _tell(one, request, delta.response)
            yield delta
    finally:
        await stream.aclose()


def _tell(one: Span, request: ModelRequest, response: ModelResponse) -> None:
    if one.recording:
        one.put(_response_figures(response))
        one.content(
            lambda: {
                **messages_content("gen_ai.input.messages", request.messages),
                **messages_content(
                    "gen_ai.output.messages", [Message(role="assistant", content=response.text)]
                ),
            }
        )


def _call_figures(request: ModelRequest, asked: str) -> Attributes:
    """What is known before the call; `asked` is `provider/model`, a bare name, or empty."""
    provider, slash, model = asked.partition("/")
    sampling = request.sampling
    given = {
        "gen_ai.request.model": (model if slash else asked) or None,
        "gen_ai.request.temperature": sampling.temperature,
        "gen_ai.request.top_p": sampling.top_p,
        "gen_ai.request.max_tokens": sampling.max_tokens,
        "gen_ai.request.seed": sampling.seed,
        "gen_ai.output.type": "json" if request.schema_ is not None else None,
        "memagent.prompt.digest": request.prompt_digest or None,
        "memagent.chunk.index": request.step.chunk_index,
    }
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": _PROVIDERS.get(provider, provider) if slash else "custom",
        "memagent.role": request.role.value,
        **made_id("gen_ai.conversation.id", request.step.session_id),
        **{name: value for name, value in given.items() if value is not None},
    }


def _response_figures(response: ModelResponse) -> Attributes:
    """What is known once it is answered."""
    return {
        **usage_figures(response.usage),
        **({"gen_ai.response.model": response.model} if response.model else {}),
        **made_id("gen_ai.response.id", response.id),
        "gen_ai.response.finish_reasons": (response.finish.value,),
    }

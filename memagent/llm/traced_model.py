"""A model whose calls are spans, by the conventions for generative AI.

A span tells model, role, tokens, cost and finish. The wrapper goes around all others,
so that one span covers a call with all its retries. Prompts and answers are included
only below a span that captures content (`memagent.tracing`).
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Final

from memagent.core.exchange import Delta, Message, ModelRequest, ModelResponse
from memagent.llm.wrappers import ModelWrapper, stream_of
from memagent.protocols import ChatModel
from memagent.tracing import (
    NO_SPAN,
    Attributes,
    Span,
    messages_content,
    own_id,
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


class TracedModel(ModelWrapper):
    """Puts every call into a span; the answers are the model's own."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer as the model does."""
        with self._span(request) as call_span:
            response = await self._model.complete(request)
            _put_response(call_span, request, response)
            return response

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Stream as the model does; the span ends with the stream."""
        call_span = self._span(request)
        call_span.put({"gen_ai.request.stream": True})
        return within(call_span, _observed(call_span, request, stream_of(self._model, request)))

    def _span(self, request: ModelRequest) -> Span:
        if not tracing():
            return NO_SPAN
        model = self.name_for(request)
        name = f"chat {model.rpartition('/')[2]}".rstrip()
        return span(name, kind="client", attributes=_call_figures(request, model))


def traced(model: ChatModel) -> ChatModel:
    """Give the model a span for each call, where the program traces."""
    return TracedModel(model) if tracing() else model


async def _observed(
    call_span: Span, request: ModelRequest, stream: AsyncGenerator[Delta]
) -> AsyncGenerator[Delta]:
    async with aclosing(stream):
        async for delta in stream:
            if delta.response is not None:
                _put_response(call_span, request, delta.response)
            yield delta


def _put_response(call_span: Span, request: ModelRequest, response: ModelResponse) -> None:
    if call_span.recording:
        answer = Message(role="assistant", content=response.text)
        call_span.put(_response_figures(response))
        call_span.content(
            lambda: {
                **messages_content("gen_ai.input.messages", request.messages),
                **messages_content("gen_ai.output.messages", [answer]),
            }
        )


def _call_figures(request: ModelRequest, name: str) -> Attributes:
    """Return the attributes before the call; `name` is `provider/model`, bare, or empty."""
    provider, slash, model = name.partition("/")
    sampling = request.sampling
    optional = {
        "gen_ai.request.model": (model if slash else name) or None,
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
        **own_id("gen_ai.conversation.id", request.step.session_id),
        **{key: value for key, value in optional.items() if value is not None},
    }


def _response_figures(response: ModelResponse) -> Attributes:
    return {
        **usage_figures(response.usage),
        **({"gen_ai.response.model": response.model} if response.model else {}),
        **own_id("gen_ai.response.id", response.id),
        "gen_ai.response.finish_reasons": (response.finish.value,),
    }

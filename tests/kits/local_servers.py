"""Loopback servers that speak as Ollama and as OpenAI-compatible servers do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from scripted_server import Body, Reply

from memagent.core.exchange import Message, ModelRequest, Role, Sampling
from memagent.embed.static import HashEmbedder
from memagent.protocols import ChatModel

Answer = Callable[[list[dict[str, Any]]], str]
"""Answers chat messages."""


def server_of(answer: Answer, *, width: int = 32) -> Callable[[Body, int], Reply]:
    """Return a handler of all four paths, by the shape of the request."""

    def handle(body: Body, index: int) -> Reply:
        texts: Any = body.get("input")
        if texts is not None:
            texts = [texts] if isinstance(texts, str) else texts
            rows = asyncio.run(HashEmbedder(dim=width).embed(texts)).tolist()
            data: Any = [{"index": place, "embedding": row} for place, row in enumerate(rows)]
            return Reply(
                body={"model": "e", "data": data, "embeddings": rows, "prompt_eval_count": 5}
            )
        text = answer(list(body["messages"]))  # type: ignore[arg-type]
        if "options" not in body:
            return Reply(text=text)
        said: Any = {"role": "assistant", "content": text}
        done: Any = {"done": True, "done_reason": "stop", "prompt_eval_count": 9, "eval_count": 3}
        return Reply(body={"model": str(body["model"]), "message": said, **done})

    return handle


def answers_of(model: ChatModel, *, max_tokens: int) -> Answer:
    """Return the greedy answers of a model in this process."""

    def answer(messages: list[dict[str, Any]]) -> str:
        request = ModelRequest(
            role=Role.ANSWERER,
            messages=tuple(Message(role=one["role"], content=one["content"]) for one in messages),
            sampling=Sampling(temperature=0.0, max_tokens=max_tokens),
        )
        return asyncio.run(model.complete(request)).text

    return answer

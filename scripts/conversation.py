"""Hold the test conversation with a model and write down what it was shown and what it said.

    python scripts/conversation.py scripted FILE.json
    transformers serve --port 8765 &      # a real model, made by fetch_small_model.py
    python scripts/conversation.py openai/FOLDER FILE.json --base-url http://127.0.0.1:8765/v1

Twenty messages in two threads over two days. The eighth reply is cut off while the model
speaks and the run goes on from a LangGraph checkpointer.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from contextlib import aclosing, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "kits"))

from conversation import Clock, Message, messages, scripted  # noqa: E402
from langgraph.checkpoint.memory import InMemorySaver  # noqa: E402

from memagent.async_agent import AsyncAgent  # noqa: E402
from memagent.build import build_model, open_store  # noqa: E402
from memagent.config import AgentSettings  # noqa: E402
from memagent.core.exchange import ModelRequest, Role, Sampling  # noqa: E402
from memagent.core.records import Scope  # noqa: E402
from memagent.llm.wrappers import ModelWrapper  # noqa: E402

CUT_OFF = 7
"""Place of the message whose reply is cut off."""


class Watched(ModelWrapper):
    """Keeps the requests for replies."""

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self.shown: list[ModelRequest] = []

    async def complete(self, request: ModelRequest) -> Any:
        """Answer as the model does."""
        self._keep(request)
        return await super().complete(request)

    def stream(self, request: ModelRequest) -> Any:
        """Stream as the model does."""
        self._keep(request)
        return super().stream(request)

    def _keep(self, request: ModelRequest) -> None:
        if request.role is Role.ANSWERER:
            self.shown.append(request)


async def say(agent: AsyncAgent, message: Message, *, cut_off: bool) -> dict[str, Any]:
    """Send a message and return what happened; with `cut_off` leave the first run half way."""
    began = time.perf_counter()
    left: list[str] = []
    if cut_off:
        async with aclosing(agent.stream_chat(message.text, thread=message.thread)) as deltas:
            async for delta in deltas:
                left.append(delta.text)
                if len(left) == 2:
                    break
    pieces: list[str] = []
    reply = None
    async for delta in agent.stream_chat(message.text, thread=message.thread):
        pieces += [delta.text] if delta.text else []
        reply = delta.reply or reply
    assert reply is not None
    return {
        "thread": message.thread,
        "at": message.at.isoformat(),
        "message": message.text,
        "cut off after": left,
        "pieces": len(pieces),
        "reply": reply.text,
        "recalled": [hit.text for hit in reply.hits],
        "cited": [citation.quote for citation in reply.citations],
        "notes": list(reply.notes),
        "seconds": round(time.perf_counter() - began, 1),
    }


def write(file: Path, document: dict[str, Any]) -> None:
    """Write a document as JSON."""
    file.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


async def hold(name: str, file: Path, *, base_url: str | None, max_tokens: int) -> None:
    """Hold the conversation and write it after each message."""
    server = {"base_url": base_url, "api_key": "none"} if base_url else {}
    given = scripted() if name == "scripted" else name
    model = Watched(build_model(given, AgentSettings(), **server))
    clock = Clock()
    steps: list[dict[str, Any]] = []
    with closing(open_store(path=":memory:", clock=clock)) as store:
        agent = store.agent(Scope(), model=model, design="add_only")
        roles = (Role.ANSWERER, Role.EXTRACTOR)
        sampling = {role: Sampling(temperature=0.0, max_tokens=max_tokens) for role in roles}
        agent = replace(agent, checkpointer=InMemorySaver(), sampling=sampling)
        for place, message in enumerate(messages()):
            clock.now = message.at
            step = await say(agent, message, cut_off=place == CUT_OFF)
            step["prompt"] = [
                {"role": shown.role, "content": shown.content} for shown in model.shown[-1].messages
            ]
            steps.append(step)
            memories = [item.text for item in agent.bank.state.items.values() if item.active]
            write(file, {"model": name.split("/")[-1], "steps": steps, "memories": memories})
            print(f"{message.thread}: {message.text}\n  -> {step['reply']}", flush=True)


def main() -> None:
    """Read the arguments and hold the conversation."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", help="`scripted`, or a model's name")
    parser.add_argument("file", type=Path)
    parser.add_argument("--base-url", help="address of the model's server")
    parser.add_argument("--max-tokens", type=int, default=48, help="of each reply")
    chosen = parser.parse_args()
    options = {"base_url": chosen.base_url, "max_tokens": chosen.max_tokens}
    asyncio.run(hold(chosen.model, chosen.file, **options))


if __name__ == "__main__":
    main()

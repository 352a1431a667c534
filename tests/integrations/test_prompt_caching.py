"""What is the same in all prompts of a kind is marked for providers that keep only what is marked."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from litellm_marks import LITELLM_MARKS
from scripted_server import ScriptedServer

from memagent.core.exchange import Message, ModelRequest, Role
from memagent.llm.litellm_model import LiteLLMModel

pytestmark = LITELLM_MARKS
REQUEST = ModelRequest(
    role=Role.ANSWERER,
    messages=(
        Message(role="system", content="the rules"),
        Message(role="user", content="a question"),
    ),
)
REPLY = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-3-5-sonnet-20241022",
    "content": [{"type": "text", "text": "hi"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 3, "output_tokens": 1, "cache_read_input_tokens": 2},
}


@pytest.fixture
def anthropic() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the URL of a server that speaks Anthropic's format, and the bodies it receives."""
    bodies: list[dict[str, Any]] = []

    class Messages(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            body = json.dumps(REPLY).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Keep standard error quiet."""

    with HTTPServer(("127.0.0.1", 0), Messages) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", bodies
        server.shutdown()
        thread.join()


def complete(name: str, url: str) -> str:
    async def ask() -> str:
        model = LiteLLMModel(name, base_url=url, api_key="a-key")
        try:
            return (await model.complete(REQUEST)).text
        finally:
            await model.aclose()

    return asyncio.run(ask())


def test_claude_is_told_where_the_fixed_part_of_a_prompt_ends(
    anthropic: tuple[str, list[dict[str, Any]]],
) -> None:
    url, bodies = anthropic
    assert complete("anthropic/claude-3-5-sonnet-20241022", url) == "hi"
    (body,) = bodies
    assert body["system"] == [
        {"type": "text", "text": "the rules", "cache_control": {"type": "ephemeral"}}
    ]
    assert "cache_control" not in json.dumps(body["messages"])


def test_other_models_get_no_mark() -> None:
    with ScriptedServer(["hi"]) as server:
        assert complete("openai/gpt-4o-mini", server.url) == "hi"
        assert "cache" not in json.dumps(server.requests)

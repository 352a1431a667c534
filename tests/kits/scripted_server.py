"""A small OpenAI-compatible HTTP server that answers from a script, for tests over sockets.

It listens on 127.0.0.1 at a free port and speaks `POST /v1/chat/completions` (whole and
streamed) and `GET /v1/models`. A handler, or a list used up in order, turns each
request body into a `Reply`; a reply can also be a fault: a status with headers, a hang,
a body cut short, a dropped connection, JSON of the wrong shape. The surprise: leaving
the context manager wakes every hanging reply, so a test never waits for a hang to run
out.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Annotated, Literal, Self, cast

from pydantic import Field, JsonValue

from memagent.core.exchange import ToolCall
from memagent.core.records import Record

Body = Mapping[str, JsonValue]
_PATHS = ("/chat/completions", "/embeddings", "/api/chat", "/api/embed")
"""The last two are Ollama's; a reply to other paths than the first one is a `Reply.body`."""


class Reply(Record):
    """The answer to one request; the class methods make the usual faults."""

    text: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None
    """Text to send in `reasoning_field` next to the content."""
    reasoning_field: Literal["reasoning_content", "reasoning"] = "reasoning_content"
    logprobs: JsonValue = None
    """Log-probabilities of the choice; a stream sends them with its finish."""
    finish: str | None = None
    """Finish reason; None derives `tool_calls` or `stop`."""
    prompt_tokens: int = 11
    completion_tokens: int = 7
    with_usage: bool = True
    """False leaves the usage block out, as some servers do."""
    status: int = 200
    error: str = "scripted failure"
    """Message of the error object, for a status of 400 or above."""
    error_code: str | None = None
    delay_s: Annotated[float, Field(ge=0.0)] = 0.0
    piece_delay_s: Annotated[float, Field(ge=0.0)] = 0.0
    """Seconds to wait before each piece of a streamed reply."""
    truncate_bytes: int | None = None
    """Send only this many bytes of the body: a whole reply is cut cleanly, a streamed one
    loses its connection.
    """
    unended: bool = False
    """End a stream with its words: no finish, no `[DONE]`, and nothing tells its length."""
    headers: dict[str, str] = Field(default_factory=dict[str, str])
    reset: bool = False
    """Drop the connection without an answer."""
    body: JsonValue = None
    """Sent as the whole JSON body instead of a completion."""

    @classmethod
    def rate_limited(cls, *, retry_after_s: float = 0.0) -> Reply:
        """Send status 429 with a `Retry-After` header in seconds."""
        return cls(status=429, error="slow down", headers={"Retry-After": f"{retry_after_s:g}"})

    @classmethod
    def failing(cls, status: int = 500, *, error: str = "internal failure") -> Reply:
        """Send an error status with an OpenAI error object."""
        return cls(status=status, error=error)

    @classmethod
    def hanging(cls, delay_s: float = 30.0) -> Reply:
        """Send no byte for `delay_s` seconds, or until the server closes."""
        return cls(text="too late", delay_s=delay_s)

    @classmethod
    def truncated(cls, text: str = "cut short", *, keep_bytes: int = 60) -> Reply:
        """Send a body that stops after `keep_bytes` bytes, in the middle of its JSON."""
        return cls(text=text, truncate_bytes=keep_bytes)

    @classmethod
    def dropped(cls) -> Reply:
        """Reset the connection without an answer."""
        return cls(reset=True)

    @classmethod
    def misshapen(cls) -> Reply:
        """Send status 200 with valid JSON that is no completion."""
        return cls(body={"hello": "world"})


Handler = Callable[[Body, int], Reply | str]
"""Answers (request body, call index from 0). Called from server threads, one call per
request.
"""


class ScriptedServer:
    """The server as a context manager.

    `requests` holds the bodies received so far; thread-safe.

    `script` is a handler or a sequence of replies used in order (a string is a plain
    answer); past its end the server answers 400 and says so. What a handler raises is
    answered with 400 and raised again when the context ends.
    """

    def __init__(self, script: Handler | Sequence[Reply | str]) -> None:
        self._script = script
        self._lock = threading.Lock()
        self._requests: list[Body] = []
        self._failure: Exception | None = None
        self.closing = threading.Event()
        self._http = _Http(self)
        self._thread = threading.Thread(
            target=self._http.serve_forever, args=(0.02,), name="scripted-server", daemon=True
        )

    @property
    def url(self) -> str:
        """Base URL to hand to a client, ending in `/v1`."""
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    @property
    def requests(self) -> tuple[Body, ...]:
        """Bodies of the completion requests so far, in order of arrival."""
        with self._lock:
            return tuple(self._requests)

    def answer(self, body: Body) -> tuple[Reply, int]:
        """Record one request body and give its reply and call index.

        Called by the server's threads.
        """
        with self._lock:
            index = len(self._requests)
            self._requests.append(body)
        reply = self._reply(body, index)
        return (Reply(text=reply) if isinstance(reply, str) else reply), index

    def _reply(self, body: Body, index: int) -> Reply | str:
        if not callable(self._script):
            count = len(self._script)
            error = f"the script has {count} replies; this is request {index + 1}"
            return self._script[index] if index < count else Reply.failing(400, error=error)
        try:
            return self._script(body, index)
        except Exception as exc:
            self._failure = exc
            return Reply.failing(400, error=f"the handler raised {exc!r}")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        if exc is None and self._failure is not None:
            raise self._failure


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, owner: ScriptedServer) -> None:
        self.owner = owner
        super().__init__(("127.0.0.1", 0), _Connection)

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing: a client that hangs up is part of many tests."""


class _Connection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent in tests."""

    @property
    def _owner(self) -> ScriptedServer:
        return cast(_Http, self.server).owner

    def do_GET(self) -> None:
        if self.path.rstrip("/").endswith("/models"):
            models: JsonValue = [{"id": "test-model", "object": "model", "owned_by": "scripted"}]
            self._send(200, {"object": "list", "data": models})
        else:
            self._send(404, _error("no such path"))

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self.path.rstrip("/").endswith(_PATHS):
            self._send(404, _error("no such path"))
            return
        try:
            body = cast(Body, json.loads(raw))
        except ValueError:
            self._send(400, _error("the request body is not JSON"))
            return
        self._reply(*self._owner.answer(body), body)

    def _reply(self, reply: Reply, index: int, body: Body) -> None:
        if reply.delay_s:
            self._owner.closing.wait(reply.delay_s)
        if reply.reset:
            self._reset()
        elif reply.status >= 400:
            self._send(reply.status, _error(reply.error, reply.error_code), reply)
        elif reply.body is not None:
            self._send(reply.status, reply.body, reply)
        elif body.get("stream"):
            self._stream(reply, body, index)
        else:
            self._send(reply.status, _completion(reply, body, index), reply)

    def _send(self, status: int, value: JsonValue, reply: Reply | None = None) -> None:
        payload = _encode(value)[: reply.truncate_bytes if reply is not None else None]
        self._head(
            status, {"Content-Type": "application/json", "Content-Length": str(len(payload))}, reply
        )
        self._write(payload)

    def _write(self, data: bytes) -> None:
        self.wfile.write(data)
        self.wfile.flush()

    def _stream(self, reply: Reply, body: Body, index: int) -> None:
        if reply.unended:
            self._head(200, {"Content-Type": "text/event-stream", "Connection": "close"}, reply)
            words = (each for each in _events(reply, body, index) if b'"content"' in each)
            self._write(b"".join(words))
            return
        self._head(
            reply.status,
            {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"},
            reply,
        )
        left = reply.truncate_bytes
        for event in _events(reply, body, index):
            if reply.piece_delay_s:
                self._owner.closing.wait(reply.piece_delay_s)
            data = event[:left]
            self._write(b"%x\r\n%s\r\n" % (len(data), data) if data else b"")
            left = None if left is None else left - len(data)
            if left == 0:
                self._reset()
                return
        self._write(b"0\r\n\r\n")

    def _head(self, status: int, headers: Mapping[str, str], reply: Reply | None) -> None:
        self.send_response(status)
        for name, value in {**headers, **(reply.headers if reply is not None else {})}.items():
            self.send_header(name, value)
        self.end_headers()

    def _reset(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()


def _encode(value: JsonValue) -> bytes:
    return json.dumps(value).encode()


def _error(message: str, code: str | None = None) -> JsonValue:
    return {"error": {"message": message, "type": "scripted_error", "param": None, "code": code}}


def _usage(reply: Reply) -> JsonValue:
    return {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": reply.completion_tokens,
        "total_tokens": reply.prompt_tokens + reply.completion_tokens,
    }


def _finish(reply: Reply) -> dict[str, JsonValue]:
    reason = reply.finish or ("tool_calls" if reply.tool_calls else "stop")
    logprobs = {} if reply.logprobs is None else {"logprobs": reply.logprobs}
    return {"finish_reason": reason, **logprobs}


def _calls(reply: Reply) -> list[JsonValue]:
    return [
        {
            "index": i,
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for i, call in enumerate(reply.tool_calls)
    ]


def _frame(kind: str, body: Body, index: int) -> dict[str, JsonValue]:
    return {
        "id": f"chatcmpl-{index}",
        "object": kind,
        "created": 1_700_000_000,
        "model": body.get("model"),
    }


def _completion(reply: Reply, body: Body, index: int) -> JsonValue:
    message: dict[str, JsonValue] = {"role": "assistant", "content": reply.text}
    if reply.reasoning is not None:
        message[reply.reasoning_field] = reply.reasoning
    if reply.tool_calls:
        message["tool_calls"] = _calls(reply)
    return {
        **_frame("chat.completion", body, index),
        "choices": [{"index": 0, "message": message, **_finish(reply)}],
        **({"usage": _usage(reply)} if reply.with_usage else {}),
    }


def _events(reply: Reply, body: Body, index: int) -> list[bytes]:
    deltas: list[JsonValue] = [
        {"role": "assistant", "content": ""},
        *({reply.reasoning_field: piece} for piece in _pieces(reply.reasoning or "")),
        *({"content": piece} for piece in _pieces(reply.text or "")),
        *({"tool_calls": [call]} for call in _calls(reply)),
        {},
    ]
    head = _frame("chat.completion.chunk", body, index)
    chunks: list[JsonValue] = [
        {
            **head,
            "choices": [
                {"index": 0, "delta": delta, "finish_reason": None}
                if delta
                else {"index": 0, "delta": {}, **_finish(reply)}
            ],
        }
        for delta in deltas
    ]
    options = body.get("stream_options")
    if reply.with_usage and isinstance(options, dict) and options.get("include_usage"):
        chunks.append({**head, "choices": [], "usage": _usage(reply)})
    return [b"data: " + _encode(chunk) + b"\n\n" for chunk in chunks] + [b"data: [DONE]\n\n"]


def _pieces(text: str) -> list[str]:
    return [text[i : i + 5] for i in range(0, len(text), 5)]

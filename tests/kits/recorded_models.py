"""Models that keep every exchange of another one, and answer from what was kept."""

from __future__ import annotations

import json
import os
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from pathlib import Path

from memagent.core.errors import ConfigError, ModelError
from memagent.core.exchange import Delta, ModelRequest, ModelResponse
from memagent.llm.wrappers import ModelWrapper, request_digest, stream_of
from memagent.protocols import ChatModel


class RecordingModel(ModelWrapper):
    """Keeps every request with its answer; with a `path` also as JSON lines, appended.

    The file holds prompts as they were sent, so it is created readable by its owner
    alone. `ReplayingModel` answers from it.
    """

    def __init__(self, model: ChatModel, path: str | Path | None = None) -> None:
        super().__init__(model)
        self._path = Path(path) if path is not None else None
        self._exchanges: list[tuple[ModelRequest, ModelResponse]] = []
        self._lock = threading.Lock()

    @property
    def exchanges(self) -> tuple[tuple[ModelRequest, ModelResponse], ...]:
        """Requests and answers in the order the answers came."""
        return tuple(self._exchanges)

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer and keep the answer; failures are not kept."""
        response = await self._model.complete(request)
        self._keep(request, response)
        return response

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Stream and keep the whole answer at its end."""
        async with aclosing(stream_of(self._model, request)) as deltas:
            async for delta in deltas:
                if delta.response is not None:
                    self._keep(request, delta.response)
                yield delta

    def _keep(self, request: ModelRequest, response: ModelResponse) -> None:
        with self._lock:
            self._exchanges.append((request, response))
            if self._path is None:
                return
            row = {
                "request": request.model_dump(mode="json", by_alias=True),
                "response": response.model_dump(mode="json"),
            }
            handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(handle, "a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


class ReplayingModel:
    """Answers from recorded exchanges, found by `request_digest`.

    `source` is a `RecordingModel`'s file or its `exchanges`. Equal requests get their
    answers in recorded order, and after the last one that one again under a new id.
    Raises `ModelError` for a request that was never recorded, `ConfigError` for a file
    that cannot be read.
    """

    def __init__(self, source: str | Path | Iterable[tuple[ModelRequest, ModelResponse]]) -> None:
        exchanges = _read_exchanges(Path(source)) if isinstance(source, str | Path) else source
        self._answers: defaultdict[str, list[ModelResponse]] = defaultdict(list)
        self._counts: defaultdict[str, int] = defaultdict(int)
        for request, response in exchanges:
            self._answers[request_digest(request)].append(response)

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Return the recorded answer."""
        digest = request_digest(request)
        answers = self._answers.get(digest)
        if not answers:
            last = request.messages[-1].content[-80:] if request.messages else ""
            raise ModelError(
                f"no recorded answer for request {digest} (role {request.role.value}, "
                f"{len(request.messages)} messages, ending in {last!r})"
            )
        count = self._counts[digest]
        self._counts[digest] = count + 1
        if count < len(answers):
            return answers[count]
        return answers[-1].model_copy(update={"id": f"{answers[-1].id}~{count}"})

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Yield the recorded answer in one piece."""
        response = await self.complete(request)
        yield Delta(text=response.text, response=response)


def _read_exchanges(path: Path) -> Iterable[tuple[ModelRequest, ModelResponse]]:
    try:
        lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    except OSError as exc:
        raise ConfigError(f"the recording {path} cannot be read: {exc.strerror}") from exc
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            yield (
                ModelRequest.model_validate(row["request"]),
                ModelResponse.model_validate(row["response"]),
            )
        except (ValueError, KeyError, TypeError) as exc:
            raise ConfigError(
                f"line {number} of the recording {path} is no recorded exchange"
            ) from exc

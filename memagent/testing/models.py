"""Chat models without a provider: answers from a script, or from a function of the request.

Both record every request, stream word by word, count words as tokens at a price of 0,
and give ids made from the request, the answer and the call's ordinal, so the same run
gives the same ids and two calls never share one.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

from memagent.core.errors import ConfigError
from memagent.core.exchange import Delta, ModelRequest, ModelResponse, Role, Usage
from memagent.core.records import content_id
from memagent.llm.wrappers import request_digest

ScriptedAnswer = str | ModelResponse | Exception


class FunctionModel:
    """Answers by a function: a text or a whole `ModelResponse`, plain or awaitable."""

    def __init__(
        self, answer: Callable[[ModelRequest], str | ModelResponse | Awaitable[str | ModelResponse]]
    ) -> None:
        self._answer = answer
        self.requests: list[ModelRequest] = []

    def takes_options(self, request: ModelRequest) -> bool:  # noqa: ARG002 - interface
        """Return True: the function sees them."""
        return True

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer the request; whatever the function raises passes through."""
        ordinal = len(self.requests)
        self.requests.append(request)
        answer = self._answer(request)
        answer = await answer if inspect.isawaitable(answer) else answer
        return answer if isinstance(answer, ModelResponse) else _response(request, answer, ordinal)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Stream the answer word by word; the last piece carries the whole response."""
        response = await self.complete(request)
        for piece in re.findall(r"\s*\S+\s*|\s+", response.text):
            yield Delta(text=piece)
        yield Delta(response=response)


class ScriptedModel(FunctionModel):
    """Answers from a list in order, or from one list for each role.

    An exception in a list is raised when its place is reached. Asking more often than
    the script has answers raises an `AssertionError` that names the request.
    """

    def __init__(
        self, answers: Sequence[ScriptedAnswer] | Mapping[Role, Sequence[ScriptedAnswer]]
    ) -> None:
        if isinstance(answers, str):
            raise ConfigError(
                "a script is a list of answers, not one text: write ScriptedModel([text])"
            )
        super().__init__(self._next)
        scripts = answers if isinstance(answers, Mapping) else {None: answers}
        self._scripts = {role: list(script) for role, script in scripts.items()}

    @property
    def remaining(self) -> int:
        """The number of scripted answers not asked for yet."""
        return sum(map(len, self._scripts.values()))

    def _next(self, request: ModelRequest) -> str | ModelResponse:
        script = self._scripts.get(None if None in self._scripts else request.role)
        if not script:
            role = request.role.value
            name = "the script" if None in self._scripts else f"the script of role {role!r}"
            last = request.messages[-1].content if request.messages else ""
            raise AssertionError(
                f"{name} is exhausted at request {len(self.requests)} "
                f"(role {role}, step {request.step}): "
                f"{len(request.messages)} messages, the last one ending in {last[-200:]!r}"
            )
        answer = script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def _response(request: ModelRequest, text: str, ordinal: int) -> ModelResponse:
    prompt_words = sum(len(message.content.split()) for message in request.messages)
    return ModelResponse(
        id=content_id("res", request_digest(request), text, str(ordinal)),
        text=text,
        usage=Usage(calls=1, prompt_tokens=prompt_words, completion_tokens=len(text.split())),
        model="scripted",
    )

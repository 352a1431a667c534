"""Failures of litellm and its providers as our `ModelError`s.

Pure, without the vendor: exceptions are told apart by class name, status and text. No
message repeats a credential.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import cast

from pydantic import JsonValue

from memagent.core.errors import (
    ContextOverflow,
    ModelAuthError,
    ModelError,
    ModelRateLimited,
    ModelTimeout,
    ModelUnavailable,
)
from memagent.llm.wrappers import RETRY_AFTER

_SECRET = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|hf)[-_](?=[\w*.-]*[\d*])[\w*.-]{16,}"
    r"|\bAIza[\w-]{20,}|(?i:bearer)\s+[\w.~+/=-]{8,}"
)
_SECRET_NAME = re.compile(r"key|token|secret|auth|password", re.IGNORECASE)
_TOO_LONG = re.compile(r"context.?(?:length|window|size)", re.IGNORECASE)
_MAX_MESSAGE_CHARS = 600


class ErrorReader:
    """Reads the exceptions of one model; `settings` may hold credentials to leave out."""

    def __init__(self, model: str, *, timeout_s: float, settings: Mapping[str, JsonValue]) -> None:
        self._model = model
        self._timeout_s = timeout_s
        self._secrets = tuple(_secrets(settings))

    @contextmanager
    def translated(self) -> Generator[None]:
        """Raise a `ModelError` for each exception of the block.

        The exception is the cause, unless it repeats a credential.
        """
        try:
            yield
        except Exception as exc:
            raise self._read(exc) from (exc if self._can_be_shown(exc) else None)

    def _read(self, exc: Exception) -> ModelError:
        # A failure in the middle of a stream hides the provider's own in a wrapper.
        inner = getattr(exc, "original_exception", None)
        inner = inner if isinstance(inner, Exception) else exc
        message = self._scrub(str(inner)) or type(inner).__name__
        if isinstance(inner, TimeoutError):
            message = f"no answer within {self._timeout_s:g} s"
        error = _kind(inner)(f"{self._model}: {message[:_MAX_MESSAGE_CHARS]}")
        if (
            isinstance(error, ModelRateLimited)
            and "insufficient_quota" in f"{inner} {_body(inner)}"
        ):
            error.retryable = False
        if (wait_s := _retry_after_s(inner)) is not None:
            setattr(error, RETRY_AFTER, wait_s)
        return error

    def _can_be_shown(self, exc: BaseException) -> bool:
        link: BaseException | None = exc
        while link is not None:
            if self._scrub(str(link)) != str(link):
                return False
            link = link.__cause__ or link.__context__
        return True

    def _scrub(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "[key]")
        return _SECRET.sub("[key]", text)


def _kind(exc: Exception) -> type[ModelError]:
    status = getattr(exc, "status_code", None)
    status = status if isinstance(status, int) else 0
    names = {base.__name__ for base in type(exc).__mro__}
    if "ContextWindowExceededError" in names or (
        status in (400, 413) and _TOO_LONG.search(f"{exc} {_body(exc)}")
    ):
        return ContextOverflow
    if isinstance(exc, TimeoutError) or "Timeout" in names or status in (408, 504):
        return ModelTimeout
    if status == 429:
        return ModelRateLimited
    if status in (401, 403):
        return ModelAuthError
    if status >= 500 or "APIConnectionError" in names:
        return ModelUnavailable
    return ModelError


def _body(exc: Exception) -> str:
    return repr(getattr(exc, "body", ""))


def _secrets(settings: Mapping[str, JsonValue], *, named: bool = False) -> Iterator[str]:
    """Yield values of settings whose names speak of keys, tokens and the like, at any depth."""
    for name, value in settings.items():
        secret = named or _SECRET_NAME.search(name) is not None
        if isinstance(value, dict):
            yield from _secrets(value, named=secret)
        elif isinstance(value, str) and secret and len(value) >= 6:
            yield value


def _retry_after_s(exc: Exception) -> float | None:
    """Read the seconds of a `Retry-After` header, a number or a date; None without one."""
    for headers in (
        getattr(exc, "litellm_response_headers", None),
        getattr(getattr(exc, "response", None), "headers", None),
    ):
        if not isinstance(headers, Mapping):
            continue
        value = cast(Mapping[str, str], headers).get("retry-after")
        if value is None:
            continue
        try:
            return max(0.0, float(value))
        except ValueError:
            pass
        try:
            return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
        except (TypeError, ValueError):
            return None
    return None

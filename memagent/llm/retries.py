"""When a failed call is made again: which errors, how often, and how long to wait."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from memagent.core.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from tenacity import RetryCallState

P = ParamSpec("P")
T = TypeVar("T")

RETRY_AFTER = "retry_after"
"""Attribute of a `ModelError`: the seconds that the provider asked to wait."""


class Retries:
    """Makes calls again after retryable `ModelError`s and raises the last one in the end.

    Waits grow exponentially with jitter; a provider's `retry_after` lengthens them. No
    attempt begins later than `deadline_s` seconds after the first began, or than the
    error's own `patience_s`: a server that is not there is given up soon.
    """

    def __init__(
        self,
        *,
        attempts: int = 4,
        deadline_s: float = 120.0,
        first_wait_s: float = 0.5,
        longest_wait_s: float = 30.0,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        if attempts < 1:
            raise ConfigError(f"attempts must be at least 1, not {attempts}")
        self._attempts = attempts
        self._deadline_s = deadline_s
        self._first_wait_s = first_wait_s
        self._longest_wait_s = longest_wait_s
        self._sleep = sleep

    async def call(self, make: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return the first result that comes."""
        from tenacity import AsyncRetrying, retry_if_exception

        retrying = AsyncRetrying(
            retry=retry_if_exception(
                lambda error: isinstance(error, ModelError) and error.retryable
            ),
            wait=self._wait_s,
            stop=self._give_up,
            sleep=self._sleep,
            reraise=True,
        )
        return await retrying(make, *args, **kwargs)

    def _wait_s(self, state: RetryCallState) -> float:
        failure = state.outcome.exception() if state.outcome is not None else None
        asked_s = getattr(failure, RETRY_AFTER, None)
        backoff_s = self._first_wait_s * (2.0 ** (state.attempt_number - 1) + random.random())
        return max(
            min(backoff_s, self._longest_wait_s),
            asked_s if isinstance(asked_s, int | float) else 0.0,
        )

    def _give_up(self, state: RetryCallState) -> bool:
        spent_s = max(state.seconds_since_start or 0.0, state.idle_for)
        failure = state.outcome.exception() if state.outcome is not None else None
        patience_s = failure.patience_s if isinstance(failure, ModelError) else None
        deadline_s = self._deadline_s if patience_s is None else min(patience_s, self._deadline_s)
        return state.attempt_number >= self._attempts or spent_s + state.upcoming_sleep > deadline_s

"""The progress of an evaluation and the time left, on standard error.

The unit is one question asked of one arm. On a terminal one line is kept up to date;
elsewhere a line is written now and then. The time left goes by the speed so far of what
was really played, so it is rough while the arms differ much.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import Self

from rich.console import Console

QUIET_S = 15.0
"""Seconds between two lines where standard error is no terminal."""


class Progress:
    """Counts what is done of `total`; a context manager that owns the live line."""

    def __init__(
        self,
        total: int = 0,
        *,
        console: Console | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._console = console or Console(
            stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True
        )
        self._status = self._console.status("")
        self._clock = clock
        self._total = total
        self._before = 0
        self._done = 0
        self._began = self._said = clock()

    def __enter__(self) -> Self:
        self._began = self._said = self._clock()
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, at: TracebackType | None
    ) -> None:
        self._status.stop()

    def say(self, line: str) -> None:
        """Write a line of its own."""
        self._console.print(line)

    def skip(self, questions: int) -> None:
        """Count questions that were answered in an earlier run."""
        self._before += questions

    def advance(self, questions: int) -> None:
        """Count questions that were answered now."""
        self._done += questions
        if self._console.is_terminal:
            self._status.update(self.line())
        elif self._clock() - self._said >= QUIET_S:
            self._said = self._clock()
            self.say(self.line())

    def line(self) -> str:
        """Return the line: `120 of 400 questions asked of arms, 0:30 gone, about 1:10 left`."""
        gone = self._clock() - self._began
        asked = self._before + self._done
        counts = f"{asked:,} of {self._total:,} questions asked of arms, {_minutes(gone)} gone"
        left = self._total - self._before - self._done
        if not self._done or left <= 0:
            return counts
        return f"{counts}, about {_minutes(gone * left / self._done)} left"


def _minutes(seconds: float) -> str:
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"

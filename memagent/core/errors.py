"""The error tree.

What a model did is data (`Rejected`, `ParseStatus`, an abstained `Answer`); what the
world did is one of these errors.

    MemAgentError
    +-- ConfigError(ValueError)       wrong or conflicting settings; names the field and the fix
    |   +-- UnknownPlugin             unknown plug-in name; lists close matches
    |   +-- MissingExtra              an optional dependency is absent; names the pip command
    +-- InputError(ValueError)        what the caller handed in cannot be stored as it is
    +-- ModelError                    a model failed; `.retryable`, `.report` of `remember`
    |   +-- ModelTimeout, ModelUnavailable, ContextOverflow, ModelAuthError, ModelNotFound,
    |   |   RequestRefused, ReplyWithheld, ReplyUnreadable, BudgetExceeded
    |   +-- ModelRateLimited          asked to slow down
    |   |   +-- QuotaExhausted        the account is used up; waiting does not help
    |   +-- ModelUnreachable(ModelUnavailable)   nothing answers at the address
    +-- EmbeddingError                an embedder failed or gave unusable vectors; `.retryable`
    +-- StoreError                    the store failed; `.retryable`
        +-- StoreUnavailable, StoreCorrupt, StoreReadOnly, VersionConflict,
            MemoryNotFound(KeyError), SnapshotMismatch, StoreLocked, WrongLoop

`environments` and `train` add `EnvironmentFault` and `TrainFault` below the same root.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Generator, Iterable, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from types import UnionType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError

    from memagent.core.snapshot import IngestReport


class MemAgentError(Exception):
    """Root of every error memagent raises on purpose."""

    retryable: bool = False


class ConfigError(MemAgentError, ValueError):
    """Settings are wrong or contradict each other."""


class UnknownPlugin(ConfigError):
    """No plug-in of that name is installed in that group."""


class MissingExtra(ConfigError):
    """An optional dependency is not installed."""

    def __init__(self, extra: str, *, needed_for: str, cause: str = "") -> None:
        self.extra = extra
        reason = f" ({cause})" if cause else ""
        super().__init__(
            f"{needed_for} needs an optional dependency: "
            f'run  pip install "memagent[{extra}]"{reason}'
        )


class InputError(MemAgentError, ValueError):
    """The input of the caller cannot be stored as it is; nothing was written."""


class ModelError(MemAgentError):
    """A model provider failed, or a model's reply cannot be used.

    `retryable` says whether the same call may succeed later. Raised by `remember` and
    `resume`, it says what is stored and how to go on.
    """

    retry_after: float | None = None
    """Seconds the provider asked to wait, if it said so."""
    patience_s: float | None = None
    """Seconds after which retries of such a call are given up; None for no own limit."""
    report: IngestReport | None = None
    """What `remember` did until it failed; None when the error comes from another call."""
    stored_turns: int = 0
    """Turns of the session that are stored, in this call or an earlier one."""

    @property
    def session_id(self) -> str | None:
        """The session whose turns are stored; None when the error is not of `remember`."""
        return self.report.session_id if self.report is not None else None

    @property
    def what_happened(self) -> str:
        """The message without the sentence about the stored turns."""
        return super().__str__()

    def __str__(self) -> str:
        if self.report is None:
            return self.what_happened
        turns = "turn is" if self.stored_turns == 1 else "turns are"
        return (
            f"{self.what_happened.rstrip('. ')}. Your {self.stored_turns} {turns} stored "
            f"(session {self.session_id!r}); resume() or the same call continues."
        )


class ModelTimeout(ModelError):
    """The provider did not answer in time."""

    retryable = True


class ModelRateLimited(ModelError):
    """The provider asked us to slow down."""

    retryable = True


class QuotaExhausted(ModelRateLimited):
    """The account has no credit left; waiting does not help."""

    retryable = False


class ModelUnavailable(ModelError):
    """The provider answered with a server-side failure or could not be reached."""

    retryable = True


class ModelUnreachable(ModelUnavailable):
    """Nothing answers at the address: refused, unknown host, or an untrusted certificate."""

    patience_s = 1.5


class ContextOverflow(ModelError):
    """The prompt is longer than the model's context window."""


class ModelAuthError(ModelError):
    """The provider refused the credentials, or there are none."""


class ModelNotFound(ModelError):
    """The provider has no model of that name, or the name names no provider."""


class RequestRefused(ModelError):
    """The provider refused the request: something in it is wrong, or not to be had there."""


class ReplyWithheld(ModelError):
    """The provider's content filter withheld the reply."""


class ReplyUnreadable(ModelError):
    """The model's reply cannot be read, even after it was asked once more."""


class BudgetExceeded(ModelError):
    """The hard budget of this model wrapper is spent; the call was not made."""


class EmbeddingError(MemAgentError):
    """An embedder failed, or its vectors have a wrong width, are not finite or all zero."""

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


class StoreError(MemAgentError):
    """The store failed."""


class StoreUnavailable(StoreError):
    """The database cannot be reached or written now (disk full, server down).

    Nothing was acknowledged.
    """

    retryable = True


class StoreCorrupt(StoreError):
    """The database file is damaged or is not a memagent store."""


class StoreReadOnly(StoreError):
    """A write was asked of a store opened for reading only."""


class VersionConflict(StoreError):
    """Another writer appended first.

    `expected` is the sequence we built on, `actual` the one found.
    """

    retryable = True

    def __init__(self, message: str, *, expected: int, actual: int) -> None:
        super().__init__(message)
        self.expected = expected
        self.actual = actual


class MemoryNotFound(StoreError, KeyError):
    """No memory, session or commit with that id is visible in this scope."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else "not found"


class SnapshotMismatch(StoreError):
    """A snapshot or an export does not fit this store (digest, format or embedder differ)."""


class StoreLocked(StoreError):
    """Another process is the writer of this store."""

    retryable = True

    def __init__(self, message: str, *, pid: int | None) -> None:
        super().__init__(message)
        self.pid = pid


class WrongLoop(StoreError):
    """A bank was used from an event loop other than the one it belongs to."""


@contextmanager
def boundary(kind: type[MemAgentError], where: str) -> Generator[None]:
    """Raise whatever extension code raises as `kind`, with the place and the cause.

    Errors of our own tree pass unchanged; so do cancellation and keyboard interrupts.
    """
    try:
        yield
    except MemAgentError:
        raise
    except Exception as exc:
        raise kind(f"{where} failed: {type(exc).__name__}: {exc}") from exc


@contextmanager
def input_errors(what: str = "the memory cannot be stored") -> Generator[None]:
    """Turn a record's refusal into an `InputError` of one line that begins with `what`."""
    from pydantic import ValidationError

    try:
        yield
    except ValidationError as exc:
        raise InputError(f"{what}: {fault_in(exc)}") from exc


def fault_in(exc: ValidationError) -> str:
    """Return the first fault of a record in one line: the field and the reason."""
    first = exc.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    reason = re.sub(
        r" items? after validation", " characters", first["msg"].removeprefix("Value error, ")
    )
    return f"{field}: {reason}" if field else reason


# Keywords that people try, with the one they mean.
_MEANT = {
    "user": "user_id",
    "db": "path",
    "file": "path",
    "llm": "model",
    "api_base": "base_url",
    "limit": "k",
    "top_k": "k",
    "filters": "where",
    "thread_id": "thread",
}


def check_type(name: str, given: object, kind: type | UnionType, wanted: str) -> None:
    """Raise `InputError` for a value of another type than a verb takes."""
    if not isinstance(given, kind):
        raise InputError(f"{name} is a {type(given).__name__}; give {wanted}")


def check_choice(name: str, given: object, known: Sequence[str]) -> None:
    """Raise `InputError` for a value that is none of the words a verb knows."""
    if given not in known:
        raise InputError(f"{name} is {given!r}; give one of {', '.join(map(repr, known))}")


def check_id(what: str, given: object) -> None:
    """Raise `InputError` for the id of something that is no text."""
    check_type(f"the id of the {what}", given, str, "a text")


def check_keywords(verb: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise `TypeError` for a keyword that a verb does not have; it names the likely one."""
    for word in sorted(set(given).difference(known)):
        near = get_close_matches(_MEANT.get(word, word), known, n=1)
        raise TypeError(
            f"{verb} got an unexpected keyword argument {word!r}"
            + "".join(f"; did you mean {name!r}?" for name in near)
        )

"""The litellm module, quiet and offline, and its failures as our `ModelError`s.

A failure has one plain line, which says what happened and what to do. Pure, without the
vendor: exceptions are told apart by their chain of causes, class name, status and text.
No message repeats a credential.

This is the only module that imports litellm, and only when first called. Nothing but a
request itself leaves the machine: no telemetry, no callbacks, no download of price
lists or tokenizers. The surprise: the import takes seconds and runs in a thread; it
would also read a `.env` file, which is turned off. Where the server of the first call
can be named, `knock` finds out within two seconds, before the import, that nothing
answers there.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import os
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, Protocol, cast
from urllib.parse import urlsplit

from pydantic import JsonValue

from memagent.core.errors import (
    ConfigError,
    ContextOverflow,
    InputError,
    MissingExtra,
    ModelAuthError,
    ModelError,
    ModelNotFound,
    ModelRateLimited,
    ModelTimeout,
    ModelUnavailable,
    ModelUnreachable,
    QuotaExhausted,
    ReplyWithheld,
    RequestRefused,
)
from memagent.llm.chat_format import JsonObject

_PROXIES = ("http_proxy", "https_proxy", "all_proxy")
_KNOCK_S = 2.0


class Dumps(Protocol):
    """A record of the vendor's."""

    def model_dump(self, *, warnings: bool) -> JsonObject:
        """Return the record as plain JSON."""
        ...


class Vendor(Protocol):
    """The parts of the litellm module that are used here."""

    suppress_debug_info: bool
    telemetry: bool
    disable_hf_tokenizer_download: bool | None
    in_memory_llm_clients_cache: ClientCache
    acompletion: Callable[..., Awaitable[object]]
    aembedding: Callable[..., Awaitable[Dumps]]
    embedding: Callable[..., Dumps]
    completion_cost: Callable[..., float]
    get_valid_models: Callable[..., list[str]]
    token_counter: Callable[..., int]
    decode: Callable[..., str]
    stream_chunk_builder: Callable[..., Dumps | None]


class ClientCache(Protocol):
    """The vendor's open connections."""

    cache_dict: dict[str, object]

    def delete_cache(self, key: str) -> None:
        """Forget a connection."""


async def open_vendor(needed_for: str) -> Vendor:
    """Return the litellm module; import it in a thread at first use, quiet and offline."""
    return _ready.get("litellm") or await asyncio.to_thread(load_vendor, needed_for)


_ready: dict[str, Vendor] = {}


def load_vendor(needed_for: str) -> Vendor:
    """Import the litellm module; takes seconds the first time."""
    if (ready := _ready.get("litellm")) is not None:
        return ready
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    # Otherwise the import loads a .env file into the environment.
    os.environ.setdefault("LITELLM_MODE", "PRODUCTION")
    try:
        vendor = cast(Vendor, importlib.import_module("litellm"))
    except ImportError as exc:
        raise MissingExtra("llm", needed_for=needed_for, cause=str(exc)) from exc
    vendor.suppress_debug_info = True
    vendor.telemetry = False
    vendor.disable_hf_tokenizer_download = True
    # Its worker for callbacks, of which there are none, reports each change of event loop.
    logging.getLogger("LiteLLM").addFilter(lambda record: record.module != "logging_worker")
    _ready["litellm"] = vendor
    return vendor


async def text_of(tokens: Sequence[int]) -> str:
    """Return the text of token ids of OpenAI's `cl100k_base`.

    Raises `InputError`, and `MissingExtra` when litellm is not installed.
    """
    vendor = await open_vendor("reading token ids")
    try:
        return vendor.decode(tokens=tokens)
    except (LookupError, OverflowError) as exc:
        raise InputError(f"there is no such token: {exc}") from exc


def check_installed(needed_for: str) -> None:
    """Raise `MissingExtra` when litellm is not installed."""
    if importlib.util.find_spec("litellm") is None:
        raise MissingExtra("llm", needed_for=needed_for)


_HTTP_URL: Final = re.compile(
    r"https?://(\S*@)?(\[[0-9a-f:.]+\]|[^/:@\s\[\]]+)(:\d+)?([/?#]|$)", re.IGNORECASE
)


def checked_url(base_url: str | None) -> str | None:
    """Return the address of a model's server. Raises `ConfigError` if it is no HTTP URL."""
    if base_url is not None and not _HTTP_URL.match(str(base_url)):
        shown = re.sub(r"\S*@", "***@", str(base_url))
        raise ConfigError(
            f"base_url is {shown!r}; it must begin with "
            "http:// or https:// and a host, for example http://127.0.0.1:8000/v1"
        )
    return base_url


def call_options(
    model: str, *, api_base: str | None, api_key: str | None, timeout_s: float
) -> dict[str, object]:
    """Return the arguments of every call: where it goes, and one request without retries."""
    return {
        "model": model,
        "api_base": api_base,
        "api_key": api_key,
        "timeout": timeout_s,
        "num_retries": 0,
        "max_retries": 0,
        "drop_params": True,
    }


async def knock(name: str, base_url: str | None) -> None:
    """Check that a server listens at a URL, before the first call waits for the import.

    Does nothing once litellm is loaded, without a URL, and behind a proxy. Raises
    `ModelUnreachable` where the connection is refused or the host is unknown; `name` is
    that of the model.
    """
    proxied = any(os.environ.get(form) for key in _PROXIES for form in (key, key.upper()))
    if base_url is None or _ready or proxied:
        return
    try:
        place = urlsplit(base_url)
        host, port = place.hostname, place.port or (443 if place.scheme == "https" else 80)
    except ValueError:
        return
    try:
        async with asyncio.timeout(_KNOCK_S):
            _, writer = await asyncio.open_connection(host, port)
            writer.close()
    except OSError as exc:
        if (line := unreached(exc, f"{host}:{port}")) is not None:
            raise ModelUnreachable(f"{name}: {line}") from exc


def unreached(exc: BaseException, host: str) -> str | None:
    """Say why no server answered, and what to do; None where that is not the reason."""
    if isinstance(exc, socket.gaierror):
        return f"the host of {host} is unknown (DNS); check base_url and the network"
    # A name with several addresses, such as localhost, fails with an error of its own.
    if isinstance(exc, ConnectionRefusedError) or (
        isinstance(exc, OSError) and "Connect call failed" in str(exc)
    ):
        return f"no server answers at {host} (connection refused); start it, or correct base_url"
    return None


_SECRET = re.compile(
    r"\b(?:sk|pk|rk|gsk|xai|hf)[-_](?=[\w*.-]*[\d*])[\w*.-]{16,}"
    r"|\bAIza[\w-]{20,}|(?i:bearer)\s+[\w.~+/=-]{8,}"
)
_SECRET_NAME = re.compile(r"key|token|secret|auth|password", re.IGNORECASE)
_TOO_LONG = re.compile(r"context.?(?:length|window|size)", re.IGNORECASE)
_NO_KEY = re.compile(r"missing credentials|missing \S* ?api.?key|no key is set", re.IGNORECASE)
_KEY_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9_]*_API_KEY\b")
_NO_QUOTA = re.compile(
    r"insufficient.?(?:quota|credit|balance|funds)|exceeded your current quota", re.IGNORECASE
)
_NO_PROVIDER = re.compile(r"LLM Provider NOT provided", re.IGNORECASE)
_NO_MODEL = re.compile(
    r"model\b.{0,80}(?:not found|does not exist|not exist|unknown)", re.IGNORECASE | re.DOTALL
)
_FILTERED = re.compile(r"content.?(?:filter|management policy|policy violation)", re.IGNORECASE)
_NO_COMPLETION = re.compile(r"provider returned 'choices'|Expecting value|JSONDecodeError")
_PREFIX = re.compile(r"^(?:(?:litellm\.)?\w+(?:Error|Exception)(?::| -)\s*)+")
_BODY_MESSAGE = re.compile(r"Error code: \d+ - \{.*'message': (['\"])(.+?)\1[,}]")
_HOST = re.compile(r"Cannot connect to host (\S+)")
_MAX_DETAIL_CHARS = 400
_MAX_READ_CHARS = 10_000


class ErrorReader:
    """Reads the exceptions of one model; `settings` may hold credentials to leave out."""

    def __init__(
        self,
        model: str,
        *,
        timeout_s: float,
        settings: Mapping[str, JsonValue],
        base_url: str | None = None,
    ) -> None:
        self._model = model
        self._base_url = base_url
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
            shown = all(self._scrub(str(link)) == str(link) for link in _chain(exc))
            raise self._read(exc) from (exc if shown else None)

    def _read(self, exc: Exception) -> ModelError:
        # A failure in the middle of a stream hides the provider's own in a wrapper.
        inner = getattr(exc, "original_exception", None)
        inner = inner if isinstance(inner, Exception) else exc
        links = tuple(_chain(inner))
        status = getattr(inner, "status_code", None)
        plain = self._scrub(str(inner)).partition("Traceback (most recent")[0]
        words = " ".join(plain.split())
        if body := _BODY_MESSAGE.search(words):
            words = body[2]
        fault = _Fault(
            links=links,
            names=frozenset(base.__name__ for base in type(inner).__mro__),
            status=status if isinstance(status, int) else 0,
            text=f"{inner} {getattr(inner, 'body', '')!r}",
            detail=_PREFIX.sub("", words)[:_MAX_DETAIL_CHARS].rstrip(". ") or type(inner).__name__,
            model=self._model,
            timeout_s=self._timeout_s,
            base_url=self._base_url,
            wait_s=_retry_after_s(inner),
        )
        kind, line = next((kind, line) for kind, fits, line in _RULES if fits(fault))
        error = kind(f"{self._model}: {self._scrub(line.format(fault=fault))}")
        if kind is ModelUnreachable and fault.link(ssl.SSLError) is not None:
            error.retryable = False
        error.retry_after = fault.wait_s
        return error

    def _scrub(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "[key]")
        return _SECRET.sub("[key]", text)


@dataclass(frozen=True, kw_only=True)
class _Fault:
    """The facts known about a vendor's exception."""

    links: tuple[BaseException, ...]
    """The exception with its causes, the outermost first."""
    names: frozenset[str]
    """Names of its classes."""
    status: int
    """HTTP status, 0 without one."""
    text: str
    detail: str
    """The vendor's own words, short, in one line and without credentials."""
    model: str
    timeout_s: float
    base_url: str | None
    wait_s: float | None

    def link(self, *kinds: type[BaseException]) -> BaseException | None:
        """Return the first of the causes that is of one of these kinds."""
        return next((link for link in self.links if isinstance(link, kinds)), None)

    @property
    def host(self) -> str:
        """The host and port that could not be reached, as far as they are known."""
        matches = (_HOST.search(str(link)) for link in self.links)
        known = urlsplit(self.base_url).netloc if self.base_url else "the provider's address"
        return next((match[1] for match in matches if match), known)

    @property
    def tls_problem(self) -> str:
        """Why no secure connection was made, in the words of the innermost cause."""
        trust = [link for link in self.links if isinstance(link, ssl.SSLError)]
        words = (getattr(trust[-1], name, None) for name in ("verify_message", "reason"))
        reason = next((str(word) for word in words if word), "TLS failed")
        return reason.lower().replace("_", " ")

    @property
    def unreached(self) -> str | None:
        """Why no server answered; None where that is not the reason."""
        lines = (unreached(link, self.host) for link in self.links)
        return next(filter(None, lines), None)

    @property
    def key_name(self) -> str:
        """The name of the variable that should hold the provider's key."""
        variable = _KEY_VARIABLE.search(self.text)
        return variable[0] if variable else f"{self.model.partition('/')[0].upper()}_API_KEY"

    @property
    def when_again(self) -> str:
        """When to try again, as far as the provider tells."""
        return "later" if self.wait_s is None else f"in {self.wait_s:g} s"


WITHHELD = (
    "the provider's content filter withheld the reply; "
    "change the text, or take another model or provider"
)
_REFUSED = "the provider refused the request ({fault.detail})"
# The kind of an error, the faults that are of it, and its line: what happened, then what to
# do. The first rule that fits counts: no server answered; another request, key or account
# would do; the server that answered failed.
_RULES: Final[tuple[tuple[type[ModelError], Callable[[_Fault], object], str], ...]] = (
    (
        ModelUnreachable,
        lambda fault: fault.link(ssl.SSLError),
        (
            "no secure connection to {fault.host} ({fault.tls_problem}); write http:// for a "
            "server without TLS, or name its authority's certificate in SSL_CERT_FILE"
        ),
    ),
    (ModelUnreachable, lambda fault: fault.unreached, "{fault.unreached}"),
    (
        ModelTimeout,
        lambda fault: (
            "Timeout" in fault.names or fault.status in (408, 504) or fault.link(TimeoutError)
        ),
        (
            "no answer within {fault.timeout_s:g} s; "
            "raise timeout_s in the model's settings, or take a faster model"
        ),
    ),
    (
        ModelUnavailable,
        lambda fault: fault.link(ConnectionError),
        "the connection broke before the answer came; try again",
    ),
    (
        ContextOverflow,
        lambda fault: (
            "ContextWindowExceededError" in fault.names
            or (fault.status in (400, 413) and _TOO_LONG.search(fault.text))
        ),
        (
            "the prompt is longer than the model's context window ({fault.detail}); take a model "
            "with a larger window (Ollama: raise num_ctx), or a design with shorter chunks"
        ),
    ),
    (
        QuotaExhausted,
        lambda fault: fault.status == 402 or (fault.status == 429 and _NO_QUOTA.search(fault.text)),
        (
            "the account has no quota left ({fault.detail}); "
            "add credit or raise the limit at the provider"
        ),
    ),
    (
        ModelAuthError,
        lambda fault: _NO_KEY.search(fault.text),
        "no API key is set; set {fault.key_name}, or pass api_key",
    ),
    (
        ModelAuthError,
        lambda fault: fault.status in (401, 403),
        (
            "the provider refused the API key ({fault.detail}); "
            "check the key, and that it may use this model"
        ),
    ),
    (
        ModelNotFound,
        lambda fault: _NO_PROVIDER.search(fault.text),
        (
            "the name has no provider in front; write it as in 'openai/gpt-4o-mini', "
            "'ollama_chat/qwen3', or 'openai/NAME' with base_url"
        ),
    ),
    (
        ModelNotFound,
        lambda fault: (
            fault.status == 404
            or (fault.status in (0, 400, 500) and _NO_MODEL.search(fault.text[:_MAX_READ_CHARS]))
        ),
        (
            "the server has no such model ({fault.detail}); check the name (Ollama: run "
            "'ollama pull NAME'), and that base_url ends as the server's documentation says"
        ),
    ),
    (
        ReplyWithheld,
        lambda fault: (
            fault.status == 400
            and (_FILTERED.search(fault.text) or "ContentPolicyViolationError" in fault.names)
        ),
        WITHHELD,
    ),
    (
        ModelRateLimited,
        lambda fault: fault.status == 429,
        (
            "the provider limits the rate of calls ({fault.detail}); "
            "try again {fault.when_again}, or send less at once"
        ),
    ),
    (
        ModelUnavailable,
        lambda fault: _NO_COMPLETION.search(fault.text),
        (
            "the server's reply cannot be read as a chat completion ({fault.detail}); check that "
            "base_url is an OpenAI-compatible endpoint (most end in /v1)"
        ),
    ),
    (
        ModelUnavailable,
        lambda fault: fault.status >= 500 or "APIConnectionError" in fault.names,
        "the server failed ({fault.detail}); try again later",
    ),
    (RequestRefused, lambda fault: fault.status in (400, 422), _REFUSED),
    (ModelError, lambda _: True, _REFUSED),
)


def _chain(exc: BaseException) -> Iterator[BaseException]:
    """Yield an exception and what caused it, each once, the outermost first."""
    seen: dict[int, BaseException] = {}
    ahead: list[BaseException | None] = [exc]
    while ahead:
        link = ahead.pop()
        if link is not None and id(link) not in seen:
            seen[id(link)] = link
            yield link
            ahead += [link.__context__, link.__cause__]


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
    places = (
        getattr(exc, "litellm_response_headers", None),
        getattr(getattr(exc, "response", None), "headers", None),
    )
    headers = [cast(Mapping[str, str], place) for place in places if isinstance(place, Mapping)]
    value = next((each["retry-after"] for each in headers if "retry-after" in each), "")
    try:
        return max(0.0, float(value))
    except ValueError:
        with suppress(TypeError, ValueError):
            return max(0.0, (parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds())
    return None

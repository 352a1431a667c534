"""The litellm module, quiet and offline.

The only module that imports litellm, and only when first called. Nothing but a request
itself leaves the machine: no telemetry, no callbacks, no download of price lists or
tokenizers. The surprise: the import takes seconds and runs in a thread; it would also
read a `.env` file, which is turned off. Where the server of the first call can be named,
`knock` finds out within two seconds, before the import, that nothing answers there.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Protocol, cast
from urllib.parse import urlsplit

from memagent.core.errors import MissingExtra, ModelUnreachable
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
    token_counter: Callable[..., int]
    stream_chunk_builder: Callable[..., Dumps | None]


class ClientCache(Protocol):
    """The vendor's open connections."""

    cache_dict: dict[str, object]

    def delete_cache(self, key: str) -> None:
        """Forget a connection."""
        ...


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


def check_installed(needed_for: str) -> None:
    """Raise `MissingExtra` when litellm is not installed."""
    if importlib.util.find_spec("litellm") is None:
        raise MissingExtra("llm", needed_for=needed_for)


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

"""The address of the service: checks before it is bound, and uvicorn's settings."""

from __future__ import annotations

import ipaddress
import logging
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from memagent.core.errors import ConfigError, StoreUnavailable

if TYPE_CHECKING:
    from memagent.config import ServiceSettings
    from memagent.service.data.keys import KeyRing


def check_workers(workers: int, *, shared: bool) -> None:
    """Raise `ConfigError` for several workers on a store that one process alone may write to."""
    if workers > 1 and not shared:
        raise ConfigError(
            f"{workers} workers: a SQLite store has one writing process; keep the memory in "
            "PostgreSQL for several "
            "(--db postgresql://USER@HOST/DATABASE), or run one worker, which serves many "
            "requests at once"
        )


def is_loopback(host: str) -> bool:
    """Tell whether a host to listen on is this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_bind(host: str, keys: KeyRing) -> None:
    """Raise `ConfigError` for a bind beyond loopback without any API key."""
    if not is_loopback(host) and not keys.ever:
        raise ConfigError(
            f"listening on {host} would let others in, and there is no API key; make one first: "
            " memagent keys create --for USER"
        )


def no_address(host: str, port: int) -> StoreUnavailable:
    """Make the error for an address that cannot be bound."""
    return StoreUnavailable(
        f"nothing can listen on {host} port {port}; another program may do so already"
    )


def server_config(app: Any, settings: ServiceSettings, *, host: str, port: int) -> Any:
    """Make the settings of uvicorn."""
    import uvicorn

    from memagent.service.connections import guarded_protocol

    return uvicorn.Config(
        app,
        http=guarded_protocol(settings),
        host=host,
        port=port,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        timeout_graceful_shutdown=max(1, round(settings.drain_s)),
        timeout_keep_alive=30,
    )


def announce(
    address: tuple[Any, ...], say: Callable[[str], None], *, local: bool, workers: int = 1
) -> None:
    """Say where the service listens; with `local`, that it serves this machine alone."""
    name, port = address[:2]
    host = f"[{name}]" if ":" in name else name
    many = f"; {workers} workers" if workers > 1 else ""
    say(f"memagent serves http://{host}:{port}  (dashboard: /ui, documentation: /docs{many})")
    if local:
        say(
            "no API key is configured: requests of this machine are served as the local user, "
            "others are refused"
        )


def ignore_signals() -> None:
    """Ignore SIGINT and SIGTERM once uvicorn is done with them.

    uvicorn raises the signal that stopped it once more when it has drained; the process
    shall end by returning.
    """
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _ignore)


def _ignore(_: int, __: FrameType | None) -> None:
    """Do nothing."""


def server_class(base: Any, started: Callable[[Any], None]) -> Any:
    """Make a class of uvicorn's server that calls a function once it listens."""

    class _Server(base):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)  # pyright: ignore[reportUnknownMemberType]
            if self.started:
                started(self)

    return _Server


def log_to_stderr() -> None:
    """Log the service to standard error, unless the program has its own logging."""
    logger = logging.getLogger("memagent")
    if not logger.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)

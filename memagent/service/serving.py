"""Running the service in a process: checks before anything listens, uvicorn, and a line that says where it is.

Settings come from outside as values; nothing here reads the environment. A bind beyond loopback needs an API key first, and SQLite has one
writing process, so several workers are refused.
"""

from __future__ import annotations

import ipaddress
import logging
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from memagent.core.errors import ConfigError, MissingExtra, StoreUnavailable

if TYPE_CHECKING:
    from memagent.build import Store
    from memagent.protocols import ChatModel


def check_workers(workers: int) -> None:
    """Raises `ConfigError` for more than one: a SQLite store has one writing process, and jobs have one that runs them."""
    if workers != 1:
        raise ConfigError(
            f"{workers} workers: a SQLite store has one writing process, and a service runs its jobs in one; "
            "run one worker, which serves many requests at once"
        )


def is_loopback(host: str) -> bool:
    """Whether a host to listen on is this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def serve(
    store: Store,
    *,
    host: str = "127.0.0.1",
    port: int = 8377,
    model: ChatModel | str | None = None,
    database: str | None = None,
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),  # noqa: T201
) -> None:
    """Serve until SIGINT or SIGTERM, then drain and close the store. Port 0 takes a free one; `say` is told where it is.

    Raises `ConfigError` for a bind beyond loopback without any API key, `StoreUnavailable` when the address cannot be had.
    """
    try:
        import uvicorn

        from memagent.service.app import serve_app
        from memagent.service.hosting import Service
    except ModuleNotFoundError as exc:
        store.close()
        raise MissingExtra("service", needed_for="memagent serve", cause=str(exc)) from exc
    service = Service(store, model=model, database=database)
    try:
        if not is_loopback(host) and not service.keys.ever:
            raise ConfigError(
                f"listening on {host} would let others in, and there is no API key; make one first:  memagent keys create --for USER"
            )
        _log_to_stderr()
        config = uvicorn.Config(
            serve_app(service),
            host=host,
            port=port,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="on",
            timeout_graceful_shutdown=max(1, round(service.settings.drain_s)),
            timeout_keep_alive=30,
        )
        server = _server_class(uvicorn.Server, say, open_to_all=not service.keys.ever)(config)
        _take_signals()
        server.run()
        if not server.started:
            raise StoreUnavailable(f"nothing can listen on {host} port {port}; another program may do so already")
    except SystemExit as exc:  # uvicorn's way to say that it could not bind
        raise StoreUnavailable(f"nothing can listen on {host} port {port}; another program may do so already") from exc
    finally:
        service.close()


def _take_signals() -> None:
    """Let the process end by returning: uvicorn raises the signal that stopped it once more when it is done."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _nothing)


def _nothing(_: int, __: FrameType | None) -> None:
    """Handle a signal by doing nothing."""


def _server_class(base: Any, say: Callable[[str], None], *, open_to_all: bool) -> Any:
    class _Server(base):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)  # pyright: ignore[reportUnknownMemberType]
            if not self.started:
                return
            name, port = self.servers[0].sockets[0].getsockname()[:2]
            shown = f"[{name}]" if ":" in name else name
            say(f"memagent serves http://{shown}:{port}  (documentation: /docs)")
            if open_to_all:
                say(
                    "no API key is configured: requests of this machine are served as the local user, others are refused"
                )

    return _Server


def _log_to_stderr() -> None:
    """Log lines of the service to standard error, one a line, unless the program has its own logging."""
    logger = logging.getLogger("memagent")
    if not logger.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)

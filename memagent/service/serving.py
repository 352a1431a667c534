"""Running the service in a process: checks before anything listens, uvicorn, and a line
that says where it is.

Settings come from outside as values; nothing here reads the environment. A bind beyond
loopback needs an API key first. Several workers (`workers`) need a store that several
processes may write to: PostgreSQL.
"""

from __future__ import annotations

import ipaddress
import logging
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from types import FrameType
from typing import TYPE_CHECKING, Any

from memagent.core.errors import ConfigError, MissingExtra, StoreUnavailable

if TYPE_CHECKING:
    from memagent.build import Store
    from memagent.config import ServiceSettings
    from memagent.protocols import ChatModel
    from memagent.service.data.keys import KeyRing


def check_workers(workers: int, *, shared: bool) -> None:
    """Raises `ConfigError` for more than one where one process alone may write to the store."""
    if workers > 1 and not shared:
        raise ConfigError(
            f"{workers} workers: a SQLite store has one writing process; keep the memory in PostgreSQL for several "
            "(--db postgresql://USER@HOST/DATABASE), or run one worker, which serves many requests at once"
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
    workers: int = 1,
    embedder: str | None = None,
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),  # noqa: T201
) -> None:
    """Serve until SIGINT or SIGTERM, then drain and close the store.

    Port 0 takes a free one; `say` is told where it is.

    Several workers are processes that open the store of the same settings anew, so
    `model` and `embedder` have to be names then. Raises `ConfigError` for a bind beyond
    loopback without any API key, `StoreUnavailable` when the address cannot be had.
    """
    try:
        import uvicorn

        from memagent.service.app import serve_app
        from memagent.service.hosting import Service, service_place
        from memagent.service.workers import Plan, serve_by_workers
    except ModuleNotFoundError as exc:
        store.close()
        raise MissingExtra("service", needed_for="memagent serve", cause=str(exc)) from exc
    if workers > 1:
        place = service_place(store)
        store.close()
        plan = Plan.of(store.settings, place, workers=workers, model=model, embedder=embedder)
        serve_by_workers(plan, host=host, port=port, workers=workers, say=say)
        return
    with closing(Service(store, model=model)) as service:
        check_bind(host, service.keys)
        local = not service.keys.ever
        log_to_stderr()
        config = server_config(serve_app(service), service.settings, host=host, port=port)

        def started(server: uvicorn.Server) -> None:
            say_where(server.servers[0].sockets[0].getsockname(), say, local=local)

        server = server_class(uvicorn.Server, started)(config)
        take_signals()
        try:
            server.run()
        except SystemExit as exc:  # uvicorn's way to say that it could not bind
            raise no_address(host, port) from exc
        if not server.started:
            raise no_address(host, port)


def check_bind(host: str, keys: KeyRing) -> None:
    """Raises `ConfigError` for a bind beyond loopback without any API key."""
    if not is_loopback(host) and not keys.ever:
        raise ConfigError(
            f"listening on {host} would let others in, and there is no API key; make one first:  memagent keys create --for USER"
        )


def no_address(host: str, port: int) -> StoreUnavailable:
    """The error for an address that cannot be had."""
    return StoreUnavailable(
        f"nothing can listen on {host} port {port}; another program may do so already"
    )


def server_config(app: Any, settings: ServiceSettings, *, host: str, port: int) -> Any:
    """uvicorn's settings."""
    import uvicorn

    from memagent.service.one_write import OneWriteProtocol

    return uvicorn.Config(
        app,
        http=OneWriteProtocol,
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


def say_where(
    address: tuple[Any, ...], say: Callable[[str], None], *, local: bool, workers: int = 1
) -> None:
    """Tell where the service listens, and whether it serves this machine alone, as
    there is no API key.
    """
    name, port = address[:2]
    shown = f"[{name}]" if ":" in name else name
    many = f"; {workers} workers" if workers > 1 else ""
    say(f"memagent serves http://{shown}:{port}  (dashboard: /ui, documentation: /docs{many})")
    if local:
        say(
            "no API key is configured: requests of this machine are served as the local user, others are refused"
        )


def take_signals() -> None:
    """Let the process end by returning: uvicorn raises the signal that stopped it once
    more when it is done.
    """
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, _nothing)


def _nothing(_: int, __: FrameType | None) -> None:
    """Handle a signal by doing nothing."""


def server_class(base: Any, started: Callable[[Any], None]) -> Any:
    """uvicorn's server, which calls a function once it listens."""

    class _Server(base):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)  # pyright: ignore[reportUnknownMemberType]
            if self.started:
                started(self)

    return _Server


def log_to_stderr() -> None:
    """Log lines of the service to standard error, one a line, unless the program has
    its own logging.
    """
    logger = logging.getLogger("memagent")
    if not logger.handlers and not logging.getLogger().handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)

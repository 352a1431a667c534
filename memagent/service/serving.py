"""Running the service in a process: checks before anything listens, then uvicorn.

Settings come from outside as values; nothing here reads the environment. A bind beyond
loopback needs an API key first. Several workers need a store that several processes may
write to: PostgreSQL.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from memagent.core.errors import MissingExtra
from memagent.service.binding import (
    announce,
    check_bind,
    ignore_signals,
    log_to_stderr,
    no_address,
    server_class,
    server_config,
)
from memagent.service.collector import serving_interpreter

if TYPE_CHECKING:
    from memagent.build import Store
    from memagent.protocols import ChatModel


class ServeOptions(TypedDict, total=False):
    """Options of a service, given to `serve` by keyword."""

    model: ChatModel | str | None
    workers: int
    embedder: str | None


def serve(
    store: Store,
    *,
    host: str = "127.0.0.1",
    port: int = 8377,
    say: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),  # noqa: T201
    **options: Unpack[ServeOptions],
) -> None:
    """Serve until SIGINT or SIGTERM, then drain and close the store.

    Port 0 takes a free one; `say` gets the line with the address. Several `workers` are
    processes that open the store of the same settings anew, so `model` and `embedder`
    have to be names then. Raises `ConfigError` for a bind beyond loopback without any
    API key, `StoreUnavailable` when the address cannot be bound.
    """
    try:
        import uvicorn

        from memagent.service.app import serve_app
        from memagent.service.hosting import Service, service_place
        from memagent.service.workers import Plan, serve_by_workers
    except ModuleNotFoundError as exc:
        store.close()
        raise MissingExtra("service", needed_for="memagent serve", cause=str(exc)) from exc
    model = options.get("model")
    if options.get("workers", 1) > 1:
        place = service_place(store)
        store.close()
        plan = Plan.of(store.settings, place, **options)
        serve_by_workers(plan, host=host, port=port, say=say)
        return
    with closing(Service(store, model=model)) as service:
        check_bind(host, service.keys)
        local = not service.keys.ever
        log_to_stderr()
        config = server_config(serve_app(service), service.settings, host=host, port=port)

        def started(server: Any) -> None:
            announce(server.servers[0].sockets[0].getsockname(), say, local=local)

        server = server_class(uvicorn.Server, started)(config)
        ignore_signals()
        try:
            with serving_interpreter():
                server.run()
        except SystemExit as exc:  # uvicorn exits when it cannot bind
            raise no_address(host, port) from exc
        if not server.started:
            raise no_address(host, port)

"""Running the service in a process: checks before anything listens, then uvicorn.

Settings come from outside as values; nothing here reads the environment. A bind beyond
loopback needs an API key first. Several workers need a store that several processes may
write to: PostgreSQL.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, TypedDict, Unpack

from memagent.core.errors import MissingExtra

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
        from memagent.service.hosting import Service, service_place
        from memagent.service.server import Plan, serve_by_workers, serve_here
    except ModuleNotFoundError as exc:
        store.close()
        raise MissingExtra("service", needed_for="memagent serve", cause=str(exc)) from exc
    if options.get("workers", 1) > 1:
        place = service_place(store)
        store.close()
        serve_by_workers(Plan.of(store.settings, place, **options), host=host, port=port, say=say)
        return
    with closing(Service(store, model=options.get("model"))) as service:
        serve_here(service, host=host, port=port, say=say)

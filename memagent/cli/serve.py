"""`memagent serve` and `memagent keys`: the REST service, and the API keys it knows."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from memagent.cli.frame import Options, settings_of, store_path, tell
from memagent.core.errors import ConfigError, InputError, MissingExtra

if TYPE_CHECKING:
    from memagent.service.data.database import ServiceDatabase


def run_service(options: Options, *, host: str, port: int, workers: int) -> None:
    """Serve the store that the options lead to, made when it is not there."""
    from memagent.build import open_store
    from memagent.service.binding import check_workers
    from memagent.service.serving import serve

    settings = settings_of(options)
    path = store_path(options, settings)
    check_workers(workers, shared=isinstance(path, str))
    embedder, model = options.embedder, options.model
    store = open_store(settings, path=path if path is not None else ":memory:", embedder=embedder)
    serve(store, host=host, port=port, model=model, workers=workers, embedder=embedder, say=tell)


@contextmanager
def _keys_database(options: Options) -> Generator[ServiceDatabase]:
    path = store_path(options, settings_of(options))
    if path is None:
        raise ConfigError("a memory in memory has no API keys; give --path a file")
    try:
        from memagent.service.data.database import ServiceDatabase
        from memagent.service.hosting import service_database_path
    except ModuleNotFoundError as exc:
        raise MissingExtra("service", needed_for="memagent keys", cause=str(exc)) from exc
    database = ServiceDatabase(path if isinstance(path, str) else service_database_path(path))
    try:
        yield database
    finally:
        database.close()


def create_key(
    options: Options, *, name: str, scopes: list[str] | None, bound_to: str | None
) -> dict[str, object]:
    """A new key; the only time it is shown."""
    from memagent.memory.bank import system_clock
    from memagent.service.data.keys import SCOPES, KeyRing

    chosen = scopes or [scope for scope in SCOPES if scope != "admin"]
    with _keys_database(options) as database:
        key_id, key = KeyRing(database).create(
            name=name, scopes=chosen, user_id=bound_to, at=system_clock()
        )
    return {
        "id": key_id,
        "key": key,
        "name": name,
        "user": bound_to or "any",
        "scopes": sorted(set(chosen)),
    }


def list_keys(options: Options) -> list[dict[str, object]]:
    """Every key, without its secret."""
    from memagent.service.data.keys import KeyRing

    with _keys_database(options) as database:
        return [
            {
                "id": key.id,
                "name": key.name,
                "user": key.user_id or "any",
                "scopes": sorted(key.scopes),
                "created": f"{key.created_at:%Y-%m-%d}",
                "revoked": key.revoked,
            }
            for key in KeyRing(database).stored()
        ]


def revoke_key(options: Options, key_id: str) -> dict[str, object]:
    """Make a key useless. Raises `InputError` when there is none that works."""
    from memagent.memory.bank import system_clock
    from memagent.service.data.keys import KeyRing

    with _keys_database(options) as database:
        if not KeyRing(database).revoke(
            key_id.removeprefix("ma_").partition("_")[0], at=system_clock()
        ):
            raise InputError(f"no API key {key_id!r} that works; `memagent keys list` shows them")
    return {"id": key_id, "revoked": True}

"""Reaching PostgreSQL and translating its errors: the one place that knows psycopg.

A URL is libpq's own (`postgresql://user@host:5432/database?sslmode=verify-full`); what
it leaves out comes from libpq's variables, `~/.pgpass` and service file. Passwords
never show: `label` names user, host, port and database alone. Every connection runs
without automatic transactions, waits for nothing longer than it has to, and insists on
`synchronous_commit`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

from memagent.core.errors import (
    ConfigError,
    InputError,
    MissingExtra,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
    StoreUnavailable,
)
from memagent.journal.backend import ADVICE

if TYPE_CHECKING:
    import psycopg

SCHEMES: Final = ("postgresql://", "postgres://", "postgresql+psycopg://")
"""The beginnings of URLs that mean a PostgreSQL server."""
_DEFAULTS: Final[Mapping[str, str]] = {
    "application_name": "memagent",
    "connect_timeout": "5",
    "keepalives_idle": "30",
    "tcp_user_timeout": "15000",
}
_SESSION: Final = (
    "SET lock_timeout = '10s'; SET idle_in_transaction_session_timeout = '60s'; SET "
    "client_encoding = 'UTF8'; "
    "SELECT set_config('synchronous_commit', 'on', false) WHERE "
    "current_setting('synchronous_commit') = 'off'"
)
_UNAVAILABLE: Final = ("08", "53", "57", "58", "55P03", "40", "25P03")
_READ_ONLY: Final = ("25006", "42501")
_CORRUPT: Final = ("XX001", "XX002", "42P01", "42703")
_INPUT: Final = ("22", "54")
_LET_IN: Final = (
    "authentication failed",
    "no password supplied",
    "no pg_hba.conf entry",
    "not permitted to log in",
    "permission denied for database",
    'role ".*" does not exist',
)
# Answers of a server that will not let us in however often it is asked, and what to do.
_REFUSALS: Final = (
    ('database ".*" does not exist', "make it first:  createdb NAME"),
    (
        "|".join(_LET_IN),
        "check user and password; libpq reads the password from PGPASSWORD or ~/.pgpass",
    ),
)


def is_postgres_url(place: object) -> bool:
    """Tell whether a text names a PostgreSQL server and not a file."""
    return isinstance(place, str) and place.startswith(SCHEMES)


def psycopg_module() -> Any:
    """Return the driver. Raises `MissingExtra` when it is not installed."""
    try:
        import psycopg
    except ImportError as exc:
        raise MissingExtra("postgres", needed_for="a memory in PostgreSQL", cause=str(exc)) from exc
    return psycopg


def parameters_of(url: str) -> dict[str, Any]:
    """Read the parameters of libpq from a URL.

    Raises `ConfigError`, which does not repeat the URL, for it may hold a password.
    """
    if not is_postgres_url(url):
        raise ConfigError("a PostgresJournal takes a URL like postgresql://user@host:5432/database")
    driver = psycopg_module()
    text = "postgresql://" + url.partition("://")[2]
    try:
        return driver.conninfo.conninfo_to_dict(text)
    except driver.Error:
        raise ConfigError(
            "this is not a URL of PostgreSQL; write postgresql://user@host:5432/database, "
            "special characters as %XX"
        ) from None


def label(url: str) -> str:
    """Return the server and database of a URL, for messages and logs."""
    parts = parameters_of(url)
    host = parts.get("host", "")
    user = f"{parts['user']}@" if "user" in parts else ""
    port = f":{parts['port']}" if "port" in parts else ""
    at_socket = f"?host={host}" if host.startswith("/") else ""
    return (
        f"postgresql://{user}{'' if at_socket else host}{port}/{parts.get('dbname', '')}{at_socket}"
    )


def without_password(url: str) -> str:
    """Return the URL without a password, wherever in it that stands."""
    parts = urlsplit(url)
    login, at, host = parts.netloc.rpartition("@")
    query = "&".join(
        part
        for part in parts.query.split("&")
        if not part.startswith(("password=", "sslpassword="))
    )
    return urlunsplit(parts._replace(netloc=f"{login.partition(':')[0]}{at}{host}", query=query))


def connect(url: str) -> psycopg.Connection[Any]:
    """Open a connection whose transactions begin by statements and whose commits are durable.

    Raises `psycopg.Error`.
    """
    driver = psycopg_module()
    connection = driver.connect(**(_DEFAULTS | parameters_of(url)), autocommit=True)
    try:
        connection.execute(_SESSION)
    except BaseException:
        connection.close()
        raise
    return connection


def refuse_transaction_pooling(url: str) -> None:
    """Raise `ConfigError` where a pooler gives each transaction another session.

    Two connections that are open at once have two sessions, unless a pooler is between
    that lends its own (PgBouncer with `pool_mode = transaction`). Settings of a session,
    durable commits among them, and prepared statements would go astray there. A server
    that cannot be reached is left to whoever opens it.
    """
    driver = psycopg_module()
    ask = "SELECT pg_backend_pid()"
    try:
        with (
            driver.connect(**(_DEFAULTS | parameters_of(url)), autocommit=True) as session,
            driver.connect(**(_DEFAULTS | parameters_of(url)), autocommit=True) as other,
        ):
            first = session.execute(ask).fetchone()
            other.execute("BEGIN")
            lent = (
                first == other.execute(ask).fetchone() or first != session.execute(ask).fetchone()
            )
            other.execute("COMMIT")
    except driver.Error:
        return
    if lent:
        raise ConfigError(
            f"{label(url)} is a pooler in transaction mode, which loses the settings that make "
            "commits durable; connect to the server itself, or set pool_mode = session"
        )


def connection_was_lost(exc: Exception) -> bool:
    """Tell whether an error of the driver came with the end of the connection."""
    driver = psycopg_module()
    state: str = getattr(exc, "sqlstate", None) or ""
    return isinstance(exc, driver.OperationalError) and (
        not state or state.startswith(("08", "57P", "25P03"))
    )


def worth_another_try(exc: Exception) -> bool:
    """Tell whether a transaction that failed so may succeed when it is begun again at once."""
    state: str = getattr(exc, "sqlstate", None) or ""
    return connection_was_lost(exc) or state.startswith(("40", "23"))


def store_error(exc: Exception, place: str, doing: str) -> StoreError | InputError:
    """Translate an error of the driver or the pool for the caller."""
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.exc import TimeoutError as NoConnectionFree

    cause = exc.orig if isinstance(exc, DBAPIError) and exc.orig is not None else exc
    text = f"{doing} {place} failed: {' '.join(str(cause).split())}"
    if isinstance(exc, NoConnectionFree):
        return StoreUnavailable(f"{doing} {place} failed: every connection of the pool is in use")
    driver = psycopg_module()
    if isinstance(cause, driver.DataError | UnicodeError):
        return InputError(text)
    if not isinstance(cause, driver.Error):
        return StoreError(text)
    state: str = getattr(cause, "sqlstate", None) or ""
    if state.startswith(_CORRUPT):
        return StoreCorrupt(f"{text}; {ADVICE}")
    if state.startswith(_READ_ONLY):
        return StoreReadOnly(text)
    if state.startswith(_INPUT):
        return InputError(text)
    if state.startswith(_UNAVAILABLE) or (not state and isinstance(cause, driver.OperationalError)):
        return _unavailable(text, state)
    return StoreError(text)


def _unavailable(text: str, state: str) -> StoreUnavailable:
    """Make the error, not retryable where the server refuses to let us in.

    libpq reports that in words alone.
    """
    advice = next(
        (advice for words, advice in _REFUSALS if not state and re.search(words, text)), None
    )
    if advice is None:
        return StoreUnavailable(text)
    refused = StoreUnavailable(f"{text}; {advice}")
    refused.retryable = False
    return refused

"""A PostgreSQL server for the tests: a cluster of their own in a temporary folder, or
the one $MEMAGENT_TEST_POSTGRES_URL names.

Each test gets a schema of its own, owned by an ordinary role, so that row-level
security holds. The server listens on a socket in its folder alone, keeps fsync on, and
is ended with the session. $MEMAGENT_TEST_POSTGRES_URL has to allow making schemas and
must not name a superuser.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from memagent.journal.open_database import DatabaseJournal
from memagent.journal.postgres import PostgresJournal, is_postgres_url
from memagent.journal.sqlite import SqlJournal

PASSWORD = "secret-of-tests"
"""Of the ordinary role; no message may ever show it."""
URL_VARIABLE = "MEMAGENT_TEST_POSTGRES_URL"
_BINARIES = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/usr/local/opt/postgresql*/bin",
    "/opt/homebrew/opt/postgresql*/bin",
)
_SETTINGS = {
    "listen_addresses": "",
    "max_connections": "40",
    "shared_buffers": "32MB",
    "max_wal_size": "128MB",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "autovacuum": "off",
    "fsync": "on",
}


def binaries() -> Path | None:
    """The folder of `initdb` and `postgres`, the newest version first; None when they
    are not installed.
    """
    found = shutil.which("initdb")
    if found is not None and shutil.which("postgres") is not None:
        return Path(found).resolve().parent
    folders = [
        folder
        for pattern in _BINARIES
        for folder in Path("/").glob(pattern[1:])
        if (folder / "initdb").exists()
    ]
    return max(
        folders,
        key=lambda folder: [
            int(part) for part in folder.parent.name.split("-")[-1].split(".") if part.isdigit()
        ],
        default=None,
    )


def journal_at(place: str | Path, **options: Any) -> DatabaseJournal:
    """A journal in the file, or on the server, that a place names."""
    if is_postgres_url(place):
        return PostgresJournal(str(place), **options)
    return SqlJournal(place, **options)


@dataclass(frozen=True)
class Postgres:
    """A running server."""

    url: str
    """As an ordinary role, without a schema."""
    admin_url: str | None = None
    """As a superuser; None for a server that is not ours."""
    folder: Path | None = None
    """The data directory of a server that is ours."""
    programs: Path | None = None

    @contextmanager
    def schema(self) -> Iterator[str]:
        """The URL of a fresh, empty schema, dropped afterwards."""
        import psycopg

        name = f"test_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {name}".encode())
        try:
            yield in_schema(self.url, name)
        finally:
            with psycopg.connect(self.url, autocommit=True) as connection:
                connection.execute("SET client_min_messages = error")
                connection.execute(f"DROP SCHEMA IF EXISTS {name} CASCADE".encode())

    def program(self, name: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
        """Run one of the server's programs (`pg_dump`, `pg_ctl`) as the server's own user."""
        assert self.programs is not None
        return _run(self.programs / name, *arguments)

    def start(self) -> None:
        """Start a server that is ours, and wait until it answers."""
        assert self.folder is not None
        settings = " ".join(
            f"-c {name}={value or chr(39) * 2}" for name, value in _SETTINGS.items()
        )
        options = f"{settings} -k {self.folder.parent}"
        self.program(
            "pg_ctl",
            "-D",
            str(self.folder),
            "-w",
            "-l",
            str(self.folder.parent / "log"),
            "-o",
            options,
            "start",
        )

    def stop(self, how: str = "fast") -> None:
        """Stop a server that is ours, unless it has been stopped."""
        assert self.folder is not None
        if (self.folder / "postmaster.pid").exists():
            self.program("pg_ctl", "-D", str(self.folder), "-m", how, "-w", "stop")


def in_schema(url: str, name: str) -> str:
    """The URL with a schema as its search path."""
    return f"{url}{'&' if '?' in url else '?'}options={quote(f'-csearch_path={name}')}"


def _run(program: Path, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    command = [str(program), *arguments]
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        command = ["runuser", "-u", "postgres", "--", *command]
    return subprocess.run(
        command, check=True, capture_output=True, cwd="/", env={**os.environ, "LC_ALL": "C"}
    )


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """The server named by the variable, or one of our own for as long as the block lasts.

    Skips the test where there is neither.
    """
    pytest.importorskip(
        "psycopg", reason='PostgreSQL tests need psycopg: pip install "memagent[postgres]"'
    )
    named = os.environ.get(URL_VARIABLE)
    if named:
        yield Postgres(named)
        return
    programs = binaries()
    if programs is None:
        pytest.skip(
            f"no PostgreSQL: install its server (apt-get install postgresql), or set {URL_VARIABLE}"
        )
    if os.geteuid() == 0:
        try:
            owner = pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip(
                "PostgreSQL does not run as root, and there is no user postgres to run it as"
            )
    folder = Path(
        tempfile.mkdtemp(prefix="memagent-pg-", dir="/tmp")
    )  # a socket's path has to be short
    try:
        if os.geteuid() == 0:
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        folder.chmod(0o711)
        data = folder / "data"
        _run(
            programs / "initdb",
            "-D",
            str(data),
            "-U",
            "root_of_tests",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--no-locale",
            "--no-sync",
        )
        server = Postgres("", folder=data, programs=programs)
        server.start()
        try:
            admin = f"postgresql://root_of_tests@/postgres?host={quote(str(folder))}"
            import psycopg

            with psycopg.connect(admin, autocommit=True) as connection:
                connection.execute(
                    f"CREATE ROLE tester LOGIN PASSWORD '{PASSWORD}' CREATEDB".encode()
                )
                connection.execute("CREATE DATABASE tests OWNER tester")
            url = f"postgresql://tester:{PASSWORD}@/tests?host={quote(str(folder))}"
            yield Postgres(url, admin.replace("/postgres?", "/tests?"), data, programs)
        finally:
            server.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def rows_of(url: str, statement: str, *settings: str) -> list[tuple[Any, ...]]:
    """What a plain connection sees in one transaction, after naming digests in it or
    nothing at all.
    """
    import psycopg

    with psycopg.connect(url) as connection:
        if settings:
            connection.execute(
                "SELECT set_config('memagent.scopes', %s, true)", [",".join(settings)]
            )
        return connection.execute(statement.encode()).fetchall()

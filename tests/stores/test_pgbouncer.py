"""A pooler before PostgreSQL: PgBouncer in session mode serves, in transaction mode is refused."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from postgres_kit import Postgres

from memagent import Agent
from memagent.core.errors import ConfigError

PROGRAM = shutil.which("pgbouncer")
pytestmark = pytest.mark.skipif(PROGRAM is None, reason="needs apt-get install pgbouncer")


@contextmanager
def pooler(server: Postgres, folder: Path, mode: str, size: int) -> Generator[str]:
    """PgBouncer before an empty database of its own; the URL through it."""
    import psycopg
    import psycopg.conninfo

    if server.admin_url is None:
        pytest.skip("the server named may not make databases")
    parts = psycopg.conninfo.conninfo_to_dict(server.url)
    with psycopg.connect(server.admin_url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE pooled OWNER {parts['user']}".encode())
    try:
        with running(parts, folder, mode, size) as url:
            yield url
    finally:
        with psycopg.connect(server.admin_url, autocommit=True) as admin:
            admin.execute("DROP DATABASE pooled WITH (FORCE)")


@contextmanager
def running(parts: dict[str, Any], folder: Path, mode: str, size: int) -> Generator[str]:
    """The program while it runs."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    login = f"user={parts['user']} password={parts.get('password', '')}"
    place = f"host={parts['host']} port={parts.get('port', 5432)} dbname=pooled"
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\nmemory = {place} {login}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\n"
        f"pool_mode = {mode}\ndefault_pool_size = {size}\nunix_socket_dir =\n"
    )
    folder.chmod(0o755)
    for parent in list(folder.parents)[:3]:
        parent.chmod(0o755)
    command = [str(PROGRAM), "-q", str(folder / "pgbouncer.ini")]
    if os.geteuid() == 0:  # it refuses to run as root
        command = ["runuser", "-u", "postgres", "--", *command]
    process = subprocess.Popen(command, cwd="/")
    try:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"postgresql://{parts['user']}@127.0.0.1:{port}/memory"
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.parametrize("size", [1, 5])
def test_a_pooler_in_transaction_mode_is_refused_with_the_way_out(
    postgres: Postgres, tmp_path: Path, size: int
) -> None:
    with pooler(postgres, tmp_path, "transaction", size) as through:
        for _ in range(3):
            with pytest.raises(ConfigError, match="pool_mode = session"):
                Agent(path=through, embedder="hashing")


def test_a_pooler_in_session_mode_serves(postgres: Postgres, tmp_path: Path) -> None:
    with pooler(postgres, tmp_path, "session", 20) as through:
        for run in range(2):
            with Agent(path=through, embedder="hashing") as agent:
                for at in range(12):
                    agent.memory.add(f"memory {run} {at}")
                assert len(agent.memory.get_all()) == 12 * (run + 1)

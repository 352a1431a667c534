"""The guard in conftest keeps every test on this machine."""

from __future__ import annotations

import asyncio
import http.client
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from places import KITS_PATH, TESTS


def test_a_connection_to_another_machine_is_refused_and_written_down(
    network_attempts: list[str],
) -> None:
    with socket.socket() as sock, pytest.raises(RuntimeError, match="loopback only"):
        sock.connect(("192.0.2.1", 9))
    assert network_attempts == ["socket.connect 192.0.2.1"]


async def test_a_name_look_up_is_refused_through_any_library(network_attempts: list[str]) -> None:
    with pytest.raises(RuntimeError, match="loopback only"):
        http.client.HTTPConnection("name.invalid", timeout=1).request("GET", "/")
    with pytest.raises(RuntimeError, match="loopback only"):
        await asyncio.open_connection("name.invalid", 80)
    assert network_attempts == ["socket.getaddrinfo name.invalid"] * 2


def test_a_datagram_to_another_machine_is_refused(network_attempts: list[str]) -> None:
    with (
        socket.socket(type=socket.SOCK_DGRAM) as sock,
        pytest.raises(RuntimeError, match="loopback only"),
    ):
        sock.sendto(b"hello", ("192.0.2.1", 9))
    assert len(network_attempts) == 1


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.9.9.9"])
def test_loopback_stays_open(host: str) -> None:
    with socket.create_server(("127.9.9.9" if host == "127.9.9.9" else "127.0.0.1", 0)) as server:
        socket.create_connection((host, server.getsockname()[1]), timeout=2).close()


def test_a_swallowed_attempt_still_fails_the_test(tmp_path: Path) -> None:
    conftest = (TESTS / "conftest.py").read_text(encoding="utf-8")
    (tmp_path / "conftest.py").write_text(conftest, encoding="utf-8")
    (tmp_path / "test_it.py").write_text(
        "import contextlib, socket\n\ndef test_quiet():\n"
        "    with contextlib.suppress(Exception):\n        socket.getaddrinfo('name.invalid', 80)\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            str(tmp_path),
            str(tmp_path),
        ],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": KITS_PATH},
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the network was tried: ['socket.getaddrinfo name.invalid']" in done.stdout

"""Two processes that train together over gloo on the loopback interface."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

from places import ROOT


def launch(workload: str, *words: str | Path, ranks: int = 2, timeout: float = 560.0) -> list[str]:
    """Run a script of `tests/kits/workloads` on every rank and return what each printed.

    The rank is its last argument. Fails the test when a rank fails.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = os.environ | {
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
        "ACCELERATE_USE_CPU": "true",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, str(ROOT / "tests/kits/workloads" / workload), *map(str, words)]
    processes = [
        subprocess.Popen(
            [*command, str(rank)],
            env=shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    try:
        printed = [process.communicate(timeout=timeout) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0] * ranks, "\n".join(
        errors[-3_000:] for _, errors in printed
    )
    return [out for out, _ in printed]

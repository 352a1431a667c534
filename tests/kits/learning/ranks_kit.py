"""Two processes that train together over gloo on the loopback interface."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

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


STEPS = 3


def rank_settings(folder: Path, **changes: Any) -> dict[str, Any]:
    """A run of seconds. One process plays one episode a step, unless changed."""
    values: dict[str, Any] = {
        "folder": str(folder),
        "seed": 3,
        "model": {"size": "200k", "context_tokens": 256},
        "environment": {"episodes": 4, "turns": 2, "asks": ["now"], "friends": 0},
        "trainer": {
            "num_generations": 2,
            "steps_per_generation": 2,
            "gradient_accumulation_steps": 2,
            "num_iterations": 1,
            "reruns": 1,
            # Each session that has a question of its own is rerun: few have, and a step
            # plays two.
            "local_probability": 1.0,
            "learning_rate": 1e-3,
            "beta": 0.0,
            "max_completion_length": 8,
            "save_steps": 1,
            "control": "random_reward",
            "report_to": [],
            "use_cpu": True,
            "bf16": False,
        },
        "stage": [{"sessions": 1, "steps": STEPS}],
        "validation": {"every": 1, "episodes": 3, "test_episodes": 1, "test_last": True},
    }
    for name, change in changes.items():
        values[name] = (
            [values[name][0] | change] if name == "stage" else values.get(name, {}) | change
        )
    return values

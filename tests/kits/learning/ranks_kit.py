"""Two processes that train together over gloo on the loopback interface.

They are forked from one that has imported the trainer, which takes longer than a run.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from places import ROOT


def launch(workload: str, *words: str | Path, ranks: int = 2, timeout: float = 560.0) -> list[str]:
    """Run a script of `tests/kits/workloads` on every rank and return what each printed.

    The script calls `fork_ranks`. Fails the test when a rank fails.
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
        "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)])),
    }
    command = [sys.executable, str(ROOT / "tests/kits/workloads" / workload), *map(str, words)]
    with TemporaryDirectory() as name:
        folder = Path(name)
        process = subprocess.Popen([*command, name], env=shared, start_new_session=True)
        try:
            status = process.wait(timeout)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        printed = [
            [(folder / f"{kind}{rank}").read_text(encoding="utf-8") for kind in ("out", "err")]
            for rank in range(ranks)
            if (folder / f"err{rank}").exists()
        ]
    assert status == 0 and len(printed) == ranks, "\n".join(err[-3_000:] for _, err in printed)
    return [out for out, _ in printed]


def fork_ranks(main: Callable[[Path, int], None], place: Path, folder: Path) -> int:
    """Run `main(place, rank)` in a process for each rank and return 0 if all ended well.

    What a rank prints goes to files of the folder: outRANK, errRANK.
    """
    import train.run.trainer  # noqa: F401 - once for all ranks

    children: list[int] = []
    for rank in range(int(os.environ["WORLD_SIZE"])):
        child = os.fork()
        if child == 0:
            os._exit(_rank(main, place, folder, rank))
        children.append(child)
    return max(abs(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])) for child in children)


def _rank(main: Callable[[Path, int], None], place: Path, folder: Path, rank: int) -> int:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    for stream, kind in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / f"{kind}{rank}", os.O_WRONLY | os.O_CREAT), stream)
    try:
        main(place, rank)
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


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

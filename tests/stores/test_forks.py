"""A child forked while a store is open is told so at once, and never hangs in SQLite; one
forked when every store was closed opens them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

STORM = """
    import os, signal, sys, threading
    from memagent.agent import Agent
    from memagent.core.errors import StoreError

    path, forks = sys.argv[1], int(sys.argv[2])
    stop = threading.Event()
    with Agent(path=path, user_id="ana", embedder="hashing") as agent:
        agent.memory.add("before any fork")

        def write(name):
            count = 0
            while not stop.is_set():
                agent.memory.add(f"{name} {count}")
                count += 1

        writers = [threading.Thread(target=write, args=(f"writer {n}",)) for n in range(2)]
        for writer in writers:
            writer.start()
        bad = 0
        for _ in range(forks):
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                try:
                    Agent(path=path, user_id="ana", embedder="hashing", read_only=True)
                except StoreError as refused:
                    os._exit(0 if "forked from" in str(refused) else 3)
                except BaseException:
                    os._exit(4)
                os._exit(5)
            bad += os.waitpid(child, 0)[1] != 0
        stop.set()
        for writer in writers:
            writer.join()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        with Agent(path=path, user_id="ana", embedder="hashing") as agent:
            agent.memory.add("after every store was closed")
            os._exit(0 if agent.memory.get_all(limit=1) else 3)
    bad += os.waitpid(child, 0)[1] != 0
    print("BAD", bad)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("forks", [15, pytest.param(300, marks=pytest.mark.full)])
def test_forks_amid_writes_never_hang(tmp_path: Path, forks: int) -> None:
    script = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        textwrap.dedent(STORM),
        str(tmp_path / "memory.db"),
        str(forks),
    ]
    done = subprocess.run(
        script, capture_output=True, text=True, timeout=110 if forks < 100 else 1_800, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "BAD 0"

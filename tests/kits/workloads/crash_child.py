"""Processes to be killed: a server that has imported everything forks a fresh process
for each order and reports what became of it.

Run as a script it reads orders from stdin, one JSON object a line: `workload`
("module:function"), `args` (its keyword arguments), `point` and `visit` (die at that
crash point), `kill_after_s` (be killed from outside then). A workload is called as
`workload(say, **args)`, where `say` writes one line through the pipe before it returns:
what was said was acknowledged before the process died. A fork costs a hundredth of a
start, and it is as real a process: its own id, its own locks, killed by the kernel. The
server itself never opens a store.

`CrashServer` is the other end, for tests.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

Say = Callable[[str], None]
_END = "@end "

CRASH_POINTS: Final = (
    "lock.acquired",
    "schema.created",
    "schema.migrated",
    "append.enqueued",
    "append.taken",
    "transaction.begun",
    "headers.written",
    "payloads.written",
    "heads.written",
    "cache.written",
    "erase.deleted",
    "commit.before",
    "commit.after",
    "ack.before",
    "erase.committed",
    "erase.scrubbed",
    "checkpoint.before",
    "checkpoint.after",
    "close.drained",
    "lock.releasing",
)
"""Every name that the stores call `reach` with, in the order of a journal's life."""
BANK_CRASH_POINTS: Final = (
    "bank.planned",
    "bank.appended",
    "refresh.begun",
    "refresh.caught_up",
    "export.written",
)
"""The points of the memory bank: before and after an append, around the catch-up of the
search view, before an export takes its place.
"""
REDACTION_CRASH_POINTS: Final = ("redact.planned", "redact.written")
"""The points of an erasure of single words: before and after the journal is rewritten."""
CHECKPOINT_CRASH_POINTS: Final = (
    "ckpt.begun",
    "ckpt.sections",
    "ckpt.manifest",
    "ckpt.synced",
    "ckpt.renamed",
    "ckpt.erased",
)
"""The points of a memory's checkpoint: a new file begun, its sections written, its
manifest durable, its header durable, in its place; and a file deleted by an erasure.
"""
SERVER_CHECKPOINT_CRASH_POINTS: Final = ("ckpt.sent", "ckpt.replaced", "ckpt.committed")
"""Further points of a checkpoint on a server: its pieces sent, in the old one's place, and
that committed.
"""
_hook: Callable[[str], None] | None = None


def watch(hook: Callable[[str], None] | None) -> None:
    """Call `hook` at every place from now on in this process; None ends it.

    It runs in whichever thread gets there.
    """
    global _hook
    _hook = hook
    _listen()


@cache
def _listen() -> None:
    """Hear the audit events from now on, which a process cannot cease to do."""
    from memagent.core.crash_points import EVENT

    def hear(event: str, args: tuple[object, ...]) -> None:
        if event == EVENT and _hook is not None:
            _hook(str(args[0]))

    sys.addaudithook(hear)


@dataclass(frozen=True)
class Death:
    """How a process ended and what it had acknowledged by then."""

    said: list[str]
    killed: bool
    """Whether it died of SIGKILL; otherwise it finished its workload."""
    trace: str = ""
    """The traceback of a workload that raised."""


class CrashServer:
    """Runs workloads in processes that get killed.

    `modules` are imported once, before any fork.
    """

    def __init__(self, *modules: str) -> None:
        command = [sys.executable, str(Path(__file__).resolve()), *modules]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def run(
        self,
        workload: str,
        *,
        point: str | None = None,
        visit: int = 1,
        kill_after_s: float | None = None,
        **args: object,
    ) -> Death:
        """Fork a process for the workload and wait for its end."""
        order = {
            "workload": workload,
            "args": args,
            "point": point,
            "visit": visit,
            "kill_after_s": kill_after_s,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        said: list[str] = []
        for line in self._process.stdout:
            if line.startswith(_END):
                end = json.loads(line[len(_END) :])
                return Death(said, killed=end["killed"], trace=end["trace"])
            said.append(line.rstrip("\n"))
        raise AssertionError(f"the server ended with status {self._process.wait()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=10)
        self._process.stdout.close()


def _say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


def _serve() -> None:
    for order_line in sys.stdin:
        order = json.loads(order_line)
        errors_in, errors_out = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(errors_in)
            _work(order, errors_out)
        os.close(errors_out)
        if (
            order["kill_after_s"] is not None
            and not select.select([errors_in], [], [], order["kill_after_s"])[0]
        ):
            os.kill(pid, signal.SIGKILL)
        with os.fdopen(errors_in, encoding="utf-8") as pipe:
            trace = pipe.read()
        _, status = os.waitpid(pid, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        _say(_END + json.dumps({"killed": killed, "trace": trace}))


def kill_at(name: str, *, visit: int = 1) -> None:
    """End this process with SIGKILL when it reaches `name` for the `visit`-th time (from 1).

    Raises `ValueError` for an unknown name.
    """
    known = CRASH_POINTS + BANK_CRASH_POINTS + REDACTION_CRASH_POINTS
    known += CHECKPOINT_CRASH_POINTS + SERVER_CHECKPOINT_CRASH_POINTS
    if name not in known:
        raise ValueError(f"no crash point is called {name!r}; there are {', '.join(known)}")
    left = visit

    def hook(reached: str) -> None:
        nonlocal left
        if reached == name:
            left -= 1
            if left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)

    watch(hook)


def _work(order: dict[str, Any], errors_out: int) -> None:
    """Run one order and end the process; never returns."""
    try:
        sys.stdin = open(os.devnull, encoding="utf-8")  # noqa: SIM115
        module, _, name = order["workload"].partition(":")
        workload = getattr(import_module(module), name)
        if order["point"] is not None:
            kill_at(order["point"], visit=order["visit"])
        workload(_say, **order["args"])
    except BaseException:
        os.write(errors_out, traceback.format_exc().encode())
    finally:
        os._exit(0)


if __name__ == "__main__":
    tests = Path(__file__).resolve().parents[2]
    folders = {path.parent for path in tests.rglob("*.py")}
    sys.path[:0] = [str(folder) for folder in (*sorted(folders), tests.parent)]
    for _name in sys.argv[1:]:
        import_module(_name)
    _serve()

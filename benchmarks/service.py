"""Benchmark of the REST service under a mixed load, beside bare FastAPI and mem0.

It counts requests per second, all in one run.

Nine in ten requests search, one in ten adds a memory, each for a user chosen at random,
no two searches alike. Every server runs in a process of its own; adds of the service
are acknowledged after the fsync (SQLite, `synchronous=FULL`). The ceiling is FastAPI
with endpoints that check the same bodies, do nothing and answer with as many bytes.
mem0 stands behind equal endpoints when `--mem0-python` names an interpreter that has it
(`make bench-peers` makes one). Every server has the first core to itself and the load
the others: a server that moves between cores takes a tenth more processor time, since
its writing thread and its event loop share one interpreter lock. With `--large` the load
is run once more, on the same memories and one more user who has that many. With `--active`
requests name so many of the users only; the service keeps 1,000 open at most, and the
others are closed and opened again. `--against` names an older checkout, whose service gets
the same load over a store that it has filled itself. The promises
are ratios to the ceiling of the same run: at most 4.5 times its processor time for a
request, at most 6 times its p95 of a search, no error, and at most twice the memory for
an added memory that one took when it was opened; and at most 1.1 times the processor time
of the older checkout.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from measured import report
from service_parts.load import Outcome, drive, mixed, once_each, sentence

from memagent import Scope
from memagent.build import open_store
from memagent.memory.facade import Memory

_AT_ONCE = 1_000
_CHECKPOINTED = 10_000
"""Memories from which on a user is left with a checkpoint, as one who was served is."""
PARTS = Path(__file__).parent / "service_parts"
CORES = sorted(os.sched_getaffinity(0))
"""The first is the servers', where there are more."""
_CPU, _P95 = 4.5, 6.0
"""How many times the ceiling's processor time and p95 of a search the service may take."""
_OLDER = 1.1
"""How many times the processor time of an older checkout a request may take."""
_PLACES = ("out", "mem0_python", "mem0_folder", "against", "fill")
_GROWTH = 2.0
"""How many times what a memory takes at the start, with its vector, its place in the index
and its history, one added later may take.
"""


async def fill(path: Path, *, memories: int, users: int, large: int = 0) -> None:
    """Write the memories, evenly over the users; the last one more has `large`."""
    chance = random.Random(1)
    store = open_store(path=path)
    sizes = [memories // users] * users + [large] * bool(large)
    try:
        for user, size in enumerate(sizes):
            memory = Memory(store.bank(Scope(user_id=f"u{user}")))
            for first in range(0, size, _AT_ONCE):
                count = min(_AT_ONCE, size - first)
                await memory.add_many([sentence(chance) for _ in range(count)])
            if store.checkpoints is not None and size >= _CHECKPOINTED:
                await memory.bank.refresh()
                store.checkpoints.save(memory.bank)
    finally:
        store.close()


@contextmanager
def running(
    command: list[str],
    port: int,
    *,
    wait_s: float = 300.0,
    errors: Any = subprocess.DEVNULL,
    **environment: str,
) -> Iterator[int]:
    """Start a server process that listens on a port and yield its id."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        env={**os.environ, **environment},
    )
    os.sched_setaffinity(process.pid, CORES[:1])
    try:
        deadline = time.monotonic() + wait_s
        while time.monotonic() < deadline and process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        else:
            raise RuntimeError(f"{command[:3]} does not listen")
        yield process.pid
    finally:
        process.terminate()
        process.wait(600)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cpu_s(pid: int) -> float:
    """Processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int) -> float:
    """Memory that a process holds."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def percentiles(times: list[float]) -> dict[str, float]:
    """Milliseconds."""
    if not times:
        return {"p50_ms": 0.0, "p95_ms": 0.0, "p99_ms": 0.0}
    return {
        f"p{share}_ms": round(1e3 * times[min(len(times) - 1, len(times) * share // 100)], 2)
        for share in (50, 95, 99)
    }


def measure(
    name: str, pid: int, port: int, given: argparse.Namespace, *, users: int, seconds: float
) -> dict[str, Any]:
    """Load a server, print a line, and give what came of it."""
    before, users = cpu_s(pid), min(users, given.active or users)
    requests = mixed(users, writes=0.1)
    found = drive(
        port, requests, connections=given.connections, seconds=seconds, watch=lambda: rss_mb(pid)
    )
    result: dict[str, Any] = {
        "name": name,
        "requests_per_s": round(found.requests / found.seconds, 1),
        "search": percentiles(sorted(found.searches)),
        "add": percentiles(sorted(found.adds)),
        "server_cpu_ms": round(1e3 * (cpu_s(pid) - before) / found.requests, 3),
        "load_cpu_ms": round(1e3 * found.own_cpu_s / found.requests, 3),
        "errors": found.errors,
        "requests": found.requests,
        "adds": len(found.adds),
        "rss_mb_by_tenth": [round(value) for value in found.tenths],
    }
    search, add = result["search"], result["add"]
    print(
        f"{name:<30} {result['requests_per_s']:8.0f} {search['p50_ms']:8.2f} "
        f"{search['p95_ms']:8.2f} {search['p99_ms']:8.2f} "
        f"{add['p50_ms']:8.2f} {add['p95_ms']:8.2f} {add['p99_ms']:8.2f} "
        f"{result['server_cpu_ms']:8.3f} {found.errors:7d}",
        flush=True,
    )
    return result | _sizes(found)


def _sizes(found: Outcome) -> dict[str, int]:
    searches, adds = max(1, len(found.searches)), max(1, len(found.adds))
    return {"search_bytes": found.search_bytes // searches, "add_bytes": found.add_bytes // adds}


def ours(
    folder: Path, given: argparse.Namespace, *, large: int = 0, source: Path | None = None
) -> dict[str, Any]:
    """Start the service, or that of another checkout, with every memory opened before."""
    name = f"memagent and {large:,} of one" if large else "memagent" if source is None else "older"
    path, users = folder / name / "memory.db", given.users + bool(large)
    path.parent.mkdir()
    code = {} if source is None else {"PYTHONPATH": str(source)}
    sizes = ("--memories", given.memories, "--users", given.users, "--large", large)
    filling = [sys.executable, __file__, *map(str, sizes), "--fill", str(path)]
    subprocess.run(filling, check=True, env={**os.environ, **code})
    port = free_port()
    # -P: `-m` alone would import from the present folder before the other checkout
    python = [sys.executable] if source is None else [sys.executable, "-P"]
    command = [*python, "-m", "memagent.cli.app", "serve", "--db", str(path)]
    with running([*command, "--port", str(port)], port, wait_s=300.0, **code) as pid:
        empty = rss_mb(pid)
        opening = drive(port, once_each(users), connections=given.connections)
        each_kb = 1e3 * (rss_mb(pid) - empty) / (given.memories + large)
        rate = opening.requests / opening.seconds
        print(
            f"(first touch of every user: {rate:.0f} requests/s, {opening.errors} errors, "
            f"{each_kb:.1f} kB a memory)"
        )
        row = measure(name, pid, port, given, users=users, seconds=given.seconds)
        row["users_closed"] = users_closed(port)
        rss = row["rss_mb_by_tenth"]
        added_kb = 1e3 * (rss[-1] - rss[4]) / max(1.0, 0.5 * row["adds"]) if len(rss) == 10 else 0
        return row | {"kb_a_memory": round(each_kb, 1), "kb_an_added_memory": round(added_kb, 1)}


def users_closed(port: int) -> int:
    """Return how many users the service has closed to make room for others."""
    with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        found = re.search(r'banks_evicted"} (\d+)', answer.read().decode())
    return int(found[1]) if found else 0


def ceiling(size: Mapping[str, Any], given: argparse.Namespace) -> dict[str, Any]:
    """Start the framework alone."""
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "uvicorn",
        "bare_app:app",
        "--app-dir",
        str(PARTS),
        "--port",
        str(port),
    ]
    command += [
        "--no-access-log",
        "--log-level",
        "warning",
        "--no-server-header",
        "--no-proxy-headers",
    ]
    with running(command, port, BARE_BYTES=f"{size['search_bytes']},{size['add_bytes']}") as pid:
        return measure(
            "bare FastAPI", pid, port, given, users=given.users, seconds=given.others_seconds
        )


def mem0s(folder: Path, given: argparse.Namespace) -> dict[str, Any] | None:
    """mem0 behind equal endpoints; None where the interpreter does not have it."""
    if given.mem0_python is None:
        return None
    looked = subprocess.run(
        [given.mem0_python, "-c", "import mem0, memagent"], capture_output=True, check=False
    )
    if looked.returncode:
        print(f"(mem0 is left out: {given.mem0_python} cannot import mem0 and memagent)")
        return None
    port = free_port()
    site = importlib.util.find_spec("fastapi")
    assert site is not None and site.origin is not None
    told = {
        "FOLDER": str(folder),
        "USERS": str(given.users),
        "MEMORIES": str(given.memories),
        "SITE": str(Path(site.origin).parent.parent),
        "PYTHONWARNINGS": "ignore",
    }
    folder.mkdir(parents=True, exist_ok=True)
    with running(
        [given.mem0_python, str(PARTS / "mem0_app.py"), str(port)], port, wait_s=3_600.0, **told
    ) as pid:
        return measure("mem0", pid, port, given, users=given.users, seconds=given.others_seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--memories", type=int, default=50_000)
    parser.add_argument("--users", type=int, default=500)
    parser.add_argument(
        "--seconds", type=float, default=30.0, help="of each load; 300 for the full figure"
    )
    parser.add_argument(
        "--others-seconds", type=float, help="of the loads beside it; as long when left out"
    )
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--large", type=int, default=0, help="memories of one more user")
    parser.add_argument("--active", type=int, help="users whom requests name; all by default")
    parser.add_argument("--against", type=Path, help="an older checkout, in the same run")
    parser.add_argument("--fill", type=Path, help="write the memories to this store, no more")
    parser.add_argument("--out", type=Path, help="where the JSON goes")
    parser.add_argument(
        "--mem0-python",
        help="an interpreter with mem0ai and memagent, such as build/peers/bin/python",
    )
    parser.add_argument(
        "--mem0-folder",
        help="where mem0's memories are kept for the next time; filling takes it minutes",
    )
    given = parser.parse_args()
    if given.fill is not None:
        sizes = {"memories": given.memories, "users": given.users, "large": given.large}
        asyncio.run(fill(given.fill, **sizes))
        return
    given.others_seconds = given.others_seconds or given.seconds
    os.sched_setaffinity(0, CORES[1:] or CORES)
    print(
        f"{given.memories:,} memories of {given.users} users, {given.connections} connections, "
        f"{given.seconds:g} s each, "
        f"{len(CORES)} cores, load average {os.getloadavg()[0]:.1f}"
    )
    print(
        f"{'':<30} {'req/s':>8} {'search p50':>8} {'p95':>5} {'p99':>8} {'add p50':>8} {'p95':>8} "
        f"{'p99':>8} {'CPU ms':>8} {'errors':>7}"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first = ours(folder, given)
        rows = [first, ceiling(first, given)]
        if given.against is not None:
            rows.append(ours(folder, given, source=given.against.resolve()))
        if given.large:
            rows.append(ours(folder, given, large=given.large))
        other = mem0s(Path(given.mem0_folder) if given.mem0_folder else folder, given)
        if other is not None:
            rows.append(other)
    promises: dict[str, tuple[float, float]] = {}
    for row in rows:
        if row["name"].startswith("memagent"):
            promises |= promised(row, rows[1])
    results = {row["name"]: row for row in rows}
    if "older" in results:
        cost = round(first["server_cpu_ms"] / results["older"]["server_cpu_ms"], 2)
        promises["memagent: processor time, times the older's"] = (cost, _OLDER)
    if given.out is not None:
        asked = {key: value for key, value in vars(given).items() if key not in _PLACES}
        said = {"asked": asked, "load": os.getloadavg()[0], "results": results}
        given.out.write_text(json.dumps(said | {"promises": promises}, indent=1) + "\n")
    report("service", results, promises=promises)


def promised(row: Mapping[str, Any], bare: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Return what is promised of a load beside the ceiling's, and its bounds."""
    cpu = row["server_cpu_ms"] / max(bare["server_cpu_ms"], 1e-9)
    p95 = row["search"]["p95_ms"] / max(bare["search"]["p95_ms"], 1e-9)
    grown = row["kb_an_added_memory"] / max(row["kb_a_memory"], 1e-9)
    name = row["name"]
    return {
        f"{name}: processor time, times bare FastAPI's": (round(cpu, 2), _CPU),
        f"{name}: p95 of a search, times bare FastAPI's": (round(p95, 2), _P95),
        f"{name}: errors": (row["errors"], 0),
        f"{name}: memory added, times what one took": (round(grown, 2), _GROWTH),
    }


if __name__ == "__main__":
    main()

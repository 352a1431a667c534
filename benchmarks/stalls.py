"""Benchmark of what one large memory does to the users beside it.

A user with one memory searches every few milliseconds while a user with 10,000 does what
is heavy: the first touch, with and without a checkpoint, `as_of`, undo, a list page, an
export, an import, an erasure. The longest wait of the small user is what counts, in
processor time that the service used meanwhile: that is the wait on a machine that nobody
else uses. The service has the first core to itself, this script the others. The same is then
measured with slices that never end (`--whole`), so that each operation goes on to its
end: in slices it may take 1.3 times as long, without the searches of the small user.
`--source` names another checkout whose service is measured on the same store.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import opening
from measured import report
from service import CORES, free_port, percentiles, running

SINGLE = 2_000
"""Memories of the large user that were added one by one, at the end."""
WORST_MS, FIRST_MS = 100.0, 200.0
"""Longest wait of the small user; during a first touch without a checkpoint."""
SLOWER = 1.3
"""How many times as long as in one piece, or as in another checkout, an operation may take."""
_SHORT_S = 0.1
"""Operations that take less have no slices."""
_WHOLE = (
    "import memagent.core.long_work as work; work.SLICE_S = 1e9; "
    "from memagent.cli.app import main; main()"
)
"""The command line with slices that never end."""
_PAUSE_S = 0.005
Ask = Callable[..., Any]


async def small_user(path: Path) -> None:
    """Give the small user its memory."""
    from memagent import Scope
    from memagent.build import open_store
    from memagent.memory.facade import Memory

    store = open_store(path=path)
    await Memory(store.bank(Scope(user_id="bo"))).add("Bo keeps a grey cat in Oslo")
    store.close()


def prepared(folder: Path, items: int) -> Path:
    """Return a store with both users and the large one's checkpoint; make it where absent."""
    path = folder / str(items) / "memory.db"
    if not path.exists():
        partial = folder / "partial" / "memory.db"
        shutil.rmtree(partial.parent, ignore_errors=True)
        partial.parent.mkdir(parents=True)
        asyncio.run(opening.build(partial, items - SINGLE))
        asyncio.run(opening.add_tail(partial, SINGLE))
        asyncio.run(small_user(partial))
        partial.parent.rename(path.parent)
    return path


@contextmanager
def serving(
    path: Path, folder: Path, source: Path, *, checkpoints: bool, whole: bool = False
) -> Iterator[tuple[int, int]]:
    """Serve a copy of a store; yield the port and the id of the process."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copy(path, folder / "memory.db")
    if checkpoints:
        shutil.copytree(f"{path}.checkpoints", folder / "memory.db.checkpoints")
    port = free_port()
    program = ["-c", _WHOLE] if whole else ["-m", "memagent.cli.app"]
    command = [sys.executable, "-P", *program, "serve"]
    command += ["--db", str(folder / "memory.db")]
    with running([*command, "--port", str(port)], port, PYTHONPATH=str(source)) as pid:
        yield port, pid


class Line:
    """One connection that is kept alive."""

    def __init__(self, port: int) -> None:
        self._line = http.client.HTTPConnection("127.0.0.1", port, timeout=300)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Send a request; return the answer, JSON decoded. Raises on a refusal."""
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        given = {"Content-Type": "application/json"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        self._line.request(method, path, content, given)
        answer = self._line.getresponse()
        data = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {data[:300]!r}")
        plain = answer.headers.get_content_type() == "application/json"
        return json.loads(data) if plain and data else data


class Probe:
    """The small user, in a thread of its own."""

    def __init__(self, port: int, pid: int) -> None:
        self._line, self._pid, self._stop = Line(port), pid, threading.Event()
        self._waits: list[tuple[float, float, float]] = []
        self.search()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def search(self) -> None:
        """Search once."""
        asked = {"text": "where does Bo keep a cat", "k": 5}
        found = self._line.ask("POST", "/v1/search?user_id=bo", asked)
        assert len(found["hits"]) == 1

    def _run(self) -> None:
        while not self._stop.is_set():
            used, began = busy_s(self._pid), time.perf_counter()
            self.search()
            waited = time.perf_counter() - began
            self._waits.append((began, waited, busy_s(self._pid) - used))
            time.sleep(_PAUSE_S)

    def during(self, work: Callable[[], None]) -> dict[str, Any]:
        """Return how long some work took, and the waits of the small user meanwhile."""
        used, began = busy_s(self._pid), time.perf_counter()
        work()
        ended, used = time.perf_counter(), busy_s(self._pid) - used
        while not self._waits or self._waits[-1][0] < ended:
            time.sleep(_PAUSE_S)
        rows = [row for row in self._waits if row[0] + row[1] >= began and row[0] <= ended]
        waits = sorted(wait for _, wait, _ in rows)
        shares = percentiles(waits)
        return {
            "took_s": round(ended - began, 3),
            "cpu_s": round(used, 3),
            "worst_ms": round(1e3 * waits[-1], 1),
            "worst_cpu_ms": round(1e3 * max(cpu for _, _, cpu in rows), 1),
            "p50_ms": shares["p50_ms"],
            "p99_ms": shares["p99_ms"],
            "searches": len(waits),
        }

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join()


def busy_s(pid: int) -> float:
    """Return the processor time of a process, in nanosecond steps."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def finished(ask: Ask, job: dict[str, Any]) -> dict[str, Any]:
    """Wait for a job; return it as it ended."""
    while job["state"] not in ("done", "failed"):
        time.sleep(0.01)
        job = ask("GET", f"/v1/jobs/{job['id']}?user_id=ana")
    assert job["state"] == "done", job
    return job


BIG = "?user_id=ana"
SEARCH = {"text": opening.QUESTION, "k": 10}


def first_touch(ask: Ask) -> dict[str, Callable[[], None]]:
    """Return what is measured on a fresh server."""
    return {"first search": lambda: ask("POST", f"/v1/search{BIG}", SEARCH)}


def operations(ask: Ask, items: int) -> dict[str, Callable[[], Any]]:
    """Return the heavy operations, in the order in which they are measured."""
    kept: dict[str, Any] = {}

    def as_of(**when: Any) -> Callable[[], None]:
        return lambda: ask("POST", f"/v1/search{BIG}", SEARCH | {"as_of": when})

    def export() -> None:
        job = finished(ask, ask("POST", "/v1/users/ana/export"))
        number = job["result"]["files"][0]["number"]
        kept["file"] = ask("GET", f"/v1/jobs/{job['id']}/files/{number}{BIG}")

    head = 2 * (items - SINGLE) // opening.PER_SESSION + SINGLE
    batch = {"texts": [f"Ana filed the paper number {number}" for number in range(1_000)]}
    return {
        "idle": lambda: time.sleep(2.0),
        "search": lambda: ask("POST", f"/v1/search{BIG}", SEARCH),
        "list page": lambda: ask("GET", f"/v1/memories{BIG}&limit=100"),
        "event page": lambda: ask("GET", f"/v1/events{BIG}&limit=100"),
        "graph figures": lambda: ask("GET", f"/v1/graph/stats{BIG}"),
        "add": lambda: ask("POST", f"/v1/memories{BIG}", {"text": "Ana moved to Porto"}),
        "undo the last": lambda: ask("POST", f"/v1/undo{BIG}", {}),
        "undo an older one": lambda: ask("POST", f"/v1/undo{BIG}", {"commit_id": f"c{head - 200}"}),
        "as of the entry before": as_of(recorded=head),
        "as of it once more": as_of(recorded=head),
        "as of the middle": as_of(recorded=head // 2),
        "as of what was said": as_of(said="2020-09-01T00:00:00Z"),
        "add 1,000 at once": lambda: ask("POST", f"/v1/memories/batch{BIG}", batch),
        "search after them": lambda: ask("POST", f"/v1/search{BIG}", SEARCH),
        "export": export,
        "import": lambda: ask(
            "POST", "/v1/users/carla/import", kept["file"], Content_Type="application/x-ndjson"
        ),
        "search the import": lambda: ask("POST", "/v1/search?user_id=carla", SEARCH),
        "erase a session": lambda: ask("POST", f"/v1/sessions/s3/erase{BIG}&confirm=s3"),
        "search after that": lambda: ask("POST", f"/v1/search{BIG}", SEARCH),
        "delete all": lambda: ask("DELETE", "/v1/memories?user_id=carla&confirm=carla"),
        "erase": lambda: finished(ask, ask("POST", "/v1/users/ana/erase")),
    }


def measured(
    path: Path, folder: Path, source: Path, items: int, *, whole: bool = False
) -> dict[str, Any]:
    """Return the figures of one checkout's service."""
    results: dict[str, Any] = {}
    with serving(path, folder, source, checkpoints=False, whole=whole) as (port, pid):
        probe = Probe(port, pid)
        results["first search without a checkpoint"] = probe.during(
            first_touch(Line(port).ask)["first search"]
        )
        probe.stop()
    with serving(path, folder, source, checkpoints=True, whole=whole) as (port, pid):
        probe, ask = Probe(port, pid), Line(port).ask
        for name, work in (first_touch(ask) | operations(ask, items)).items():
            results[name] = probe.during(work)
            print(f"  {name:<36} {results[name]}", flush=True)
        probe.stop()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/memagent-stalls"))
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--source", type=Path, default=Path(__file__).parent.parent)
    parser.add_argument("--before", type=Path, help="the JSON of another checkout's run")
    parser.add_argument("--whole", action="store_true", help="measure without slices as well")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    os.sched_setaffinity(0, CORES[1:] or CORES)
    path, source = prepared(asked.folder, asked.items), asked.source.resolve()
    results = measured(path, asked.folder / "served", source, asked.items)
    promises: dict[str, tuple[float, float]] = {}
    for name, row in results.items():
        bound = FIRST_MS if "without a checkpoint" in name else WORST_MS
        promises[f"{name}, worst wait beside it, ms"] = (row["worst_cpu_ms"], bound)
    said: dict[str, Any] = {"now": results}
    if asked.before is not None:
        before = json.loads(asked.before.read_text())["now"]
        promises |= slower(results, before, "before")
    if asked.whole:
        print(json.dumps(results))
        print("without slices:", flush=True)
        said["whole"] = measured(path, asked.folder / "served", source, asked.items, whole=True)
        promises |= slower(results, said["whole"], "without slices")
    if asked.out is not None:
        about = {"command": "python benchmarks/stalls.py --whole", "load": os.getloadavg()[0]}
        asked.out.write_text(json.dumps(about | said | {"promises": promises}, indent=1) + "\n")
    report("stalls", results, promises=promises)


def own_s(rows: dict[str, Any], name: str) -> float:
    """Return the processor time of an operation without the small user's searches."""
    search_s = rows["idle"]["cpu_s"] / rows["idle"]["searches"]
    return rows[name]["cpu_s"] - search_s * rows[name]["searches"]


def slower(
    rows: dict[str, Any], others: dict[str, Any], name: str
) -> dict[str, tuple[float, float]]:
    """Return how many times as long as in another run each long operation took."""
    long = [key for key in rows if key in others and own_s(others, key) >= _SHORT_S]
    return {
        f"{key}, times as long as {name}": (
            round(own_s(rows, key) / own_s(others, key), 2),
            SLOWER,
        )
        for key in long
    }


if __name__ == "__main__":
    main()

"""A cost model of serving millions of users.

It gives load, caches, workers, databases, cost, and the minutes after a node has died.

A model, not a measurement: users' activity has a heavy tail (Pareto), the day has a
peak, requests come in visits, and a worker keeps the memories used last. What share of
visits finds its memory open follows from Che's approximation of an LRU cache over sizes
that differ; a plain LRU simulation checks it (`--check`). What one memory costs comes
from `scripts/store_sizes.py` and is given as arguments, and so are prices. Numpy alone,
seeded, seconds to run. The surprise: without routing by user every worker sees every
user, the caches hold the same memories over and over, and replaying them costs more
than serving.

    python scripts/ten_million_users.py --into docs/scaling.md
"""

from __future__ import annotations

import argparse
import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import ceil, inf, pi
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
_BINS = 400
_DAY_S = 86_400.0
_REGIONS = ((0.5, 0.0), (0.3, 8.0), (0.2, 16.0))
"""Shares of the users and how many hours later their day begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """Everything that the answers depend on; each is an argument of the command line."""

    users: int = 10_000_000
    seed: int = 0
    # how they use it
    requests_day: float = 4.0
    """Of a user, on average."""
    tail: float = 1.3
    """Shape of the Pareto distribution of activity; nearer to 1 is more uneven."""
    most_requests_day: float = 2_000.0
    write_share: float = 0.2
    visit_requests: float = 8.0
    """Requests that come together; all but the first find the memory open where users are
    routed.
    """
    depth: float = 0.8
    """How far a region's hourly load swings about its mean."""
    kept_days: float = 365.0
    """How long memories have been gathered; what a user writes in it is the size of the
    memory.
    """
    most_memories: float = 20_000.0
    # what it costs, by scripts/store_sizes.py and benchmarks/service.py
    resident_bytes: float = 25_000.0
    """Of one memory in an open bank."""
    stored_bytes: float = 2_000.0
    """Of one memory in PostgreSQL."""
    replay_us: float = 500.0
    """Processor time to open a bank by replay, a memory."""
    checkpoint_us: float = 175.0
    """The same from a checkpoint (`benchmarks/opening.py --url`), for 2,000 memories."""
    checkpoint_from: float = 64.0
    """Memories from which on a bank has a checkpoint."""
    request_cpu_ms: float = 2.0
    """Of a request on an open bank, HTTP included."""
    search_us: float = 0.2
    """What a search costs more for each memory in the bank."""
    # machines
    cores: int = 8
    ram_gb: float = 32.0
    cache_share: float = 0.6
    """Of the machine's RAM that banks may fill."""
    utilisation: float = 0.6
    """Of the processors at the peak."""
    writes_s: float = 600.0
    """Durable writes a second that one PostgreSQL server takes."""
    # prices, in dollars
    node_hour: float = 0.30
    database_hour: float = 0.60
    gb_month: float = 0.12


@dataclass(frozen=True, slots=True)
class Crowd:
    """Users by activity, in bins: how many, requests a second each at the peak, memories each."""

    count: Floats
    rate: Floats
    memories: Floats
    peak: float
    """Load of the busiest hour over the mean."""


def crowd(given: Inputs) -> Crowd:
    """Users drawn one by one, then put into bins of like activity."""
    dice = np.random.default_rng(given.seed)
    drawn = np.minimum(dice.pareto(given.tail, given.users) + 1.0, 1e4)
    drawn = np.minimum(drawn * (given.requests_day / drawn.mean()), given.most_requests_day)
    edges = np.geomspace(drawn.min(), drawn.max() * 1.000001, _BINS + 1)
    place = np.clip(np.searchsorted(edges, drawn, side="right") - 1, 0, _BINS - 1)
    count = np.bincount(place, minlength=_BINS).astype(np.float64)
    sums = np.bincount(place, weights=drawn, minlength=_BINS)
    kept = count > 0
    a_day = sums[kept] / count[kept]
    hours = np.arange(0.0, 24.0, 0.25)
    load = sum(
        share * (1.0 + given.depth * np.cos((hours - 20.0 - late) * pi / 12.0))
        for share, late in _REGIONS
    )
    peak = float(np.max(load) / np.mean(load))
    memories = np.clip(a_day * given.write_share * given.kept_days, 1.0, given.most_memories)
    return Crowd(count[kept], a_day * peak / _DAY_S, memories, peak)


def holding_time(count: Floats, rate: Floats, size: Floats, room: float) -> float:
    """Return the seconds that an unused entry stays in an LRU cache of `room` bytes.

    This is Che's approximation; inf when everything fits.
    """
    if float((count * size).sum()) <= room:
        return inf
    low, high = 0.0, 1.0
    while float((count * size * -np.expm1(-rate * high)).sum()) < room:
        high *= 2.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (
            (middle, high)
            if float((count * size * -np.expm1(-rate * middle)).sum()) < room
            else (low, middle)
        )
    return low


@dataclass(frozen=True, slots=True)
class Plan:
    """A fleet that carries the peak."""

    nodes: int
    hit_share: float
    """Of the requests, how many find their memory open."""
    held_s: float
    replay_cores: float
    serve_cores: float
    hits: Floats
    """By bin: how likely a visit finds the memory open."""
    visits: Floats
    """By bin: events a second of one user at which the memory may have to be opened."""


def opening_s(given: Inputs, memories: Floats) -> Floats:
    """Return the processor time to open banks of so many memories."""
    each = np.where(memories >= given.checkpoint_from, given.checkpoint_us, given.replay_us)
    return memories * each / 1e6


def plan(given: Inputs, users: Crowd, *, routed: bool) -> Plan:
    """Return the fewest nodes that stay below `utilisation` at the peak."""

    def with_nodes(nodes: int) -> Plan:
        workers = nodes * given.cores
        room = nodes * given.ram_gb * 1e9 * given.cache_share
        size = users.memories * given.resident_bytes
        # Routed, the caches hold a user once and visits count; else each worker holds
        # what passes by it, and requests count.
        visits = users.rate / given.visit_requests if routed else users.rate
        if routed:
            held = holding_time(users.count, visits, size, room)
            hits = -np.expm1(-visits * held) if held != inf else np.ones_like(visits)
        else:
            held = holding_time(users.count, visits / workers, size, room / workers)
            hits = -np.expm1(-visits / workers * held) if held != inf else np.ones_like(visits)
        opened = users.count * visits * (1.0 - hits)
        replay = float((opened * opening_s(given, users.memories)).sum())
        each = (
            given.request_cpu_ms / 1e3
            + (1.0 - given.write_share) * users.memories * given.search_us / 1e6
        )
        serve = float((users.count * users.rate * each).sum())
        share = 1.0 - float(opened.sum()) / float((users.count * users.rate).sum())
        return Plan(nodes, share, held, replay, serve, hits, visits)

    low, high = 1, 1
    while _busy(given, with_nodes(high)) > given.utilisation and high < 1 << 20:
        low, high = high + 1, high * 2
    while low < high:
        middle = (low + high) // 2
        low, high = (
            (low, middle)
            if _busy(given, with_nodes(middle)) <= given.utilisation
            else (middle + 1, high)
        )
    return with_nodes(high)


def _busy(given: Inputs, found: Plan) -> float:
    return (found.replay_cores + found.serve_cores) / (found.nodes * given.cores)


@dataclass(frozen=True, slots=True)
class Failure:
    """Model the time after one node of a routed fleet has died at the peak.

    Its users are spread over the other nodes.
    """

    banks: float
    """Open memories that were lost."""
    rows_s: float
    """Most memories a second opened again because of it."""
    delay_s: float
    """Longest wait that the backlog makes, beyond the usual."""
    recovered_s: float
    """Until the backlog is gone and replays are within 5 % of what they were."""


def failure(given: Inputs, users: Crowd, fleet: Plan) -> Failure | None:
    """None for a single node, whose death is an outage."""
    if fleet.nodes < 2:
        return None
    lost = users.count / fleet.nodes * fleet.hits
    capacity = float((fleet.nodes - 1) * given.cores)
    usual = fleet.replay_cores + fleet.serve_cores
    backlog = worst = rows = 0.0
    recovered = 0.0
    for second in range(4 * 3_600):
        coming = lost * fleet.visits * np.exp(-fleet.visits * second)
        again = float((coming * users.memories).sum())
        extra = float((coming * opening_s(given, users.memories)).sum())
        backlog = max(0.0, backlog + usual + extra - capacity)
        worst, rows = max(worst, backlog / capacity), max(rows, again)
        if backlog > 0.0 or extra > 0.05 * max(fleet.replay_cores, 0.05 * usual):
            recovered = second + 1.0
    return Failure(float(lost.sum()), rows, worst, recovered)


def spread(given: Inputs, users: Crowd, shards: int) -> float:
    """Load of the busiest of so many shards by hash of the user, over the mean."""
    if shards < 2:
        return 1.0
    dice = np.random.default_rng(given.seed + 1)
    load = np.zeros(shards)
    for count, rate in zip(users.count, users.rate, strict=True):
        load += dice.multinomial(int(count), np.full(shards, 1.0 / shards)) * rate
    return float(load.max() / load.mean())


def simulated_hits(rates: Floats, sizes: Floats, room: float, *, visits: int, seed: int) -> float:
    """Simulate the share of visits that a plain LRU cache of `room` bytes serves.

    It starts after a warm-up and checks `holding_time`.
    """
    dice = np.random.default_rng(seed)
    order: list[int] = dice.choice(len(rates), size=visits, p=rates / rates.sum()).tolist()
    cache: OrderedDict[int, None] = OrderedDict()
    held, hits = 0.0, 0
    for at, user in enumerate(order):
        if user in cache:
            cache.move_to_end(user)
            hits += at >= visits // 2
            continue
        cache[user] = None
        held += sizes[user]
        while held > room:
            held -= sizes[cache.popitem(last=False)[0]]
    return hits / (visits - visits // 2)


def check(seed: int = 0) -> tuple[float, float]:
    """Hit share by formula and by simulation, for a small crowd of the same tail."""
    dice = np.random.default_rng(seed)
    rates = dice.pareto(1.3, 20_000) + 1.0
    sizes = np.clip(rates, 1.0, 500.0)
    room = float(sizes.sum()) * 0.2
    held = holding_time(np.ones_like(rates), rates, sizes, room)
    expected = float((rates * -np.expm1(-rates * held)).sum() / rates.sum())
    return expected, simulated_hits(rates, sizes, room, visits=400_000, seed=seed)


# -- the table -------------------------------------------------------------------------


def column(given: Inputs) -> dict[str, str]:
    """Everything about one number of users, in words."""
    users = crowd(given)
    routed, loose = plan(given, users, routed=True), plan(given, users, routed=False)
    per_s = float((users.count * users.rate).sum())
    memories = float((users.count * users.memories).sum())
    writes = per_s * given.write_share
    databases = max(1, ceil(writes / given.writes_s))
    stored_gb = memories * given.stored_bytes / 1e9
    order = np.argsort(users.rate)[::-1]
    top = float(
        np.interp(
            given.users / 1e3,
            np.cumsum(users.count[order]),
            np.cumsum((users.count * users.rate)[order]),
        )
    )
    hottest = int(order[0])
    tenth = {"replay_us": given.replay_us / 10, "checkpoint_us": given.checkpoint_us / 10}
    faster = plan(replace(given, **tenth), users, routed=True)
    slowest = opening_s(given, users.memories)
    busiest = spread(given, users, routed.nodes * given.cores)
    lost = failure(given, users, routed)
    dollars = (
        730.0 * (routed.nodes * given.node_hour + databases * given.database_hour)
        + 2.0 * stored_gb * given.gb_month
    )
    return {
        "requests a second, mean / peak": f"{per_s / users.peak:,.0f} / {per_s:,.0f}",
        "memories, all users": _short(memories),
        "memories of a user, median / mean / most": (
            f"{_median(users):,.0f} / {memories / given.users:,.0f} / {users.memories.max():,.0f}"
        ),
        "opening one, median / longest": (
            f"{_time(_median(users) * given.replay_us / 1e6)} / {_time(slowest.max())}"
        ),
        "requests of the busiest 0.1 % of users": f"{top / per_s:.0%}",
        "hottest user, requests a second": f"{users.rate[hottest]:.2f}",
        f"nodes of {given.cores} cores, users routed": f"{routed.nodes:,}",
        "nodes, were opening ten times cheaper": f"{faster.nodes:,}",
        "requests that find the memory open": f"{routed.hit_share:.1%}",
        "an idle memory stays open for": "ever" if routed.held_s == inf else _time(routed.held_s),
        "cores that replay / serve, at the peak": (
            f"{routed.replay_cores:,.1f} / {routed.serve_cores:,.1f}"
        ),
        "nodes without routing (find it open)": f"{loose.nodes:,} ({loose.hit_share:.0%})",
        "busiest worker over the mean, by hash": f"{busiest:.2f}",
        "durable writes a second at the peak": f"{writes:,.0f}",
        "PostgreSQL servers, by hash of the user": f"{databases:,}",
        "stored, without copies": f"{stored_gb:,.0f} GB"
        if stored_gb < 1e4
        else f"{stored_gb / 1e3:,.1f} TB",
        "a node dies: memories to open anew": "all" if lost is None else f"{lost.banks:,.0f}",
        "a node dies: memories a second more": "-" if lost is None else _short(lost.rows_s),
        "a node dies: longest wait / back to usual": "until it is back"
        if lost is None
        else f"{_time(lost.delay_s)} / {_time(lost.recovered_s)}",
        "dollars a month / for 1,000 users": f"{dollars:,.0f} / {1e3 * dollars / given.users:,.2f}",
    }


def _median(users: Crowd) -> float:
    order = np.argsort(users.memories)
    below = np.cumsum(users.count[order])
    return float(users.memories[order][int(np.searchsorted(below, below[-1] / 2.0))])


def _short(number: float) -> str:
    for unit, name in ((1e9, "billion"), (1e6, "million"), (1e3, "thousand")):
        if number >= unit:
            return f"{number / unit:,.1f} {name}"
    return f"{number:,.0f}"


def _time(seconds: float) -> str:
    if seconds < 1.0:
        return f"{1e3 * seconds:.0f} ms"
    return (
        f"{seconds:.0f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7_200
        else f"{seconds / 3_600:.1f} h"
    )


def table(given: Inputs, sizes: Sequence[int]) -> str:
    """Format the table as Markdown, its inputs in a line above it."""
    columns = [column(replace(given, users=size)) for size in sizes]
    told = ", ".join(
        f"`{field.name}` {getattr(given, field.name):,g}"
        for field in fields(Inputs)
        if field.name != "users"
    )
    lines = [
        f"Inputs: {told}.",
        "",
        "| | " + " | ".join(f"{_short(size)} users" for size in sizes) + " |",
    ]
    lines.append("| --- |" + " --- |" * len(sizes))
    lines += [
        f"| {name} | " + " | ".join(one[name] for one in columns) + " |" for name in columns[0]
    ]
    return "\n".join(lines) + "\n"


def replaced(page: str, text: str) -> str:
    """Return the page with a new table between its marks.

    Raises `ValueError` unless they are there exactly once.
    """
    marks = re.compile(r"(<!-- ten million -->\n).*?(<!-- /ten million -->)", re.DOTALL)
    if len(marks.findall(page)) != 1:
        raise ValueError(
            "the page needs <!-- ten million --> and <!-- /ten million --> once, on lines of "
            "their own"
        )
    return marks.sub(lambda found: f"{found[1]}{text}{found[2]}", page)


def main() -> int:
    """Print the table, or put it into a page."""
    parser = argparse.ArgumentParser(
        description="What serving millions of users takes, as a Markdown table."
    )
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=[100_000, 1_000_000, 10_000_000],
        help="numbers of users",
    )
    parser.add_argument("--into", type=Path, help="Markdown page with the two marks")
    parser.add_argument(
        "--check",
        action="store_true",
        help="compare the cache formula with a simulated cache, and end",
    )
    for field in fields(Inputs):
        if field.name != "users":
            kind: Any = int if field.type == "int" else float
            parser.add_argument(
                f"--{field.name.replace('_', '-')}", type=kind, default=field.default
            )
    given = vars(parser.parse_args())
    sizes, into = given.pop("sizes"), given.pop("into")
    if given.pop("check"):
        formula, simulated = check(given["seed"])
        print(
            f"share of visits served from the cache: formula {formula:.4f}, simulated "
            f"{simulated:.4f}"
        )
        return 0
    text = table(Inputs(**given), sizes)
    if into is None:
        print(text, end="")
    else:
        into.write_text(replaced(into.read_text(encoding="utf-8"), text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

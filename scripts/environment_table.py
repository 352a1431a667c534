"""How readers of known memory do in every generated environment, as a Markdown table.

Rows are environments, columns are who plays. A cell is the mean reward (token F1; where
abstaining is right, whether it was) with a 95 % bootstrap interval over episodes. The
designs answer by quoting, so they have beside it the share of gold turns among the
first five that they found (R@5). With `--into` the table replaces what stands between
the page's marks `<!-- environments -->` and `<!-- /environments -->`.

    python scripts/environment_table.py --into docs/environments.md
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, cast, get_args

from environments.datasets.synthetic import Level, Synthetic
from environments.play.rollout import MemoryAgent, play
from environments.records import Episode, Score
from environments.rewards.metrics import Part, ratio, ratio_interval
from environments.rewards.scoring import Scoring
from environments.tasks.generated import Generated
from environments.tasks.readers import Guesser, by_chance
from environments.tasks.task_stream import TaskStream, success_slope
from environments.worlds.readers.players import Player
from memagent.build import Store, open_store
from memagent.core.records import Scope
from memagent.core.snapshot import EMPTY
from memagent.plugins import available, load

World = Synthetic | Generated
PLAYERS = (
    "empty",
    "oracle",
    "append_first",
    "append_all",
    "last_write",
    "random",
    "verbatim",
    "compass_rules",
)
"""Who plays: readers with perfect ears, one that guesses, and two designs that need no
model.
"""
DESIGNS = ("verbatim", "compass_rules")


def worlds(level: Level, seed: int) -> list[World]:
    """Every environment that needs no file, `synthetic` first."""
    opened: list[World] = []
    for name in available("environments"):
        make = cast("Any", load("environments", name))
        knobs = inspect.signature(make).parameters.values()
        if all(one.default is not one.empty or one.kind is one.VAR_KEYWORD for one in knobs):
            world = make(level=level, seed=seed)
            if isinstance(world, World):
                opened.append(world)
    return sorted(opened, key=lambda world: (world.name != "synthetic", world.name))


def player(name: str, store: Store, world: World, episode: Episode) -> MemoryAgent:
    """One of `PLAYERS` with an empty memory."""
    base = store.agent(Scope(user_id="table"), design=name if name in DESIGNS else "verbatim").at(
        EMPTY
    )
    if name in DESIGNS:
        return base
    heard = cast("Any", "append_all" if name == "random" else name)
    one = Player(base=base, truth=world.truth(episode), calendar=world.calendar, name=heard)
    return Guesser(player=one, guess=by_chance) if name == "random" else one


async def played(name: str, store: Store, world: World, count: int) -> list[tuple[Episode, Score]]:
    """Return the first episodes of the test split."""
    found: list[tuple[Episode, Score]] = []
    for episode in islice(world.episodes("test"), count):
        trajectory = await play(player(name, store, world, episode), episode)
        if trajectory.failure is not None:
            raise RuntimeError(f"{name} in {episode.id}: {trajectory.failure}")
        found.append((episode, Scoring().score(episode, trajectory)))
    return found


def table(level: Level, *, episodes: int, seeds: Sequence[int], only: Sequence[str] = ()) -> str:
    """Format the table below a line on its episodes, and the slopes of the stream of tasks."""
    store = open_store(path=":memory:")
    lines = [
        _row(["environment", *(f"`{name}`" for name in PLAYERS)]),
        _row(["---"] * (len(PLAYERS) + 1)),
    ]
    slopes: list[str] = []
    for variants in zip(*(worlds(level, seed) for seed in seeds), strict=True):
        if only and variants[0].name not in only:
            continue
        cells: list[str] = []
        for name in PLAYERS:
            pairs = [
                pair
                for world in variants
                for pair in asyncio.run(played(name, store, world, episodes))
            ]
            scores = [score for _, score in pairs]
            cells.append(_cell(scores) + (_recall(scores) if name in DESIGNS else ""))
            if isinstance(variants[0], TaskStream):
                slopes.append(f"`{name}` {_mean([success_slope(*pair) for pair in pairs]):.2f}")
        lines.append(_row([f"`{variants[0].name}`", *cells]))
    store.close()
    named = ", ".join(map(str, seeds))
    head = (
        f"Level {level}, test split, {episodes} episodes of each of the seeds {named}, "
        f"embedder {store.embedder.id}."
    )
    parts = [head, "\n".join(lines)]
    if slopes:
        parts.append(f"Slope of success along `task_stream`: {', '.join(slopes)}.")
    return "\n\n".join(parts) + "\n"


def _cell(scores: Sequence[Score]) -> str:
    groups: list[list[Part]] = [
        [(reward, 1.0) for probe in score.probes if (reward := probe.reward) is not None]
        for score in scores
    ]
    mean, interval = ratio(part for group in groups for part in group), ratio_interval(groups)
    if mean is None:
        return "-"
    return (
        f"{mean:.2f}"
        if interval is None or interval[0] == interval[1]
        else f"{mean:.2f} ({interval[0]:.2f}-{interval[1]:.2f})"
    )


def _recall(scores: Sequence[Score]) -> str:
    found = [probe.recall[5] for score in scores for probe in score.probes if probe.recall]
    return f", R@5 {_mean(found):.2f}" if found else ""


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) + 0.0


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def replaced(page: str, text: str) -> str:
    """Return the page with a new table between its marks.

    Raises `ValueError` unless they are there exactly once.
    """
    marks = re.compile(r"(<!-- environments -->\n).*?(<!-- /environments -->)", re.DOTALL)
    if len(marks.findall(page)) != 1:
        raise ValueError(
            "the page needs <!-- environments --> and <!-- /environments --> once, on lines of "
            "their own"
        )
    return marks.sub(lambda found: f"{found[1]}{text}{found[2]}", page)


def main() -> int:
    """Print the table, or put it into a page."""
    parser = argparse.ArgumentParser(description="Table of environments and readers as Markdown.")
    parser.add_argument("--level", choices=get_args(Level), default="standard")
    parser.add_argument("--episodes", type=int, default=4, help="episodes a seed")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument(
        "--only", nargs="+", default=[], help="environments by name; all when none is given"
    )
    parser.add_argument("--into", type=Path, help="Markdown page with the two marks")
    given = parser.parse_args()
    text = table(given.level, episodes=given.episodes, seeds=given.seeds, only=given.only)
    if given.into is None:
        print(text, end="")
    else:
        given.into.write_text(
            replaced(given.into.read_text(encoding="utf-8"), text), encoding="utf-8"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

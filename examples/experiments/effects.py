"""How well each credit knows what a session's action was worth, without any training.

    python examples/experiments/effects.py --out runs/effects.jsonl --minutes 9   # goes on
    python examples/experiments/effects.py --out runs/effects.jsonl --summary effects.json

A manager whose every second op is a guess plays `tiny` worlds; the world's oracle takes
down the facts. The real collector, scorer and credit give each session its advantages.
The true effect of what one rollout did in a session is measured by Monte Carlo: the mean
terminal reward of 64 rollouts that go on from the memory after the session, less that of
64 that go on from the memory before it and so act anew. Both take the manager's own
guesses. A rollout of each kind shares its random numbers with one of the other in the
later sessions, so the difference of a pair varies less than the difference of two
independent ones and has the same mean. The table gives the correlation of each advantage
with that effect.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean, pvariance, variance
from time import monotonic
from typing import Any

from arms import TRAINER, base_settings, parser

from environments.demonstrations.ideal import OracleModel
from environments.play.group_scoring import score_group
from environments.records import Episode
from memagent.core.exchange import ModelRequest, ModelResponse, Role, Sampling
from memagent.core.records import content_id
from memagent.core.snapshot import MemorySnapshot
from train.credit.advantages import logo_advantages
from train.rollouts.collect import Collector, RolloutGroup, RolloutPlan
from train.rollouts.grading import Comparison, CreditPlan, GradedRun, Grading
from train.rollouts.scoring import score_runs
from train.run.task import TrainingTask
from train.sampling.batcher import BatchStats
from train.sampling.policy import Call
from train.settings.run import RunSettings

GUESS = 0.5
CONDITIONS = [(sessions, share) for sessions in (8, 32) for share in (0.0, 0.3, 0.6)]
MEASURED = {8: 4, 32: 2}
"""Sessions of an episode whose effect is measured, by its length."""
SELDOM = 4
"""Every so many episodes are played at 32 sessions, which take about as much longer."""
CREDITS = ("terminal", "session", "local", "session_local")


class View:
    """One rollout's view of the guessing manager."""

    def __init__(self, key: str) -> None:
        self.key = key
        self.calls: list[Call] = []

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Refuse: a view speaks once it knows its episode."""
        raise NotImplementedError(request.role)


class GuessingPolicy:
    """In the place of a policy: draws depend on the key of the rollout alone."""

    def __init__(self) -> None:
        self.version, self.stats = 0, BatchStats()

    def bound(self, key: str, *, sampling: Sampling | None = None) -> View:
        """Return a view whose guesses are fixed by the key."""
        del sampling
        return View(key)

    @contextmanager
    def participant(self) -> Iterator[None]:
        """Do nothing: there are no batches to take part in."""
        yield


class Speaker:
    """A view that knows its episode.

    Each session has an oracle of its own, so what is said depends on the prompt, the
    session and the key, and on nothing said before.
    """

    def __init__(self, view: View, episode: Episode, task: TrainingTask) -> None:
        self._view, self._episode, self._task = view, episode, task
        self._oracles: dict[str, OracleModel] = {}

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer as the session's oracle, guessing every second op."""
        session_id = request.step.session_id or ""
        if session_id not in self._oracles:
            env: Any = self._task.env
            self._oracles[session_id] = OracleModel(
                self._task.truth(env, self._episode),
                self._episode.sessions,
                env.lexicon("train"),
                guess=GUESS,
                seed=random.Random(f"{self._view.key}/{session_id}").getrandbits(48),
            )
        response = await self._oracles[session_id].complete(request)
        name = content_id("res", self._view.key, str(len(self._view.calls)))
        response = response.model_copy(update={"id": name})
        self._view.calls.append(Call(role=request.role, step=request.step, response=response))
        return response


def task_of(sessions: int, interference: float) -> TrainingTask:
    """Return the task of a condition, in the worlds of the training experiments."""
    args = parser("", out="", tokens=1, seeds=1, listening="policy").parse_args([])
    values = base_settings(args, 0, sessions=sessions)
    values["environment"] = values["environment"] | {"interference": interference}
    values["model"] = {"size": "500k"}
    return TrainingTask.of(RunSettings.model_validate(values), sessions=sessions)


async def measure(
    sessions: int, interference: float, number: int, runs: int
) -> list[dict[str, Any]]:
    """Return the measured sessions of one episode, with their advantages and effects."""
    task = task_of(sessions, interference)
    episode = task.episodes("train", number + 1)[number]
    collector = Collector(
        agent=task.agent,
        policy=GuessingPolicy(),  # type: ignore[arg-type]
        plan=RolloutPlan(
            members=TRAINER["num_generations"],
            local_probability=MEASURED[sessions] / sessions,
            reruns=TRAINER["reruns"],
            seed=number,
        ),
        episode_model=lambda episode, view: Speaker(view, episode, task),  # type: ignore[arg-type]
        asked_after=task.asked_after(split="train"),
    )
    [group] = await collector.collect([episode], step=0)
    grading = grading_of(collector, task, episode, "session")
    by_session = await score_runs(grading, group)
    by_end = await score_runs(grading_of(collector, task, episode, "terminal"), group)
    return [
        {
            "sessions": sessions,
            "interference": interference,
            "episode": number,
            "place": local.session,
            **advantages(group, local.session, local.member, by_session, by_end),
            **await effect(grading, group, local.session, local.member, runs),
        }
        for local in group.locals
    ]


def grading_of(collector: Collector, task: TrainingTask, episode: Episode, credit: Any) -> Grading:
    """Return the scoring of the training experiments with one kind of global credit."""
    return Grading(
        collector=collector,
        plan=CreditPlan(credit=credit, roles=frozenset({Role.MANAGER}), flat_tolerance=0.01),
        answering=task.answering([episode], split="train"),
        scoring=task.env.scoring,
    )


def advantages(
    group: RolloutGroup,
    place: int,
    member: int,
    by_session: Sequence[Comparison],
    by_end: Sequence[Comparison],
) -> dict[str, float | None]:
    """Return what each credit gives to a rollout's calls in a session; None for no credit."""
    roles = {Role.MANAGER}
    calls = group.rollouts[member].calls_of(group.episode.sessions[place].id)
    ids = [call.response.id for call in calls if call.role is Role.MANAGER]

    def of(comparisons: Sequence[Comparison], branch: Any) -> float | None:
        groups = [each for one in comparisons for each in one.groups(roles)]
        shares = logo_advantages(groups, tolerance=0.01).by_branch.get(branch, {})
        given = [shares[key] for key in ids if key in shares]
        return fmean(given) if given else None

    found = {
        "terminal": of(by_end, "global"),
        "session": of(by_session, "global"),
        "local": of(by_session, "local"),
    }
    both = [value for name in ("session", "local") if (value := found[name]) is not None]
    return found | {"session_local": sum(both) if both else None}


async def effect(
    grading: Grading, group: RolloutGroup, place: int, member: int, runs: int
) -> dict[str, float]:
    """Return the Monte Carlo effect of what a rollout did in a session, with its error."""
    trace = group.rollouts[member].trajectory.traces[place]
    after = await values(grading, group, trace.after, place, place + 1, runs)
    before = await values(grading, group, trace.before, place, place, runs)
    pairs = [one - other for one, other in zip(after, before, strict=True)]
    apart = (variance(after) + variance(before)) / runs
    return {
        "effect": fmean(pairs),
        "error": (variance(pairs) / runs) ** 0.5,
        "error_apart": apart**0.5,
        "runs": runs,
    }


async def values(
    grading: Grading,
    group: RolloutGroup,
    start: MemorySnapshot,
    place: int,
    first: int,
    runs: int,
) -> list[float]:
    """Return the terminal rewards of `runs` rollouts that go on from a memory.

    They begin with session `first`. Their guesses depend on the measured place, the
    number of the run and the session alone.
    """
    collector, episode = grading.collector, group.episode
    ends: list[MemorySnapshot] = []
    left = episode.sessions[first:]
    for number in range(runs if left else 1):
        view = collector.policy.bound(f"{group.key}/{place}/{number}")
        agent = collector.agent.at(start).with_model(collector.episode_model(episode, view))
        for session in left:
            await agent.remember(session)
        ends.append(agent.snapshot())
    answered = await score_group(
        grading.answerer("effects"), episode, ends, episode.probes, scoring=grading.scoring
    )
    rewards: list[float] = []
    for end, scores in zip(ends, answered.members, strict=True):
        graded = grading.grade(GradedRun(calls=()), episode, end, scores, ())
        rewards.append(graded.reward or 0.0)
    return rewards if left else rewards * runs


def summary(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the correlations by condition with bootstrap intervals over episodes."""
    table: list[dict[str, Any]] = []
    for sessions, share in CONDITIONS:
        rows = [r for r in lines if (r["sessions"], r["interference"]) == (sessions, share)]
        if not rows:
            continue
        spread = pvariance([row["effect"] for row in rows])
        noise = fmean(row["error"] ** 2 for row in rows)
        table.append(
            {
                "sessions": sessions,
                "interference": share,
                "measured": len(rows),
                "episodes": len({row["episode"] for row in rows}),
                "effect_std": spread**0.5,
                "reliability": max(0.0, 1.0 - noise / spread) if spread else 0.0,
                **{credit: _correlation(rows, credit) for credit in CREDITS},
            }
        )
    return {"guess": GUESS, "table": table, "rows": list(lines)}


def table_of(found: Mapping[str, Any]) -> str:
    """Return a summary's table in Markdown."""
    lines = [
        "| sessions | interference | measured (episodes) | reliability | "
        + " | ".join(f"`{credit}`" for credit in CREDITS)
        + " |",
        "| --- | --- | --- | --- |" + " --- |" * len(CREDITS),
    ]
    for row in found["table"]:
        cells = [
            f"{row['sessions']}",
            f"{row['interference']:g}",
            f"{row['measured']} ({row['episodes']})",
            f"{row['reliability']:.2f}",
        ]
        for credit in CREDITS:
            r, interval = row[credit]["r"], row[credit]["interval"]
            edges = " [{:.2f}, {:.2f}]".format(*interval) if interval else ""
            cells.append("-" if r is None else f"{r:.2f}{edges}")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _correlation(rows: Sequence[Mapping[str, Any]], credit: str) -> dict[str, Any]:
    """Return r over the measured sessions, no credit counting as 0, and its interval."""
    by_episode: dict[int, list[tuple[float, float]]] = {}
    for row in rows:
        pair = (row[credit] or 0.0, row["effect"])
        by_episode.setdefault(row["episode"], []).append(pair)
    draws, episodes = random.Random(credit), list(by_episode.values())
    samples = sorted(
        value
        for _ in range(1_000)
        if (value := pearson([p for e in draws.choices(episodes, k=len(episodes)) for p in e]))
        is not None
    )
    return {
        "r": pearson([pair for episode in episodes for pair in episode]),
        "interval": [samples[25], samples[974]] if len(samples) == 1_000 else None,
        "credited": fmean(bool(row[credit]) for row in rows),
    }


def pearson(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Return the correlation of pairs; None where one side does not vary."""
    first, second = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    spread = (pvariance(first) * pvariance(second)) ** 0.5
    if not spread:
        return None
    means = fmean(first), fmean(second)
    return fmean((a - means[0]) * (b - means[1]) for a, b in pairs) / spread


def main() -> None:
    """Measure episode after episode, in turn over the conditions, or summarise them."""
    flags = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    flags.add_argument("--out", type=Path, default=Path("runs/effects.jsonl"))
    flags.add_argument("--runs", type=int, default=64, help="continuations from each memory")
    flags.add_argument("--episodes", type=int, default=40, help="episodes of each condition")
    flags.add_argument("--sessions", type=int, help="only conditions of that many sessions")
    flags.add_argument(
        "--minutes", type=float, default=9.0, help="stop after so long; goes on later"
    )
    flags.add_argument("--summary", type=Path, help="write the summary there as JSON")
    args = flags.parse_args()
    lines = [json.loads(line) for line in args.out.open()] if args.out.exists() else []
    if args.summary:
        found = summary([row for row in lines if "effect" in row])
        args.summary.write_text(json.dumps(found, indent=1) + "\n")
        print(table_of(found))
        return
    done, began = {(r["sessions"], r["interference"], r["episode"]) for r in lines}, monotonic()
    args.out.parent.mkdir(parents=True, exist_ok=True)
    for number in range(args.episodes):
        for sessions, share in CONDITIONS:
            seldom = sessions == 32 and number % SELDOM
            other = args.sessions not in (None, sessions)
            if seldom or other or (sessions, share, number) in done:
                continue
            if monotonic() - began > 60 * args.minutes:
                return
            rows = asyncio.run(measure(sessions, share, number, args.runs))
            rows = rows or [{"sessions": sessions, "interference": share, "episode": number}]
            with args.out.open("a") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    main()

"""Count local groups that teach nothing, and reruns that could earn nothing.

A manager whose notes are spoilt in every second case plays generated worlds of 8 and 32
sessions; eight in ten sessions are rerun seven times. A group is dead when its rewards
lie within the trainer's tolerance of each other. `as of the session` asks what held right
after it, as training does; `at the end` asks the episode's own questions, as it used to.
Reruns without a reward, of sessions that nothing can be asked about, are tokens for
nothing.

`surer` is the manager of the experiment on effects: its notes are right and every second
op is a guess, so runs often agree. There the question is what more reruns do about dead
groups, and how many of them are dead because all runs said the same.

    python benchmarks/local_groups.py [--episodes 4]
    python benchmarks/local_groups.py --surer --episodes 1
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import zlib
from pathlib import Path
from typing import Any

from measured import report

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples" / "experiments"))

TOLERANCE = 0.01


async def counts(
    sessions: int,
    episodes: int,
    *,
    as_of: bool,
    each: int = 7,
    spoilt: bool = True,
    interference: float = 0.3,
) -> dict[str, float]:
    """Return the numbers of one condition."""
    from effects import GuessingPolicy, Speaker, task_of

    from environments.rewards.terms import AnswerTerm, Weighted
    from memagent.core.exchange import Role
    from train.rollouts.collect import Collector, RolloutPlan
    from train.rollouts.grading import CreditPlan, Grading
    from train.rollouts.scoring import local_comparisons

    task = task_of(sessions, interference)
    options: dict[str, Any] = {"asked_after": task.asked_after(split="train")} if as_of else {}
    speaks: Any = clumsy() if spoilt else Speaker
    alike = 0
    dead = groups = rewarded = reruns = 0
    for number, episode in enumerate(task.episodes("train", episodes)):
        collector = Collector(
            agent=task.agent,
            policy=GuessingPolicy(),  # type: ignore[arg-type]
            plan=RolloutPlan(
                members=2,
                local_probability=0.8,
                reruns=each,
                seed=random.Random(number).getrandbits(9),
            ),
            episode_model=lambda played, view: speaks(view, played, task),  # type: ignore[arg-type]
            **options,
        )
        plan = CreditPlan(
            reward=Weighted((AnswerTerm(), 1.0)),
            roles=frozenset({Role.MANAGER}),
            flat_tolerance=TOLERANCE,
        )
        grading = Grading(
            collector=collector,
            plan=plan,
            answering=task.answering([episode], split="train"),
            scoring=task.env.scoring,
        )
        [group] = await collector.collect([episode], step=0)
        for comparison in await local_comparisons(grading, group):
            groups += 1
            flat = not comparison.teaches({Role.MANAGER}, tolerance=TOLERANCE)
            dead += flat
            said = {tuple(call.response.text for call in run.calls) for run in comparison.runs}
            alike += flat and len(said) == 1
            reruns += len(comparison.runs)
            rewarded += len(comparison.rewards_G)
    return {
        "groups": groups,
        "dead": dead,
        "dead share": round(dead / groups, 3),
        "dead because all said the same": alike,
        "runs": reruns,
        "runs without a reward": reruns - rewarded,
    }


def clumsy() -> type:
    """Return the manager that spoils every second note."""
    from effects import Speaker

    from environments.demonstrations.ideal import OracleModel

    class Clumsy(Speaker):
        """Takes notes as the oracle would, every second one spoilt."""

        async def complete(self, request: Any) -> Any:
            """Answer as the session's spoilt oracle."""
            session_id, env = request.step.session_id or "", self._task.env
            if session_id not in self._oracles:
                self._oracles[session_id] = OracleModel(
                    self._task.truth(env, self._episode),  # type: ignore[arg-type]
                    self._episode.sessions,
                    env.lexicon("train"),  # type: ignore[attr-defined]
                    noise=0.5,
                    seed=zlib.crc32(f"{self._view.key}/{session_id}".encode()),
                )
            return await super().complete(request)

    return Clumsy


def surer(episodes: int) -> None:
    """Count the dead groups of the surer manager by the number of reruns, and report."""
    results: dict[str, Any] = {}
    for reruns in (3, 7, 15):
        every = [
            asyncio.run(
                counts(8, 4 * episodes, as_of=True, each=reruns, spoilt=False, interference=share)
            )
            for share in (0.0, 0.3, 0.6)
        ]
        total = {name: sum(one[name] for one in every) for name in every[0]}
        total["dead share"] = round(total["dead"] / total["groups"], 3)
        results[f"{reruns} reruns"] = total
    promises = {f"dead groups, {name}": (one["dead share"], 0.2) for name, one in results.items()}
    report("local_groups_surer", results, promises=promises)


def main() -> None:
    """Count in each condition and report."""
    flags = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    flags.add_argument("--episodes", type=int, default=4, help="episodes of 32 sessions")
    flags.add_argument("--surer", action="store_true", help="the manager that guesses ops alone")
    args = flags.parse_args()
    if args.surer:
        surer(args.episodes)
        return
    results: dict[str, Any] = {}
    for sessions in (8, 32):
        for name, as_of in (("as of the session", True), ("at the end", False)):
            episodes = args.episodes * 32 // sessions
            found = asyncio.run(counts(sessions, episodes, as_of=as_of))
            results.setdefault(f"{sessions} sessions", {})[name] = found
    promises: dict[str, Any] = {}
    for sessions, found in results.items():
        now = found["as of the session"]
        promises[f"dead groups, {sessions}"] = (now["dead share"], 0.2)
        promises[f"runs without a reward, {sessions}"] = (now["runs without a reward"], 0)
    report("local_groups", results, promises=promises)


if __name__ == "__main__":
    main()

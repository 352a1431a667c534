"""Print success over a stream of tasks, arm by arm: `python scripts/task_stream_table.py`.

Arms: the oracle, no memory, similarity over cases (`exp_rag`), learned values (`mem_rl`)
and the learned scorer (`case_bank`). The rise is the success in the last third of the
stream less that in the first. Options: seeds (10), tasks (120).
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from statistics import fmean, stdev

from environments.acting.play import CasePlayer, OraclePlayer, play_task
from environments.acting.procedures import task_stream
from memagent.build import open_agent
from memagent.core.trials import Trial

DESIGNS = ("exp_rag", "mem_rl", "case_bank")


async def stream_of(arm: str, *, seed: int, tasks: int) -> tuple[list[Trial], int]:
    """Return the trials of one arm over one stream, and the memories it ends with."""
    stream = task_stream(seed, tasks)
    player = OraclePlayer() if arm == "oracle" else CasePlayer(seed)
    if arm not in DESIGNS:
        return [await play_task(task, player) for task in stream], 0
    async with open_agent(path=":memory:", embedder="hashing", design=arm) as agent:
        trials = [await play_task(task, player, agent=agent) for task in stream]
        return trials, len(await agent.memory.get_all())


def rise(trials: Sequence[Trial]) -> float:
    """Return the success in the last third less that in the first."""
    third = max(len(trials) // 3, 1)
    won = [trial.outcome is not None and trial.outcome.good for trial in trials]
    return (sum(won[-third:]) - sum(won[:third])) / third


async def report(seeds: int, tasks: int) -> None:
    """Print the table."""
    print(f"{'arm':10} {'success':>8} {'rise':>6} {'+-':>5} {'steps':>6} {'memories':>9}")
    for arm in ("oracle", "none", *DESIGNS):
        played = [await stream_of(arm, seed=seed, tasks=tasks) for seed in range(seeds)]
        rises = [rise(trials) for trials, _ in played]
        won = fmean(
            trial.outcome is not None and trial.outcome.good
            for trials, _ in played
            for trial in trials
        )
        steps = fmean(len(trial.steps) for trials, _ in played for trial in trials)
        spread = stdev(rises) if len(rises) > 1 else 0.0
        size = fmean(count for _, count in played)
        print(f"{arm:10} {won:8.2f} {fmean(rises):6.2f} {spread:5.2f} {steps:6.2f} {size:9.0f}")


if __name__ == "__main__":
    chosen = [int(argument) for argument in sys.argv[1:]] + [10, 120][len(sys.argv) - 1 :]
    asyncio.run(report(*chosen))

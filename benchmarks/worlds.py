"""Making episodes of the synthetic worlds.

The promise: 1,000 episodes of 32 sessions in at most 60 seconds on one core, at every
level.

A hundred episodes a level are made and the time is scaled to 1,000: episodes are
independent and made by index, so the cost is linear.
"""

from __future__ import annotations

import time
from typing import Any

from measured import report

from environments.datasets.synthetic import LEVELS, synthetic

EPISODES = 100


def main() -> None:
    """Measure and print."""
    results: dict[str, Any] = {}
    promises: dict[str, float | tuple[float, float]] = {}
    for level in LEVELS:
        env = synthetic(level, sessions=32)
        env.episode("train", EPISODES)  # loads the grammar
        began = time.process_time()
        made = [env.episode("train", index) for index in range(EPISODES)]
        seconds = time.process_time() - began
        results[f"{level}, s for 1,000"] = round(seconds / EPISODES * 1_000, 1)
        results[f"{level}, turns an episode"] = round(
            sum(len(one.turns) for one in made) / EPISODES
        )
        results[f"{level}, probes an episode"] = round(
            sum(len(one.probes) for one in made) / EPISODES
        )
        promises[f"{level}, s for 1,000"] = 60.0
    report("worlds", results, promises=promises)


if __name__ == "__main__":
    main()

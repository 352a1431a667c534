"""Experiment A, second part: 8, 16, 32 sessions in turn against 32 directly.

Both spend the same number of generated tokens.

    python examples/experiments/curriculum.py --out runs/curriculum --init runs/credit/warm/init

The curriculum spends a third of the tokens on each stage and starts each from the best
of the one before. Both arms train with session credit and local reruns, and are tested
at all three lengths on held-out worlds.
"""

from __future__ import annotations

import argparse
from typing import Any

from arms import base_settings, parser, run_experiment

ARMS = {"direct": (32,), "curriculum": (8, 16, 32)}
"""Sessions of the stages."""


def settings(arm: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of one arm with one seed.

    Both arms are tested at the lengths of the curriculum.
    """
    values = base_settings(args, seed, sessions=32, credit="session", local_probability=0.5)
    lengths = ARMS[arm]
    share = {"steps": 10_000, "tokens": args.tokens // len(lengths)}
    values["stage"] = [{"sessions": length, **share} for length in lengths]
    values["validation"]["test_sessions"] = list(ARMS["curriculum"])
    return values


def main() -> None:
    """All arms and seeds, then the summary."""
    flags = parser(__doc__, out="runs/curriculum", tokens=600_000, seeds=3)
    run_experiment(__file__, flags, list(ARMS), settings, base="direct")


if __name__ == "__main__":
    main()

"""Experiment A: the gain of local credit from shared snapshots, at equal generated tokens.

    # warm start, six arms, five seeds
    python examples/experiments/credit.py --out runs/credit
    python examples/experiments/credit.py --out runs/credit --summary credit.json

A small policy that has learned to write ops, but mostly guesses which, trains on `tiny`
worlds with interference and is tested on held-out worlds (other seeds, the same names
and surface forms). The world's oracle takes down the facts; `--listening policy` leaves
that to the policy too. Every arm starts from the same weights and spends the same
number of generated tokens; differences are paired by seed. Two controls train on random
rewards and on shuffled advantages.
"""

from __future__ import annotations

import argparse
from typing import Any

from arms import base_settings, parser, run_experiment

ARMS: dict[str, dict[str, Any]] = {
    "terminal": {"credit": "terminal", "local_probability": 0.0},
    "session": {"credit": "session", "local_probability": 0.0},
    "logo": {"credit": "terminal", "local_probability": 0.5},
    "session_logo": {"credit": "session", "local_probability": 0.5},
    "random_reward": {"credit": "session", "local_probability": 0.5, "control": "random_reward"},
    "shuffled": {"credit": "session", "local_probability": 0.5, "control": "shuffled_advantage"},
}
"""What an arm changes in the trainer, and nothing else."""


def settings(arm: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of one arm with one seed."""
    return base_settings(args, seed, sessions=args.sessions, **ARMS[arm])


def main() -> None:
    """All arms and seeds, then the summary."""
    flags = parser(__doc__, out="runs/credit", tokens=60_000, seeds=5, listening="oracle")
    flags.add_argument("--sessions", type=int, default=8)
    run_experiment(__file__, flags, list(ARMS), settings, base="terminal")


if __name__ == "__main__":
    main()

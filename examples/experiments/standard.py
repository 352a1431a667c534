"""Experiment B: larger policies on `standard` worlds.

They are tested on names and surface forms that training never shows.

    # again and again, until nothing is missing
    python examples/experiments/standard.py --out runs/standard --size 30m --minutes 8

`session` and `logo` train at 8 sessions, `curriculum` at 8, 16, 32 and `direct` at 32
from the start, all with the same number of generated tokens. For a GPU; on a CPU take
`--size 1m` and few tokens. Each call stops after `--minutes`; the next goes on from the
last checkpoint.
"""

from __future__ import annotations

import argparse
from typing import Any

from arms import base_settings, parser, run_experiment

WORLD: dict[str, Any] = {
    "level": "standard",
    "turns": 8,
    "facts": 2.0,
    "overwrite": 0.4,
    "asks": ["now", "who"],
}
ARMS: dict[str, tuple[float, tuple[int, ...]]] = {
    "session": (0.0, (8,)),
    "logo": (0.5, (8,)),
    "curriculum": (0.5, (8, 16, 32)),
    "direct": (0.5, (32,)),
}
"""Chance of a local rerun, and the sessions of the stages."""


def settings(arm: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of one arm with one seed."""
    import torch

    from train.run.models import bf16_works

    probability, lengths = ARMS[arm]
    values = base_settings(
        args, seed, sessions=lengths[0], credit="session", local_probability=probability
    )
    values["environment"] = {**WORLD, "episodes": 2_000}
    values["trainer"] |= {
        "max_completion_length": 256,
        "use_cpu": not torch.cuda.is_available(),
        "bf16": bf16_works(),
        "save_strategy": "steps",
        "save_steps": 5,
        "save_total_limit": 1,
    }
    values["model"] = {"context_tokens": 2_048}
    values["stage"] = [
        {"sessions": length, "steps": 10_000, "tokens": args.tokens // len(lengths)}
        for length in lengths
    ]
    values["validation"] |= {"test_split": "test", "test_sessions": [8, 32]}
    return values


def main() -> None:
    """All arms and seeds, then the summary."""
    flags = parser(__doc__, out="runs/standard", tokens=3_000_000, seeds=3)
    flags.set_defaults(size="30m", demonstrations=4_000, epochs=2.0, jobs=1)
    size = flags.parse_args().size
    warm = {"environment": WORLD, "model": {"size": size, "context_tokens": 2_048}}
    run_experiment(__file__, flags, list(ARMS), settings, base="session", warm=warm)


if __name__ == "__main__":
    main()

"""Experiment C: the memory manager trained, the answer agent, or both in turns.

All spend the same number of generated tokens.

    python examples/experiments/roles.py --out runs/roles --init runs/credit/warm/init

Here the policy answers too, and its start guesses in both roles: most ops, and most
answers, which it reads off any memory shown. `manager` and `answerer` train
one role, `both` trains the two together, `alternating` changes the role from stage to
stage. All start from the same weights, which are the arm `start` of the summary.
"""

from __future__ import annotations

import argparse
from typing import Any

from arms import base_settings, parser, run_experiment

ARMS = {
    "manager": ("manager",),
    "answerer": ("answerer",),
    "both": ("both",),
    "alternating": ("answerer", "manager"),
}
"""Who is trained, stage by stage; what the manager earns comes through the answers, so the
answerer begins.
"""


def settings(arm: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of one arm with one seed."""
    values = base_settings(
        args, seed, sessions=args.sessions, credit="session", local_probability=0.5
    )
    values["agent"]["answering"] = "policy"
    values["environment"]["probes"] = 24
    values["trainer"]["answer_questions"] = 16
    roles = ARMS[arm]
    values["stage"] = [
        {
            "sessions": args.sessions,
            "steps": 10_000,
            "tokens": args.tokens // len(roles),
            "roles": role,
        }
        for role in roles
    ]
    return values


def main() -> None:
    """All arms and seeds, then the summary."""
    flags = parser(
        __doc__, out="runs/roles", tokens=150_000, seeds=5, listening="oracle", guess_answers=0.8
    )
    flags.add_argument("--sessions", type=int, default=8)
    run_experiment(__file__, flags, list(ARMS), settings, base="manager")


if __name__ == "__main__":
    main()

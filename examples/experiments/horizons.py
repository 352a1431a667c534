"""Which credit teaches more at which horizon: the policy of decisions, reward = measure.

    python examples/experiments/horizons.py --out runs/horizons --minutes 60   # goes on
    python examples/experiments/horizons.py --out runs/horizons --summary horizons.json

The policy, the warm start and the pairing by seed are those of `decisions.py`. The reward
is what the test measures: the facts held right, without costs. Tests sample as training
does, because greedy tests hide most of what is learned. What is measured, the arms and the
comparisons were written down first, in docs/research/results.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import Any

import decisions

ARMS: dict[str, dict[str, Any]] = {
    "terminal": {"credit": "terminal"},
    "session": {"credit": "session"},
    "gain": {"credit": "gain"},
    "logo": {"credit": "session", "local_probability": 0.5},
}
"""What an arm changes in the trainer; `logo` is credit by session with reruns."""
REWARD = {"answers": 0.0, "facts": 1.0, "compression": 0.0, "unreadable": 0.0}
CONTRASTS = (
    ("gain", "session"),
    ("logo", "session"),
    ("session", "terminal"),
    ("gain", "terminal"),
    ("gain", "logo"),
)
HORIZONS = (4, 16, 8)
"""Sessions, in the order in which they are run."""
SEEDS = 20
TOKENS = 1_000
"""Generated tokens of a run for each session of the horizon."""


def namespace(args: argparse.Namespace, sessions: int) -> argparse.Namespace:
    """Return the arguments of `decisions.py` for one horizon."""
    return argparse.Namespace(
        out=args.out / f"{sessions}",
        sessions=sessions,
        tokens=TOKENS * sessions,
        interference=0.3,
        test=16,
        sampled=True,
    )


def play(args: argparse.Namespace) -> None:
    """Run what is missing, horizon after horizon and seed after seed."""
    began = monotonic()
    for sessions in (args.sessions,) if args.sessions else HORIZONS:
        part = namespace(args, sessions)
        part.out.mkdir(parents=True, exist_ok=True)
        done = {(row["arm"], row["seed"]) for row in decisions.rows_of(part)}
        for seed in range(args.first, args.first + args.seeds):
            for arm in ARMS:
                if (arm, seed) in done:
                    continue
                if monotonic() - began > 60 * args.minutes:
                    return
                decisions.run(arm, seed, part)


def summary(args: argparse.Namespace) -> dict[str, Any]:
    """Return the summaries by horizon, of those that have a complete seed."""
    found: dict[str, Any] = {}
    for sessions in sorted(HORIZONS):
        part = namespace(args, sessions)
        rows = decisions.rows_of(part)
        arms = [{row["arm"] for row in rows if row["seed"] == seed} for seed in range(SEEDS)]
        if set(ARMS) in arms:
            found[str(sessions)] = decisions.summary_of(rows, part)
    return found


def table_of(found: Mapping[str, Any]) -> str:
    """Return the tables of `results.md`."""
    lines = ["| sessions | arm | seeds | updates | facts_as_of | facts |", "| --- " * 6 + "|"]
    for sessions, part in found.items():
        named = {"start": part["start"]} | part["arms"]
        for name, row in named.items():
            cells = [decisions.cell(row[measure], sign="") for measure in decisions.MEASURES[:2]]
            seeds, updates = len(row.get("seeds", ())), row.get("updates", 0)
            head = [sessions, f"`{name}`", f"{seeds or ''}", f"{updates:.0f}"]
            lines.append(f"| {' | '.join(head + cells)} |")
    lines += ["", "| difference, paired by seed | " + " | ".join(f"{s} sessions" for s in found)]
    lines[-1] += " |"
    lines.append("| --- " * (len(found) + 1) + "|")
    for one, other in (*CONTRASTS, *((arm, "start") for arm in ARMS)):
        name = f"{one} - {other}"
        cells = [decisions.cell(part["contrasts"][name], sign="+") for part in found.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Run the study, or summarise what is there."""
    flags = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    flags.add_argument("--out", type=Path, default=Path("runs/horizons"))
    flags.add_argument("--seeds", type=int, default=SEEDS)
    flags.add_argument("--first", type=int, default=0, help="first seed")
    flags.add_argument("--sessions", type=int, help="only this horizon")
    flags.add_argument("--minutes", type=float, default=9.0, help="begin no run after so long")
    flags.add_argument("--summary", type=Path, help="write the summary there as JSON")
    args = flags.parse_args()
    decisions.ARMS |= {name: REWARD | changes for name, changes in ARMS.items()}
    decisions.CONTRASTS = CONTRASTS
    if not args.summary:
        play(args)
        return
    found = summary(args)
    args.summary.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(table_of(found))


if __name__ == "__main__":
    main()

"""Which credit teaches more, at equal generated tokens: the policy of decisions.

    python examples/experiments/decisions.py --out runs/decisions --minutes 30   # goes on
    python examples/experiments/decisions.py --out runs/decisions --summary decisions.json

The policy (4,469 weights: keep, leave out, say the same, replace, delete) begins with
the labels of two dialogues and trains on `tiny` worlds with interference. Every arm of
a seed begins with the same weights and spends the same number of generated tokens.
Tests are held-out worlds with names and forms of their own, and measure the *last*
policy, so that no choice of a checkpoint comes between. What is measured, the arms and
the comparisons were written down first, in docs/research/results.md.

All runs share one process: loading torch costs more than a run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from time import monotonic, process_time
from typing import Any

from arms import WORLD as SMALL_WORLD

MEASURES = ("facts_as_of", "facts", "f1", "overwritten", "memory_share", "add", "update", "delete")
"""The first one is the measure that was declared."""
ARMS: dict[str, dict[str, Any]] = {
    "session": {},
    "session_logo": {"local_probability": 0.5},
    "terminal": {"credit": "terminal"},
    "random_reward": {"local_probability": 0.5, "control": "random_reward"},
    "shuffled": {"local_probability": 0.5, "control": "shuffled_advantage"},
    "logo_balanced": {"local_probability": 0.5, "balance": "branches"},
    "session_more": {"num_generations": 16, "per_device_train_batch_size": 4},
    "curriculum": {"local_probability": 0.5},
}
"""What an arm changes in the trainer; `curriculum` trains on fewer sessions first."""
RISING = (4, 2, 1)
"""The sessions are divided by these in the stages of `curriculum`, which share the tokens."""
CONTRASTS = (
    ("session_logo", "session"),
    ("logo_balanced", "session"),
    ("session_more", "session"),
    ("session", "terminal"),
    ("session", "random_reward"),
    ("session_logo", "shuffled"),
    ("curriculum", "session_logo"),
)
WORLD = SMALL_WORLD | {"facts": 3.0, "overwrite": 0.5, "episodes": 200}
TRAINER: dict[str, Any] = {
    "num_generations": 8,
    "per_device_train_batch_size": 2,
    "steps_per_generation": 8,
    "gradient_accumulation_steps": 8,
    "num_iterations": 1,
    "credit": "session",
    "local_probability": 0.0,
    "reruns": 3,
    "learning_rate": 1e-2,
    "beta": 0.0,
    "entropy_coef": 0.0,
    "max_completion_length": 1,
    "batch_width": 256,
    "gradient_checkpointing": False,
    "bf16": False,
    "use_cpu": True,
    "save_strategy": "no",
    "report_to": [],
    "trace": False,
}
"""Two episodes an update, eight whole rollouts each."""


def settings(arm: str, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of one arm with one seed."""
    parts = RISING if arm == "curriculum" else (1,)
    tokens = args.tokens // len(parts)
    return {
        "folder": str(args.out / f"{arm}-{seed}"),
        "seed": seed,
        "model": {"size": "decisions"},
        "environment": WORLD | {"interference": args.interference},
        "agent": {"design": "memagent.designs.learned_policy:DESIGN", "answering": "facts"},
        "warmup": {"episodes": 2},
        "trainer": TRAINER | ARMS[arm],
        "stage": [
            {"sessions": args.sessions // part, "steps": 10_000, "tokens": tokens} for part in parts
        ],
        "validation": {
            "every": 10_000,
            "episodes": 1,
            "measure": MEASURES[0],
            "test_episodes": 0,
            "test_last": True,
        },
    }


def run(arm: str, seed: int, args: argparse.Namespace) -> None:
    """Train one arm with one seed, test its last policy, and keep the figures."""
    from train.run.runs import train_run
    from train.settings.run import checked_run

    began, plan = process_time(), checked_run(settings(arm, seed, args))
    stages = train_run(plan, resume=True, say=_say)["stages"]
    line = {"arm": arm, "seed": seed} | {
        key: sum(stage[key] for stage in stages) for key in ("steps", "tokens")
    }
    line["start"] = _started(plan, args) or tested(plan, "init", args)
    line["last"] = tested(plan, f"stage{len(stages) - 1}/last", args)
    line["seconds"] = round(process_time() - began, 1)
    with (args.out / "runs.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def tested(plan: Any, name: str, args: argparse.Namespace) -> dict[str, float]:
    """Return the figures of a policy of the run on the held-out episodes.

    With `sampled` in the arguments it samples as it does in training.
    """
    from memagent.core.exchange import Sampling
    from train.run.task import TrainingTask
    from train.sampling.checkpoints import load_policy
    from train.sampling.policy import BoundPolicy

    task = TrainingTask.of(plan, sessions=args.sessions)
    policy: Any = load_policy(str(Path(plan.folder) / name))
    if getattr(args, "sampled", False):
        sampling = Sampling(temperature=1.0, max_tokens=1)
        policy.bound = lambda key, **_: BoundPolicy(policy, key, sampling)
    found = task.evaluate(policy, "test", args.test).figures
    return {measure: found.get(measure, 0.0) for measure in MEASURES}


def _started(plan: Any, args: argparse.Namespace) -> dict[str, float] | None:
    """Return the figures of the start, where another arm of the seed has measured them."""
    return next((row["start"] for row in rows_of(args) if row["seed"] == plan.seed), None)


def rows_of(args: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the figures of all runs that are finished."""
    kept = args.out / "runs.jsonl"
    return [json.loads(line) for line in kept.open(encoding="utf-8")] if kept.exists() else []


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def summary_of(rows: Sequence[Mapping[str, Any]], args: argparse.Namespace) -> dict[str, Any]:
    """Return means by arm over the complete seeds, and paired differences, with intervals."""
    from train.run.plans import bootstrap

    def interval(values: Sequence[float]) -> dict[str, Any]:
        edges = [round(edge, 4) for edge in bootstrap(values)]
        return {"mean": round(fmean(values), 4), "interval": edges}

    seeds, ran = {row["seed"] for row in rows}, {row["arm"] for row in rows}
    whole = {one for one in seeds if {row["arm"] for row in rows if row["seed"] == one} == ran}
    rows = [row for row in rows if row["seed"] in whole]
    last = {(row["arm"], row["seed"]): row["last"] for row in rows}
    arms: dict[str, Any] = {}
    for arm in ARMS:
        mine = [row for row in rows if row["arm"] == arm]
        if mine:
            arms[arm] = {
                "seeds": sorted(row["seed"] for row in mine),
                "updates": fmean(row["steps"] for row in mine),
                "tokens": fmean(row["tokens"] for row in mine),
                **{m: interval([row["last"][m] for row in mine]) for m in MEASURES},
            }
    start = {row["seed"]: row["start"] for row in rows}
    contrasts = {}
    for one, other in (*CONTRASTS, *((arm, "start") for arm in ARMS)):
        base = start if other == "start" else {s: v for (a, s), v in last.items() if a == other}
        apart = [v[MEASURES[0]] - base[s][MEASURES[0]] for (a, s), v in last.items()
                 if a == one and s in base]  # fmt: skip
        if apart:
            contrasts[f"{one} - {other}"] = interval(apart) | {"seeds": len(apart)}
    return {
        "measure": MEASURES[0],
        "sessions": args.sessions,
        "interference": args.interference,
        "tokens": args.tokens,
        "test_episodes": args.test,
        "start": {m: interval([v[m] for v in start.values()]) for m in MEASURES},
        "arms": arms,
        "contrasts": contrasts,
        "runs": list(rows),
    }


def table_of(found: Mapping[str, Any]) -> str:
    """Return a summary's tables in Markdown."""
    shown = ("facts_as_of", "facts", "f1", "overwritten")
    lines = [f"| arm | seeds | updates | {' | '.join(shown)} | ADD / UPDATE / DELETE |"]
    lines.append("| --- |" + " --- |" * (len(shown) + 3))
    named = {"`start`": found["start"]} | {f"`{arm}`": row for arm, row in found["arms"].items()}
    for name, row in named.items():
        cells = [cell(row[measure], sign="") for measure in shown]
        ops = " / ".join(f"{row[op]['mean']:.2f}" for op in ("add", "update", "delete"))
        seeds, updates = len(row.get("seeds", ())), row.get("updates", 0)
        lines.append(f"| {name} | {seeds or ''} | {updates:.0f} | {' | '.join(cells)} | {ops} |")
    lines += ["", "| difference, paired by seed | seeds | facts_as_of |", "| --- | --- | --- |"]
    lines += [
        f"| {name} | {each['seeds']} | {cell(each, sign='+')} |"
        for name, each in found["contrasts"].items()
    ]
    return "\n".join(lines)


def cell(each: Mapping[str, Any], *, sign: str) -> str:
    low, high = each["interval"]
    return f"{each['mean']:{sign}.3f} [{low:{sign}.3f}, {high:{sign}.3f}]"


def main() -> None:
    """Run what is missing, seed after seed, or summarise what is there."""
    flags = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    flags.add_argument("--out", type=Path, default=Path("runs/decisions"))
    flags.add_argument("--seeds", type=int, default=8)
    flags.add_argument("--first", type=int, default=0, help="first seed")
    flags.add_argument("--arms", default=",".join(ARMS), help="only these, with commas between")
    flags.add_argument("--sessions", type=int, default=4)
    flags.add_argument("--interference", type=float, default=WORLD["interference"])
    flags.add_argument("--tokens", type=int, default=1_500, help="generated tokens of each run")
    flags.add_argument("--test", type=int, default=16, help="test episodes")
    flags.add_argument("--minutes", type=float, default=9.0, help="begin no run after so long")
    flags.add_argument("--summary", type=Path, help="write the summary there as JSON")
    args = flags.parse_args()
    rows = rows_of(args)
    if args.summary:
        found = summary_of(rows, args)
        args.summary.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(table_of(found))
        return
    args.out.mkdir(parents=True, exist_ok=True)
    done, began = {(row["arm"], row["seed"]) for row in rows}, monotonic()
    for seed in range(args.first, args.first + args.seeds):
        for arm in args.arms.split(","):
            if (arm, seed) in done:
                continue
            if monotonic() - began > 60 * args.minutes:
                return
            run(arm, seed, args)


if __name__ == "__main__":
    main()

"""Count how many runs on two processes complete: fresh starts, early stops, resumes.

Each kind is run so many times on two gloo processes of this machine, with processes that
begin up to half a second apart. A fresh start takes three steps. An early stop ends by
its patience after one. A resume is stopped after its second step and goes on; its weights
must be those of the undisturbed run, to the bit. A run that hangs ends the benchmark by
its time limit.

    python benchmarks/two_ranks.py --times 10
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

from measured import report

KITS = Path(__file__).resolve().parent.parent / "tests" / "kits"
sys.path[:0] = [str(KITS), str(KITS / "learning")]


def plan_of(folder: Path, times: int) -> dict[str, Any]:
    """Return the runs by name."""
    from ranks_kit import rank_settings

    draws, plan = random.Random(0), {}
    for number in range(times):
        for kind, changes, more in (
            ("start", {}, {}),
            ("early stop", {"stage": {"patience": 1}}, {}),
            ("resume", {}, {"stop_at": 2}),
        ):
            home = folder / f"{kind.replace(' ', '_')}{number}"
            late = {str(rank): draws.uniform(0, 0.5) for rank in range(2)}
            light = {"episodes": 1, "test_episodes": 0, "every": 1 if kind == "early stop" else 3}
            settings = rank_settings(home, validation=light, **changes)
            plan[f"{kind} {number}"] = {"settings": settings, "late_s": late, **more}
    return plan


def main() -> None:
    """Run all of them in one pair of processes and count."""
    flags = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    flags.add_argument("--times", type=int, default=10)
    flags.add_argument("--seconds", type=float, default=3_000)
    args = flags.parse_args()
    from ranks_kit import launch

    with tempfile.TemporaryDirectory() as name:
        plan = Path(name) / "plan.json"
        plan.write_text(json.dumps(plan_of(Path(name), args.times)), encoding="utf-8")
        printed = launch("run_workload.py", plan, timeout=args.seconds)
    ranks = [
        json.loads(line.partition(" ")[2])["outcomes"]
        for out in printed
        for line in out.splitlines()
        if line.startswith("@outcomes ")
    ]
    first, second = ranks
    whole = first["start 0"]["weights"]
    counts = {"start": 0, "early stop": 0, "resume": 0}
    for name, outcome in first.items():
        kind = name.rpartition(" ")[0]
        steps = outcome["stages"][0]["steps"]
        right = steps == (1 if kind == "early stop" else 3) and outcome == second[name]
        counts[kind] += right and (kind == "early stop" or outcome["weights"] == whole)
    tokens = {outcome["stages"][0]["tokens"] for n, outcome in first.items() if "start" in n}
    results: dict[str, Any] = {f"{kind}s of {args.times}": count for kind, count in counts.items()}
    results["tokens of a fresh run"] = sorted(tokens)
    missing = {f"{kind}s not completed": (args.times - count, 0) for kind, count in counts.items()}
    report("two_ranks", results, promises=missing)


if __name__ == "__main__":
    main()

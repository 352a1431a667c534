"""Experiment A: what local credit from shared snapshots adds, at equal generated tokens.

    python examples/experiments/credit.py --out runs/credit                    # warm start, six arms, five seeds
    python examples/experiments/credit.py --out runs/credit --summary credit.json

A small policy, warmed up on noisy demonstrations, trains on `tiny` worlds with interference and is tested on held-out worlds (other seeds,
other names, other surface forms). Every arm starts from the same weights, spends the same number of generated tokens, and is repeated
with the same seeds; differences are paired by seed. What is finished is skipped, so the command can be stopped and given again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean
from typing import Any

ARMS: dict[str, dict[str, Any]] = {
    "terminal": {"credit": "terminal", "local_weight": 0.0, "local_probability": 0.0},
    "session": {"credit": "session", "local_weight": 0.0, "local_probability": 0.0},
    "logo": {"credit": "terminal", "local_weight": 1.0, "local_probability": 0.5},
    "session_logo": {"credit": "session", "local_weight": 1.0, "local_probability": 0.5},
    "random_reward": {"credit": "session", "local_weight": 1.0, "local_probability": 0.5, "control": "random_reward"},
    "shuffled": {"credit": "session", "local_weight": 1.0, "local_probability": 0.5, "control": "shuffled_advantage"},
}
"""What an arm changes in the trainer, and nothing else."""
MEASURES = ("f1", "overwritten", "memory_share", "lost", "update", "delete", "add")


def settings_of(arm: str, seed: int, args: argparse.Namespace, folder: Path, init: Path) -> dict[str, Any]:
    """The run of one arm with one seed, as plain values of `RunSettings`."""
    return {
        "seed": seed,
        "folder": str(folder),
        "model": {"path": str(init), "context_tokens": 512},
        "environment": {"level": "tiny", "episodes": 2_000, "asks": ["now", "who"], "seed": 1_000 * seed},
        "agent": {"design": "memory_r2_brief", "embedder": "hashing"},
        "trainer": {
            "num_generations": 8,
            "per_device_train_batch_size": 2,
            "steps_per_generation": 8,
            "gradient_accumulation_steps": 8,
            "num_iterations": 1,
            "reruns": 3,
            "beta": 0.0,
            "entropy_coef": 0.0,
            "max_completion_length": 112,
            "learning_rate": args.learning_rate,
            "bf16": False,
            "use_cpu": True,
            "save_strategy": "no",
            "report_to": [],
            "batch_width": 256,
            "skip_zero_rows": True,
            **ARMS[arm],
        },
        "stage": [{"sessions": args.sessions, "steps": 10_000, "tokens": args.tokens}],
        "validation": {"every": args.every, "episodes": args.validation, "test_episodes": args.test},
    }


def warm_start(args: argparse.Namespace) -> Path:
    """The weights that every arm starts from."""
    if args.init:
        return Path(args.init)
    from train.runs import first_model
    from train.settings import checked_run

    folder = Path(args.out) / "warm"
    values = {
        "folder": str(folder),
        "model": {"size": args.size, "context_tokens": 512},
        "environment": {"level": "tiny"},
        "agent": {"embedder": "hashing"},
        "warmup": {"episodes": args.demonstrations, "epochs": args.epochs, "learning_rate": 2e-3},
    }
    first_model(checked_run(values), folder, say=lambda line: print(line, file=sys.stderr))
    return folder / "init"


def one(arm: str, seed: int, args: argparse.Namespace) -> None:
    """Train and test one arm with one seed, in this process."""
    from train.runs import train_run
    from train.settings import checked_run

    folder = Path(args.out) / f"{arm}-{seed}"
    train_run(checked_run(settings_of(arm, seed, args, folder, Path(args.init))), resume=True)


def summary_of(out: Path, seeds: int) -> dict[str, Any]:
    """Means and paired differences over seeds of every arm, on the test episodes, with 95 % bootstrap intervals."""
    from train.evaluation import bootstrap

    runs: dict[str, dict[int, dict[str, float]]] = {}
    start: dict[str, list[float]] = {}
    for arm in ARMS:
        for seed in range(seeds):
            path = out / f"{arm}-{seed}" / "summary.json"
            if not path.is_file():
                continue
            test = json.loads(path.read_text(encoding="utf-8"))["test"]
            for key, figures in test.items():
                values = {name: figures[name]["mean"] for name in MEASURES if name in figures}
                if key.startswith("init"):
                    for name, value in values.items():
                        start.setdefault(name, []).append(value)
                else:
                    runs.setdefault(arm, {})[seed] = values
    table: dict[str, Any] = {"start": {name: round(fmean(values), 4) for name, values in start.items()}, "arms": {}}
    base = runs.get("session", {})
    plain = runs.get("terminal", {})
    for arm, by_seed in runs.items():
        entry: dict[str, Any] = {"seeds": sorted(by_seed)}
        for name in MEASURES:
            values = [one[name] for one in by_seed.values() if name in one]
            if values:
                entry[name] = {"mean": round(fmean(values), 4), "interval": [round(x, 4) for x in bootstrap(values)]}
        for label, other in (("over_terminal", plain), ("over_session", base)):
            paired = [by_seed[seed]["f1"] - other[seed]["f1"] for seed in by_seed if seed in other]
            if paired and other is not by_seed:
                entry[label] = {"mean": round(fmean(paired), 4), "interval": [round(x, 4) for x in bootstrap(paired)]}
        entry["values"] = {str(seed): one for seed, one in sorted(by_seed.items())}
        table["arms"][arm] = entry
    return table


def main() -> None:
    """All arms and seeds, `--jobs` at a time, then the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="runs/credit", help="folder of the runs")
    parser.add_argument("--init", default="", help="folder of warmed-up weights; made when not given")
    parser.add_argument("--size", default="500k")
    parser.add_argument("--demonstrations", type=int, default=400, help="episodes of the warm start")
    parser.add_argument("--epochs", type=float, default=10.0, help="passes of the warm start")
    parser.add_argument("--arms", default=",".join(ARMS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sessions", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=400_000, help="generated tokens of each run")
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--every", type=int, default=10, help="optimizer steps between validations")
    parser.add_argument("--validation", type=int, default=16, help="validation episodes")
    parser.add_argument("--test", type=int, default=48, help="test episodes")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--summary", default="", help="write the summary there as JSON")
    parser.add_argument("--one", nargs=2, metavar=("ARM", "SEED"), help="run one arm with one seed, no more")
    args = parser.parse_args()
    if args.one:
        one(args.one[0], int(args.one[1]), args)
        return
    args.init = str(warm_start(args))
    wanted = [(arm, seed) for seed in range(args.seeds) for arm in args.arms.split(",")]
    missing = [(arm, seed) for arm, seed in wanted if not (Path(args.out) / f"{arm}-{seed}" / "summary.json").is_file()]

    def run(task: tuple[str, int]) -> None:
        command = [sys.executable, __file__, *sys.argv[1:], "--init", args.init, "--one", task[0], str(task[1])]
        log = Path(args.out) / f"{task[0]}-{task[1]}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("w", encoding="utf-8") as file:
            code = subprocess.run(
                command, stdout=file, stderr=file, env={**os.environ, "OMP_NUM_THREADS": "1"}
            ).returncode
        print(f"{task[0]} seed {task[1]}: {'done' if code == 0 else f'failed, see {log}'}", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(run, missing))
    found = summary_of(Path(args.out), args.seeds)
    text = json.dumps(
        found | {"settings": {name: value for name, value in vars(args).items() if name not in ("one", "out", "init")}},
        indent=1,
    )
    if args.summary:
        Path(args.summary).write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()

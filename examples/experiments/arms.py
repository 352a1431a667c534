"""The common part of the experiments.

It holds the world, the trainer's settings, one warm start, arms run in processes of
their own, and the summary. An arm is a name with its changes of the settings, and
nothing else. All start from the same weights and are paired by seed. Finished arms are
skipped, so an experiment can be stopped at any moment and its command given again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean
from time import monotonic
from typing import Any

WORLD: dict[str, Any] = {
    "level": "tiny",
    "only": ["lives_in", "works_as", "likes", "has"],
    "friends": 0,
    "turns": 4,
    "facts": 2.0,
    "overwrite": 0.4,
    "interference": 0.3,
    "asks": ["now", "who"],
    "probes": 64,
}
"""Where the small policies live: four relations that get overwritten, repeated, denied and
taken back; all that holds is asked for.
"""
WARM_UP: dict[str, Any] = {
    "sessions": 8,
    "noise": 0.1,
    "answers": True,
    "learning_rate": 3e-3,
    "optimizer": "muon",
}
"""The warm start but for its length: a policy that reads and writes notes, and
consolidates as well as so small a network can.
"""
CARELESS: dict[str, Any] = {
    **WARM_UP,
    "learning_rate": 5e-4,
    "optimizer": "adamw",
    "episodes": 500,
    "epochs": 1,
}
"""A short fine-tuning after it, in which most ops (and answers, where they are learned)
are guesses: choosing is left for training.
"""
ASKED_IN_WARM_UP = 10
"""Questions an episode of the warm start, so that answers are not most of what is
demonstrated.
"""
TRAINER: dict[str, Any] = {
    "num_generations": 8,
    "per_device_train_batch_size": 2,
    "steps_per_generation": 8,
    "gradient_accumulation_steps": 8,
    "num_iterations": 1,
    "reruns": 3,
    "rejected": 0.05,
    "beta": 0.0,
    "entropy_coef": 0.0,
    "max_completion_length": 64,
    "bf16": False,
    "use_cpu": True,
    "save_strategy": "no",
    "report_to": [],
    "batch_width": 256,
    "skip_zero_rows": True,
    "gradient_checkpointing": False,
}
"""Two episodes an update, eight whole rollouts each."""
MEASURES = ("f1", "exact", "overwritten", "memory_share", "lost", "add", "update", "delete", "noop")
Settings = Callable[[str, int, argparse.Namespace], dict[str, Any]]
"""(arm, seed, arguments) to the run's settings, but for its folder and its first weights."""


def parser(
    description: str | None,
    *,
    out: str,
    tokens: int,
    seeds: int,
    listening: str = "policy",
    guess_answers: float = 0.0,
) -> argparse.ArgumentParser:
    """Return a parser with the options that every experiment has."""
    flags = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flags.add_argument("--out", default=out, help="folder of the runs")
    flags.add_argument(
        "--init", default="", help="folder of warmed-up weights; made when not given"
    )
    flags.add_argument("--size", default="500k", help="size of the model that is warmed up")
    flags.add_argument(
        "--demonstrations", type=int, default=3_000, help="episodes of the warm start"
    )
    flags.add_argument("--epochs", type=float, default=2.0, help="passes of the warm start")
    flags.add_argument(
        "--guess",
        type=float,
        default=0.8,
        help="share of ops that its end demonstrates at random; 0 for no such end",
    )
    flags.add_argument(
        "--guess-answers",
        type=float,
        default=guess_answers,
        help="the same for answers; with 0 they are demonstrated rightly",
    )
    flags.add_argument(
        "--listening",
        default=listening,
        choices=("policy", "oracle"),
        help="who takes down the facts while arms train",
    )
    flags.add_argument("--arms", default="", help="only these, with commas between")
    flags.add_argument("--seeds", type=int, default=seeds)
    flags.add_argument("--tokens", type=int, default=tokens, help="generated tokens of each run")
    flags.add_argument("--learning-rate", type=float, default=5e-4)
    flags.add_argument("--every", type=int, default=10, help="optimizer steps between validations")
    flags.add_argument("--validation", type=int, default=24, help="validation episodes")
    flags.add_argument("--test", type=int, default=64, help="test episodes")
    flags.add_argument("--jobs", type=int, default=2, help="runs at a time, one thread each")
    flags.add_argument(
        "--minutes",
        type=float,
        default=0.0,
        help="stop after so long; the same command goes on later",
    )
    flags.add_argument("--summary", default="", help="write the summary there as JSON")
    flags.add_argument(
        "--one", nargs=2, metavar=("ARM", "SEED"), help="run one arm with one seed, no more"
    )
    return flags


def warm_start(args: argparse.Namespace, changes: Mapping[str, Any] | None = None) -> Path:
    """Return the weights that every arm starts from; `changes` replace parts of the settings."""
    if args.init:
        return Path(args.init)
    folder = Path(args.out) / "warm"
    plan = {**WARM_UP, "episodes": args.demonstrations, "epochs": args.epochs}
    values = {
        "model": {"size": args.size, "context_tokens": 512},
        "environment": {**WORLD, "probes": ASKED_IN_WARM_UP},
        "agent": {"embedder": "hashing"},
        **(changes or {}),
    }
    base = _warmed(folder / "base", {**values, "warmup": plan})
    others = {**values["environment"], "seed": 77}
    more = {**plan, "episodes": round(args.demonstrations * 5 / 6)}
    base = _warmed(folder / "more", {**_on(base, values), "environment": others, "warmup": more})
    guesses = {"guess": args.guess, "guess_answers": args.guess_answers}
    if not any(guesses.values()):
        return base
    careless = {**CARELESS, **guesses, "episodes": min(CARELESS["episodes"], args.demonstrations)}
    return _warmed(folder, {**_on(base, values), "warmup": careless})


def _on(base: Path, values: Mapping[str, Any]) -> dict[str, Any]:
    return {**values, "model": {**values["model"], "path": str(base)}}


def _warmed(folder: Path, values: Mapping[str, Any]) -> Path:
    from train.run.models import first_model
    from train.settings.run import checked_run

    settings = checked_run({**values, "folder": str(folder)})
    first_model(settings, folder, say=lambda line: print(line, file=sys.stderr))
    return folder / "init"


def base_settings(
    args: argparse.Namespace, seed: int, *, sessions: int, **trainer: Any
) -> dict[str, Any]:
    """Return settings for arms: one stage at so many sessions, ended by its tokens."""
    return {
        "seed": seed,
        "environment": {
            **WORLD,
            "episodes": 500,
        },  # the same for all seeds, which differ in what they draw from it
        "agent": {"design": "memory_r2_brief", "embedder": "hashing", "listening": args.listening},
        "trainer": {**TRAINER, "learning_rate": args.learning_rate, **trainer},
        "stage": [{"sessions": sessions, "steps": 10_000, "tokens": args.tokens}],
        "validation": {
            "every": args.every,
            "episodes": args.validation,
            "test_episodes": args.test,
            "test_split": "validation",
            "test_last": True,
        },
    }


def run_experiment(
    script: str,
    flags: argparse.ArgumentParser,
    arms: Sequence[str],
    settings: Settings,
    *,
    base: str,
    warm: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Run the missing arms and return the summary, which compares arms with `base`.

    `warm` changes the settings of the warm start.
    """
    words = sys.argv[1:]
    args = flags.parse_args(words)
    if args.one:
        from train.run.runs import train_run
        from train.settings.run import checked_run

        arm, seed = args.one[0], int(args.one[1])
        values = settings(arm, seed, args)
        values["folder"] = str(_folder(args, arm, seed))
        values["model"] = {"context_tokens": 512, **values.get("model", {}), "path": args.init}
        train_run(checked_run(values), resume=True)
        return {}
    until = monotonic() + 60 * args.minutes if args.minutes else None
    args.init = str(warm_start(args, warm))
    chosen = args.arms.split(",") if args.arms else list(arms)
    missing = [
        (arm, seed)
        for seed in range(args.seeds)
        for arm in chosen
        if not (_folder(args, arm, seed) / "summary.json").is_file()
    ]

    def run(task: tuple[str, int]) -> None:
        command = [
            sys.executable,
            script,
            *words,
            "--init",
            args.init,
            "--one",
            task[0],
            str(task[1]),
        ]
        log = Path(args.out) / f"{task[0]}-{task[1]}.log"
        with log.open("a", encoding="utf-8") as file:
            environment = {"OMP_NUM_THREADS": "1", **os.environ}
            left = None if until is None else max(0.0, until - monotonic())
            try:
                code = subprocess.run(
                    command, stdout=file, stderr=file, env=environment, timeout=left
                ).returncode
                ended = "done" if code == 0 else f"failed, see {log}"
            except subprocess.TimeoutExpired:
                ended = "stopped, goes on with the next call"
        print(f"{task[0]} seed {task[1]}: {ended}", file=sys.stderr, flush=True)

    Path(args.out).mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(run, missing))
    shown = {
        name: value
        for name, value in vars(args).items()
        if name not in ("one", "out", "init", "summary", "jobs", "minutes")
    }
    plans = [settings(arm, 0, args) for arm in arms]
    alike = {
        part: {
            name: value
            for name, value in plans[0][part].items()
            if all(name in plan[part] and plan[part][name] == value for plan in plans)
        }
        for part in ("environment", "agent", "trainer")
    }
    found = summary_of(args, arms, base=base) | {"settings": {**shown, **alike}}
    text = json.dumps(found, indent=1)
    if args.summary:
        Path(args.summary).write_text(text + "\n", encoding="utf-8")
    print(text)
    return found


def _folder(args: argparse.Namespace, arm: str, seed: int) -> Path:
    return Path(args.out) / f"{arm}-{seed}"


def summary_of(args: argparse.Namespace, arms: Sequence[str], *, base: str) -> dict[str, Any]:
    """Return, by test length, the means of every arm over seeds with 95 % intervals.

    Differences from `base` are paired by seed; curves over tokens come with them.
    """
    tests: dict[str, dict[str, dict[int, dict[str, float]]]] = {}
    curves: dict[str, dict[str, list[list[float]]]] = {}
    for arm in arms:
        for seed in range(args.seeds):
            folder = _folder(args, arm, seed)
            if not (folder / "summary.json").is_file():
                continue
            summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
            last = len(summary["stages"]) - 1
            names = {f"stage{stage}/best": f"{arm}, stage {stage + 1}" for stage in range(last)}
            names |= {
                "init": "start",
                f"stage{last}/best": arm,
                f"stage{last}/last": f"{arm}, last",
            }
            for key, figures in summary["test"].items():
                place, _, length = key.rpartition("@")
                if place not in names:
                    continue
                name = names[place]
                means = {
                    measure: figures[measure]["mean"] for measure in MEASURES if measure in figures
                }
                tests.setdefault(length, {}).setdefault(name, {})[seed] = means
            curves.setdefault(arm, {})[str(seed)] = _curve(folder)
    found: dict[str, Any] = {"test": {}, "curves": curves}
    for length, by_arm in tests.items():
        found["test"][length] = {
            arm: _compared(
                by_seed, by_arm.get(f"{base}, last" if arm.endswith(", last") else base, {})
            )
            for arm, by_seed in by_arm.items()
        }
    return found


def _curve(folder: Path) -> list[list[float]]:
    """Return the curve of a run, stage after stage.

    A point is (tokens so far, validation F1, share of overwritten facts known).
    """
    points: list[list[float]] = []
    before, last, stage = 0, 0, ""
    for line in (folder / "validation.jsonl").read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        if one["stage"] != stage:
            before, stage = before + last, one["stage"]
        last = one["tokens"]
        points.append(
            [
                before + last,
                round(one["figures"].get("f1", 0.0), 4),
                round(one["figures"].get("overwritten", 0.0), 4),
            ]
        )
    return points


def _compared(
    by_seed: Mapping[int, Mapping[str, float]], base: Mapping[int, Mapping[str, float]]
) -> dict[str, Any]:
    from train.run.plans import bootstrap

    entry: dict[str, Any] = {"seeds": sorted(by_seed)}
    for measure in MEASURES:
        values = [one[measure] for one in by_seed.values() if measure in one]
        if values:
            entry[measure] = {
                "mean": round(fmean(values), 4),
                "interval": [round(edge, 4) for edge in bootstrap(values)],
            }
    paired = [by_seed[seed]["f1"] - base[seed]["f1"] for seed in by_seed if seed in base]
    if paired and base is not by_seed:
        entry["over_base"] = {
            "mean": round(fmean(paired), 4),
            "interval": [round(edge, 4) for edge in bootstrap(paired)],
        }
    entry["f1_by_seed"] = [round(by_seed[seed]["f1"], 4) for seed in sorted(by_seed)]
    return entry

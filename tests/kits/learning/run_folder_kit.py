"""A run's folder as training leaves it, written by hand: two stages of twelve updates,
with every file that the report reads.
"""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

from train.settings.run import checked_run

STAGES, STEPS, EVERY = (4, 8), 12, 4
HOSTILE = '<script>alert("x")</script> & <b>'
"""Text that a page must show as text."""


def write_run(folder: Path, *, ended: bool = True) -> Path:
    """The folder; without `ended` that of a run that is still in its second stage."""
    draws = random.Random(1)
    stages = [{"sessions": sessions, "steps": STEPS} for sessions in STAGES]
    settings = checked_run(
        {"folder": str(folder), "stage": stages, "validation": {"every": EVERY, "episodes": 6}}
    )
    folder.mkdir(parents=True)
    (folder / "settings.json").write_text(settings.model_dump_json(), encoding="utf-8")
    (folder / "versions.json").write_text(json.dumps({"trl": "1.16.0"}), encoding="utf-8")
    validations: list[dict[str, Any]] = []
    for number, sessions in enumerate(STAGES):
        home = folder / f"stage{number}"
        home.mkdir()
        _lines(
            home / "steps.jsonl",
            [_step(number * STEPS + step, step, sessions, draws) for step in range(STEPS)],
        )
        _lines(home / "log.jsonl", [_log(step, draws) for step in range(1, STEPS + 1)])
        validations += [
            _validation(number, step, 0.2 + 0.02 * (number * STEPS + step), draws)
            for step in range(0, STEPS + 1, EVERY)
        ]
        if ended or number == 0:
            note = {
                "sessions": sessions,
                "steps": STEPS,
                "tokens": 9_000,
                "best": 0.5,
                "seconds": 40.0,
            }
            (home / "ended.json").write_text(json.dumps(note), encoding="utf-8")
    _lines(folder / "validation.jsonl", validations)
    if ended:
        test = {
            f"{name}@{sessions}": {
                figure: {"mean": round(draws.random(), 4), "interval": [0.1, 0.9]}
                for figure in (
                    "f1",
                    "overwritten",
                    "lost",
                    "memory_share",
                    "add",
                    "update",
                    "failed",
                )
            }
            for name in ("init", "stage0/best", "stage1/best", "stage1/last")
            for sessions in STAGES
        }
        (folder / "summary.json").write_text(json.dumps({"test": test}), encoding="utf-8")
    return folder


def _step(at: int, step: int, sessions: int, draws: random.Random) -> dict[str, Any]:
    add = 0.7 - 0.01 * at
    figures = {
        "reward/global": 0.3 + 0.01 * at + draws.gauss(0, 0.03),
        "reward/local": 0.35 + 0.01 * at + draws.gauss(0, 0.03),
        "groups/global_flat": 0.3,
        "groups/local_flat": max(0.0, 0.5 - 0.01 * at),
        "groups/global_spread": 0.1,
        "groups/local_spread": 0.12,
        "ops/add": add,
        "ops/update": 0.9 - add,
        "ops/delete": 0.04,
        "ops/noop": 0.03,
        "ops/rejected": 0.03,
        "tokens/completion": 2_400.0 + 50 * at,
        "batches/width": 11.0,
        "time/generation": 1.2,
        "time/agent": 0.5,
        "time/logps": 0.3,
        "time/experience": 1.8,
    }
    groups = [
        {
            "branch": branch,
            "role": "manager",
            "episode": "e",
            "session": place,
            "rewards": [draws.random(), None],
        }
        for place in range(sessions)
        for branch in ("global", "local")
    ]
    pairs = [(draws.gauss(0, 1), draws.gauss(0, 1)) for _ in range(4)]
    samples = [
        {"role": "manager", "session": "s", "advantage": 0.7, "text": f"{HOSTILE} said at {at}"}
    ]
    anchors = [[x, 0.5 * x + math.sqrt(0.75) * y] for x, y in pairs]
    return {
        "step": step,
        "figures": figures,
        "groups": groups,
        "anchors": anchors,
        "samples": samples,
    }


def _log(step: int, draws: random.Random) -> dict[str, Any]:
    logs = {
        "loss": draws.gauss(0, 0.01),
        "grad_norm": 0.5,
        "kl": 0.0001 * step,
        "clip_ratio/region_mean": 0.02,
        "entropy": 1.1 - 0.01 * step,
        "tokens/cut": None,
        "step_time": 3.0 + draws.random(),
    }
    return {"step": step, "logs": logs}


def _validation(stage: int, step: int, f1: float, draws: random.Random) -> dict[str, Any]:
    episodes = [
        {
            "f1": f1 + draws.gauss(0, 0.05),
            "overwritten": f1 / 2,
            "lost": 0.6 - f1 / 2,
            "memory_share": 0.4,
        }
        for _ in range(6)
    ]
    figures = {"f1": f1, "overwritten": f1 / 2, "lost": 0.6 - f1 / 2, "memory_share": 0.4}
    shown = [
        {
            "episode": f"validation-{HOSTILE}",
            "memory": [f"note {place} at step {step} {HOSTILE}" for place in range(15)],
            "replies": [["extractor", '{"facts":[]}'], ["manager", "{" + "x" * 200 + "}"]],
        }
    ]
    return {
        "stage": f"stage{stage}",
        "step": step,
        "tokens": 100,
        "seconds": 1.0,
        "figures": figures,
        "episodes": episodes,
        "shown": shown,
    }


def _lines(path: Path, values: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(one) + "\n" for one in values), encoding="utf-8")

"""The files of an evaluation's folder: `config.json` and a file of scores a pair.

`questions/<arm>/<episode>.jsonl` has a line a question, then one line about the episode.
A file appears whole or not at all.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from pydantic import ValidationError

from environments.errors import EnvironmentFault
from environments.evaluation.config import EvalConfig
from environments.records import ProbeScore, Score
from memagent.core.records import content_id


def freeze(config: EvalConfig, out: Path) -> None:
    """Write the configuration, or check that it equals the one there.

    Raises `EnvironmentFault` naming what differs.
    """
    path = out / "config.json"
    if path.exists():
        before = load_config(path)
        differing = [
            name
            for name in EvalConfig.model_fields
            if getattr(before, name) != getattr(config, name)
        ]
        if differing == ["judge"] and None in (before.judge, config.judge):
            _write(path, config.model_dump_json(indent=2) + "\n")
        elif differing:
            raise EnvironmentFault(
                f"{out} holds a run with another {', '.join(differing)}; choose another --out"
            )
        return
    out.mkdir(parents=True, exist_ok=True)
    _write(path, config.model_dump_json(indent=2) + "\n")


def load_config(path: Path) -> EvalConfig:
    """Load a frozen configuration. Raises `EnvironmentFault`."""
    try:
        return EvalConfig.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise EnvironmentFault(f"{path} is no configuration of an evaluation: {error}") from error


def write_score(out: Path, arm: str, score: Score) -> None:
    """Write a score's questions and its episode line."""
    lines = [probe.model_dump_json() for probe in score.probes]
    lines.append(json.dumps({"episode": json.loads(score.model_dump_json(exclude={"probes"}))}))
    path = score_path(out, arm, score.episode_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, "\n".join(lines) + "\n")


def read_score(out: Path, arm: str, episode_id: str, *, failures: bool = False) -> Score | None:
    """Read a score; return None when there is none.

    A score with a failure counts as none, unless `failures`.
    """
    path = score_path(out, arm, episode_id)
    if not path.exists():
        return None
    *questions, last = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    probes = [ProbeScore.model_validate_json(line) for line in questions]
    score = Score.model_validate({**json.loads(last)["episode"], "probes": probes})
    failed = score.failure is not None or any(probe.failure is not None for probe in probes)
    return None if failed and not failures else score


def require_score(out: Path, arm: str, episode_id: str) -> Score:
    """Read a score, failures included. Raises `EnvironmentFault` when there is none."""
    score = read_score(out, arm, episode_id, failures=True)
    if score is None:
        raise EnvironmentFault(f"arm {arm!r} left nothing for episode {episode_id!r} in {out}")
    return score


def score_path(out: Path, arm: str, episode_id: str) -> Path:
    """Return the file of an arm's score on an episode."""
    plain = [
        name if re.fullmatch(r"\w[\w.-]{0,99}", name) else content_id("x", name)
        for name in (arm, episode_id)
    ]
    return out / "questions" / plain[0] / f"{plain[1]}.jsonl"


def _write(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)

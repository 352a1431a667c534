"""A whole run: the first model, the stages of the curriculum, the test at the end.

Everything a run leaves lies in its folder:

    settings.json  versions.json  validation.jsonl  summary.json  init/  best/
    stage0/  steps.jsonl  log.jsonl  ended.json  best/  checkpoint-*/  runs/ (TensorBoard)

A run that was stopped goes on with `resume=True`: finished stages are skipped, an
unfinished one continues from its last checkpoint, and lines written after that
checkpoint are removed, since its steps will happen again.

Several processes run this together: the main one writes, decides what lies in the
folder and tells the others; all of them play, train and validate.
"""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import PartialState

from train.ranks import on_main
from train.run.config import check_share
from train.run.evaluation import Evaluation
from train.run.logs import versions
from train.run.models import Say, first_model
from train.run.stages import stage_config, stage_folder, task_of, train_stage
from train.sampling.checkpoints import load_policy
from train.settings.run import RunSettings, claim


def train_run(settings: RunSettings, *, resume: bool = False, say: Say = print) -> dict[str, Any]:
    """Run everything and return the summary.

    Raises `ConfigError` when the folder holds another run, or any run without `resume`.
    """
    folder = Path(settings.folder)
    numbers = range(len(settings.stage))
    for number in numbers:  # errors now, not after the warm start
        args = stage_config(settings, settings.stage[number], stage_folder(settings, number))
        check_share(args, settings.environment.episodes)
    if not PartialState().is_main_process:
        say = lambda _: None  # noqa: E731 (the main process says it)
    on_main(partial(claim, settings, resume=resume))
    on_main(lambda: _write(folder / "versions.json", versions()))
    first_model(settings, folder, say=say)
    stages = [_stage_record(settings, number, resume=resume, say=say) for number in numbers]
    summary = {
        "stages": stages,
        "settings": settings.model_dump(mode="json"),
        "test": _test(settings, say=say),
    }
    chosen = max(numbers, key=lambda number: stages[number]["best"])

    def conclude() -> None:
        if (folder / "best").is_dir():
            shutil.rmtree(folder / "best")
        shutil.copytree(stage_folder(settings, chosen) / "best", folder / "best")
        _write(folder / "summary.json", summary)

    on_main(conclude)
    return summary


def _stage_record(settings: RunSettings, number: int, *, resume: bool, say: Say) -> dict[str, Any]:
    """Return the record of a stage, which is trained unless it has ended already.

    A stage that used up its steps goes on when there are more by now, unless the next
    one has begun from its best.
    """
    ended = stage_folder(settings, number) / "ended.json"

    def has_ended() -> bool:
        if not ended.is_file() or stage_folder(settings, number + 1).is_dir():
            return ended.is_file()
        record = json.loads(ended.read_text(encoding="utf-8"))
        used_up = record["steps"] == record.get("limit")
        return not used_up or settings.stage[number].steps <= record["steps"]

    if not on_main(has_ended):
        record = train_stage(settings, number, resume=resume, say=say)
        on_main(lambda: _write(ended, record))
    return on_main(lambda: json.loads(ended.read_text(encoding="utf-8")))


def _write(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=1), encoding="utf-8")


def _test(settings: RunSettings, *, say: Say) -> dict[str, Any]:
    """Evaluate the start and every stage's best on held-out episodes of every stage's length."""
    part = settings.validation
    if not part.test_episodes:
        return {}
    lengths = sorted({stage.sessions for stage in settings.stage} | set(part.test_sessions))
    saved = ("best", "last") if part.test_last else ("best",)
    names = [
        "init",
        *(f"stage{number}/{which}" for number in range(len(settings.stage)) for which in saved),
    ]
    results: dict[str, Any] = {}
    for name in names:
        policy = load_policy(
            str(Path(settings.folder) / name),
            constrained=bool(settings.trainer.get("constrained")),
        )
        for sessions in lengths:
            evaluation = task_of(settings, sessions=sessions).evaluate(
                policy,
                part.test_split,
                part.test_episodes,
                skip=part.episodes if part.test_split == "validation" else 0,
            )
            results[f"{name}@{sessions}"] = {
                figure: {
                    "mean": round(mean, 4),
                    "interval": [round(edge, 4) for edge in evaluation.interval(figure)],
                }
                for figure, mean in evaluation.figures.items()
            }
            say(f"test {name} at {sessions} sessions: {_shown(evaluation)}")
    return results


def _shown(evaluation: Evaluation) -> str:
    """Return F1 and, of a generated world, the facts right, with their intervals."""
    return ", ".join(
        "{} {:.3f} [{:.3f}, {:.3f}]".format(
            name, evaluation.figures[name], *evaluation.interval(name)
        )
        for name in ("f1", "facts", "facts_as_of", "success")
        if name in evaluation.figures
    )

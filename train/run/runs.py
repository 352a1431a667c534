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
from dataclasses import fields
from difflib import get_close_matches
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from accelerate import PartialState

from memagent.core.errors import ConfigError
from memagent.plugins import load
from train.ranks import on_main
from train.run.config import LoGoGRPOConfig, check_share
from train.run.models import Say, bf16_works, first_model
from train.run.plans import Evaluation
from train.run.task import ActingTrainingTask, TrainingTask
from train.run.trainer import LoGoGRPOTrainer
from train.run.validation import (
    LogFile,
    Progress,
    StepLines,
    Validation,
    quiet,
    save_policy,
    versions,
)
from train.sampling.checkpoints import last_checkpoint, load_for_training, load_policy
from train.settings.parts import is_acted_in
from train.settings.run import RunSettings, Stage, claim

# One stage of a run: its configuration, its trainer, its training.

DAY_S = 86_400
TRACKERS = frozenset({"wandb", "trackio"})
"""Names that `report_to` may hold besides TensorBoard; each is an extra."""


def train_stage(settings: RunSettings, number: int, *, resume: bool, say: Say) -> dict[str, Any]:
    """Train one stage from the best of the one before and return its record.

    With `resume` it goes on from the stage's last checkpoint, if there is one.
    """
    stage, home = settings.stage[number], stage_folder(settings, number)
    on_main(lambda: home.mkdir(parents=True, exist_ok=True))
    task = task_of(settings, sessions=stage.sessions)
    trainer = trainer_of(settings, number, task)
    quiet(trainer)
    checkpoint = on_main(lambda: last_checkpoint(home)) if resume else None
    if checkpoint:
        say(f"{home.name} goes on from {checkpoint.name}")
    reached = int(checkpoint.name.rpartition("-")[2]) if checkpoint else None
    measure = settings.validation.measure
    progress = on_main(lambda: Progress.restored(home, reached, measure=measure))
    validation = Validation(
        task=task_of(settings, sessions=settings.validation.sessions or stage.sessions),
        stage=stage,
        folder=home,
        trainer=trainer,
        progress=progress,
        say=say,
    )
    trainer.add_callback(validation)
    trainer.add_callback(LogFile(path=home / "log.jsonl"))
    trainer.add_callback(StepLines(say=say, name=home.name, steps=stage.steps))
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    if settings.validation.test_last:
        on_main(lambda: save_policy(trainer, home / "last", figures={}))
    return {
        "sessions": stage.sessions,
        "steps": trainer.state.global_step,
        "limit": stage.steps,
        "tokens": progress.tokens,
        "best": progress.best,
        "seconds": perf_counter() - validation.began,
    }


def stage_folder(settings: RunSettings, number: int) -> Path:
    """Return the folder of a stage."""
    return Path(settings.folder) / f"stage{number}"


def task_of(settings: RunSettings, *, sessions: int) -> TrainingTask | ActingTrainingTask:
    """Open the task of a run: conversations of some sessions, or tasks that are acted in.

    An environment may bring its own with `training_task`, which makes it of the usual one.
    """
    if is_acted_in(settings.environment.kind):
        return ActingTrainingTask.of(settings)
    task = TrainingTask.of(settings, sessions=sessions)
    own = getattr(task.env, "training_task", None)
    return task if own is None else own(task)


def trainer_of(
    settings: RunSettings,
    number: int,
    task: TrainingTask | ActingTrainingTask,
    *,
    source: Path | None = None,
) -> LoGoGRPOTrainer:
    """Return the trainer of a stage, with the model that the stage begins from.

    `source` is the folder of another model to begin from.
    """
    init = Path(settings.folder) / "init"
    source = source or (stage_folder(settings, number - 1) / "best" if number else init)
    episodes = task.episodes("train", settings.environment.episodes)
    args = stage_config(settings, settings.stage[number], stage_folder(settings, number))
    model, tokenizer, adapters = load_for_training(source, init, lora=settings.model.lora)
    return trainer_class(args)(
        model,
        args=args,
        episodes=episodes,
        experience=lambda policy: task.experience(args, policy, episodes),
        processing_class=tokenizer,
        adapters=adapters,
    )


def trainer_class(args: LoGoGRPOConfig) -> type[LoGoGRPOTrainer]:
    """Return the trainer that a configuration names.

    Raises `UnknownPlugin` for a path that leads nowhere, and `ConfigError` for a class
    that does not inherit from the default.
    """
    found = load("techniques", args.trainer_class)
    if not isinstance(found, type) or not issubclass(found, LoGoGRPOTrainer):
        raise ConfigError(f"trainer.trainer_class: {args.trainer_class} is no LoGoGRPOTrainer")
    return found


def stage_config(settings: RunSettings, stage: Stage, home: Path) -> LoGoGRPOConfig:
    """Return the trainer's configuration of a stage.

    Raises `ConfigError`.
    """
    values = {
        "seed": settings.seed,
        "max_steps": stage.steps,
        "output_dir": str(home),
        "report_to": ["tensorboard"],
        "logging_steps": 1,
        "save_strategy": "steps",
        "save_total_limit": 2,
        "disable_tqdm": True,
        "bf16": bf16_works(),
        "use_cpu": not torch.cuda.is_available(),
        "dataloader_pin_memory": torch.cuda.is_available(),
        "ddp_timeout": DAY_S,  # the others wait while the main process works
    } | settings.trainer_of(stage)
    report_to = values["report_to"] or ()
    for name in TRACKERS & ({report_to} if isinstance(report_to, str) else set(report_to)):
        if find_spec(name) is None:
            raise ConfigError(
                f'trainer.report_to: {name} is not installed: pip install "memagent[{name}]"'
            )
    return _config_of(values)


def _config_of(values: dict[str, Any]) -> LoGoGRPOConfig:
    """Return the trainer's configuration from plain values.

    Raises `ConfigError` naming a field that does not exist.
    """
    known = [field.name for field in fields(LoGoGRPOConfig) if field.init]
    for name in values:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ConfigError(f"trainer.{name}: there is no such setting{hint}")
    try:
        return LoGoGRPOConfig(**values)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"trainer: {error}") from error


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

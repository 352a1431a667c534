"""Validation: episodes played every few steps, which find the best model of a stage."""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Any

from transformers import PrinterCallback, TrainerCallback

from train.ranks import on_main
from train.report.report import keep_lines, lines_of_file
from train.rollouts.experience import Step
from train.run.plans import Evaluation
from train.run.task import ActingTrainingTask, TrainingTask
from train.run.trainer import LoGoGRPOTrainer
from train.sampling.checkpoints import NOTE, save_adapters
from train.sampling.decisions import save_model
from train.settings.run import Stage

# Logs of every optimizer step: a line of `log.jsonl`, and one that people see.
#
# TRL logs loss, gradient norm, KL, clipping and seconds. `steps.jsonl` is written when
# experience has been gathered and knows nothing of the update that follows; `log.jsonl`
# has the update.


@dataclass(kw_only=True)
class LogFile(TrainerCallback):
    """Appends the trainer's logs to a file; NaN becomes null."""

    path: Path

    def on_log(
        self,
        args: Any,  # noqa: ARG002 - interface
        state: Any,
        control: Any,  # noqa: ARG002 - interface
        logs: Any = None,
        **_: Any,
    ) -> None:
        """Append one line a log."""
        if not state.is_world_process_zero or not logs:
            return
        values = {name: _plain(value) for name, value in logs.items()}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": state.global_step, "logs": values}) + "\n")


@dataclass(kw_only=True)
class StepLines(TrainerCallback):
    """Says how far a stage is, at most every few seconds."""

    say: Callable[[str], None]
    name: str
    steps: int
    every_s: float = 5.0
    _began: float = field(default_factory=perf_counter)
    _first: int = 0
    _said: float = float("-inf")

    def on_train_begin(
        self,
        args: Any,  # noqa: ARG002 - interface
        state: Any,
        control: Any,  # noqa: ARG002 - interface
        **_: Any,
    ) -> None:
        """Start the clock."""
        self._began, self._first = perf_counter(), state.global_step

    def on_log(
        self,
        args: Any,  # noqa: ARG002 - interface
        state: Any,
        control: Any,  # noqa: ARG002 - interface
        logs: Any = None,
        **_: Any,
    ) -> None:
        """Say one line: reward, ops, time left."""
        now = perf_counter()
        if (
            not state.is_world_process_zero
            or not logs
            or "loss" not in logs
            or now - self._said < self.every_s
        ):
            return
        self._said = now
        shown = {
            "rollouts/failed": "failed",
            "failed": "failed",
            "reward/global": "reward",
            "reward/mean": "reward",
            "reward/local": "local",
            "ops/update": "update",
            "ops/delete": "delete",
            "kl": "kl",
        }
        figures = "  ".join(
            f"{name} {logs[key]:.3f}" for key, name in shown.items() if logs.get(key) is not None
        )
        done = max(1, state.global_step - self._first)
        left = (now - self._began) / done * (self.steps - state.global_step)
        at = f"{self.name} step {state.global_step} of {self.steps}"
        self.say(f"{at}: {figures}  ({minutes(left)} left at most)")


def minutes(seconds: float) -> str:
    """Write a time as `1:05` or `2:01:05`."""
    whole = max(0, round(seconds))
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


def versions() -> dict[str, str]:
    """Return the versions of Python, the machine and the libraries of the run."""
    known = {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
    }
    for name in ("memagent", "torch", "transformers", "trl", "peft", "accelerate", "numpy", "vllm"):
        try:
            known[name] = version(name)
        except PackageNotFoundError:
            continue
    return known


def quiet(trainer: Any) -> None:
    """Keep a trainer from printing its logs to standard output, which belongs to results."""
    trainer.remove_callback(PrinterCallback)


def _plain(value: Any) -> Any:
    if isinstance(value, int | float):
        return round(value, 8) if math.isfinite(value) else None
    return str(value)


def hush() -> None:
    """Turn off bars and repeated warnings of the libraries below.

    It is for a process whose output people read.
    """
    import warnings

    import datasets
    from transformers.utils import logging

    logging.disable_progress_bar()
    datasets.disable_progress_bars()
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"(transformers|trl|torch)\b")
    warnings.filterwarnings("ignore", message=".*pin_memory.*")


_SHOWN = ("f1", "facts", "overwritten", "lost", "memory_share", "update", "success", "words")
"""Figures of a line of progress."""


@dataclass(kw_only=True)
class Progress:
    """The state of a stage between validations."""

    best: float = float("-inf")
    """Best measure so far."""
    waited: int = 0
    """Validations since the best."""
    tokens: int = 0
    """Tokens generated."""

    @classmethod
    def restored(cls, folder: Path, step: int | None, *, measure: str) -> Progress:
        """Return the progress after optimizer step `step`; None for the beginning.

        Lines that the stage's files hold of later steps are removed, since these steps
        will happen again.
        """
        records = folder.parent / "validation.jsonl"
        reached = -1 if step is None else step
        keep_lines(folder / "steps.jsonl", lambda line: line["step"] < reached)
        keep_lines(folder / "log.jsonl", lambda line: line["step"] <= reached)
        keep_lines(records, lambda line: line["stage"] != folder.name or line["step"] <= reached)
        steps = lines_of_file(folder / "steps.jsonl")
        progress = cls(
            tokens=sum(int(line["figures"].get("tokens/completion", 0)) for line in steps)
        )
        for line in lines_of_file(records):
            if line["stage"] == folder.name:
                progress.take(line["figures"].get(measure, 0.0))
        return progress

    def take(self, value: float) -> bool:
        """Take in the measure of one validation and tell whether it is the best."""
        best = value > self.best
        self.waited = 0 if best else self.waited + 1
        self.best = max(self.best, value)
        return best


@dataclass(kw_only=True)
class Validation(TrainerCallback):
    """Validates every few steps, keeps the best model, and ends the stage.

    A stage ends by its gate, its patience or its tokens. All processes play a share of
    the episodes and see the same figures, so they all decide alike.
    """

    task: TrainingTask | ActingTrainingTask
    stage: Stage
    folder: Path
    trainer: LoGoGRPOTrainer
    progress: Progress
    say: Callable[[str], None]
    began: float = field(default_factory=perf_counter)
    _counted: Step | None = None
    """The step whose tokens were counted last."""

    def on_train_begin(
        self,
        args: Any,  # noqa: ARG002 - interface
        state: Any,
        control: Any,
        **_: Any,
    ) -> None:
        """Validate the start: it is a candidate for the best."""
        if state.global_step == 0:
            self.validate(state, control)

    def on_step_end(
        self,
        args: Any,  # noqa: ARG002 - interface
        state: Any,
        control: Any,
        **_: Any,
    ) -> None:
        """Validate when it is time; end the stage when its tokens are spent."""
        step = self.trainer.last_step
        if step is not None and step is not self._counted:
            self.progress.tokens += self.trainer.last_tokens
            self._counted = step
        spent = self.stage.tokens is not None and self.progress.tokens >= self.stage.tokens
        if state.global_step % self.task.settings.validation.every == 0 or spent:
            self.validate(state, control)
        if spent:
            control.should_training_stop = True

    def validate(self, state: Any, control: Any) -> None:
        """Play the validation episodes, record them, and keep or end what follows from them."""
        settings = self.task.settings.validation
        self.trainer.policy.sync()
        evaluation = self.task.evaluate(self.trainer.policy, "validation", settings.episodes)
        figures = evaluation.figures
        if self.trainer.accelerator.is_main_process:
            self._record(evaluation, state.global_step)
        if self.progress.take(figures.get(settings.measure, 0.0)):
            on_main(lambda: save_policy(self.trainer, self.folder / "best", figures=figures))
        patience = self.stage.patience
        lost_patience = patience is not None and self.progress.waited >= patience
        if self.stage.gate.passed(figures) or lost_patience:
            control.should_training_stop = True

    def _record(self, evaluation: Evaluation, step: int) -> None:
        """Append the validation to the run's file and say its figures."""
        figures = evaluation.figures
        record = {
            "stage": self.folder.name,
            "step": step,
            "tokens": self.progress.tokens,
            "seconds": perf_counter() - self.began,
            "figures": {name: round(amount, 6) for name, amount in figures.items()},
            "episodes": [dict(episode.figures) for episode in evaluation.episodes],
            "shown": [
                {
                    "episode": episode.episode_id,
                    "memory": episode.memory,
                    "replies": episode.replies,
                }
                for episode in evaluation.episodes[:1]
            ],
        }
        with (self.folder.parent / "validation.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        shown = "  ".join(f"{name} {figures[name]:.3f}" for name in _SHOWN if name in figures)
        self.say(f"{self.folder.name} step {step}: {shown}")


def save_policy(trainer: LoGoGRPOTrainer, folder: Path, *, figures: dict[str, float]) -> None:
    """Save the trainer's model as a folder that `Agent(model="hf:...")` opens."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    note: dict[str, Any] = {
        "figures": figures,
        "step": trainer.state.global_step,
        "max_tokens": trainer.args.max_completion_length,
        "constrained": trainer.args.constrained,
    }
    if hasattr(model, "peft_config"):
        save_adapters(model, folder)
        trainer.policy.tokenizer.save_pretrained(folder)
        note["base"] = model.get_base_model().config.name_or_path
        note["adapters"] = {role.value: name for role, name in trainer.adapters.items()}
        (folder / NOTE).write_text(json.dumps(note, indent=1), encoding="utf-8")
    else:
        save_model(model, trainer.policy.tokenizer, folder, note=note)

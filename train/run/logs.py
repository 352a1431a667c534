"""Logs of every optimizer step: a line of `log.jsonl`, and one that people see.

TRL logs loss, gradient norm, KL, clipping and seconds. `steps.jsonl` is written when
experience has been gathered and knows nothing of the update that follows; `log.jsonl`
has the update.
"""

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
            "failed": "rollouts/failed",
            "reward": "reward/global",
            "local": "reward/local",
            "update": "ops/update",
            "delete": "ops/delete",
            "kl": "kl",
        }
        figures = "  ".join(
            f"{name} {logs[key]:.3f}" for name, key in shown.items() if logs.get(key) is not None
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

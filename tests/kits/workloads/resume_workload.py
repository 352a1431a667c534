"""A short run of the real trainer on the real agent that tells what every step trained
on, and dies where it is told to.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from policy_kit import experience_of, policy_tokenizer
from training_kit import saved_model, settings, trainer_of
from transformers import TrainerCallback

from train.run.plans import credit_plan, rollout_plan
from train.sampling.checkpoints import last_checkpoint

STEPS = 4
KILLED_AT = 2
"""Optimizer steps done when the process dies."""


def train(say: Callable[[str], None], *, folder: str, die: str = "") -> None:
    """Train to the end from the last complete checkpoint, if any, or die at `die`:
    rollout, loss, save or mark.
    """
    home = Path(folder)
    args = settings(
        home,
        max_steps=STEPS,
        save_strategy="steps",
        save_steps=1,
        learning_rate=5e-3,
        beta=0.01,
        local_probability=0.6,
        reruns=2,
        allocation="knapsack",
        anchor_selector="by_variance",
        control="random_reward",  # a model that knows nothing earns nothing that differs
    )
    tokenizer = policy_tokenizer()
    model = saved_model(home / "model", tokenizer)
    trainer = trainer_of(
        model,
        tokenizer,
        args,
        lambda policy: experience_of(policy, plan=rollout_plan(args), credit=credit_plan(args)),
    )
    notes = _Notes(trainer, say, die)
    trainer.add_callback(notes)
    checkpoint = last_checkpoint(home)
    say(f"@from {checkpoint.name if checkpoint else 'the start'}")
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    say("@end")


class _Notes(TrainerCallback):
    """Writes down rows and losses of each step and the weights after it; kills the
    process at one place of step `KILLED_AT`.
    """

    def __init__(self, trainer: Any, say: Callable[[str], None], die: str) -> None:
        self.say, self.die, self.trainer = say, die, trainer
        self.losses: list[str] = []
        self.rows = ""
        self._with_logps, trainer._with_logps = trainer._with_logps, self.noted_rows
        self._training_step, trainer.training_step = trainer.training_step, self.noted_loss
        engine = trainer.policy._engine
        self._serve, engine.serve = engine.serve, self.serve
        self._save, trainer._save_optimizer_and_scheduler = (
            trainer._save_optimizer_and_scheduler,
            self.save,
        )
        self._mark, trainer._save_experience = trainer._save_experience, self.mark

    def killed(self, place: str, *, at: int = KILLED_AT) -> None:
        if self.die == place and self.trainer.state.global_step == at:
            os.kill(os.getpid(), signal.SIGKILL)

    def serve(self, jobs: Any, more: Any) -> None:
        def killed_or_more(ended: Any) -> Any:
            self.killed("rollout")
            return more(ended)

        self._serve(jobs, killed_or_more)

    def noted_rows(self, batch: Any) -> Any:
        parts = (
            batch.prompt_ids,
            batch.completion_ids,
            batch.completion_mask,
            batch.advantages,
            batch.sampled_logps,
        )
        self.rows = _digest(parts)
        self.say(f"@rows {batch.rows} {float(batch.advantages.abs().sum()):.6f}")
        return self._with_logps(batch)

    def noted_loss(self, *values: Any) -> Any:
        loss = self._training_step(*values)
        self.losses.append(float(loss).hex())
        self.killed("loss")
        return loss

    def save(self, *values: Any) -> Any:
        self.killed("save", at=KILLED_AT + 1)
        return self._save(*values)

    def mark(self, folder: Path, states: Any) -> None:
        self.killed("mark", at=KILLED_AT + 1)
        self._mark(folder, states)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        weights = _digest(tuple(one.detach() for one in kwargs["model"].parameters()))
        record = {
            "step": state.global_step,
            "rows": self.rows,
            "losses": self.losses,
            "weights": weights,
        }
        self.say("@step " + json.dumps(record))
        self.losses = []


def _digest(tensors: tuple[torch.Tensor, ...]) -> str:
    whole = hashlib.sha256()
    for one in tensors:
        whole.update(one.contiguous().numpy().tobytes())
    return whole.hexdigest()

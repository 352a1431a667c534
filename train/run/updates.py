"""Updates: the objectives of a run in TRL's loss, and around its optimizer steps."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from transformers import TrainerCallback

from train.credit.objectives import LossView, Objectives, Update


class AdmittedUpdates(TrainerCallback):
    """Drops an optimizer step that an objective refused, by taking the gradients away.

    Neither weights nor the optimizer's state change then, by a bit.
    """

    def __init__(self, objectives: Objectives) -> None:
        self.objectives = objectives
        self.admitted = True

    def look(self, update: Update) -> dict[str, float]:
        """Ask the objectives about an update and return their figures.

        Call it after the last backward pass of the update and before gradients are cut.
        """
        self.admitted = self.objectives.admits(update)
        return self.objectives.figures()

    def on_pre_optimizer_step(
        self,
        args: Any,  # noqa: ARG002 - interface
        state: Any,  # noqa: ARG002 - interface
        control: Any,  # noqa: ARG002 - interface
        **kwargs: Any,
    ) -> None:
        """Remove the gradients of a refused update, after backward and before the optimizer."""
        if not self.admitted:
            kwargs["model"].zero_grad(set_to_none=True)


class LossReader:
    """Catches what TRL's loss reads of the rows, and shows it to the objectives.

    TRL reads log-probabilities and entropies first and then takes advantages from its
    inputs and bounds from the trainer, so both can still change in between.
    """

    def __init__(self, objectives: Objectives, *, temperature: float, by_row: bool) -> None:
        """Read for the objectives; `by_row` tells whether the loss has one ratio a row."""
        self.objectives = objectives
        self._temperature = temperature
        self._by_row = by_row
        self._inputs: dict[str, Any] | None = None
        self._logits: Callable[[int], torch.Tensor] | None = None
        self.view: LossView | None = None
        """The rows of the loss that was computed last."""

    @contextmanager
    def loss_of(self, inputs: dict[str, Any]) -> Generator[None]:
        """Show the objectives the rows that are read inside; `inputs` are the loss's own."""
        self._inputs, self.view = inputs, None
        try:
            yield
        finally:
            self._inputs = self._logits = None

    @contextmanager
    def logits_of(self, model: Any) -> Generator[None]:
        """Keep the logits that the model computes inside, if an objective needs them."""
        if not self.objectives.needs_logits:
            yield
            return

        causal = model.get_base_model() if hasattr(model, "peft_config") else model
        head = causal.get_output_embeddings()

        def keep(_module: Any, _inputs: Any, output: Any) -> None:
            # TRL projects in tiles and gives no logits away: one position more than tokens.
            self._logits = lambda tokens: head(output.last_hidden_state[:, :-1][:, -tokens:])

        handle = causal.base_model.register_forward_hook(keep)
        try:
            yield
        finally:
            handle.remove()

    def read(self, logps: torch.Tensor, entropies: torch.Tensor) -> dict[str, Any]:
        """Take in what was read, weigh the advantages, and return settings of the loss.

        They replace the trainer's attributes of their names. Where tokens of a row differ
        in advantage and the ratio is one a row, it becomes GSPO's token form (arXiv
        2507.18071): the row's ratio without gradient times exp(logp - logp without
        gradient). Its value is the row's ratio, and each token has its own gradient;
        with one ratio for all only the mean advantage of a row would act. Outside of
        `loss_of` nothing happens and {} is returned.
        """
        if self._inputs is None:
            return {}
        self.view = self.view_of(dict(self._inputs), logps, entropies)
        advantages = self.objectives.changed_advantages(self.view)
        if advantages is not None:
            self._inputs["advantages"] = advantages
        bounds = self.objectives.bounds(self.view)
        changed: dict[str, Any] = (
            {} if bounds is None else {"epsilon_low": bounds[0], "epsilon_high": bounds[1]}
        )
        if self._by_row and self._inputs["advantages"].dim() == 2:
            mask, own = self.view.mask, logps.detach()
            moved = ((own - self.view.old_logps) * mask).sum(1, keepdim=True)
            moved = moved / mask.sum(1, keepdim=True).clamp(min=1)
            self._inputs["old_per_token_logps"] = own - moved
            changed["importance_sampling_level"] = "token"
        return changed

    def view_of(
        self, inputs: Mapping[str, Any], logps: torch.Tensor, entropies: torch.Tensor
    ) -> LossView:
        """Return rows as the objectives see them."""
        logits = self._logits and self._logits(logps.shape[1]) / self._temperature
        mask = inputs["completion_mask"]
        return LossView(logps=logps, entropies=entropies, mask=mask, inputs=inputs, logits=logits)

"""Objectives: what techniques add to the loss, or change in it.

The trainer shows each objective the rows of a pass when they have been read and before
the loss is made of them. An objective may weigh the advantages by token, set the bounds
of the clip, add terms, and refuse an update.

One surprise: a slice of rows is read in micro-batches, so whatever depends on all rows
of a slice (a quantile, a share) belongs into `prepare`, which sees the whole slice; then
the size of the micro-batches changes nothing.

Shapes: B rows, C completion, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from train.credit.groups import CreditGroup, Stateful, Stateless

if TYPE_CHECKING:
    import torch

MARK = "mark/"
"""Prefix of the loss inputs that hold an objective's marks."""


@dataclass(frozen=True, kw_only=True)
class LossView:
    """Rows as they stand before the loss is made of them."""

    logps: torch.Tensor
    """(B, C) log-probabilities of the policy, with a gradient in `weights` and `terms`."""
    entropies: torch.Tensor
    """(B, C)"""
    mask: torch.Tensor
    """(B, C) 1 for tokens of the completion"""
    inputs: Mapping[str, Any]
    """All inputs of the loss: prompt_ids, completion_ids, old_per_token_logps ..."""
    logits: torch.Tensor | None = None
    """(B, C, V) at the sampling temperature, for objectives that need them."""

    @property
    def advantages(self) -> torch.Tensor:
        """(B, C) or (B, 1), scaled for padding."""
        advantages = self.inputs["advantages"]
        return advantages if advantages.dim() == 2 else advantages.unsqueeze(1)

    @property
    def old_logps(self) -> torch.Tensor:
        """(B, C) log-probabilities from before the update."""
        old = self.inputs.get("old_per_token_logps")
        return self.logps.detach() if old is None else old

    def marks(self, name: str) -> torch.Tensor:
        """Return (B,) the scale for padding of rows that the objective marked, else 0."""
        return self.inputs[MARK + name]


@dataclass(frozen=True, kw_only=True)
class Update:
    """An optimizer step that is about to be made, its gradients averaged and not yet cut."""

    model: Any
    first_use: bool
    """Whether it is in the first pass over its batch."""


class Objective(Stateless):
    """Changes nothing; the base of objectives that change one thing."""

    looks_ahead = False
    """Whether `prepare` wants to see each slice; costs a forward pass without gradients."""
    needs_logits = False
    """Whether views hold logits; costs their memory."""

    def bind(self, tokenizer: Any, /) -> None:
        """Get to know the tokenizer, once before training."""

    def marks(self, groups: Sequence[CreditGroup], seed: str, /) -> Collection[str]:
        """Return the responses to mark; they become rows even without advantage."""
        del groups, seed
        return ()

    def prepare(self, view: LossView, /) -> None:
        """Look at a whole slice before its loss."""

    def weights(self, view: LossView, /) -> torch.Tensor | None:
        """Return (B, C) factors of the advantages; None for 1."""
        del view

    def bounds(self, view: LossView, /) -> tuple[float, float] | None:
        """Return the clip of the ratio, as distances below and above 1; None for the usual."""
        del view

    def terms(self, view: LossView, /) -> Mapping[str, torch.Tensor]:
        """Return terms of the loss by the name of their figure, each a mean over all B rows."""
        del view
        return {}

    def admits(self, update: Update, /) -> bool:
        """Tell whether the update is made; it is asked once for each, on every process."""
        del update
        return True

    def figures(self) -> Mapping[str, float]:
        """Return figures for the log of an update."""
        return {}


@dataclass(kw_only=True)
class Objectives:
    """The objectives of a run, by name, as the trainer meets them."""

    parts: Mapping[str, Objective] = field(default_factory=dict[str, Objective])

    def __bool__(self) -> bool:
        """Tell whether there are any."""
        return bool(self.parts)

    @property
    def looks_ahead(self) -> bool:
        """Whether any wants to see slices."""
        return any(part.looks_ahead for part in self.parts.values())

    @property
    def needs_logits(self) -> bool:
        """Whether any needs logits."""
        return any(part.needs_logits for part in self.parts.values())

    def bind(self, tokenizer: Any) -> None:
        """Show each the tokenizer."""
        for part in self.parts.values():
            part.bind(tokenizer)

    def prepare(self, view: LossView) -> None:
        """Show a slice to those that want to see it."""
        for part in self.parts.values():
            if part.looks_ahead:
                part.prepare(view)

    def changed_advantages(self, view: LossView) -> torch.Tensor | None:
        """Return the advantages (B, C) times all weights; None when nobody weighs."""
        weights = [each for part in self.parts.values() if (each := part.weights(view)) is not None]
        if not weights:
            return None
        advantages = view.advantages
        for each in weights:
            advantages = advantages * each
        return advantages

    def bounds(self, view: LossView) -> tuple[float, float] | None:
        """Return the bounds of the last objective that sets some."""
        every = [each for part in self.parts.values() if (each := part.bounds(view)) is not None]
        return every[-1] if every else None

    def terms(self, view: LossView) -> dict[str, torch.Tensor]:
        """Return all terms by name."""
        return {
            name: term for part in self.parts.values() for name, term in part.terms(view).items()
        }

    def admits(self, update: Update) -> bool:
        """Tell whether all admit the update; each is asked."""
        verdicts = [part.admits(update) for part in self.parts.values()]
        return all(verdicts)

    def figures(self) -> dict[str, float]:
        """Return the figures of all."""
        return {
            name: value for part in self.parts.values() for name, value in part.figures().items()
        }

    def stateful(self) -> dict[str, Stateful]:
        """Return the objectives as parts of a checkpoint."""
        return {f"objective/{name}": part for name, part in self.parts.items()}


def marked(
    objectives: Mapping[str, Objective], groups: Sequence[CreditGroup], seed: str
) -> dict[str, frozenset[str]]:
    """Return the responses that each objective marks, by its name; without empty ones."""
    every = {
        name: frozenset(objective.marks(groups, f"{seed}/{name}"))
        for name, objective in objectives.items()
    }
    return {name: responses for name, responses in every.items() if responses}

"""Log-probabilities of rows before an update: of the policy, and of the reference.

Each row is read by the adapter that spoke it, in micro-batches, without gradients.

Shapes: B rows, C completion.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from train.credit.micro_batches import MicroBatch, logps_of
from train.sampling.generation import kept_adapter


@dataclass(frozen=True, kw_only=True)
class RowReader:
    """Reads rows with a model and its adapters."""

    read: Callable[..., Any]
    """TRL's `(model, ids, mask, keep) -> (log-probabilities, ...)`."""
    model: Any
    """The model that is trained, without the wrappers of several processes."""
    start: Any
    """The model of the reference; None where it is the trained one without adapters."""
    adapters: Sequence[str]
    tokens: int
    """Most tokens of a micro-batch."""

    def policy(self, rows: Mapping[str, Any]) -> torch.Tensor:
        """Return (B, C) log-probabilities of the policy as it is now."""

        def read(part: MicroBatch) -> torch.Tensor:
            if len(self.adapters) > 1:
                self.model.set_adapter(self.adapters[part.adapter])
            return self._logps(self.model, part)

        with self.adapter_kept():
            return logps_of(rows, read, tokens=self.tokens)

    def with_entropies(self, rows: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (B, C) log-probabilities and entropies of the policy as it is now."""
        entropies = torch.zeros(rows["completion_ids"].shape, device=rows["completion_ids"].device)

        def read(part: MicroBatch) -> torch.Tensor:
            if len(self.adapters) > 1:
                self.model.set_adapter(self.adapters[part.adapter])
            logps, values = self._read(self.model, part, compute_entropy=True)[:2]
            entropies[part.rows, : values.shape[1]] = values.to(entropies.dtype)
            return logps

        with self.adapter_kept():
            return logps_of(rows, read, tokens=self.tokens), entropies

    def reference(self, rows: Mapping[str, Any]) -> torch.Tensor:
        """Return (B, C) log-probabilities of the model that training began with."""
        model = self.start or self.model
        with nullcontext() if self.start is not None else self.model.disable_adapter():
            return logps_of(rows, lambda part: self._logps(model, part), tokens=self.tokens)

    def adapter_kept(self) -> AbstractContextManager[Any]:
        """Return a context after which the active adapter is what it was."""
        return kept_adapter(self.model) if len(self.adapters) > 1 else nullcontext()

    def _logps(self, model: Any, part: MicroBatch) -> torch.Tensor:
        return self._read(model, part)[0]

    def _read(self, model: Any, part: MicroBatch, **options: Any) -> Any:
        inputs = part.inputs
        ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
        mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
        return self.read(model, ids, mask, inputs["completion_ids"].size(1), **options)

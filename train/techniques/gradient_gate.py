"""Harmful reuse of a batch is refused (DGG).

A batch used again is not applied when its gradient at the output layer is far beyond
the usual. After the backward passes of an optimizer step the norm of the lm_head's
gradient is read. On a first use it is noted; on a reuse it must stay under

    median + k * MAD        of the first-use norms

(our bound; MAD is the median absolute deviation) or the step is dropped: gradients are
removed before the optimizer looks at them, so neither weights nor optimizer state
change by a bit, and the batch is not used any more. Until `LEAST` first uses are known
nothing is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from transformers import TrainerCallback

from memagent.core.errors import ConfigError

LEAST: Final = 4
"""First uses that must be known."""
KEPT: Final = 100
"""First uses that are remembered."""


@dataclass(kw_only=True)
class GradientGate:
    """The usual gradient norms, and whether the present batch was refused."""

    k: float
    usual: deque[float] = field(default_factory=lambda: deque[float](maxlen=KEPT))
    closed: bool = False
    """Whether the present batch is not used any more."""
    refused: int = 0
    """Steps dropped so far."""

    def bound(self) -> float:
        """Return the largest norm let through; infinity while too few norms are known."""
        if len(self.usual) < LEAST:
            return float("inf")
        middle = median(self.usual)
        return middle + self.k * median(abs(norm - middle) for norm in self.usual)

    def passes(self, norm: float, *, first_use: bool) -> bool:
        """Take in the gradient norm of a step and tell whether the step is applied."""
        if first_use:
            self.closed = False
            self.usual.append(norm)
            return True
        self.closed = self.closed or not norm <= self.bound()
        self.refused += self.closed
        return not self.closed

    def state(self) -> dict[str, Any]:
        """Return the gate as plain values."""
        return {"usual": list(self.usual), "closed": self.closed, "refused": self.refused}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over the values that `state` gave."""
        self.usual = deque(state["usual"], maxlen=KEPT)
        self.closed, self.refused = bool(state["closed"]), int(state["refused"])


class GateCallback(TrainerCallback):
    """Drops the optimizer step by taking the gradients away."""

    def __init__(self, gate: GradientGate) -> None:
        self.gate = gate
        self.norm = 0.0
        """Norm of the output layer's gradient in this optimizer step, before clipping."""
        self.first_use = True
        """Whether this optimizer step is in the first pass over its batch."""

    def look(self, model: Any, *, first_use: bool) -> None:
        """Read the gradients after the last backward pass of an optimizer step.

        Raises `ConfigError` when the output layer is not trained in this process.
        """
        self.norm, self.first_use = output_norm(model), first_use

    def on_pre_optimizer_step(
        self,
        args: Any,  # noqa: ARG002 - interface
        state: Any,  # noqa: ARG002 - interface
        control: Any,  # noqa: ARG002 - interface
        **kwargs: Any,
    ) -> None:
        """Remove the gradients of a refused step, after backward and before the optimizer."""
        if not self.gate.passes(self.norm, first_use=self.first_use):
            kwargs["model"].zero_grad(set_to_none=True)


def output_norm(model: Any) -> float:
    """Return the norm of the gradient of the model's output layer.

    Raises `ConfigError` when that layer is not trained in this process.
    """
    layer = model.get_output_embeddings()
    parameters: Sequence[Any] = (
        [parameter for parameter in layer.parameters() if parameter.grad is not None]
        if layer is not None
        else []
    )
    if not parameters:
        raise ConfigError(
            "gradient_gate reads the gradient of the lm_head, and this model's is not trained here"
        )
    return float(sum(float(each.grad.float().pow(2).sum()) for each in parameters) ** 0.5)

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
from statistics import median
from typing import Any, Final

from memagent.core.errors import ConfigError
from train.credit.objectives import Objective, Update

LEAST: Final = 4
"""First uses that must be known."""
KEPT: Final = 100
"""First uses that are remembered."""


class GradientGate(Objective):
    """Refuses to reuse a batch beyond `k` MADs of the usual gradients."""

    def __init__(self, *, k: float = 3.0) -> None:
        if not k > 0:
            raise ConfigError(f"gradient_gate: k is above 0, not {k}")
        self.k = k
        self.usual: deque[float] = deque(maxlen=KEPT)
        """The usual gradient norms."""
        self.closed = False
        """Whether the present batch is not used any more."""
        self.refused = 0
        """Steps dropped so far."""
        self.norm = 0.0
        """Norm of the output layer's gradient in this optimizer step, before clipping."""

    def check(self, args: Any, /) -> None:
        """Raise `ConfigError` unless batches are reused, in whole optimizer steps."""
        whole = args.micro_batches % args.gradient_accumulation_steps == 0
        if args.num_iterations < 2 or not whole:
            raise ConfigError(
                "gradient_gate must be off, or num_iterations above 1 and "
                "gradient_accumulation_steps a divisor of steps_per_generation"
            )

    def admits(self, update: Update, /) -> bool:
        """Tell whether the update's gradient is usual.

        Raises `ConfigError` when the output layer is not trained in this process.
        """
        self.norm = output_norm(update.model)
        return self.passes(self.norm, first_use=update.first_use)

    def figures(self) -> Mapping[str, float]:
        """Return the norm and the number of refused steps."""
        return {"gate/norm": self.norm, "gate/refused": float(self.refused)}

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

    def state(self) -> Mapping[str, Any]:
        """Return the gate as plain values."""
        return {"usual": list(self.usual), "closed": self.closed, "refused": self.refused}

    def load(self, state: Any, /) -> None:
        """Take over the values that `state` gave."""
        self.usual = deque(state["usual"], maxlen=KEPT)
        self.closed, self.refused = bool(state["closed"]), int(state["refused"])


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

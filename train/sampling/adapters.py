"""Rows read by the LoRA adapter that spoke them.

Each adapter makes one forward pass over its rows; the results are put together again.

PEFT can mix adapters in a batch for inference only, and its `set_adapter` freezes the
others; training needs both adapters trainable in one step, so rows are split, and the
trainable parameters are restored after each switch.

Shapes: B rows, C completion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from train.sampling.generation import using_adapter


def reading(
    model: Any,
    names: Sequence[str],
    adapters: torch.Tensor,
    read: Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]],
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """Return the results of `read(rows)` for all adapters, in the order of all rows.

    They are log-probabilities (B, C), entropies (B, C) or None, and the auxiliary loss
    or None (the mean of the parts).
    """
    order: list[torch.Tensor] = []
    logps: list[torch.Tensor] = []
    entropies: list[torch.Tensor] = []
    auxiliary: list[torch.Tensor] = []
    for place, name in enumerate(names):
        rows = (adapters == place).nonzero().squeeze(1)
        if not len(rows):
            continue
        with using_adapter(model, name):
            logp, entropy, aux = read(rows)
        order.append(rows)
        logps.append(logp)
        if entropy is not None:
            entropies.append(entropy)
        if aux is not None:
            auxiliary.append(aux)
    back = torch.cat(order).argsort()
    return (
        torch.cat(logps)[back],
        torch.cat(entropies)[back] if entropies else None,
        torch.stack(auxiliary).mean() if auxiliary else None,
    )

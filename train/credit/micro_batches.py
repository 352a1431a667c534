"""Micro-batches: the rows of a slice, cut by a budget of tokens.

TRL hands the trainer slices of a generation batch with a fixed number of slices, so a
slice has as many rows as the conversations are long. One forward pass over a slice
would need memory in proportion. Here a slice is cut again: rows of one adapter, sorted
by length, as many as fit the budget when they are padded to the longest of them. A
micro-batch is trimmed to its own longest prompt and reply.

The cut changes nothing in the loss: each micro-batch counts by its share of the slice's
rows. Padding rows are left out, since they have no gradient.

Shapes: B rows, P prompt (left-padded), C completion (right-padded).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Any

import torch

_PROMPTS = frozenset({"prompt_ids", "prompt_mask"})
_COMPLETIONS = frozenset(
    {
        "completion_ids",
        "completion_mask",
        "old_per_token_logps",
        "ref_per_token_logps",
        "sampled_logps",
        "importance_sampling_ratio",
        "advantages",
    }
)
_OVER_TOKENS = frozenset({"kl", "entropy"})
"""Figures that TRL means over tokens."""


@dataclass(frozen=True, kw_only=True)
class MicroBatch:
    """Rows of one forward and backward pass."""

    inputs: dict[str, Any]
    """The slice's tensors, for these rows only and trimmed."""
    rows: torch.Tensor
    """(b,) places of the rows in the slice, shortest first."""
    adapter: int
    """Place of the adapter that spoke all of them."""
    row_share: float
    """Share of the slice's rows, padding rows counted."""
    token_share: float
    """Share of the slice's completion tokens."""


def micro_batches(inputs: Mapping[str, Any], *, tokens: int) -> list[MicroBatch]:
    """Cut a slice into micro-batches of at most `tokens` padded tokens each.

    A row longer than `tokens` is alone in its micro-batch. The order depends on lengths
    and places alone. Return [] for a slice of padding rows.
    """
    counted = inputs["completion_mask"].sum(1).tolist()
    lengths = [
        prompt + completion
        for prompt, completion in zip(inputs["prompt_mask"].sum(1).tolist(), counted, strict=True)
    ]
    adapters = inputs["adapters"].tolist() if "adapters" in inputs else [0] * len(counted)
    order = sorted(
        (place for place, count in enumerate(counted) if count),
        key=lambda place: (adapters[place], lengths[place], place),
    )
    prompts = inputs["prompt_mask"].sum(1).tolist()
    total = max(1, sum(counted))
    parts: list[MicroBatch] = []
    for places in _packed(order, prompts, counted, adapters, tokens=tokens):
        rows = torch.tensor(places, device=inputs["prompt_ids"].device)
        parts.append(
            MicroBatch(
                inputs=selected(inputs, rows),
                rows=rows,
                adapter=int(adapters[places[0]]),
                row_share=len(places) / len(counted),
                token_share=sum(counted[place] for place in places) / total,
            )
        )
    return parts


def selected(inputs: Mapping[str, Any], rows: torch.Tensor) -> dict[str, Any]:
    """Return the tensors of these rows, trimmed to their longest prompt and reply.

    At least one column of each remains. Scalars are passed on.
    """
    prompt = max(1, int(inputs["prompt_mask"][rows].sum(1).max()))
    completion = max(1, int(inputs["completion_mask"][rows].sum(1).max()))

    def part(name: str, values: Any) -> Any:
        if not isinstance(values, torch.Tensor) or not values.ndim:
            return values
        if name in _PROMPTS:
            return values[rows, values.shape[1] - prompt :]
        if name in _COMPLETIONS and values.ndim > 1 and values.shape[1] > 1:
            return values[rows, :completion]
        return values[rows]

    return {name: part(name, values) for name, values in inputs.items()}


def logps_of(
    inputs: Mapping[str, Any], read: Callable[[MicroBatch], torch.Tensor], *, tokens: int
) -> torch.Tensor:
    """Return (B, C) log-probabilities that `read` gives by micro-batch; 0 for padding rows."""
    logps = torch.zeros(inputs["completion_ids"].shape, device=inputs["completion_ids"].device)
    for part in micro_batches(inputs, tokens=tokens):
        values = read(part)
        logps[part.rows, : values.shape[1]] = values.to(logps.dtype)
    return logps


@dataclass(frozen=True, kw_only=True)
class PartFigures:
    """The figures of one micro-batch, as TRL noted them."""

    row_share: float
    token_share: float
    values: Mapping[str, Sequence[float]]


def loss_of_slice(
    parts: Sequence[MicroBatch],
    loss_of: Callable[[MicroBatch], tuple[torch.Tensor, Mapping[str, Sequence[float]]]],
    *,
    backward: Callable[[torch.Tensor], Any],
    device: torch.device,
) -> tuple[torch.Tensor, list[PartFigures]]:
    """Return the loss of a slice after `backward` of all micro-batches but the last.

    The value is that of the whole slice; its gradient is that of the last micro-batch,
    which the caller still has to compute. Without any it is a zero that has none.
    """
    last = torch.zeros((), device=device, requires_grad=True)
    total = torch.zeros((), device=device)
    figures: list[PartFigures] = []
    for part in parts:
        if figures:
            backward(last)
        last, values = loss_of(part)
        total += last.detach()
        figures.append(
            PartFigures(row_share=part.row_share, token_share=part.token_share, values=values)
        )
    return last + (total - last.detach()), figures


def merged(figures: Sequence[PartFigures]) -> dict[str, float]:
    """Return the figures of a slice from those of its micro-batches.

    Names that end in `_min` or `_max` keep the least or the largest value. The others are
    means, over tokens or over rows. Values that are NaN do not count.
    """
    seen: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for part in figures:
        for name, listed in part.values.items():
            weight = part.token_share if name in _OVER_TOKENS else part.row_share
            seen[name] += [(weight, value) for value in listed if not isnan(value)]
    return {name: _merge(name, pairs) for name, pairs in seen.items() if pairs}


def _merge(name: str, pairs: Sequence[tuple[float, float]]) -> float:
    values = [value for _, value in pairs]
    if name.endswith(("_min", "_max")):
        return min(values) if name.endswith("_min") else max(values)
    return sum(weight * value for weight, value in pairs) / sum(weight for weight, _ in pairs)


def _packed(
    order: Sequence[int],
    prompts: Sequence[int],
    completions: Sequence[int],
    adapters: Sequence[int],
    *,
    tokens: int,
) -> Iterator[list[int]]:
    """Yield places in runs of one adapter whose padded size is within the tokens."""
    run: list[int] = []
    prompt = completion = 0
    for place in order:
        wider = max(prompt, prompts[place]) + max(completion, completions[place])
        if run and (adapters[place] != adapters[run[0]] or wider * (len(run) + 1) > tokens):
            yield run
            run, prompt, completion = [], 0, 0
        run.append(place)
        prompt, completion = max(prompt, prompts[place]), max(completion, completions[place])
    if run:
        yield run

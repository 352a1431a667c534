"""Rows: token traces and advantages as the padded tensors that a loss takes.

One model response is one row.

Two accounts are kept exact. *Padding rows*: TRL drops what does not divide by its
micro-batches, so rows are filled up with ones that have a single attended prompt token,
no completion and no advantage, and the real advantages are multiplied by rows_padded /
rows_real: the mean over all rows is then the mean over the real ones, for any number of
micro-batches and for ranks of unequal numbers of rows. *Left-out rows*: a row whose
advantage is zero has no gradient; with `skip_zero` it is not built, but still counts
in the mean.

The surprise: a KL or entropy term sees padding rows as zeros, so it is weaker by
rows_real / rows_padded, and left-out rows not at all.

Shapes: B rows, P prompt (left-padded), C completion (right-padded).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isnan
from typing import Any

import torch

from memagent.core.exchange import TokenTrace
from train.errors import TrainFault


@dataclass(frozen=True, kw_only=True)
class Row:
    """One response to learn from."""

    trace: TokenTrace
    advantage: float
    adapter: int = 0
    """Place in the trainer's list of the adapter that spoke; 0 when there is one or none."""
    marks: frozenset[str] = frozenset()
    """Names of the objectives that marked it."""
    offsets: tuple[float, ...] = ()
    """What each token's advantage has beyond the row's; () when they are alike."""
    replayed: bool = False
    """Whether an earlier policy said it; then its old log-probabilities are the sampler's."""


@dataclass(frozen=True, kw_only=True)
class RowBatch:
    """Rows as tensors on the CPU."""

    prompt_ids: torch.Tensor
    """(B, P) int64"""
    prompt_mask: torch.Tensor
    """(B, P) int64"""
    completion_ids: torch.Tensor
    """(B, C) int64"""
    completion_mask: torch.Tensor
    """(B, C) int64"""
    advantages: torch.Tensor
    """(B,) float32, scaled for padding; (B, C) when tokens of a row differ"""
    sampled_logps: torch.Tensor
    """(B, C) float32, the sampler's own; 0 where masked"""
    adapters: torch.Tensor
    """(B,) int64"""
    marks: Mapping[str, torch.Tensor]
    """(B,) float32 by the name of an objective: for rows it marked the scale for padding,
    else 0
    """
    replayed: torch.Tensor
    """(B,) bool"""
    rows: int
    """Real rows built."""
    counted: int
    """Real rows that the mean is over, including those left out."""
    tokens: int
    """Completion tokens of the rows built."""


@dataclass(frozen=True, kw_only=True)
class RowNotes:
    """Notes of a step on some of its responses, besides their advantages."""

    marks: Mapping[str, Collection[str]] = field(default_factory=dict[str, Collection[str]])
    """Responses that an objective marked, by its name."""
    offsets: Mapping[str, tuple[float, ...]] = field(default_factory=dict[str, tuple[float, ...]])
    """What each token's advantage has beyond its response's."""
    replayed: Collection[str] = ()
    """Responses of earlier policies."""


def rows_of(
    traces: Mapping[str, TokenTrace],
    advantages: Mapping[str, float],
    *,
    adapters: Mapping[str, int] | None = None,
    notes: RowNotes | None = None,
    skip_zero: bool = False,
) -> list[Row]:
    """Return the rows of the responses that have an advantage, in that order.

    `skip_zero` leaves out rows whose advantage is zero, unless an objective marked them.
    Raises `TrainFault` for a response without a usable trace.
    """
    notes = notes or RowNotes()
    rows: list[Row] = []
    for response_id, advantage in advantages.items():
        trace = traces.get(response_id)
        if trace is None:
            raise TrainFault(
                f"response {response_id!r} has an advantage but no token trace; "
                "was it said by the policy?"
            )
        if (
            len(trace.completion_ids) != len(trace.logprobs)
            or not trace.completion_ids
            or not trace.prompt_ids
        ):
            raise TrainFault(
                f"the trace of response {response_id!r} has {len(trace.prompt_ids)} prompt ids, "
                f"{len(trace.completion_ids)} completion ids and {len(trace.logprobs)} "
                "log-probabilities"
            )
        marks = frozenset(name for name, ids in notes.marks.items() if response_id in ids)
        offsets = notes.offsets.get(response_id, ())
        if advantage or marks or any(offsets) or not skip_zero:
            rows.append(
                Row(
                    trace=trace,
                    advantage=advantage,
                    adapter=(adapters or {}).get(response_id, 0),
                    marks=marks,
                    offsets=offsets,
                    replayed=response_id in notes.replayed,
                )
            )
    return rows


def padded_count(rows: int, *, multiple: int) -> int:
    """Return the least multiple of `multiple` that holds the rows.

    It is one `multiple` even for no rows, since every rank must take part.
    """
    return max(1, -(-rows // multiple)) * multiple


def build_rows(
    rows: list[Row],
    *,
    size: int,
    pad_id: int,
    counted: int | None = None,
    share: float | None = None,
) -> RowBatch:
    """Build tensors of `size` rows, the real ones first.

    `counted` is the number of rows that the mean is over on this rank (default: those
    given). `share` replaces size / counted, for ranks that have unequal numbers: pass
    size * ranks / (rows counted on all ranks). Raises `TrainFault` when there are more
    rows than `size`.
    """
    if len(rows) > size:
        raise TrainFault(f"{len(rows)} rows do not fit a batch of {size}")
    counted = len(rows) if counted is None else counted
    scale = share if share is not None else size / max(counted, 1)
    longest_prompt = max((len(row.trace.prompt_ids) for row in rows), default=1)
    longest = max((len(row.trace.completion_ids) for row in rows), default=1)
    prompt_ids = torch.full((size, longest_prompt), pad_id, dtype=torch.long)
    prompt_mask = torch.zeros((size, longest_prompt), dtype=torch.long)
    prompt_mask[len(rows) :, -1] = 1
    completion_ids = torch.full((size, longest), pad_id, dtype=torch.long)
    completion_mask = torch.zeros((size, longest), dtype=torch.long)
    sampled_logps = torch.zeros((size, longest))
    advantages = torch.zeros(size)
    adapters = torch.zeros(size, dtype=torch.long)
    names = sorted({name for row in rows for name in row.marks})
    marks = {name: torch.zeros(size) for name in names}
    if any(row.offsets for row in rows):
        advantages = torch.zeros((size, longest))
    for place, row in enumerate(rows):
        prompt, completion = row.trace.prompt_ids, row.trace.completion_ids
        prompt_ids[place, longest_prompt - len(prompt) :] = torch.tensor(prompt)
        prompt_mask[place, longest_prompt - len(prompt) :] = 1
        completion_ids[place, : len(completion)] = torch.tensor(completion)
        completion_mask[place, : len(completion)] = 1
        sampled_logps[place, : len(completion)] = torch.tensor(row.trace.logprobs)
        advantages[place] = row.advantage * scale
        if row.offsets:
            advantages[place, : len(completion)] += torch.tensor(row.offsets) * scale
        adapters[place] = row.adapter
        for name in row.marks:
            marks[name][place] = scale
    return RowBatch(
        prompt_ids=prompt_ids,
        prompt_mask=prompt_mask,
        completion_ids=completion_ids,
        completion_mask=completion_mask,
        advantages=advantages,
        sampled_logps=sampled_logps,
        adapters=adapters,
        marks=marks,
        replayed=torch.tensor([row.replayed for row in rows] + [False] * (size - len(rows))),
        rows=len(rows),
        counted=counted,
        tokens=sum(len(row.trace.completion_ids) for row in rows),
    )


# Micro-batches: the rows of a slice, cut by a budget of tokens.
#
# TRL hands the trainer slices of a generation batch with a fixed number of slices, so a
# slice has as many rows as the conversations are long. One forward pass over a slice
# would need memory in proportion. Here a slice is cut again: rows of one adapter, sorted
# by length, as many as fit the budget when they are padded to the longest of them. A
# micro-batch is trimmed to its own longest prompt and reply.
#
# The cut changes nothing in the loss: each micro-batch counts by its share of the slice's
# rows. Padding rows are left out, since they have no gradient.
#
# Shapes: B rows, P prompt (left-padded), C completion (right-padded).

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

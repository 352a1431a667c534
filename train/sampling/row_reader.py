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

from memagent.core.errors import ConfigError
from memagent.core.exchange import Role, TokenTrace
from train.credit.rows import MicroBatch, Row, RowBatch, build_rows, logps_of
from train.sampling.generation import kept_adapter

# The sampler against the trainer: how far apart they are, and the weight that corrects it.
#
# vLLM rounds otherwise than the trainer, and a grammar leaves tokens out, so what was
# sampled is not what the trainer believes it drew. Weighing by the ratio of both
# probabilities makes the gradient that of the trainer's own distribution, as far as the
# sampler can say it. The ratio is bounded as in TRL's `vllm_importance_sampling_mode`.
#
# Shapes: B rows, C completion.

MODES = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
Bounds = tuple[float | None, float | None]


def sampler_mismatch(
    trained: torch.Tensor, sampled: torch.Tensor, mask: torch.Tensor, *, mode: str, bounds: Bounds
) -> tuple[torch.Tensor, dict[str, float]]:
    """Return the bounded ratio pi(trainer) / pi(sampler) and the figures for the log.

    Log-probabilities and mask are (B, C). The ratio is (B, C) by token, (B, 1) by
    sequence; a mode with `mask` makes it 0 outside the bounds. Raises `ConfigError` for
    an unknown mode.
    """
    if mode not in MODES:
        raise ConfigError(f"vllm_importance_sampling_mode is one of {', '.join(MODES)}: {mode!r}")
    difference = torch.nan_to_num((trained - sampled) * mask, nan=0.0)
    by_sequence = mode.startswith("sequence")
    whole = difference.sum(-1, keepdim=True) if by_sequence else difference
    ratio = whole.exp()
    low, high = bounds
    if mode.endswith("truncate"):
        if low is not None or high is not None:
            ratio = ratio.clamp(min=low, max=high)
    else:
        outside = torch.zeros_like(ratio, dtype=torch.bool)
        if low is not None:
            outside |= ratio < low
        if high is not None:
            outside |= ratio > high
        ratio = ratio.masked_fill(outside, 0.0)
    tokens = difference[mask.bool()].abs()
    counted = ratio.flatten() if by_sequence else ratio[mask.bool()]
    if not len(tokens):
        return ratio, {}
    return ratio, {
        "sampling/logp_difference_mean": float(tokens.mean()),
        "sampling/logp_difference_max": float(tokens.max()),
        "sampling/ratio_mean": float(counted.mean()),
    }


def correct_sampler(rows: dict[str, Any], sampled: torch.Tensor, args: Any) -> dict[str, float]:
    """Give rows with old log-probabilities their ratio, where a configuration asks for it.

    `args` is a `LoGoGRPOConfig`. Return the figures for the log.
    """
    ratio, figures = sampler_mismatch(
        rows["old_per_token_logps"],
        sampled,
        rows["completion_mask"],
        mode=args.vllm_importance_sampling_mode,
        bounds=(args.vllm_importance_sampling_clip_min, args.vllm_importance_sampling_clip_max),
    )
    if args.corrects_sampler:
        rows["importance_sampling_ratio"] = ratio
    return figures


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


# Rows of a step as inputs of passes, and what the policy thinks of their tokens.

_INPUTS = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "advantages")


class StepReader:
    """Reads rows with the policy, each by the adapter of its role."""

    def __init__(
        self, reader: RowReader, adapters: Mapping[Role, str], *, device: Any, pad_id: Any
    ) -> None:
        """Read with a reader; `adapters` names the adapter of each role."""
        self._reader, self._adapters = reader, adapters
        self._device, self._pad_id = device, pad_id

    def inputs_of(self, batch: RowBatch) -> dict[str, Any]:
        """Return rows as inputs of a pass, on the device."""
        names = [*_INPUTS, "adapters"] if len(self._reader.adapters) > 1 else _INPUTS
        return {name: getattr(batch, name).to(self._device) for name in names}

    def read(self, inputs: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (B, C) log-probabilities and entropies of rows, without a gradient."""
        with torch.no_grad():
            return self._reader.with_entropies(inputs)

    def compare(self, inputs: dict[str, Any], batch: RowBatch, args: Any) -> dict[str, float]:
        """Give inputs the log-probabilities of before the update, by which ratios are formed.

        Rows of an earlier step keep those of the policy that said them. Return how far
        trainer and sampler are apart; `args` is a `LoGoGRPOConfig`.
        """
        sampled = batch.sampled_logps.to(self._device)
        inputs["old_per_token_logps"] = old = self._reader.policy(inputs)
        figures = correct_sampler(inputs, sampled, args)
        if bool(batch.replayed.any()):
            earlier = batch.replayed.to(self._device).unsqueeze(1)
            inputs["old_per_token_logps"] = torch.where(earlier, sampled, old)
        return figures

    def entropies_of(
        self, traces: Mapping[str, TokenTrace], roles: Mapping[str, Role]
    ) -> dict[str, list[float]]:
        """Return the entropies of the tokens of a step by response id."""
        return self._values_of(traces, roles, 1)

    def logps_of(
        self, traces: Mapping[str, TokenTrace], roles: Mapping[str, Role]
    ) -> dict[str, list[float]]:
        """Return the log-probabilities of the tokens of a step by response id."""
        return self._values_of(traces, roles, 0)

    def _values_of(
        self, traces: Mapping[str, TokenTrace], roles: Mapping[str, Role], which: int
    ) -> dict[str, list[float]]:
        places = {role: self._reader.adapters.index(name) for role, name in self._adapters.items()}
        rows = [
            Row(trace=trace, advantage=0.0, adapter=places.get(roles[key], 0))
            for key, trace in traces.items()
        ]
        batch = build_rows(rows, size=len(rows), pad_id=self._pad_id)
        values = self.read(self.inputs_of(batch))[which]
        return {
            key: values[place, : len(trace.completion_ids)].tolist()
            for place, (key, trace) in enumerate(traces.items())
        }

"""Rows of a step as inputs of passes, and what the policy thinks of their tokens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from memagent.core.exchange import Role, TokenTrace
from train.credit.rows import Row, RowBatch, build_rows
from train.sampling.mismatch import correct_sampler
from train.sampling.row_reader import RowReader

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

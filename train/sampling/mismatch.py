"""The sampler against the trainer: how far apart they are, and the weight that corrects it.

vLLM rounds otherwise than the trainer, and a grammar leaves tokens out, so what was
sampled is not what the trainer believes it drew. Weighing by the ratio of both
probabilities makes the gradient that of the trainer's own distribution, as far as the
sampler can say it. The ratio is bounded as in TRL's `vllm_importance_sampling_mode`.

Shapes: B rows, C completion.
"""

from __future__ import annotations

from typing import Any

import torch

from memagent.core.errors import ConfigError

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

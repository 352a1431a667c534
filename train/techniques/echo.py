"""Learning from a group in which all succeeded (EchoRL).

Its advantages are zero, but one of its replies is worth keeping in part. One success of
the group is taken. Its *clip* is its text up to and including the token at which the
policy was least sure (the peak of the entropy): the part in which the decision was
made. The loss gets weight * mean over the clip of -log pi. Our choices: a token where
the paper has a step, and groups count as successful from a reward of `SUCCESS`.

Shapes: B rows, C completion.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import torch

from train.credit.groups import CreditGroup, is_flat

SUCCESS: Final = 0.5
"""Reward from which a run counts as a success."""


def echoed(groups: Sequence[CreditGroup], seed: str) -> frozenset[str]:
    """Return the responses to repeat: those of one member, drawn, of each group of successes.

    A group of successes has at least two members, which all earned the same and
    succeeded.
    """
    chosen: set[str] = set()
    for group in groups:
        scored = [
            member for member in group.members if member.reward is not None and member.response_ids
        ]
        if len(scored) > 1 and is_flat(group) and (scored[0].reward or 0.0) >= SUCCESS:
            chosen.update(random.Random(f"{seed}/{group.key}").choice(scored).response_ids)
    return frozenset(chosen)


def clip_mask(entropies: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return (B, C) ones up to and including the entropy peak of each row.

    Tokens after the peak, and those where `mask` is 0, are 0.
    """
    peak = entropies.detach().masked_fill(mask == 0, -torch.inf).argmax(dim=1, keepdim=True)
    places = torch.arange(mask.shape[1], device=mask.device).unsqueeze(0)
    return (places <= peak).to(mask.dtype) * mask


def echo_loss(
    logps: torch.Tensor, entropies: torch.Tensor, mask: torch.Tensor, echo: torch.Tensor
) -> torch.Tensor:
    """Return the mean over all B rows of echo (B,) * mean over the row's clip of -log pi.

    `logps`, `entropies` and `mask` are (B, C).
    """
    clip = clip_mask(entropies, mask)
    return (echo * -(logps * clip).sum(1) / clip.sum(1).clamp(min=1.0)).mean()

"""Learning from a group in which all succeeded (EchoRL): its advantages are zero, but
one of its replies is worth keeping in part.

One success of the group is taken. Its *clip* is what it said up to and including the
token at which the policy was least sure (the peak of the entropy): the part in which
the decision was made. The loss gets weight * mean over the clip of -log pi. Our
choices: a token where the paper has a step, and groups count as successful from a
reward of `SUCCESS`.

Shapes: B rows, C completion.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

import torch

from train.credit.advantages import CreditGroup
from train.techniques.dynamic_sampling import is_flat

SUCCESS: Final = 0.5
"""Reward from which a run counts as a success."""


def echoed(groups: Sequence[CreditGroup], *, seed: str) -> frozenset[str]:
    """Responses of one member, drawn, of each group whose members all earned the same
    and succeeded.
    """
    found: set[str] = set()
    for group in groups:
        scored = [
            one
            for one in group.members
            if one.reward is not None and one.trained and one.response_ids
        ]
        rewards = [one.reward for one in scored if one.reward is not None]
        if len(rewards) > 1 and is_flat(group) and rewards[0] >= SUCCESS:
            found |= set(random.Random(f"{seed}/{group.key}").choice(scored).response_ids)
    return frozenset(found)


def clip_mask(entropies: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """(B, C) 1 up to and including the entropy peak of each row, 0 after it and where `mask` is 0."""
    peak = entropies.detach().masked_fill(mask == 0, -torch.inf).argmax(dim=1, keepdim=True)
    places = torch.arange(mask.shape[1], device=mask.device).unsqueeze(0)
    return (places <= peak).to(mask.dtype) * mask


def echo_loss(
    logps: torch.Tensor, entropies: torch.Tensor, mask: torch.Tensor, echo: torch.Tensor
) -> torch.Tensor:
    """Scalar: mean over all B rows of echo (B,) * mean over the row's clip of -log pi,
    from (B, C) log-probabilities.
    """
    clip = clip_mask(entropies, mask)
    return (echo * -(logps * clip).sum(1) / clip.sum(1).clamp(min=1.0)).mean()

"""Learning from a group in which all succeeded (EchoRL).

Its advantages are zero, but one of its replies is worth keeping in part. One success of
the group is taken. Its *clip* is its text up to and including the token at which the
policy was least sure (the peak of the entropy): the part in which the decision was
made. The loss gets weight * mean over the clip of -log pi.

The paper looks at steps. The steps of a reply in JSON are its objects: a step ends with
the token that closes one. The clip ends with the step whose mean entropy is highest;
`unit = "token"` ends it with the token whose entropy is. Our choice: groups count as
successful from a reward of `SUCCESS`.

Shapes: B rows, C completion.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal

import torch

from memagent.core.errors import ConfigError
from train.credit.groups import CreditGroup, is_flat
from train.credit.objectives import MARK, LossView, Objective

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


def step_means(entropies: torch.Tensor, mask: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Return (B, C) the mean entropy of each token's step.

    `ends` (B, C) is true where a step ends; what follows the last end is a step too.
    """
    valid = mask.bool()
    steps = (ends & valid).long().cumsum(1)
    steps = steps - (ends & valid).long()  # the token that ends a step belongs to it
    count = int(steps.max()) + 1 if steps.numel() else 1
    total = torch.zeros(len(steps), count, device=mask.device)
    tokens = torch.zeros_like(total)
    total.scatter_add_(1, steps, entropies.detach().float() * valid)
    tokens.scatter_add_(1, steps, valid.float())
    return (total / tokens.clamp(min=1.0)).gather(1, steps)


def clip_mask(
    entropies: torch.Tensor, mask: torch.Tensor, ends: torch.Tensor | None = None
) -> torch.Tensor:
    """Return (B, C) ones up to and including the entropy peak of each row.

    The peak is a token; with the `ends` of steps it is a step. Tokens after it, and those
    where `mask` is 0, are 0.
    """
    places = torch.arange(mask.shape[1], device=mask.device).unsqueeze(0)
    if ends is None:
        peak = entropies.detach().masked_fill(mask == 0, -torch.inf).argmax(dim=1, keepdim=True)
        return (places <= peak).to(mask.dtype) * mask
    means = step_means(entropies, mask, ends).masked_fill(mask == 0, -torch.inf)
    highest = means == means.max(dim=1, keepdim=True).values
    first = highest.long().argmax(dim=1, keepdim=True)
    last = torch.where(
        (ends | (places == mask.shape[1] - 1)) & (places >= first), places, mask.shape[1]
    )
    return (places <= last.min(dim=1, keepdim=True).values).to(mask.dtype) * mask


def echo_loss(logps: torch.Tensor, clip: torch.Tensor, echo: torch.Tensor) -> torch.Tensor:
    """Return the mean over all B rows of echo (B,) * mean over the row's clip of -log pi.

    `logps` and `clip` are (B, C).
    """
    return (echo * -(logps * clip).sum(1) / clip.sum(1).clamp(min=1.0)).mean()


class Echo(Objective):
    """Repeats the clip of one success of each group in which all succeeded."""

    def __init__(self, *, weight: float = 0.1, unit: Literal["step", "token"] = "step") -> None:
        if weight < 0 or unit not in ("step", "token"):
            raise ConfigError("echo: weight is at least 0, and unit is 'step' or 'token'")
        self.weight, self.unit = weight, unit
        self._ends = torch.zeros(0, dtype=torch.long)

    def bind(self, tokenizer: Any, /) -> None:
        """Find the tokens that close an object."""
        words = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
        self._ends = torch.tensor(
            [place for place, word in enumerate(words) if "}" in (word or "")]
        )

    def marks(self, groups: Sequence[CreditGroup], seed: str, /) -> Collection[str]:
        """Return the responses to repeat."""
        return echoed(groups, seed)

    def terms(self, view: LossView, /) -> Mapping[str, torch.Tensor]:
        """Return the weighted mean of -log pi over the clips."""
        if MARK + "echo" not in view.inputs:
            return {}
        ends = None
        if self.unit == "step":
            ids = view.inputs["completion_ids"]
            ends = torch.isin(ids, self._ends.to(ids.device))
        clip = clip_mask(view.entropies, view.mask, ends)
        return {"echo_loss": self.weight * echo_loss(view.logps, clip, view.marks("echo"))}

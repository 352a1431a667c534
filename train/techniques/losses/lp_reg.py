"""Rare tokens are not punished away (Lp-Reg, arXiv 2510.03222).

Rare tokens of bad replies lose their probability first, and exploration with it. The
loss gets weight * KL(proxy || policy) at tokens that are rare (among the least likely
`rare` of a slice), stand in a reply with a negative advantage, and belong to the proxy.
The proxy is the policy itself without its noise: tokens below `noise` times the most
likely one are taken out and the rest is scaled up. Not changed: the mean is over all
tokens of a row.

Shapes: B rows, C completion, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch

from memagent.core.errors import ConfigError
from train.credit.objectives import LossView, Objective


def proxy_divergence(logits: torch.Tensor, *, noise: float) -> torch.Tensor:
    """Return (B, C) KL(proxy || policy) of logits (B, C, V); the proxy has no gradient."""
    logps = logits.float().log_softmax(-1)
    kept = logps.detach() >= logps.detach().amax(-1, keepdim=True) + torch.tensor(noise).log()
    proxy = logps.detach().masked_fill(~kept, -torch.inf).log_softmax(-1)
    return torch.where(kept, proxy.exp() * (proxy - logps), 0.0).sum(-1)


class LpReg(Objective):
    """Holds rare tokens that are no noise where they are."""

    looks_ahead = needs_logits = True

    def __init__(self, *, weight: float = 1.0, rare: float = 0.01, noise: float = 0.02) -> None:
        if weight < 0 or not 0 < rare <= 1 or not 0 < noise < 1:
            raise ConfigError("lp_reg: weight is at least 0, rare in (0, 1], noise in (0, 1)")
        self.weight, self.rare, self.noise = weight, rare, noise
        self._most = 0.0

    def prepare(self, view: LossView, /) -> None:
        """Find the log-probability below which a token of the slice is rare."""
        logps = view.logps.detach()[view.mask.bool()]
        self._most = float(logps.float().quantile(self.rare)) if len(logps) else 0.0

    def terms(self, view: LossView, /) -> Mapping[str, torch.Tensor]:
        """Return the weighted mean divergence at the tokens that are held."""
        assert view.logits is not None
        logits, logps = view.logits, view.logps.detach()
        likely = logits.detach().float().log_softmax(-1).amax(-1) + torch.tensor(self.noise).log()
        held = (logps <= self._most) & (view.advantages < 0) & (logps >= likely)
        held = held * view.mask
        divergence = proxy_divergence(logits, noise=self.noise) * held
        return {"lp_reg": self.weight * (divergence.sum(1) / view.mask.sum(1).clamp(min=1)).mean()}

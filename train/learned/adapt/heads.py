"""Fit the heads of the design `learned` to decisions that somebody made.

A case is a statement with the memories it was compared with, and what became of it. The
shipped encoder read it and stays as it is. The heads begin as the shipped ones and are
held near them, so that a handful of decisions cannot undo what they know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from memagent.designs.parts.learned.heads import SHIPPED
from memagent.designs.parts.learned.network import Network, open_network
from memagent.designs.parts.learned.pairs import (
    ALONE,
    PAIR_FEATURES,
    Choice,
    Side,
    alone,
    choose,
    features_of,
)
from memagent.designs.parts.learned.tokens import Floats
from train.learned.network import PairScorer

T = TypeVar("T")
ADD: Final = 0
SKIP: Final = 1
"""Answers of a case; 2 + 2i is "the same as memory i", 3 + 2i "in its place"."""
_NOT_WORTH: Final = -6.0
"""First logit of leaving a statement out: hardly ever, as the shipped heads have none."""
_EPOCHS: Final = 120
_NEAR: Final = {"pair": 5e-2, "worth": 2e-3}
"""Weight of the squared distance from the shipped heads. What a user finds not worth keeping
is told by the head for it: the scorer of pairs moves only as far as it must.
"""


@dataclass(frozen=True, slots=True)
class DecisionCase:
    """A decision in numbers."""

    numbers: Floats
    """(ALONE + K,) of the statement."""
    features: Floats
    """(N, PAIR_FEATURES) beside each memory."""
    answer: int
    new: Side
    memories: tuple[Side, ...]
    weight: float = 1.0


class Heads(nn.Module):
    """The scorer of pairs and the head for what is not worth keeping, as shipped at first."""

    def __init__(self) -> None:
        super().__init__()
        weights = open_network().weights
        self.pair = PairScorer(PAIR_FEATURES)
        shipped = {name: torch.from_numpy(weights[f"pair.{name}"].copy())
                   for name in self.pair.state_dict()}  # fmt: skip
        self.pair.load_state_dict(shipped)
        self.worth = nn.Linear(ALONE + weights["key.weight"].shape[0], 1)
        nn.init.zeros_(self.worth.weight)
        nn.init.constant_(self.worth.bias, _NOT_WORTH)

    def network(self) -> Network:
        """Return the shipped network with these heads in it, as the design opens them."""
        own = {name: value.detach().numpy() for name, value in self.state_dict().items()}
        return Network({**open_network().weights, **own}, "")

    def logits(self, cases: Sequence[DecisionCase]) -> Tensor:
        """Return the logits (B, 2 + 2N) of the answers; -1e9 where there is no memory."""
        widest = max(len(case.features) for case in cases)
        features = np.zeros((len(cases), widest, PAIR_FEATURES), dtype=np.float32)
        missing = np.ones((len(cases), widest), dtype=bool)
        for place, case in enumerate(cases):
            features[place, : len(case.features)] = case.features
            missing[place, : len(case.features)] = False
        scores = self.pair(torch.from_numpy(features))
        scores = scores.masked_fill(torch.from_numpy(missing)[:, :, None], -1e9)
        worth = self.worth(torch.from_numpy(np.stack([case.numbers for case in cases])))
        return torch.cat([torch.zeros_like(worth), worth, scores.flatten(1)], dim=1)


def split_held_out(cases: Sequence[T]) -> tuple[list[T], list[T]]:
    """Return the cases to fit to, and every third one, which is held out."""
    kept = [case for place, case in enumerate(cases) if place % 3 != 2]
    return kept, list(cases[2::3])


def decision_case(
    new: Side, memories: Sequence[Side], answer: int, *, weight: float = 1.0
) -> DecisionCase:
    """Return a decision about a statement in numbers."""
    numbers = np.concatenate([alone(new.clause), new.clause.output.key]).astype(np.float32)
    return DecisionCase(numbers, features_of(new, memories), answer, new, tuple(memories), weight)


def answer_of(choice: Choice) -> int:
    """Return a choice as the answer of a case."""
    if choice.target is None:
        return SKIP if choice.op == "skip" else ADD
    return 2 + 2 * choice.target + int(choice.replaces)


def fit_heads(cases: Sequence[DecisionCase], *, seed: int = 0) -> Heads:
    """Return heads fitted to the cases, near the shipped ones. Equal seeds give equal heads."""
    torch.manual_seed(seed)
    heads = Heads()
    first = {name: own.detach().clone() for name, own in heads.named_parameters()}
    optimiser = torch.optim.Adam(heads.parameters(), lr=1e-2)
    weights = torch.tensor([case.weight for case in cases])
    answers = torch.tensor([case.answer for case in cases])
    for _ in range(_EPOCHS if cases else 0):
        losses = functional.cross_entropy(heads.logits(cases), answers, reduction="none")
        moved = [_NEAR[name.partition(".")[0]] * ((own - first[name]) ** 2).sum()
                 for name, own in heads.named_parameters()]  # fmt: skip
        loss = (losses * weights).sum() / weights.sum() + torch.stack(moved).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return heads.eval()


def agreement(heads: Heads, cases: Sequence[DecisionCase]) -> float:
    """Return the share of cases that the design with the heads decides as they were decided.

    The thresholds and rules around the heads have their say, as they have in use. Returns
    1 for no cases.
    """
    network = heads.network()
    said = [answer_of(choose(network, case.new, case.memories)) for case in cases]
    right = sum(own == case.answer for own, case in zip(said, cases, strict=True))
    return right / len(cases) if cases else 1.0


def save_heads(path: Path, heads: Heads) -> None:
    """Write the heads as one `.npz` that names the encoder they were fitted beside."""
    arrays: Mapping[str, np.ndarray] = {
        name: value.detach().numpy() for name, value in heads.state_dict().items()
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **{SHIPPED: np.array(open_network().digest)}, **arrays)

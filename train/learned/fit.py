"""Fit the encoder: bounds, roles, acts, kinds, subjects and keys, in one pass over dialogues.

Every batch is of dialogues that were made for it, so no turn is seen twice. The same
seed gives the same weights on the same machine (one thread, no random order of sums).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from time import perf_counter

import torch
from torch import Tensor
from torch.nn import functional

from memagent.designs.parts.learned.tokens import HIDDEN_STRING
from train.learned.batches import IGNORED, LabelledBatch, TurnRow, collate, turn_row
from train.learned.dialogues import labelled_episodes
from train.learned.network import Encoder

_ENDLESS = 10**9
_TOGETHER = 24
"""Dialogues whose turns are sorted by length together."""
PLAIN_SHARE = 0.35
"""Share of the turns without a statement that are trained on."""


_ROLE_WEIGHTS = (0.5, 1.5, 1.5, 3.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class FitPlan:
    """The numbers of a fit."""

    steps: int = 6_000
    """Updates; dialogues are made until they are done."""
    batch: int = 64
    """Turns a batch."""
    rate: float = 2.5e-3
    seed: int = 0
    passes: int = 2
    """Times that a batch is used before it is thrown away; the second time words drop out."""
    word_dropout: float = 0.15
    """Share of the static vectors that are hidden."""
    string_dropout: float = 0.25
    """Share of the words whose hashed strings are hidden."""
    noise: float = 0.02
    """Standard deviation of the noise on each number of a static vector."""


def fit_encoder(plan: FitPlan, say: Callable[[str], None] | None = None) -> Encoder:
    """Return a fitted encoder."""
    torch.manual_seed(plan.seed)
    torch.use_deterministic_algorithms(True)
    encoder = Encoder()
    optimiser = torch.optim.AdamW(encoder.parameters(), lr=plan.rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=plan.rate, total_steps=plan.steps, pct_start=0.1
    )
    relations: dict[str, int] = {}
    began, done, total = perf_counter(), 0, 0.0
    encoder.train()
    for batch in _batches(plan, relations):
        for _ in range(plan.passes):
            loss = loss_of(encoder, spoilt(batch, plan))
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
            optimiser.step()
            schedule.step()
            done, total = done + 1, total + float(loss.detach())
            if say is not None and done % 200 == 0:
                say(f"step {done}: loss {total / 200:.3f}, {perf_counter() - began:.0f} s")
                total = 0.0
            if done == plan.steps:
                return encoder.eval()
    raise AssertionError("dialogues never end")


def _batches(plan: FitPlan, relations: dict[str, int]) -> Iterator[LabelledBatch]:
    """Yield batches of turns of like length, without end."""
    rng = random.Random(plan.seed)
    waiting: list[TurnRow] = []
    for number, episode in enumerate(labelled_episodes(_ENDLESS, seed=plan.seed), start=1):
        waiting += [
            turn_row(turn, rng)
            for turn in episode.turns
            if turn.text.strip() and (turn.clauses or rng.random() < PLAIN_SHARE)
        ]
        if number % _TOGETHER == 0:
            waiting.sort(key=lambda row: len(row.rows.words))
            places = list(range(0, len(waiting) - plan.batch + 1, plan.batch))
            rng.shuffle(places)
            for place in places:
                yield collate(waiting[place : place + plan.batch], relations)
            waiting = []


def spoilt(batch: LabelledBatch, plan: FitPlan) -> LabelledBatch:
    """Return the batch with some words hidden and all of them blurred.

    Without it the network learns the few thousand forms by heart.
    """
    tokens = batch.tokens
    shape = tokens.mask.shape
    seen = (torch.rand(shape) >= plan.word_dropout).float()
    vectors = (tokens.vectors + plan.noise * torch.randn(tokens.vectors.shape)) * seen[:, :, None]
    hidden = torch.rand(shape) < plan.string_dropout
    hashes = tokens.hashes.masked_fill(hidden[:, :, None], HIDDEN_STRING)
    return replace(batch, tokens=replace(tokens, vectors=vectors, hashes=hashes))


def loss_of(encoder: Encoder, batch: LabelledBatch) -> Tensor:
    """Return the sum of the heads' losses."""
    tokens = batch.tokens
    hidden = encoder(tokens)
    losses = [
        functional.cross_entropy(
            encoder.bounds(hidden).transpose(1, 2), batch.bounds, ignore_index=IGNORED
        ),
        functional.cross_entropy(
            encoder.roles(hidden).transpose(1, 2),
            batch.roles,
            weight=torch.tensor(_ROLE_WEIGHTS),
            ignore_index=IGNORED,
        ),
    ]
    if len(batch.rows):
        inner = encoder.pooled(hidden, batch.rows, batch.inside, batch.starts)
        losses += [
            1.0 * functional.cross_entropy(encoder.act(inner), batch.acts),
            0.5 * functional.cross_entropy(encoder.kind(inner), batch.kinds),
            0.3 * functional.cross_entropy(encoder.subject(inner), batch.subjects),
            0.3 * _alike(functional.normalize(encoder.key(inner), dim=1), batch.relations),
        ]
    return torch.stack(losses).sum()


def _alike(keys: Tensor, relations: Tensor) -> Tensor:
    """Return the supervised contrastive loss of keys (N, K): those of a relation are near."""
    near = keys @ keys.T / 0.1
    own = torch.eye(len(keys), dtype=torch.bool)
    near = near.masked_fill(own, -1e4)
    same = (relations[:, None] == relations[None, :]) & ~own
    log_share = near - torch.logsumexp(near, dim=1, keepdim=True)
    counted = same.sum(dim=1)
    has = counted > 0
    if not bool(has.any()):
        return keys.sum() * 0.0
    return -((log_share * same).sum(dim=1)[has] / counted[has]).mean()

"""Fit every head at once, the upper layers of the encoder with them.

A batch is a handful of talks. Their turns and questions are encoded alone, once: the
turn head learns from that, the light pair head from every pair of turns in the batch,
and the vectors learn that a question is near to what answers it. Then pairs are read
together: those of each dialogue, the pairs of different talks that the light head takes
for changes, and pairs *mined* between passes from the whole of the data in the same way.
Turns of different talks are unrelated: said by different people always, said by one
person where neither topic nor predicate agree.

Equal seeds and data give equal bits on one machine with one thread.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from time import perf_counter
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from memagent.language.network import TEXT_PIECES, Pieces, Tokenizer
from memagent.language.reader import (
    RELATIONS,
    Statement,
    pair_extras,
    pair_text,
)
from train.reader.examples import MATCHES, UNKNOWN, UNRELATED, Question, Talk, Turn
from train.reader.network import TURN_CLASSES, ReaderNetwork, text_batch

_CHUNK = 24
"""Texts of near length that run together."""
_ANSWERS, _SPEAKS, _NO = map(MATCHES.index, ("answers", "speaks", "no"))
_WARMTH = 0.06
"""What cosines of questions and turns are divided by."""
_IGNORED = -100
_LOOKED_AT = 150
"""Turns among which a mined turn looks for a partner."""
_DECEPTIVE = 5
"""Most deceptive of them, of which it takes one."""


@dataclass(frozen=True, kw_only=True)
class FitPlan:
    """The numbers of a fit."""

    seed: int = 1  # of the shipped weights
    passes: int = 3
    """Times that every talk is read."""
    turns: int = 28
    """Turns a batch, about."""
    rate: float = 1.5e-4
    """Of the encoder's layers."""
    head_rate: float = 1e-3
    frozen: int = 2
    """Lower layers that stay as published, with the word vectors."""
    mined: float = 0.4
    """Deceptive pairs that each later pass adds, a turn."""
    change_weight: float = 4.0
    """Weight of a pair that changes something: few do. The thresholds, not this, price a fault."""
    find_weight: float = 0.5
    """Weight of finding the turn that answers a question."""
    bfloat16: bool = True
    """Whether products are taken in bfloat16."""


@dataclass(frozen=True)
class Pair:
    """Two statements that are read together."""

    old: Statement
    new: Statement
    relation: int


@dataclass(frozen=True)
class _Formed:
    """A pair of a batch and the rows of its texts among the batch's vectors."""

    old: int
    new: int
    pair: Pair
    kind: Literal["within", "chat", "across", "mined"]


def fit(
    network: ReaderNetwork,
    talks: Sequence[Talk],
    plan: FitPlan,
    say: Callable[[str], None] = lambda _: None,
) -> ReaderNetwork:
    """Fit the network in place and return it."""
    torch.manual_seed(plan.seed)
    torch.use_deterministic_algorithms(True)
    fitted = _Fit(network, plan)
    rng = random.Random(plan.seed)
    total = plan.passes * sum(1 for _ in _batches(talks, plan.turns, random.Random(0)))
    optimiser = _optimiser(network, plan)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min((step + 1) / (0.1 * total + 1), (total - step) / (0.9 * total))
    )
    began, step = perf_counter(), 0
    for number in range(plan.passes):
        mined: list[Pair] = fitted.mine(talks, rng) if number else []
        batches = list(_batches(talks, plan.turns, rng))
        sums: dict[str, float] = {}
        network.train()
        for place, batch in enumerate(batches):
            own = mined[place :: len(batches)]
            with torch.autocast("cpu", torch.bfloat16, enabled=plan.bfloat16):
                losses = fitted.losses(batch, own, rng)
            optimiser.zero_grad()
            torch.stack(list(losses.values())).sum().backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimiser.step()
            if step + 1 < total:
                schedule.step()
            step += 1
            for name, loss in losses.items():
                sums[name] = sums.get(name, 0.0) + float(loss.detach())
            if step % 50 == 0 or place + 1 == len(batches):
                means = {name: round(value / (place + 1), 3) for name, value in sums.items()}
                say(f"step {step} of {total}, {perf_counter() - began:.0f} s: {means}")
    return network.eval()


def _optimiser(network: ReaderNetwork, plan: FitPlan) -> torch.optim.Optimizer:
    still = ("words.", "positions", "segments", "enter.")
    still += tuple(f"layers.{number}." for number in range(plan.frozen))
    heads: list[Tensor] = []
    layers: list[Tensor] = []
    for name, parameter in network.named_parameters():
        parameter.requires_grad_(not name.startswith(still))
        (layers if name.startswith("layers.") else heads).append(parameter)
    groups = [
        {"params": [own for own in layers if own.requires_grad], "lr": plan.rate},
        {"params": [own for own in heads if own.requires_grad], "lr": plan.head_rate},
    ]
    return torch.optim.AdamW(groups, weight_decay=0.01)


def _batches(talks: Sequence[Talk], turns: int, rng: random.Random) -> Iterator[list[Talk]]:
    """Yield batches of talks; long small talk is cut into windows."""
    parts = [part for talk in talks for part in _windows(talk)]
    rng.shuffle(parts)
    batch: list[Talk] = []
    for part in parts:
        batch.append(part)
        if sum(len(talk.turns) for talk in batch) >= turns:
            yield batch
            batch = []
    if batch:
        yield batch


def _windows(talk: Talk) -> Iterator[Talk]:
    most = 12
    if not talk.is_chat or len(talk.turns) <= most:
        yield talk
        return
    for first in range(0, len(talk.turns), most):
        yield replace(talk, turns=talk.turns[first : first + most])


class _Fit:
    """The network with what a fit needs to form its batches."""

    def __init__(self, network: ReaderNetwork, plan: FitPlan) -> None:
        self.network = network
        self.plan = plan
        self.tokenizer = Tokenizer(network.vocabulary)
        self.pieces = cache(self.tokenizer.pieces)

    def encode(
        self, inputs: Sequence[tuple[list[int], list[int]]]
    ) -> tuple[list[Tensor], Tensor, Tensor]:
        """Return each text's states (T, D), pooled states (B, 2 D) and unit vectors (B, D)."""
        order = sorted(range(len(inputs)), key=lambda place: (len(inputs[place][0]), place))
        states: list[Tensor] = []
        pooled: list[Tensor] = []
        vectors: list[Tensor] = []
        for first in range(0, len(order), _CHUNK):
            chunk = [inputs[place] for place in order[first : first + _CHUNK]]
            hidden, both, units = self.network(text_batch(chunk))
            states += [own[: len(rows)] for own, (rows, _) in zip(hidden, chunk, strict=True)]
            pooled.append(both)
            vectors.append(units)
        back = torch.empty(len(order), dtype=torch.long)
        back[torch.tensor(order)] = torch.arange(len(order))
        return (
            [states[place] for place in back.tolist()],
            torch.cat(pooled)[back],
            torch.cat(vectors)[back],
        )

    def losses(
        self, talks: Sequence[Talk], mined: Sequence[Pair], rng: random.Random
    ) -> dict[str, Tensor]:
        """Return the loss of each head over one batch of talks."""
        talks = [_named(talk, rng) for talk in talks]
        turns = [turn for talk in talks for turn in talk.turns]
        texts = [turn.said.text for turn in turns]
        beyond = len(texts)
        texts += [said.text for pair in mined for said in (pair.old, pair.new)]
        states, pooled, vectors = self.encode(
            [self.tokenizer.alone(self.pieces(text)) for text in texts]
        )
        losses = self._turn_losses(turns, states, pooled)
        formed = [
            *_formed_pairs(talks, rng),
            *(
                _Formed(beyond + 2 * n, beyond + 2 * n + 1, pair, "mined")
                for n, pair in enumerate(mined)
            ),
        ]
        if formed:
            losses["light"], light = self._light_loss(formed, vectors)
            losses["pair"] = self._pair_loss(_to_read(formed, light, rng), rng)
        if any(_ANSWERS in question.matches for talk in talks for question in talk.questions):
            losses["find"] = self.plan.find_weight * self._find_loss(talks, vectors)
        return losses

    def _turn_losses(
        self, turns: Sequence[Turn], states: Sequence[Tensor], pooled: Tensor
    ) -> dict[str, Tensor]:
        labels = [turn.label for turn in turns]
        classes = torch.tensor(
            [
                (1, label.subject, label.time, label.polarity) if label else (0, *[_IGNORED] * 3)
                for label in labels
            ]
        )
        parts = self.network.turn(pooled[: len(turns)]).float().split(TURN_CLASSES, dim=1)
        losses = [_entropy(part, classes[:, place]) for place, part in enumerate(parts)]
        spans = [
            (states[place], self.pieces(turn.said.text), turn.label.value)
            for place, turn in enumerate(turns)
            if turn.label is not None
        ]
        return {
            "turn": losses[0] + 0.3 * (losses[1] + losses[2] + losses[3]),
            "value": 0.3 * self._span_loss(self.network.value, spans),
        }

    def _span_loss(
        self,
        head: torch.nn.Linear,
        spans: Sequence[tuple[Tensor, Pieces, tuple[int, int] | None]],
    ) -> Tensor:
        """Return the loss of spans: the states of a text, its pieces and characters."""
        losses: list[Tensor] = []
        for states, pieces, span in spans:
            bounds = _piece_bounds(pieces.cut(TEXT_PIECES), span)
            logits = head(states).float()
            targets = torch.tensor([0 if row is None else row + 1 for row in bounds])
            losses.append(functional.cross_entropy(logits.T, targets))
        return torch.stack(losses).mean() if losses else torch.zeros(())

    def _light_loss(self, formed: Sequence[_Formed], vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Return the light head's loss over pairs and its logits (N, relations), detached."""
        extras = torch.tensor([pair_extras(own.pair.old, own.pair.new) for own in formed])
        old = torch.tensor([own.old for own in formed])
        new = torch.tensor([own.new for own in formed])
        logits = self.network.light_logits(vectors[old], vectors[new], extras)
        loss = self._weighted(logits, torch.tensor([own.pair.relation for own in formed]))
        within = torch.tensor([own.kind == "within" for own in formed])
        light = (loss * within).sum() / max(int(within.sum()), 1)
        light = light + (loss * ~within).sum() / max(int((~within).sum()), 1)
        return light, logits.detach()

    def _pair_loss(self, read: Sequence[tuple[Pair, Tensor]], rng: random.Random) -> Tensor:
        """Return the loss of pairs that are read together, each with its light logits."""
        if not read:
            return torch.zeros(())
        shown = [_dressed(pair, rng) for pair, _ in read]
        _, pooled, _ = self.encode(
            [
                self.tokenizer.joined(self.pieces(pair_text(old)), self.pieces(pair_text(new)))
                for old, new, _ in shown
            ]
        )
        extras = torch.tensor([numbers for _, _, numbers in shown])
        logits = self.network.pair(torch.cat([pooled, extras], dim=1))
        logits = logits + torch.stack([light for _, light in read])
        return self._weighted(logits, torch.tensor([pair.relation for pair, _ in read])).mean()

    def _weighted(self, logits: Tensor, relations: Tensor) -> Tensor:
        weights = torch.ones(len(RELATIONS))
        weights[:2] = self.plan.change_weight
        loss = functional.cross_entropy(logits.float(), relations, reduction="none")
        return loss * weights[relations]

    def _find_loss(self, talks: Sequence[Talk], vectors: Tensor) -> Tensor:
        """Return how badly questions find what answers them among the turns (N, D) of a batch.

        Turns that speak of the same thing, and those of other talks that might answer as
        well, count for nothing.
        """
        asked = [
            (talk, question)
            for talk in talks
            for question in talk.questions
            if _ANSWERS in question.matches
        ]
        turns = [(talk, place) for talk in talks for place in range(len(talk.turns))]
        _, _, units = self.encode(
            [self.tokenizer.alone(self.pieces(question.text)) for _, question in asked]
        )
        near = units @ vectors[: len(turns)].T / _WARMTH
        kinds = torch.tensor(
            [
                [
                    question.matches[place]
                    if there is talk
                    else foreign_match(question, talk, there, place)
                    for there, place in turns
                ]
                for talk, question in asked
            ]
        )
        every = near.masked_fill(kinds == _SPEAKS, -1e4).logsumexp(dim=1)
        right = near.masked_fill(kinds != _ANSWERS, -1e4).logsumexp(dim=1)
        return (every - right).mean()

    @torch.no_grad()
    def mine(self, talks: Sequence[Talk], rng: random.Random) -> list[Pair]:
        """Return pairs of different talks, or of one small talk, that the light head mistakes.

        Each chosen turn looks at a sample of all turns and takes one of its most
        deceptive partners.
        """
        self.network.eval()
        named = [_named(talk, rng) for talk in talks]
        turns = [(talk, turn) for talk in named for turn in talk.turns]
        inputs = [self.tokenizer.alone(self.pieces(turn.said.text)) for _, turn in turns]
        vectors: list[Tensor] = []
        for first in range(0, len(inputs), 480):
            with torch.autocast("cpu", torch.bfloat16, enabled=self.plan.bfloat16):
                vectors.append(self.encode(inputs[first : first + 480])[2].float())
        every = torch.cat(vectors)
        mined: list[Pair] = []
        for place in rng.choices(range(len(turns)), k=round(self.plan.mined * len(turns))):
            talk, turn = turns[place]
            others = rng.sample(range(len(turns)), min(_LOOKED_AT, len(turns)))
            pairs = [
                (other, pair)
                for other in others
                if other != place
                and (pair := strangers(*turns[other], talk, turn, rng)) is not None
            ]
            if not pairs:
                continue
            extras = torch.tensor([pair_extras(pair.old, pair.new) for _, pair in pairs])
            old = every[torch.tensor([other for other, _ in pairs])]
            logits = self.network.light_logits(old, every[place].expand(len(pairs), -1), extras)
            shares = logits.softmax(dim=1)[:, :2].sum(dim=1)
            best = shares.topk(min(_DECEPTIVE, len(pairs))).indices.tolist()
            mined.append(pairs[rng.choice(best)][1])
        return mined


def inputs(talks: Sequence[Talk], tokenizer: Tokenizer) -> Iterator[tuple[list[int], list[int]]]:
    """Yield texts as the encoder is given them: turns alone, after the one before, when asked."""
    for talk in talks:
        texts = [tokenizer.pieces(pair_text(turn.said)) for turn in talk.turns]
        for turn, text, before in zip(talk.turns, texts, [None, *texts], strict=False):
            yield tokenizer.alone(tokenizer.pieces(turn.said.text))
            if before is not None and not talk.is_chat:
                yield tokenizer.joined(before, text)
        for question in talk.questions:
            yield tokenizer.alone(tokenizer.pieces(question.text))


def foreign_match(question: Question, here: Talk, there: Talk, place: int) -> int:
    """Return the match of a question and a turn of another talk: no, or maybe ("speaks").

    Maybe where its predicate shares a word with that of an answer, or with the question.
    """
    label = there.turns[place].label
    if label is None:
        return _NO
    golds = [
        own.predicate
        for own, match in zip((turn.label for turn in here.turns), question.matches, strict=True)
        if own is not None and match == _ANSWERS
    ]
    words = _words_of(label.predicate)
    asked = question.text.lower()
    shared = any(words & _words_of(gold) for gold in golds)
    return _SPEAKS if shared or any(word[:4] in asked for word in words if len(word) > 3) else _NO


def _words_of(predicate: str) -> set[str]:
    return {word.strip("s") for word in predicate.lower().replace("_", " ").split()}


def strangers(there: Talk, old: Turn, here: Talk, new: Turn, rng: random.Random) -> Pair | None:
    """Return two turns of different talks, or of one small talk, as an unrelated pair.

    Different people mostly say them. One person does where neither topic nor predicate
    agree, so that nothing could have changed; None where that is not sure.
    """
    if there is here and not here.is_chat:
        return None
    at = new.said.at
    earlier = None if at is None else at - timedelta(days=rng.choice((0, 1, 7, 30, 90, 250)))
    first, second = old.label, new.label
    alike = first is not None and second is not None and first.predicate == second.predicate
    apart = there is here or (there.topic != here.topic and not alike)
    if first is not None and second is None and here.is_chat:
        apart = True
    if apart and rng.random() < 0.6:
        speaker = new.said.speaker
    elif old.said.speaker == new.said.speaker:
        return None
    else:
        speaker = old.said.speaker
    return Pair(Statement(old.said.text, speaker, earlier), new.said, UNRELATED)


def _formed_pairs(talks: Sequence[Talk], rng: random.Random) -> Iterator[_Formed]:
    """Yield the pairs of each talk, and some of every two talks."""
    starts = [0]
    for talk in talks:
        starts.append(starts[-1] + len(talk.turns))
    for own, start in zip(talks, starts, strict=False):
        for old, new, relation in _inner_pairs(own):
            pair = Pair(own.turns[old].said, own.turns[new].said, relation)
            yield _Formed(start + old, start + new, pair, "chat" if own.is_chat else "within")
        for other, there in zip(talks, starts, strict=False):
            if other is own:
                continue
            for new, turn in enumerate(own.turns):
                old = rng.randrange(len(other.turns))
                pair = strangers(other, other.turns[old], own, turn, rng)
                if pair is not None:
                    yield _Formed(there + old, start + new, pair, "across")


def _to_read(
    formed: Sequence[_Formed], light: Tensor, rng: random.Random
) -> list[tuple[Pair, Tensor]]:
    """Return the pairs to read together: related, mined, some unrelated, the most deceptive."""
    read: list[tuple[Pair, Tensor]] = []
    rest: list[tuple[float, int]] = []
    shares = light.float().softmax(dim=1)[:, :2].sum(dim=1).tolist()
    for place, (own, share) in enumerate(zip(formed, shares, strict=True)):
        if own.pair.relation != UNRELATED or own.kind == "mined":
            read.append((own.pair, light[place]))
        elif own.kind != "within":
            rest.append((-share, place))
        elif share > 0.1 or rng.random() < 0.25:
            read.append((own.pair, light[place]))
    deceptive = sorted(rest)[: max(4, len(read) // 4)]
    return read + [(formed[place].pair, light[place]) for _, place in deceptive]


def _inner_pairs(talk: Talk) -> Iterator[tuple[int, int, int]]:
    if talk.is_chat:
        for new in range(1, len(talk.turns)):
            for old in range(max(0, new - 6), new):
                yield old, new, UNRELATED
        return
    yield from (pair for pair in talk.pairs if pair[2] != UNKNOWN)


_NAMES = (
    "Ana Bo Carlos Dana Emil Fatima Greta Hugo Ines Jonas Kemal Lena Mateo Nora Oskar Priya Quinn "
    "Rosa Sven Tomás Uma Viktor Wanda Yusuf Zoe Mei Kofi Aisha Liam Chloe Hannah Diego Petra Ravi"
).split()


def _named(talk: Talk, rng: random.Random) -> Talk:
    """Return a talk with names for the speakers A and B of small talk."""
    if not talk.is_chat:
        return talk
    names = dict(zip("AB", rng.sample(_NAMES, 2), strict=True))
    turns = tuple(
        replace(turn, said=replace(turn.said, speaker=names.get(turn.said.speaker, "")))
        for turn in talk.turns
    )
    return replace(talk, turns=turns)


def _dressed(
    pair: Pair, rng: random.Random
) -> tuple[Statement, Statement, tuple[float, float, float, float]]:
    """Return a pair as it is shown: names and numbers are hidden now and then."""
    numbers = pair_extras(pair.old, pair.new)
    if rng.random() < 0.25:
        numbers = (numbers[0], numbers[1], 0.0, 0.0)
    if rng.random() < 0.25:
        return replace(pair.old, speaker=""), replace(pair.new, speaker=""), numbers
    return pair.old, pair.new, numbers


def _piece_bounds(pieces: Pieces, span: tuple[int, int] | None) -> tuple[int | None, int | None]:
    """Return the first and last piece inside a span of characters; None where it has none."""
    if span is None:
        return None, None
    inside = [
        row for row, (first, last) in enumerate(pieces.spans) if first < span[1] and last > span[0]
    ]
    return (inside[0], inside[-1]) if inside else (None, None)


def _entropy(logits: Tensor, classes: Tensor) -> Tensor:
    """Return the mean cross-entropy; 0 where no class is known."""
    if not bool((classes != _IGNORED).any()):
        return logits.sum() * 0.0
    return functional.cross_entropy(logits, classes, ignore_index=_IGNORED)

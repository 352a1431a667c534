"""Fit the pair scorer on what the fitted encoder reads: statements against memories.

An episode is heard turn by turn as the design hears it: the network's own statements
(matched to the labelled ones by their place) are compared with those kept before, so
that the scorer learns on the readings it will see.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch.nn import functional

from memagent.designs.parts.learned.labels import ACTS
from memagent.designs.parts.learned.pairs import COMPARED, PAIR_FEATURES, Side, features_of
from memagent.designs.parts.learned.people import People
from memagent.designs.parts.learned.reading import Clause, Reader, TurnText
from train.learned.dialogues import LabelledClause, LabelledEpisode
from train.learned.network import PairScorer

MEMORIES = 16
"""Memories that a statement is compared with."""
_UNSURE = 0.4
"""Share of the choices whose act is blurred towards "it tells something"."""
_MISREAD = 0.2
"""Share of the pairs in which no value counts as found."""
_OF_VALUES = [3, 4, 8, 9, 10]
"""Features that compare the values."""
_UNTRUE = frozenset(("joke", "hearsay"))
_REPLACING = frozenset(("change", "correct", "end", "done", "move", "retract"))


@dataclass(frozen=True, slots=True)
class PairCase:
    """One choice: rows of features and the right answer."""

    features: np.ndarray  # (N, F)
    answer: int
    """0 for new, 1 + 2i for the same as memory i, 2 + 2i for in its place."""
    act: str


@dataclass(slots=True, eq=False)
class _Known:
    side: Side
    tellings: set[str] = field(default_factory=set[str])


@dataclass(frozen=True, slots=True)
class StatementCase:
    """A statement as it was heard, with the memories to compare it with."""

    side: Side
    shown: tuple[Side, ...]
    about: int | None
    """Place of the memory that it repeats or replaces; None for a new one."""
    label: LabelledClause


def pair_cases(reader: Reader, episode: LabelledEpisode, rng: random.Random) -> Iterator[PairCase]:
    """Yield the choices of an episode, in order; jokes and hearsay are none."""
    for heard in heard_statements(reader, episode, rng):
        if heard.shown and heard.label.act not in _UNTRUE:
            answer = 0
            if heard.about is not None:
                answer = 1 + 2 * heard.about + (0 if heard.label.repeats else 1)
            yield PairCase(features_of(heard.side, heard.shown), answer, heard.label.act)


def heard_statements(
    reader: Reader, episode: LabelledEpisode, rng: random.Random
) -> Iterator[StatementCase]:
    """Yield the statements of an episode, in order, as a memory that errs nowhere hears them."""
    memory: list[_Known] = []
    people = People()
    texts = [TurnText(turn.text, turn.before, turn.speaker, turn.others) for turn in episode.turns]
    for turn, reading in zip(episode.turns, reader.turns(texts), strict=True):
        for label in turn.clauses:
            whole = (turn.text[label.start : label.end], turn.speaker)
            clause = _matching(reading.clauses, label) or reader.statements([whole])[0]
            subject = people.subject(clause, turn.speaker).casefold()
            side = Side(clause, turn.speaker, subject)
            target = next((known for known in memory if label.supersedes in known.tellings), None)
            about = target if label.repeats or label.act in _REPLACING else None
            shown = _shown(memory, side, about, rng)
            place = next((place for place, known in enumerate(shown) if known is about), None)
            yield StatementCase(side, tuple(known.side for known in shown), place, label)
            if label.act not in _UNTRUE:
                kept = reader.statements([(clause.text, turn.speaker)])[0]
                _remember(memory, Side(kept, turn.speaker, subject), label, target)


def _remember(
    memory: list[_Known], side: Side, label: LabelledClause, target: _Known | None
) -> None:
    """Change the memory as the label says."""
    told = {label.telling}
    if target is None:
        if label.act != "retract":
            memory.append(_Known(side, told))
    elif label.act == "retract":
        memory.remove(target)
    elif label.repeats:
        target.tellings |= told
    elif label.act in _REPLACING:
        memory.remove(target)
        replaced = Side(side.clause, side.speaker, target.side.subject)
        memory.append(_Known(replaced, target.tellings | told))
    else:
        memory.append(_Known(side, told))
        target.tellings |= told


def _shown(
    memory: Sequence[_Known], side: Side, about: _Known | None, rng: random.Random
) -> list[_Known]:
    """Choose the memories to compare with: the nearest, some others, and the right one."""
    near = sorted(memory, key=lambda known: -float(known.side.clause.vector @ side.clause.vector))[
        : MEMORIES // 2
    ]
    rest = [known for known in memory if all(known is not other for other in near)]
    chosen = [*near, *rng.sample(rest, min(len(rest), MEMORIES // 2))]
    if about is not None and all(about is not other for other in chosen):
        chosen.append(about)
    return [known for known in memory if any(known is other for other in chosen)]


def _matching(clauses: Sequence[Clause], label: LabelledClause) -> Clause | None:
    def common(clause: Clause) -> int:
        return min(clause.end, label.end) - max(clause.start, label.start)

    best = max(clauses, key=common, default=None)
    return best if best is not None and 2 * common(best) > label.end - label.start else None


def fit_pairs(cases: Sequence[PairCase], *, seed: int = 0, epochs: int = 12) -> PairScorer:
    """Return a scorer fitted to the choices."""
    torch.manual_seed(seed)
    scorer = PairScorer(PAIR_FEATURES)
    optimiser = torch.optim.AdamW(scorer.parameters(), lr=3e-3, weight_decay=0.01)
    rng, noise = random.Random(seed), np.random.default_rng(seed)
    order = list(range(len(cases)))
    for epoch in range(epochs):
        rng.shuffle(order)
        for group in optimiser.param_groups:
            group["lr"] = 3e-3 * (1.0 - epoch / epochs)
        for start in range(0, len(order), 64):
            batch = [_blurred(cases[number], noise) for number in order[start : start + 64]]
            loss = _loss(scorer, batch)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return scorer


def _blurred(case: PairCase, noise: np.random.Generator) -> PairCase:
    """Return a choice as it looks where the network reads badly.

    The encoder knows the acts and values of its own training far too well: a scorer that
    saw these alone would believe every act.
    """
    features = case.features.copy()
    if noise.random() < _UNSURE:
        acts = features[:, COMPARED : COMPARED + len(ACTS)]
        share = noise.uniform(0.3, 1.0)
        acts *= 1.0 - share
        acts[:, ACTS.index("tell")] += share
    missed = noise.random(len(features)) < _MISREAD
    features[np.ix_(np.flatnonzero(missed), np.array(_OF_VALUES))] = 0.0
    return PairCase(features, case.answer, case.act)


def choice_logits(scorer: PairScorer, cases: Sequence[PairCase]) -> torch.Tensor:
    """Return the logits (B, 1 + 2N) of choices; -1e9 where there is no memory."""
    widest = max(len(case.features) for case in cases)
    features = np.zeros((len(cases), widest, PAIR_FEATURES), dtype=np.float32)
    missing = np.ones((len(cases), widest), dtype=bool)
    for place, case in enumerate(cases):
        features[place, : len(case.features)] = case.features
        missing[place, : len(case.features)] = False
    scores = scorer(torch.from_numpy(features))
    scores = scores.masked_fill(torch.from_numpy(missing)[:, :, None], -1e9)
    return torch.cat([torch.zeros(len(cases), 1), scores.reshape(len(cases), -1)], dim=1)


def _loss(scorer: PairScorer, cases: Sequence[PairCase]) -> torch.Tensor:
    answers = torch.tensor([case.answer for case in cases])
    return functional.cross_entropy(choice_logits(scorer, cases), answers)


@torch.no_grad()
def choice_accuracy(scorer: PairScorer, cases: Sequence[PairCase]) -> dict[str, float]:
    """Return the share of right choices by act, repeats and new ones apart."""
    right: dict[str, list[bool]] = {}
    for start in range(0, len(cases), 64):
        batch = cases[start : start + 64]
        said = choice_logits(scorer, batch).argmax(dim=1).tolist()
        for case, number in zip(batch, said, strict=True):
            kind = "repeat" if case.answer % 2 else case.act
            name = kind if case.answer else "new"
            right.setdefault(name, []).append(number == case.answer)
    return {name: sum(values) / len(values) for name, values in right.items()}

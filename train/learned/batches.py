"""Labelled turns as padded tensors."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from memagent.designs.parts.learned.labels import ACTS, BOUNDS, KINDS, ROLES, SUBJECTS
from memagent.designs.parts.learned.tokens import (
    CONTEXT_WORDS,
    DIM,
    FLAGS,
    HASHES,
    HIDDEN_STRING,
    TokenRows,
    Word,
    rows_of,
    time_places,
    words_of,
)
from train.learned.dialogues import LabelledClause, LabelledTurn
from train.learned.network import TokenBatch
from train.learned.words import neighbours

IGNORED = -100
"""Label of a token that takes part in no loss."""
SWAPPED = 0.15
"""Share of the longer words outside of all parts that `swapped` puts others in the place of."""
_LONGER = re.compile(r"[a-z]{4,}")
_FIXED = frozenset(
    "never without always ever instead longer anymore rather used kidding joking really from into "
    "with that this these those what when then than more most over after before just only".split()
)
"""Words that a near one would turn into the opposite."""


@dataclass(frozen=True, slots=True)
class TurnRow:
    """One turn in numbers, with labels a token and a statement."""

    rows: TokenRows
    bounds: np.ndarray
    roles: np.ndarray
    clauses: tuple[tuple[int, int, LabelledClause], ...]
    """(first token, token after the last, label)."""


@dataclass(frozen=True)
class LabelledBatch:
    """A batch with its labels; N statements."""

    tokens: TokenBatch
    bounds: Tensor  # (B, T)
    roles: Tensor  # (B, T)
    rows: Tensor  # (N,)
    inside: Tensor  # (N, T)
    starts: Tensor  # (N,)
    acts: Tensor  # (N,)
    kinds: Tensor  # (N,)
    subjects: Tensor  # (N,)
    relations: Tensor  # (N,)


def swapped(turn: LabelledTurn, words: Sequence[Word], rng: random.Random) -> list[Word]:
    """Return the words, some outside of all parts of statements replaced by near ones.

    So a form has as many wordings as its words have neighbours; the places stay.
    """
    parts = [span for clause in turn.clauses for span in clause.spans.values()]
    kept: list[Word] = []
    for word in words:
        outside = not any(start < word.end and word.start < end for start, end in parts)
        free = word.text not in _FIXED and _LONGER.fullmatch(word.text)
        if outside and free and rng.random() < SWAPPED:
            near = neighbours(word.folded)
            word = replace(word, text=rng.choice(near)) if near else word
        kept.append(word)
    return kept


def turn_row(turn: LabelledTurn, rng: random.Random | None = None) -> TurnRow:
    """Return a turn in numbers; with `rng` some of its words are others (`swapped`)."""
    words = words_of(turn.text)
    if rng is not None:
        words = swapped(turn, words, rng)
    context = words_of(turn.before)[-CONTEXT_WORDS:]
    rows = rows_of(
        words, context, speaker=turn.speaker, others=turn.others, timed=time_places(turn.text)
    )
    bounds = np.zeros(len(rows.words), dtype=np.int64)
    roles = np.zeros(len(rows.words), dtype=np.int64)
    bounds[: len(context)] = roles[: len(context)] = IGNORED
    clauses: list[tuple[int, int, LabelledClause]] = []
    for clause in turn.clauses:
        first, after = _tokens(words, clause.start, clause.end, shift=len(context))
        if first == after:
            continue
        bounds[first:after] = BOUNDS.index("inside")
        bounds[first] = BOUNDS.index("begins")
        for role, (start, end) in clause.spans.items():
            begin, stop = _tokens(words, start, end, shift=len(context))
            roles[begin:stop] = ROLES.index(role)
        clauses.append((first, after, clause))
    return TurnRow(rows, bounds, roles, tuple(clauses))


def _tokens(words: Sequence[Word], start: int, end: int, *, shift: int) -> tuple[int, int]:
    """Return the tokens that touch a stretch of characters, as (first, after the last)."""
    places = [place for place, word in enumerate(words) if word.start < end and word.end > start]
    return (places[0] + shift, places[-1] + 1 + shift) if places else (0, 0)


def collate(rows: Sequence[TurnRow], relations: dict[str, int]) -> LabelledBatch:
    """Return rows as one padded batch; new relations get the next number."""
    size, longest = len(rows), max(len(row.rows.words) for row in rows)
    vectors = np.zeros((size, longest, DIM), dtype=np.float32)
    hashes = np.full((size, longest, HASHES), HIDDEN_STRING, dtype=np.int64)
    flags = np.zeros((size, longest, len(FLAGS)), dtype=np.float32)
    mask = np.zeros((size, longest), dtype=np.float32)
    bounds = np.full((size, longest), IGNORED, dtype=np.int64)
    roles = np.full((size, longest), IGNORED, dtype=np.int64)
    for place, row in enumerate(rows):
        length = len(row.rows.words)
        vectors[place, :length], hashes[place, :length] = row.rows.vectors, row.rows.hashes
        flags[place, :length], mask[place, :length] = row.rows.flags, 1.0
        bounds[place, :length], roles[place, :length] = row.bounds, row.roles
    found = [(place, *clause) for place, row in enumerate(rows) for clause in row.clauses]
    inside = np.zeros((len(found), longest), dtype=np.float32)
    for number, (_, first, after, _clause) in enumerate(found):
        inside[number, first:after] = 1.0

    def column(values: Iterable[int]) -> Tensor:
        return torch.tensor(list(values), dtype=torch.long)

    labels = [entry[3] for entry in found]
    return LabelledBatch(
        tokens=TokenBatch(*map(torch.from_numpy, (vectors, hashes, flags, mask))),
        bounds=torch.from_numpy(bounds),
        roles=torch.from_numpy(roles),
        rows=column(entry[0] for entry in found),
        inside=torch.from_numpy(inside),
        starts=column(entry[1] for entry in found),
        acts=column(ACTS.index(label.act) for label in labels),
        kinds=column(KINDS.index(label.kind) for label in labels),
        subjects=column(SUBJECTS.index(label.subject) for label in labels),
        relations=column(relations.setdefault(label.relation, len(relations)) for label in labels),
    )

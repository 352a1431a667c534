"""Labelled turns as padded tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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

IGNORED = -100
"""Label of a token that takes part in no loss."""


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


def turn_row(turn: LabelledTurn) -> TurnRow:
    """Return a turn in numbers."""
    words = words_of(turn.text)
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

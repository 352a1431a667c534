"""From a turn to the statements in it: places in the text, classes and probabilities.

A reading only points: every part of a statement is a stretch of the turn. Texts in a
script that training never saw, and texts without words, have no statements; the turn is
then kept as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import numpy as np

from memagent.designs.parts.learned.labels import ACTS, BOUNDS, KINDS, ROLES, SUBJECTS
from memagent.designs.parts.learned.network import (
    ClauseOutput,
    Network,
    TokenOutput,
    open_network,
    read_clause,
    read_tokens,
)
from memagent.designs.parts.learned.tokens import (
    CONTEXT_WORDS,
    DIM,
    MAX_WORDS,
    Floats,
    TokenRows,
    Word,
    rows_of,
    static_vector,
    time_places,
    words_of,
)
from memagent.protocols import Vector

_OUTSIDE: Final = BOUNDS.index("outside")
_BEGINS: Final = BOUNDS.index("begins")
_NONE: Final = ROLES.index("none")
_ENDS: Final = frozenset(".!?…")
_LEAST_WORDS: Final = 2
"""Words and signs of a statement at least."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of the text with the probability that it is what it is said to be."""

    start: int
    end: int
    text: str
    p: float


@dataclass(frozen=True, slots=True)
class Clause:
    """A statement as the network reads it."""

    text: str
    start: int
    end: int
    keep: float
    """Mean probability of its tokens to be part of a statement."""
    output: ClauseOutput
    spans: dict[str, Span] = field(default_factory=dict[str, Span])
    """By role: subject, value, old, time."""
    words: frozenset[str] = frozenset()
    """Its words in lower case."""
    vector: Vector = field(default_factory=lambda: np.zeros(DIM, dtype=np.float32))
    """(DIM,) unit sum of its words' static vectors."""
    predicate: Vector = field(default_factory=lambda: np.zeros(DIM, dtype=np.float32))
    """(DIM,) the same for the words that are in no span: the open predicate."""
    value: Vector = field(default_factory=lambda: np.zeros(DIM, dtype=np.float32))
    """(DIM,) the same for the words of the value; zeros without one."""

    @property
    def act(self) -> str:
        """The likeliest act."""
        return ACTS[int(self.output.act.argmax())]

    @property
    def act_p(self) -> float:
        """Probability of the likeliest act."""
        return float(self.output.act.max())

    @property
    def kind(self) -> str:
        """The likeliest kind."""
        return KINDS[int(self.output.kind.argmax())]

    @property
    def subject(self) -> str:
        """The likeliest way in which the subject is called."""
        return SUBJECTS[int(self.output.subject.argmax())]


@dataclass(frozen=True, slots=True)
class TurnReading:
    """What a turn states; `context` is the probability that it states nothing."""

    clauses: tuple[Clause, ...]
    context: float


@lru_cache(maxsize=4_096)
def read_turn(
    text: str, before: str, speaker: str, others: tuple[str, ...], *, network: Network | None = None
) -> TurnReading:
    """Read a turn with the words of the turn before it."""
    network = network or open_network()
    words = words_of(text)
    if not words or not _familiar(text):
        return TurnReading((), 0.0)
    context = words_of(before)[-CONTEXT_WORDS:]
    timed = time_places(text)
    windows: list[TokenRows] = []
    for part in _windows(words):
        windows.append(rows_of(part, context, speaker=speaker, others=others, timed=timed))
        context = part[-CONTEXT_WORDS:]
    clauses: list[Clause] = []
    outside: list[float] = []
    for rows, output in zip(windows, read_tokens(network, windows), strict=True):
        clauses += _clauses(network, text, rows, output)
        outside += output.bounds[rows.context :, _OUTSIDE].tolist()
    return TurnReading(tuple(clauses), float(np.mean(outside)))


@lru_cache(maxsize=16_384)
def read_statement(text: str, speaker: str, *, network: Network | None = None) -> Clause:
    """Read a text that is one statement, such as a memory, as a whole."""
    network = network or open_network()
    words = words_of(text)[:MAX_WORDS] or [Word(text, 0, len(text))]
    rows = rows_of(words, (), speaker=speaker, timed=time_places(text))
    output = read_tokens(network, [rows])[0]
    return _clause(network, text, rows, output, (0, len(words)))


def _familiar(text: str) -> bool:
    """Say whether at least half of the letters are Latin."""
    letters = [char for char in text[:2_000] if char.isalpha()]
    return not letters or 2 * sum(char < "ɐ" for char in letters) >= len(letters)


def _windows(words: Sequence[Word]) -> list[Sequence[Word]]:
    """Cut words into windows, after a sentence where possible."""
    parts: list[Sequence[Word]] = []
    start = 0
    while len(words) - start > MAX_WORDS:
        ends = (place for place in range(start + MAX_WORDS, start + MAX_WORDS // 2, -1)
                if words[place - 1].text in _ENDS)  # fmt: skip
        end = next(ends, start + MAX_WORDS)
        parts.append(words[start:end])
        start = end
    return [*parts, words[start:]]


def _clauses(
    network: Network, text: str, rows: TokenRows, output: TokenOutput
) -> list[Clause]:
    marks = output.bounds.argmax(axis=1)
    places: list[tuple[int, int]] = []
    start = -1
    for place in range(rows.context, len(rows.words) + 1):
        mark = marks[place] if place < len(rows.words) else _OUTSIDE
        if start >= 0 and mark in (_OUTSIDE, _BEGINS):
            places.append((start, place))
            start = -1
        if mark != _OUTSIDE and start < 0:
            start = place
    return [
        _clause(network, text, rows, output, (first, after))
        for first, after in places
        if after - first >= _LEAST_WORDS
    ]


def _clause(
    network: Network, text: str, rows: TokenRows, output: TokenOutput, place: tuple[int, int]
) -> Clause:
    first, after = place
    words = rows.words[first:after]
    marks = output.roles[first:after].argmax(axis=1)
    spans = {
        role: span
        for number, role in enumerate(ROLES)
        if number != _NONE
        and (span := _span(text, words, marks == number, output.roles[first:after, number]))
    }
    value = [word for word, mark in zip(words, marks, strict=True) if ROLES[mark] == "value"]
    rest = [word for word, mark in zip(words, marks, strict=True) if mark == _NONE]
    start, end = words[0].start, words[-1].end
    return Clause(
        text=text[start:end],
        start=start,
        end=end,
        keep=float(1.0 - output.bounds[first:after, _OUTSIDE].mean()),
        output=read_clause(network, output.hidden[first:after]),
        spans=spans,
        words=frozenset(word.folded for word in words if word.text[0].isalnum()),
        vector=_unit(words),
        predicate=_unit(rest),
        value=_unit(value),
    )


def _span(text: str, words: Sequence[Word], marked: Floats, p: Floats) -> Span | None:
    """Return the likeliest run of marked words; None without any."""
    best: tuple[float, int, int] | None = None
    start = -1
    for place in range(len(words) + 1):
        inside = place < len(words) and bool(marked[place])
        if inside and start < 0:
            start = place
        if not inside and start >= 0:
            weight = float(p[start:place].sum())
            best = max(best or (0.0, 0, 0), (weight, start, place))
            start = -1
    if best is None:
        return None
    _, first, after = best
    begin, end = words[first].start, words[after - 1].end
    return Span(begin, end, text[begin:end], float(p[first:after].mean()))


def _unit(words: Sequence[Word]) -> Vector:
    if not words:
        return np.zeros(DIM, dtype=np.float32)
    total = np.sum([static_vector(word.folded) for word in words], axis=0)
    length = float(np.linalg.norm(total))
    return (total / length).astype(np.float32) if length > 0 else total.astype(np.float32)

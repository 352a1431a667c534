"""From a turn to the statements in it: places in the text, classes and probabilities.

A reading only points: every part of a statement is a stretch of the turn. Texts in a
script that training never saw, and texts without words, have no statements; the turn is
then kept as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

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
    FIRST,
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
Key = TypeVar("Key")
Value = TypeVar("Value")
_CACHED: Final = 8_192
"""Most readings of a kind that are remembered."""
_TAIL_CHARS: Final = 400
_INSIDE: Final = BOUNDS.index("inside")
_SHORT: Final = 4
"""Words and signs of an appendix behind a comma ("not pasta.") that is no statement itself."""
_GAP: Final = 3
"""Most words of a gap inside of a sentence that is filled."""
_PARTS: Final = _ENDS | frozenset(",;:—–-()[]")
"""Signs that part clauses."""
_QUOTES: Final = frozenset('"“”„«»')
_TITLE: Final = 9
"""Most words and signs from one quotation mark to the next, for what they hold to be one name."""
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
    """The statements of a turn; `context` is the probability that it states nothing."""

    clauses: tuple[Clause, ...]
    context: float


class TurnText(NamedTuple):
    """A turn to read, with what stands around it."""

    text: str
    before: str = ""
    """The turn before."""
    speaker: str = ""
    others: tuple[str, ...] = ()
    """The other speakers."""


class Reader:
    """Reads texts with a network, many in one batch, and remembers the latest readings.

    Safe to share between threads: a reading depends on its text alone.
    """

    def __init__(self, network: Network) -> None:
        """Read with a network."""
        self.network = network
        self._turns: dict[TurnText, TurnReading] = {}
        self._statements: dict[tuple[str, str], Clause] = {}

    def turns(self, texts: Sequence[TurnText]) -> list[TurnReading]:
        """Return the reading of each turn, in order."""
        known = {text: self._turns[text] for text in texts if text in self._turns}
        fresh = [text for text in dict.fromkeys(texts) if text not in known]
        windows = [list(_windows_of(text)) for text in fresh]
        outputs = iter(read_tokens(self.network, [rows for group in windows for rows in group]))
        for text, group in zip(fresh, windows, strict=True):
            clauses: list[Clause] = []
            outside: list[float] = []
            for rows in group:
                output = next(outputs)
                clauses += _clauses(self.network, text.text, rows, output)
                outside += output.bounds[rows.context :, _OUTSIDE].tolist()
            context = float(np.mean(outside)) if outside else 0.0
            known[text] = TurnReading(tuple(clauses), context)
        _keep(self._turns, known)
        return [known[text] for text in texts]

    def statements(self, texts: Sequence[tuple[str, str]]) -> list[Clause]:
        """Return each (text, speaker), such as a memory, read as one statement."""
        known = {text: self._statements[text] for text in texts if text in self._statements}
        if len(known) == len(texts):
            return list(known.values())
        fresh = [text for text in dict.fromkeys(texts) if text not in known]
        windows = [_whole(*text) for text in fresh]
        outputs = read_tokens(self.network, windows)
        for text, rows, output in zip(fresh, windows, outputs, strict=True):
            known[text] = _clause(self.network, text[0], rows, output, (0, len(rows.words)))
        _keep(self._statements, known)
        return [known[text] for text in texts]


@lru_cache(maxsize=1)
def shipped_reader() -> Reader:
    """Return the reader of this process with the shipped weights. Raises `ConfigError`."""
    return Reader(open_network())


def _keep(cache: dict[Key, Value], readings: Mapping[Key, Value]) -> None:
    if len(cache) + len(readings) > _CACHED:
        cache.clear()
    cache.update(readings)


def _windows_of(turn: TurnText) -> Iterator[TokenRows]:
    """Yield the windows of a turn; none for a text without words or in an unseen script."""
    words = words_of(turn.text)
    if not words or not _familiar(turn.text):
        return
    context: Sequence[Word] = words_of(turn.before[-_TAIL_CHARS:])[-CONTEXT_WORDS:]
    timed = time_places(turn.text)
    for part in _windows(words):
        yield rows_of(part, context, speaker=turn.speaker, others=turn.others, timed=timed)
        context = part[-CONTEXT_WORDS:]


def _whole(text: str, speaker: str) -> TokenRows:
    words = words_of(text)[:MAX_WORDS] or [Word(text, 0, len(text))]
    return rows_of(words, (), speaker=speaker, timed=time_places(text))


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


def _clauses(network: Network, text: str, rows: TokenRows, output: TokenOutput) -> list[Clause]:
    places: list[tuple[int, int]] = []
    start = -1
    marks = _closed(output.bounds.argmax(axis=1).tolist(), rows)
    for place in range(rows.context, len(rows.words) + 1):
        mark = marks[place] if place < len(rows.words) else _OUTSIDE
        if start >= 0 and mark in (_OUTSIDE, _BEGINS):
            places.append((start, place))
            start = -1
        if mark != _OUTSIDE and start < 0:
            start = place
    return [
        _clause(network, text, rows, output, (first, after))
        for first, after in _snapped(places, rows)
        if after - first >= _LEAST_WORDS
    ]


def _snapped(places: Sequence[tuple[int, int]], rows: TokenRows) -> list[tuple[int, int]]:
    """Return the places widened to where a clause can begin and end.

    None reaches over a sign or into its neighbours.
    """
    words = rows.words
    wide: list[tuple[int, int]] = []
    for number, (first, after) in enumerate(places):
        floor = wide[-1][1] if wide else rows.context
        ceiling = places[number + 1][0] if number + 1 < len(places) else len(words)
        while first > floor and words[first - 1].text not in _PARTS:
            first -= 1
        while after < ceiling and words[after - 1].text not in _ENDS:
            if words[after].text in _PARTS and words[after].text not in _ENDS:
                break
            after += 1
        if wide and _belongs(words, wide[-1], (first, after)):
            wide[-1] = (wide[-1][0], after)
        else:
            wide.append((first, after))
    return wide


def _belongs(words: Sequence[Word], before: tuple[int, int], own: tuple[int, int]) -> bool:
    """Say whether a clause goes on with the one before it.

    It is an appendix behind a comma, or no sign stands between it and a few words.
    """
    first, sign = own[0], words[own[0] - 1].text
    if own[1] - first <= _SHORT and sign == "," and before[1] >= first - 1:
        return True
    return before[1] - before[0] < _SHORT and before[1] == first and sign not in _PARTS


def _closed(marks: list[int], rows: TokenRows) -> list[int]:
    """Return the marks with short gaps inside of a sentence filled."""
    last = -1
    for place in range(rows.context, len(marks)):
        if rows.words[place].text in _ENDS:
            last = place if marks[place] != _OUTSIDE else -1
        elif marks[place] != _OUTSIDE:
            if last >= 0 and 1 < place - last <= _GAP + 1:
                marks[last + 1 : place + 1] = [_INSIDE] * (place - last)
            last = place
    return marks


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
    sure = float(p[first:after].mean())
    first, after = _whole_name(words, first, after)
    begin, end = words[first].start, words[after - 1].end
    return Span(begin, end, text[begin:end], sure)


def _whole_name(words: Sequence[Word], first: int, after: int) -> tuple[int, int]:
    """Return the run widened to the quotation or the name in capitals that it lies in."""
    quotes = [place for place, word in enumerate(words) if word.text in _QUOTES]
    for opened, closed in zip(quotes[0::2], quotes[1::2], strict=False):
        if opened < first and after <= closed <= opened + _TITLE:
            return opened + 1, closed
    while first > 1 and _joined(words[first - 1], words[first]):
        first -= 1
    if first == 1 and words[1].text == "&":
        first = 0
    while after < len(words) and _joined(words[after], words[after - 1]):
        after += 1
    return first, after


def _joined(word: Word, inner: Word) -> bool:
    """Say whether a word beside a name belongs to it: capitals, or "&" between capitals."""
    if word.text == "&" or inner.text == "&":
        return word.text == "&" or word.text[0].isupper()
    return word.text[0].isupper() and inner.text[0].isupper() and word.folded not in FIRST


def _unit(words: Sequence[Word]) -> Vector:
    if not words:
        return np.zeros(DIM, dtype=np.float32)
    total = np.sum([static_vector(word.folded) for word in words], axis=0)
    length = float(np.linalg.norm(total))
    return (total / length).astype(np.float32) if length > 0 else total.astype(np.float32)

"""The reader: what a turn states, what a new statement ends, what answers a question.

    reader = open_reader()                          # the shipped weights, loaded once
    old = Statement("just signed at the bakery", speaker="Ana", at=january)
    new = Statement("the library has me now, the bakery shut down", speaker="Ana", at=june)
    for change in reader.changes(new, [old]):
        ...                                         # change.index, .relation, .reason

`changes` is what a design asks before it replaces or ends a memory. It is pure and
errs on the side of keeping: a missed update leaves two statements, a wrong one destroys
a fact. Three steps, each cheaper than the next. The *turn* head drops what states
nothing, among the candidates too. The *light* head compares vectors, one a statement,
and proposes a few. Only those are read together with the new statement by the whole
encoder, and `Thresholds.change` decides; a second change by one statement needs more.

Keep `Statement.vector` and `.states` (`Reader.read` fills them): a candidate without
them costs a run of the encoder. The text of a candidate is what was said, without
the speaker's name in front. Probabilities are those of the heads, not calibrated beyond
the thresholds, which the fit sets on dialogues it did not train on.

The network is fine-tuned from all-MiniLM-L6-v2 (Apache-2.0) on dialogues written for
this project in English, German and Spanish; docs/research/reader-card.md tells data,
figures and limits. Shapes: N texts, D units of a vector (384).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

import numpy as np

from memagent.language.network import Array, Encoded, Network, Pieces, open_network, softmax

Subject = Literal["self", "named", "other"]
Time = Literal["past", "now", "future", "none"]
Polarity = Literal["+", "-"]
Relation = Literal["replaces", "ends", "adds", "same", "unrelated"]
Match = Literal["answers", "speaks", "no"]

SUBJECTS: Final[tuple[Subject, ...]] = ("self", "named", "other")
TIMES: Final[tuple[Time, ...]] = ("past", "now", "future", "none")
POLARITIES: Final[tuple[Polarity, ...]] = ("+", "-")
RELATIONS: Final[tuple[Relation, ...]] = ("replaces", "ends", "adds", "same", "unrelated")
MATCHES: Final[tuple[Match, ...]] = ("answers", "speaks", "no")

WEIGHTS_FILE: Final = Path(__file__).parent / "data" / "reader.npz.zlib"
LIGHT: Final = 64
"""Units of each projection of the light heads."""
EXTRAS: Final = 4
"""Numbers of a pair beside its texts; see `pair_extras`."""
_DAY_S: Final = 86_400.0
_MOST_ODDS: Final = 3.0
_LONGEST_VALUE: Final = 16
"""Most pieces of a value span."""


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Probabilities from which a head is believed; the fit sets them."""

    states: float = 0.1
    """Of a text stating something; below it neither changes anything nor is changed."""
    light: float = 0.03
    """Of a change by the light head; below it a candidate is not read together."""
    change: float = 0.9
    """Of a change (replaces or ends) by the whole encoder and the turn head; see `together`."""
    proposals: int = 4
    """Most candidates that are read together with one new statement."""


@dataclass(frozen=True)
class Statement:
    """A text that somebody said, with what is known of it."""

    text: str
    speaker: str = ""
    """Empty if not known."""
    at: datetime | None = None
    vector: Array | None = None
    """Its `TurnReading.vector` (D,), if it was read before."""
    states: float | None = None
    """Its `TurnReading.states`, if it was read before."""


@dataclass(frozen=True)
class TurnReading:
    """The statement of one turn."""

    states: float
    """Probability that it states something one would look up later."""
    subject: Subject
    time: Time
    polarity: Polarity
    value: tuple[int, int] | None
    """First character of the value and one past its last, or None."""
    vector: Array
    """Unit vector (D,), for `Statement.vector`."""


@dataclass(frozen=True)
class PairReading:
    """The relation of a new statement to an old one: probabilities that sum to 1."""

    replaces: float
    """The old one held, or was wrong, and the new one holds in its place."""
    ends: float
    """The old one holds no longer, and this says nothing in its place."""
    adds: float
    """Both hold, of the same subject and kind."""
    same: float
    """The new one says it again or elaborates on it."""
    unrelated: float

    @property
    def change(self) -> float:
        """Return the probability that the old statement holds no longer."""
        return self.replaces + self.ends


@dataclass(frozen=True)
class MatchReading:
    """The relation of a statement to a question: probabilities that sum to 1."""

    answers: float
    speaks: float
    """It speaks of what is asked but does not answer it (an older state, for example)."""
    no: float
    span: tuple[int, int] | None
    """Characters of the statement that answer, if it does; None in an empty text."""


@dataclass(frozen=True)
class Change:
    """A candidate that a new statement replaces or ends."""

    index: int
    """Place among the candidates."""
    relation: Literal["replaces", "ends"]
    probability: float
    reason: str


class Reader:
    """Typed readings of texts by one network; reads only, safe to share between threads."""

    def __init__(self, network: Network, thresholds: Thresholds) -> None:
        """Take a network and the probabilities from which it is believed."""
        self.network = network
        self.thresholds = thresholds

    def read_turns(self, texts: Sequence[str]) -> tuple[TurnReading, ...]:
        """Return what each text states, in order; texts are cut at 128 word pieces."""
        if not texts:
            return ()
        pieces = [self.network.tokenizer.pieces(text) for text in texts]
        encoded = self._alone(pieces)
        logits = self.network.head("turn", encoded.pooled)  # (N, 2 + 3 + 4 + 2)
        vectors = encoded.vectors
        first = 2 + len(SUBJECTS)
        return tuple(
            TurnReading(
                states=float(softmax(row[:2])[1]),
                subject=SUBJECTS[int(row[2:first].argmax())],
                time=TIMES[int(row[first : first + len(TIMES)].argmax())],
                polarity=POLARITIES[int(row[first + len(TIMES) :].argmax())],
                value=_span(self.network.linear("value", tokens), own, 1),
                vector=vector,
            )
            for row, tokens, own, vector in zip(
                logits, encoded.tokens, pieces, vectors, strict=True
            )
        )

    def vectors(self, statements: Sequence[Statement]) -> Array:
        """Return the unit vectors (N, D) of statements; those that carry one are not read."""
        missing = [place for place, own in enumerate(statements) if own.vector is None]
        rows = np.zeros((len(statements), self.network.width), np.float32)
        for place, own in enumerate(statements):
            if own.vector is not None:
                rows[place] = own.vector
        if missing:
            tokenizer = self.network.tokenizer
            texts = [tokenizer.pieces(statements[place].text) for place in missing]
            rows[missing] = self._alone(texts).vectors
        return rows

    def propose(self, old: Sequence[Statement], new: Statement) -> Array:
        """Return the light head's probability (N,) that `new` changes each old statement."""
        return softmax(self._light(old, new))[:, :2].sum(axis=1)

    def _light(self, old: Sequence[Statement], new: Statement) -> Array:
        """Return the light head's logits (N, relations)."""
        if not old:
            return np.zeros((0, len(RELATIONS)), np.float32)
        vectors = self.vectors([*old, new]) * np.float32(np.sqrt(self.network.width))
        linear = self.network.linear
        near = linear("near", vectors)
        first, second = near[:-1], near[-1:]
        parts = [
            linear("old", vectors[:-1]),
            np.repeat(linear("new", vectors[-1:]), len(old), axis=0),
            first * second,
            np.abs(first - second),
            np.array([pair_extras(own, new) for own in old], np.float32),
        ]
        return self.network.head("light", np.concatenate(parts, axis=1))

    def compare(self, old: Sequence[Statement], new: Statement) -> tuple[PairReading, ...]:
        """Return how `new` stands to each old statement, read together by the whole encoder.

        The logits are the light head's plus what reading together changes about them.
        """
        if not old:
            return ()
        tokenizer = self.network.tokenizer
        newer = tokenizer.pieces(pair_text(new))
        encoded = self.network.encode(
            [tokenizer.joined(tokenizer.pieces(pair_text(own)), newer) for own in old]
        )
        extras = np.array([pair_extras(own, new) for own in old], np.float32)
        inputs = np.concatenate([encoded.pooled, extras], axis=1)
        return tuple(
            PairReading(*(float(share) for share in row))
            for row in softmax(self._light(old, new) + self.network.head("pair", inputs))
        )

    def match(self, question: str, statements: Sequence[Statement]) -> tuple[MatchReading, ...]:
        """Return how each statement stands to a question, read together by the whole encoder."""
        if not statements:
            return ()
        tokenizer = self.network.tokenizer
        asked = tokenizer.pieces(question)
        texts = [tokenizer.pieces(pair_text(own)) for own in statements]
        encoded = self.network.encode([tokenizer.joined(asked, text) for text in texts])
        shares = softmax(self.network.head("match", encoded.pooled))
        offset = len(tokenizer.joined(asked, Pieces((), ()))[0]) - 1
        return tuple(
            MatchReading(
                *(float(share) for share in row),
                span=_moved(
                    _span(self.network.linear("answer", tokens), text, offset, always=True),
                    len(own.text) - len(pair_text(own)),
                ),
            )
            for row, tokens, text, own in zip(
                shares, encoded.tokens, texts, statements, strict=True
            )
        )

    def changes(self, new: Statement, candidates: Sequence[Statement]) -> tuple[Change, ...]:
        """Return the candidates that `new` replaces or ends, the surest first.

        Empty if `new` states nothing or nothing is sure enough. A second change by the
        same statement must leave half as much doubt as the first.
        """
        bars = self.thresholds
        if not candidates or not new.text.strip():
            return ()
        known, *olds = self.read([new, *candidates])
        if not self._states(known):
            return ()
        places = [place for place, old in enumerate(olds) if self._states(old)]
        shares = self.propose([olds[place] for place in places], known)
        likely = sorted(range(len(places)), key=lambda rank: (-float(shares[rank]), rank))
        proposed = [places[rank] for rank in likely[: bars.proposals] if shares[rank] >= bars.light]
        readings = self.compare([olds[place] for place in proposed], known)
        shared = [
            together(reading.change, known.states, olds[place].states)
            for place, reading in zip(proposed, readings, strict=True)
        ]
        changes: list[Change] = []
        for rank in sorted(range(len(shared)), key=lambda rank: (-shared[rank], rank)):
            if shared[rank] < (bars.change if not changes else (1 + bars.change) / 2):
                break
            changes.append(_change(proposed[rank], readings[rank], shared[rank]))
        return tuple(changes)

    def read(self, statements: Sequence[Statement]) -> tuple[Statement, ...]:
        """Return statements with their vectors and the probabilities that they state something.

        Those that carry both are not read again.
        """
        missing = [
            place
            for place, own in enumerate(statements)
            if own.vector is None or own.states is None
        ]
        readings = self.read_turns([statements[place].text for place in missing])
        known = list(statements)
        for place, reading in zip(missing, readings, strict=True):
            known[place] = replace(known[place], vector=reading.vector, states=reading.states)
        return tuple(known)

    def _states(self, statement: Statement) -> bool:
        return (statement.states or 0.0) >= self.thresholds.states

    def _alone(self, texts: Sequence[Pieces]) -> Encoded:
        return self.network.encode([self.network.tokenizer.alone(text) for text in texts])


@lru_cache(maxsize=2)
def open_reader(path: Path = WEIGHTS_FILE) -> Reader:
    """Return the reader of a file of weights, loaded once a process (about 0.2 s).

    Raises `OSError` or `ValueError` for a file that is none.
    """
    network = open_network(path)
    stored = network.array("thresholds")
    return Reader(
        network,
        Thresholds(
            states=float(stored[0]),
            light=float(stored[1]),
            change=float(stored[2]),
            proposals=int(stored[3]),
        ),
    )


def pair_text(statement: Statement) -> str:
    """Return a statement as it is read in a pair: the speaker's name first, if known."""
    return f"{statement.speaker}: {statement.text}" if statement.speaker else statement.text


def pair_extras(old: Statement, new: Statement) -> tuple[float, float, float, float]:
    """Return the numbers of a pair: same speaker, other speaker, same day, log of days / 6.

    What is not known is 0.
    """
    known = bool(old.speaker and new.speaker)
    same = known and old.speaker.casefold() == new.speaker.casefold()
    if old.at is None or new.at is None:
        return float(same), float(known and not same), 0.0, 0.0
    days = max((new.at - old.at).total_seconds() / _DAY_S, 0.0)
    return float(same), float(known and not same), float(days < 1), float(np.log1p(days)) / 6


def together(change: float, *states: float | None) -> float:
    """Return the probability of a change, given how sure it is that both texts state something.

    The odds are multiplied, those of a text by at most e to the 3: a pair of remarks that
    state nothing looks like a change now and then.
    """
    odds = [min(_log_odds(share or 0.0), _MOST_ODDS) for share in states]
    return float(1 / (1 + np.exp(-(_log_odds(change) + sum(odds)))))


def _log_odds(share: float) -> float:
    bounded = min(max(share, 1e-6), 1 - 1e-6)
    return float(np.log(bounded / (1 - bounded)))


def _change(place: int, pair: PairReading, probability: float) -> Change:
    relation: Literal["replaces", "ends"] = "replaces" if pair.replaces >= pair.ends else "ends"
    deed = "says what holds in its place" if relation == "replaces" else "says that it ended"
    return Change(place, relation, probability, f"the new statement {deed} (p={probability:.2f})")


def _moved(span: tuple[int, int] | None, by: int) -> tuple[int, int] | None:
    """Return a span moved by some characters; None where it would begin before the text."""
    return None if span is None or span[0] + by < 0 else (span[0] + by, span[1] + by)


def _span(
    logits: Array, text: Pieces, offset: int, *, always: bool = False
) -> tuple[int, int] | None:
    """Return the likeliest span of characters, or None if that is no span at all.

    `logits` (T, 2) score each piece as first and last; the first row stands for "none"
    (unless there is `always` a span), and the text's pieces begin at row `offset`.
    """
    rows = logits[offset : offset + len(text.rows)]
    most = len(rows)
    if not most:
        return None
    scores = rows[:, None, 0] + rows[None, :, 1]  # (T, T) first, last
    ahead = np.arange(most)[None, :] - np.arange(most)[:, None]
    scores = np.where((ahead >= 0) & (ahead < _LONGEST_VALUE), scores, -np.inf)
    first, last = divmod(int(scores.argmax()), most)
    if not always and scores[first, last] <= logits[0].sum():
        return None
    return text.spans[first][0], text.spans[last][1]

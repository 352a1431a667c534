"""The reader: whether a turn states something, and what a new statement ends.

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
encoder, and a logistic over what all heads say and a few words (`change_numbers`)
decides; a second change by one statement needs more.

Keep `Statement.vector` and `.states` (`Reader.read` fills them): a candidate without
them costs a run of the encoder. The text of a candidate is what was said, without
the speaker's name in front. Probabilities are those of the heads, not calibrated beyond
the thresholds, which the fit sets on dialogues it did not train on.

The network is fine-tuned from all-MiniLM-L6-v2 (Apache-2.0) on dialogues written for
this project in English, German and Spanish; docs/research/reader-card.md tells data,
figures and limits. Shapes: N texts, D units of a vector (384).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal

import numpy as np

from memagent.language.network import Array, Network, open_network, softmax, units
from memagent.language.vocabulary import BESIDE, FIRST_PERSON, NUMBER, OF_KIN, STAYING, TURNING

Relation = Literal["replaces", "ends", "adds", "same", "unrelated"]
RELATIONS: Final[tuple[Relation, ...]] = ("replaces", "ends", "adds", "same", "unrelated")

_DEEDS: Final = {"replaces": "says what holds in its place", "ends": "says that it ended"}

WEIGHTS_FILE: Final = Path(__file__).parent / "data" / "reader.npz.zlib"
LIGHT: Final = 64
"""Units of each projection of the light heads."""
EXTRAS: Final = 4
"""Numbers of a pair beside its texts; see `pair_extras`."""
NUMBERS: Final = 190
"""Numbers by which a change is decided; see `change_numbers`."""
BACKED: Final = 0.1
"""Least probability of a change by the pair head alone, whatever else speaks for it."""
SET_ANEW: Final = 0.85
"""Of a change by the pair head, where the new one says that what the old one names was
changed to something: enough then.
"""
MANY_WORDS: Final = 30
"""Words of a long text, which tells more than one thing."""
SURE: Final = 0.95
"""Least probability of a change where either text is long, or the new one says that things stay."""
# The kind and the number that tell a thing from others: "flat 4 is", "the 2024 budget".
_LABEL: Final = re.compile(
    r"\W*(?:(?:the|my|our|der|die|das|el|la)\s+)?"
    r"(?:((?:19|20)\d\d)\s+([^\W\d_]+)|([^\W\d_]+)\s+#?(\d+)"
    r"(?=\s+(?:is|are|was|has|had|will|ist|war|hat|hatte|es|está|fue|tiene)\b))",
    re.I,
)
# What somebody says to have been given another value: "I changed the alarm code to", "my
# flight was changed to".
_ANEW: Final = re.compile(
    r"\b(?:i|we|they|he|she|(?-i:[A-Z]\w+))(?:['’]ve|\s+ha(?:ve|s|d))?(?:\s+(?:just|finally|now|also|recently|already))?"
    r"\s+(?:changed|renamed|reset|updated|switched|set)\s+(?:my|our|the|his|her|their)\s+((?:[^\W\d_]+\s+){1,3}?)(?:from\s+[^.!?]{1,40}?)?to\b"
    r"|\b(?:my|our|the)\s+((?:[^\W\d_]+\s+){1,3}?)(?:ha(?:s|ve)\s+(?:been\s+)?|was\s+|were\s+|got\s+)?"
    r"(?:changed|renamed|reset|updated|switched)\s+(?:from\s+[^.!?]{1,40}?)?to\b",
    re.I,
)
_VALUE: Final = re.compile(
    r"\W*(?:(?:my|our|the|his|her|their)\s+)?((?:[^\W\d_]+\s+){0,3}?[^\W\d_]+)\s*(?:\b(?:is|are|was|were)\b|:)",
    re.I,
)
_OPEN: Final = re.compile(
    r"\?|\b(?:if|unless|almost|nearly|wish|never|not|cannot|until|before)\b|n['’]t\b", re.I
)
_DAY_S: Final = 86_400.0
_MOST_LEAD: Final = 6.0
# Log odds against a change of the candidate that is not there beside a single one.
_ALONE: Final = 9.0


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """Probabilities from which a head is believed; the fit sets them."""

    states: float = 0.1
    """Of a text stating something; below it neither changes anything nor is changed."""
    light: float = 0.03
    """Of a change by the light head; below it a candidate is not read together."""
    change: float = 0.9
    """Of a change (replaces or ends) by `weights`."""
    proposals: int = 4
    """Most candidates that are read together with one new statement."""
    weights: tuple[float, ...] = (0.0, 1.0, *[0.0] * (NUMBERS - 2))
    """Of each number of `change_numbers`; by default the pair head's odds decide alone."""


@dataclass(frozen=True)
class Statement:
    """A text that somebody said, with what is known of it."""

    text: str
    speaker: str = ""
    """Empty if not known."""
    at: datetime | None = None
    vector: Array | None = None
    """Its unit vector (D,), if it was read before."""
    states: float | None = None
    """The probability that it states something one would look up later, if it was read."""


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
class Weighed:
    """A candidate that was read together with a new statement."""

    index: int
    """Place among the candidates."""
    pair: PairReading
    numbers: tuple[float, ...]
    """See `change_numbers`."""


@dataclass(frozen=True)
class Change:
    """A candidate that a new statement replaces or ends."""

    index: int
    """Place among the candidates."""
    relation: Literal["replaces", "ends"]
    probability: float
    reason: str


@dataclass(frozen=True, eq=False)
class Reader:
    """Readings of texts by one network; reads only, safe to share between threads."""

    network: Network
    thresholds: Thresholds
    """The probabilities from which the network is believed."""

    def propose(self, old: Sequence[Statement], new: Statement) -> Array:
        """Return the light head's probability (N,) that `new` changes each old statement."""
        return softmax(self._light(old, new))[:, :2].sum(axis=1)

    def _light(self, old: Sequence[Statement], new: Statement) -> Array:
        """Return the light head's logits (N, relations)."""
        if not old:
            return np.zeros((0, len(RELATIONS)), np.float32)
        units = [own.vector for own in self.read([*old, new]) if own.vector is not None]
        vectors = np.array(units) * np.float32(np.sqrt(self.network.width))
        extras = np.array([pair_extras(own, new) for own in old], np.float32)
        linear = self.network.linear
        near = linear("near", vectors)
        first, second = near[:-1], near[-1:]
        parts = [
            linear("old", vectors[:-1]),
            np.repeat(linear("new", vectors[-1:]), len(old), axis=0),
            first * second,
            np.abs(first - second),
            extras,
        ]
        return self.network.head("light", np.concatenate(parts, axis=1))

    def compare(self, old: Sequence[Statement], new: Statement) -> tuple[PairReading, ...]:
        """Return how `new` stands to each old statement, read together by the whole encoder.

        The logits are the light head's plus what reading together changes about them.
        """
        if not old:
            return ()
        tokenizer = self.network.tokenizer
        texts = [pair_text(own) for own in (*old, new)]
        *older, newer = [tokenizer.pieces(text) for text in texts]
        pooled = self.network.encode([tokenizer.joined(pieces, newer) for pieces in older])
        extras = np.array([pair_extras(own, new) for own in old], np.float32)
        inputs = np.concatenate([pooled, extras], axis=1)
        return tuple(
            PairReading(*(float(share) for share in row))
            for row in softmax(self._light(old, new) + self.network.head("pair", inputs))
        )

    def weigh(self, new: Statement, candidates: Sequence[Statement]) -> tuple[Weighed, ...]:
        """Return the candidates that `new` may change, the likeliest by the light head first.

        Empty if `new` states nothing.
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
        pairs = self.compare([olds[place] for place in proposed], known)
        odds = [*(_log_odds(float(shares[rank])) for rank in likely), -_ALONE]
        return tuple(
            Weighed(
                place,
                pair,
                change_numbers(
                    olds[place], known, pair, min(odds[rank] - odds[0 if rank else 1], _MOST_LEAD)
                ),
            )
            for rank, (place, pair) in enumerate(zip(proposed, pairs, strict=True))
        )

    def changes(self, new: Statement, candidates: Sequence[Statement]) -> tuple[Change, ...]:
        """Return the candidates that `new` replaces or ends, the surest first.

        Empty if `new` states nothing or nothing is sure enough. A second change by the
        same statement must leave half as much doubt as the first. A long text tells more than
        one thing, so that it hardly ever ends anything, nor is ended; one that says that
        things stay ("I still have my cat") hardly ever ends anything either. One that says
        that a thing was changed ("I changed the code to 5") needs less. What the pair
        head does not back is no change: in a small memory time alone would make one. What
        opens with another number of its kind ("flat 4 is", "the 2024 budget") is another
        thing and ends nothing.
        """
        bar = self.thresholds.change
        shared = [(self.probability(own), own) for own in self.weigh(new, candidates)]
        changes: list[Change] = []
        stays = STAYING.search(new.text) and not TURNING.search(new.text)
        for share, own in sorted(shared, key=lambda entry: -entry[0]):
            needed = (1 + bar) / 2 if changes else bar
            longest = max(len(text.split()) for text in (new.text, candidates[own.index].text))
            if stays or longest > MANY_WORDS:
                needed = max(needed, SURE)
            elif own.pair.change >= SET_ANEW and _set_anew(new, candidates[own.index]):
                needed = 0.0
            if (
                share >= needed
                and own.pair.change >= BACKED
                and not _apart(new, candidates[own.index])
            ):
                relation: Literal["replaces", "ends"] = (
                    "replaces" if own.pair.replaces >= own.pair.ends else "ends"
                )
                deed = _DEEDS[relation]
                reason = f"the new statement {deed} (p={share:.2f})"
                changes.append(Change(own.index, relation, share, reason))
        return tuple(changes)

    def probability(self, weighed: Weighed) -> float:
        """Return the probability that a candidate holds no longer."""
        odds = float(np.dot(self.thresholds.weights, weighed.numbers))
        return float(1 / (1 + np.exp(-odds)))

    def read(self, statements: Sequence[Statement]) -> tuple[Statement, ...]:
        """Return statements with their vectors and the probabilities that they state something.

        Those that carry both are not read again; texts are cut at 128 word pieces.
        """
        missing = [
            place
            for place, own in enumerate(statements)
            if own.vector is None or own.states is None
        ]
        known = list(statements)
        if missing:
            tokenizer = self.network.tokenizer
            pooled = self.network.encode(
                [tokenizer.alone(tokenizer.pieces(known[place].text)) for place in missing]
            )
            shares = softmax(self.network.head("turn", pooled)[:, :2])[:, 1].tolist()
            for place, share, vector in zip(missing, shares, units(pooled), strict=True):
                known[place] = replace(known[place], vector=vector, states=share)
        return tuple(known)

    def _states(self, statement: Statement) -> bool:
        return (statement.states or 0.0) >= self.thresholds.states


def _apart(*pair: Statement) -> bool:
    """Say whether two statements open with things of one kind and of different numbers."""
    found = (_LABEL.match(statement.text.lower()) for statement in pair)
    first, second = (set(filter(None, one.groups())) if one else set[str]() for one in found)
    return [word.isdigit() for word in first & second] == [False]


def _set_anew(new: Statement, old: Statement) -> bool:
    """Say whether a statement says that what the old one opens with was changed to something."""
    said, told = _ANEW.search(new.text), _VALUE.match(old.text)
    if said is None or told is None or _OPEN.search(new.text):
        return False
    return (said[1] or said[2]).lower().split() == told[1].lower().split()


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
            weights=tuple(map(float, stored[4:])) or Thresholds.weights,
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


def change_numbers(
    old: Statement, new: Statement, pair: PairReading, lead: float
) -> tuple[float, ...]:
    """Return what decides whether `new` changes `old`: a constant, odds, time and cues.

    These are 19; the others are the products of every two of them, and their squares. The
    pair head's shares say more than its odds of a change alone. `lead` is how far the
    light head's log odds are ahead of those for the best of the other candidates. A
    relative whom the old text does not name is another subject; a long text tells more
    than one thing.
    """
    shares = (pair.replaces, pair.ends, pair.adds, pair.same, pair.unrelated)
    kin = OF_KIN.search(new.text)
    own = (
        1.0,
        _log_odds(pair.change),
        *(float(np.log(max(share, 1e-4))) for share in shares),
        _log_odds(new.states or 0.0),
        *pair_extras(old, new)[2:],
        *(float(bool(cue.search(new.text))) for cue in (BESIDE, TURNING, STAYING, FIRST_PERSON)),
        float(kin is not None and kin[1].casefold() not in old.text.casefold()),
        float(bool(NUMBER.search(new.text) and NUMBER.search(old.text))),
        lead,
        *(float(np.log1p(len(text.split()))) for text in (old.text, new.text)),
    )
    return tuple(first * second for at, first in enumerate(own) for second in own[at:])


def _log_odds(share: float) -> float:
    bounded = min(max(share, 1e-4), 1 - 1e-4)
    return float(np.log(bounded / (1 - bounded)))

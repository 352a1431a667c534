"""A turn as the numbers that the network reads: words with their places in the text.

A word counts by three things: its frozen static vector, the hashes of itself, its
beginning and its end, and a row of flags (capital, digit, first person, a speaker's
name, part of a time phrase, ...). A new name therefore has a shape and a place even
though no weight knows it. Training and inference share this file, so both see the same
numbers. Words of the turn before stand in front, marked as context.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final
from zlib import crc32

import numpy as np
import numpy.typing as npt

from memagent.embed.static import open_table
from memagent.protocols import Vector
from memagent.timex.resolve import find_times

Ids = npt.NDArray[np.int64]
"""(T,) or (T, HASHES) int64."""
Floats = npt.NDArray[np.float32]

DIM: Final = 256
"""Width of a static vector."""
BUCKETS: Final = 4_096
"""Rows of the table of hashed character strings."""
HIDDEN_STRING: Final = BUCKETS
"""A further row that stands for a word that training hid."""
HASHES: Final = 6
"""Hashed strings a word: itself, two beginnings, two ends, its shape."""
CONTEXT_WORDS: Final = 16
"""Words of the turn before that are read with a turn."""
MAX_WORDS: Final = 160
"""Words of a window; a longer text is read in windows."""

FLAGS: Final = (
    "capital", "all_capitals", "digit", "sign", "opens_sentence", "first_person", "speaker",
    "other_speaker", "time", "context", "question", "pronoun",
)  # fmt: skip
"""What a token's flags say, in order."""
_WORD = re.compile(r"[^\W_]+(?:[’'\-][^\W_]+)*|[^\w\s]|_")
_ANCHOR: Final = datetime(2024, 1, 2, tzinfo=UTC)
"""Any day: only the places of the phrases count."""
_SENTENCE_END = frozenset(".!?…\n")
FIRST: Final = frozenset(
    "i i'm i've i'd i'll me my mine we our us we're we've myself ich mich mir mein meine meinen "
    "meinem meiner wir uns unser unsere".split()
)
"""Words of the first person."""
_PRONOUNS = frozenset(
    "he she him her his hers they them their er sie ihm ihn ihr ihre sein".split()
)


@dataclass(frozen=True, slots=True)
class Word:
    """A word or sign with its place in the text."""

    text: str
    start: int
    end: int

    @property
    def folded(self) -> str:
        """The word in lower case with straight apostrophes."""
        return self.text.lower().replace("’", "'")


@dataclass(frozen=True, slots=True)
class TokenRows:
    """The numbers of one window: T tokens, those of the context first."""

    words: tuple[Word, ...]
    context: int
    """How many of the words stand in the turn before."""
    vectors: Floats
    """(T, DIM) static vectors."""
    hashes: Ids
    """(T, HASHES) rows of the table of hashes."""
    flags: Floats
    """(T, len(FLAGS)) zeros and ones."""


def words_of(text: str) -> list[Word]:
    """Split a text into words and signs with their places."""
    return [Word(match.group(), match.start(), match.end()) for match in _WORD.finditer(text)]


@lru_cache(maxsize=50_000)
def static_vector(word: str) -> Vector:
    """Return the static vector (DIM,) of a folded word, at most of length 1; zeros if unknown."""
    table = open_table()
    rows = [row for part in table.tokeniser.words(word) for row in table.tokeniser.pieces(part)]
    if not rows:
        return np.zeros(DIM, dtype=np.float32)
    picked = np.asarray(rows)
    total = table.scales[picked] @ table.vectors[picked].astype(np.float32)
    length = float(np.linalg.norm(total))
    return (total / max(length, 1.0)).astype(np.float32)


@lru_cache(maxsize=50_000)
def hashes_of(word: str) -> tuple[int, ...]:
    """Return the rows of a word's strings in the table of hashes."""
    low = word.lower().replace("’", "'")
    shape = re.sub(r"[a-zà-öø-ÿ]+", "x", re.sub(r"[A-ZÀ-ÖØ-Þ]+", "X", re.sub(r"\d+", "9", word)))
    strings = (f"w{low}", f"a{low[:2]}", f"b{low[:3]}", f"y{low[-2:]}", f"z{low[-3:]}", f"s{shape}")
    return tuple(crc32(string.encode("utf-8", "replace")) % BUCKETS for string in strings)


def rows_of(
    words: Sequence[Word],
    context: Sequence[Word],
    *,
    speaker: str,
    others: Iterable[str] = (),
    timed: Sequence[tuple[int, int]] = (),
) -> TokenRows:
    """Return the numbers of a window of words behind its context.

    `timed` are the (start, end) places of time phrases in the text of `words`.
    """
    joined = (*context, *words)
    own = frozenset(speaker.lower().split())
    foreign = frozenset(part for name in others for part in name.lower().split()) - own
    flags = np.zeros((len(joined), len(FLAGS)), dtype=np.float32)
    asks = _asking(joined)
    opens = True
    for place, word in enumerate(joined):
        text, folded = word.text, word.folded
        base = folded.removesuffix("'s")
        inside = place >= len(context)
        opens = opens or place == len(context)
        flags[place] = (
            text[0].isupper(),
            len(text) > 1 and text.isupper(),
            text[0].isdigit(),
            not text[0].isalnum(),
            opens,
            folded in FIRST,
            base in own,
            base in foreign,
            inside and any(start <= word.start < end for start, end in timed),
            not inside,
            asks[place],
            folded in _PRONOUNS,
        )
        opens = text in _SENTENCE_END
    vectors = np.stack([static_vector(word.folded) for word in joined])
    hashes = np.array([hashes_of(word.text) for word in joined], dtype=np.int64)
    return TokenRows(joined, len(context), vectors, hashes, flags)


def _asking(words: Sequence[Word]) -> list[bool]:
    """Say of each word whether its sentence ends with a question mark."""
    asks = [False] * len(words)
    state = False
    for place in range(len(words) - 1, -1, -1):
        if words[place].text in _SENTENCE_END:
            state = words[place].text == "?"
        asks[place] = state
    return asks


def time_places(text: str) -> list[tuple[int, int]]:
    """Return the (start, end) places of the time phrases in a text."""
    return [(mention.start, mention.end) for mention in find_times(text, anchor=_ANCHOR)]

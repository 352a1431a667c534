"""Rankings of turns by plain means: BM25 and cosine, over single turns and windows.

They are independent of any memory bank.

A turn is indexed as "speaker (8 May 2023): text", or `plain` without the date, a window
as the turn with one neighbour on either side in its session. BM25 is Lucene's variant
over stemmed words. Fusion is reciprocal rank with equal weights. Ties go to the earlier
turn. All rankings are lists of turn ids, best first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from math import log
from typing import Literal

import numpy as np
import Stemmer

from memagent.core.records import Session, Turn
from memagent.protocols import Embedder

K1, B = 1.2, 0.75
RRF_K = 60
Field = Literal["plain", "turn", "window"]
Scores = np.ndarray[tuple[int], np.dtype[np.float32]]

_WORD = re.compile(r"[^\W_]+")
_STOP = frozenset(
    "a an and are as at be by did do does for from had has have he her his how i in is it of on "
    "or she that the they to was "
    "were what when where which who why will with would you".split()
)


@lru_cache(maxsize=1)
def _stemmer() -> Stemmer.Stemmer:
    return Stemmer.Stemmer("english")


def terms_of(text: str) -> list[str]:
    """Return the stemmed words of a text without stop words, repeats kept.

    All its words when it has no others.
    """
    words = [word.lower() for word in _WORD.findall(text)]
    content = [word for word in words if word not in _STOP] or words
    return [_stemmer().stemWord(word) for word in content]


class BM25:
    """BM25 over N texts: idf ln(1 + (N - n + 0.5) / (n + 0.5)), k1 1.2, b 0.75."""

    def __init__(self, texts: Sequence[str]) -> None:
        counts = [Counter(terms_of(text)) for text in texts]
        self._lengths = np.array([sum(count.values()) for count in counts], dtype=np.float32)
        self._norm = K1 * (1.0 - B + B * self._lengths / max(float(self._lengths.mean()), 1e-9))
        postings: dict[str, list[tuple[int, int]]] = {}
        for place, count in enumerate(counts):
            for term, times in count.items():
                postings.setdefault(term, []).append((place, times))
        self._postings = postings

    def scores(self, query: str) -> Scores:
        """Score of each text, shape (N,)."""
        total = np.zeros(len(self._lengths), dtype=np.float32)
        for term in dict.fromkeys(terms_of(query)):
            held = self._postings.get(term, [])
            if not held:
                continue
            places = np.array([place for place, _ in held])
            times = np.array([count for _, count in held], dtype=np.float32)
            idf = log(1.0 + (len(self._lengths) - len(held) + 0.5) / (len(held) + 0.5))
            total[places] += np.float32(idf) * times / (times + self._norm[places])
        return total


def fused(rankings: Sequence[Sequence[str]]) -> list[str]:
    """Reciprocal-rank fusion: the sum of 1 / (60 + rank) over the rankings, ties by id."""
    total: dict[str, float] = {}
    for ranking in rankings:
        for rank, turn_id in enumerate(ranking, start=1):
            total[turn_id] = total.get(turn_id, 0.0) + 1.0 / (RRF_K + rank)
    return sorted(total, key=lambda turn_id: (-total[turn_id], turn_id))


class TurnIndex:
    """The turns of some sessions, ranked by BM25 or by cosine, as single turns or as windows."""

    def __init__(self, sessions: Sequence[Session]) -> None:
        self.turns: tuple[Turn, ...] = tuple(turn for session in sessions for turn in session.turns)
        """All turns in order."""
        self._texts: dict[Field, list[str]] = {"plain": [], "turn": [], "window": []}
        for session in sessions:
            lines = [_line(session, turn) for turn in session.turns]
            self._texts["plain"] += [f"{turn.speaker}: {turn.said}" for turn in session.turns]
            self._texts["turn"] += lines
            self._texts["window"] += [
                "\n".join(lines[max(0, at - 1) : at + 2]) for at in range(len(lines))
            ]
        self._bm25: dict[Field, BM25] = {}
        self._vectors: dict[
            tuple[str, Field], np.ndarray[tuple[int, int], np.dtype[np.float32]]
        ] = {}

    def lexical(self, query: str, *, field: Field) -> list[str]:
        """Return the turns that share a word with the query, by BM25."""
        if field not in self._bm25:
            self._bm25[field] = BM25(self._texts[field])
        scores = self._bm25[field].scores(query)
        return self._ids(scores, np.flatnonzero(scores > 0.0))

    async def dense(self, query: str, *, field: Field, embedder: Embedder) -> list[str]:
        """All turns by cosine."""
        scores = await self._cosines(query, field, embedder)
        return self._ids(scores, np.arange(len(self.turns)))

    async def cosines(self, query: str, *, embedder: Embedder) -> dict[str, float]:
        """Cosine of each turn, as "speaker: text", by turn id."""
        scores = (await self._cosines(query, "plain", embedder)).tolist()
        return dict(zip((turn.id for turn in self.turns), scores, strict=True))

    async def _cosines(self, query: str, field: Field, embedder: Embedder) -> Scores:
        key = (embedder.id, field)
        if key not in self._vectors:
            self._vectors[key] = np.asarray(
                await embedder.embed(self._texts[field]), dtype=np.float32
            )
        vector = np.asarray(await embedder.embed([query]), dtype=np.float32)[0]
        scores: Scores = self._vectors[key] @ vector
        return scores

    def _ids(self, scores: Scores, places: np.ndarray[tuple[int], np.dtype[np.intp]]) -> list[str]:
        order: list[int] = places[np.argsort(-scores[places], kind="stable")].tolist()
        return [self.turns[place].id for place in order]


def _line(session: Session, turn: Turn) -> str:
    at = session.date_of(turn)
    return f"{turn.speaker}{f' ({at.day} {at:%B %Y})' if at else ''}: {turn.said}"

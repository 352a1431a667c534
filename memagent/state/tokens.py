"""Words for the keyword arm: a Unicode tokeniser with stemming, and the BM25 formula.

Tokens are case-folded, NFKC-normalised runs of letters and digits. Runs in scripts
written without spaces (Han, Kana, Hangul, Thai, Lao, Khmer, Myanmar) become overlapping
pairs of characters, so they can be found without a dictionary. Latin words are stemmed
by Snowball's English rules; other scripts are left as they are. BM25 is Lucene's
variant (Robertson and Zaragoza 2009, idf never negative). It is scored here and not by
a library because a library's index is built once, while a memory changes by one item
and is forked a thousand times; the tests hold it equal to `bm25s` on the same tokens.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import Any

K1 = 1.2
"""Term-frequency saturation."""
B = 0.75
"""Length normalisation."""

_REMEMBERED_CHARS = 1_000
"""Longest line whose terms are remembered."""
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?", re.UNICODE)
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f]+"
)
_POSSESSIVE = re.compile(r"['’]s?$")
_STOP = frozenset(
    "a an and are as at be been but by did do does for from had has have he her hers him his i "
    "if in into is it its me my of on or our ours she so that the their theirs them then there "
    "these they this those to us was we were what when where which who whom why will with would "
    "you your yours how am being can could just not".split()
)


@lru_cache(maxsize=1)
def _stemmer() -> Any:
    import Stemmer  # PyStemmer: Snowball's compiled stemmers

    return Stemmer.Stemmer("english")


@lru_cache(maxsize=65_536)
def _stem(word: str) -> str:
    return str(_stemmer().stemWord(word)) if word.isascii() and not word.isdigit() else word


def tokenize(text: str, *, keep_stop_words: bool = False) -> list[str]:
    """Return the index terms of a text in order, repeats kept; [] without any.

    It goes line by line and remembers the lines seen lately: the turns that an item is
    indexed with come again with every item near them.
    """
    return [
        term
        for line in text.split("\n")
        for term in (_known_terms if len(line) <= _REMEMBERED_CHARS else _terms_of)(
            line, keep_stop_words
        )
    ]


@lru_cache(maxsize=8_192)
def _known_terms(text: str, keep_stop_words: bool) -> tuple[str, ...]:
    return _terms_of(text, keep_stop_words)


def _terms_of(text: str, keep_stop_words: bool) -> tuple[str, ...]:
    folded = text.casefold() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()
    terms: list[str] = []
    word: str
    for word in _WORD.findall(folded):
        if not word.isascii() and (runs := _UNSPACED.findall(word)):
            for run in runs:
                terms.extend(run[i : i + 2] for i in range(max(1, len(run) - 1)))
            if not (word := _UNSPACED.sub("", word)):
                continue
        if "'" in word or "’" in word:
            word = _POSSESSIVE.sub("", word).replace("'", "").replace("’", "")
        if keep_stop_words or word not in _STOP:
            terms.append(_stem(word))
    return tuple(terms)


def query_terms(text: str) -> list[str]:
    """Return the distinct terms of a query.

    Stop words count only when the query has nothing else.
    """
    return list(dict.fromkeys(tokenize(text) or tokenize(text, keep_stop_words=True)))

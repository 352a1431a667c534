"""The numbers, as pure functions of strings, ids and counts.

Each says what it divides by.

Two spellings of token F1 are in use and differ by points, so both are here under their
own names: `f1` counts repeated words as SQuAD does (Rajpurkar et al. 2016),
`f1_memory_r2` divides the number of *distinct* common words by the lengths of both
texts, repeats included, so it is never higher. `ratio_interval` resamples whole
conversations, because questions about one conversation share its memory.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import exp

import numpy as np

from memagent.core.records import MemoryItem

Part = tuple[float, float]
"""The summands of one question above and below the line of a ratio; (0, 0) when it takes no
part.
"""

_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_TOKEN = re.compile(r"\w+|[^\w\s]")
_WORD = re.compile(r"[^\W_]+")
_LIGHT = frozenset(
    "a an and are as at be been but by did do does for from had has have he her his i if in is "
    "it its me my of on or our she so that the "
    "their them then there they this to us was we were what when which who will with would "
    "you your".split()
)


# -- answers against gold answers ------------------------------------------------------


def normalised(text: str) -> list[str]:
    """Return the words of an answer as SQuAD compares them.

    They are in lower case, without ASCII punctuation and articles.
    """
    return _ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()


def f1(predicted: str, gold: str) -> float:
    """Return the harmonic mean of precision and recall over words with their counts.

    1 when both texts are empty, 0 when one is.
    """
    predicted_words, gold_words = normalised(predicted), normalised(gold)
    if not predicted_words or not gold_words:
        return float(predicted_words == gold_words)
    return _harmonic(
        sum((Counter(predicted_words) & Counter(gold_words)).values()),
        len(predicted_words),
        len(gold_words),
    )


def f1_memory_r2(predicted: str, gold: str) -> float:
    """Return the F1 over distinct common words, divided by lengths with repeats.

    1 when both texts are empty.
    """
    predicted_words, gold_words = normalised(predicted), normalised(gold)
    if not predicted_words or not gold_words:
        return float(predicted_words == gold_words)
    return _harmonic(
        len(set(predicted_words) & set(gold_words)), len(predicted_words), len(gold_words)
    )


def _harmonic(common: int, predicted_words: int, gold_words: int) -> float:
    return (
        2.0 * common / (predicted_words + gold_words)
    )  # 2PR / (P + R) with P = common / predicted, R = common / gold


def bleu1(predicted: str, gold: str) -> float:
    """Return the clipped unigram precision times the brevity penalty, unsmoothed.

    The penalty for shorter answers is exp(1 - gold / predicted).
    """
    predicted_words, gold_words = normalised(predicted), normalised(gold)
    if not predicted_words or not gold_words:
        return float(predicted_words == gold_words)
    precision = sum((Counter(predicted_words) & Counter(gold_words)).values()) / len(
        predicted_words
    )
    return precision * (
        1.0
        if len(predicted_words) >= len(gold_words)
        else exp(1.0 - len(gold_words) / len(predicted_words))
    )


def exact_match(predicted: str, gold: str) -> float:
    """1 when the normalised words are the same in the same order."""
    return float(normalised(predicted) == normalised(gold))


# -- evidence --------------------------------------------------------------------------


def recall_at_k(returned: Sequence[str], gold: Collection[str], *, k: int) -> float:
    """Return the share of the gold turns among the first k turns returned.

    k counts turns, not hits: a hit that rests on three turns uses three.
    """
    if not gold:
        raise ValueError("recall needs at least one gold turn")
    gold_turns = set(gold)
    return len(gold_turns & set(returned[:k])) / len(gold_turns)


def citation_part(cited: Collection[str], gold: Collection[str]) -> Part:
    """Return (cited turns that are gold, cited turns), each turn once.

    `ratio` over questions is citation precision.
    """
    distinct = set(cited)
    return float(len(distinct & set(gold))), float(len(distinct))


def m_fail(gold: Iterable[str], citing: Mapping[str, Sequence[MemoryItem]]) -> list[str]:
    """Gold turns that no stored item cites: what was lost while the memory was built.

    `citing` maps a turn to the items that cite it.
    """
    return [turn_id for turn_id in gold if not citing.get(turn_id)]


def covers(text: str, evidence: str, *, share: float) -> bool:
    """Whether a text holds at least this share of the evidence's distinct content words.

    All words count when the evidence has no content words.
    """
    words = {word.lower() for word in _WORD.findall(evidence)}
    needed = words - _LIGHT or words
    held = {word.lower() for word in _WORD.findall(text)}
    return not needed or len(needed & held) / len(needed) >= share


def m_fail_content(
    gold: Mapping[str, str], citing: Mapping[str, Sequence[MemoryItem]], *, share: float = 0.5
) -> list[str]:
    """Return gold turns (id to text) whose words no citing item covers.

    A citation alone does not keep what was said.
    """
    return [
        turn_id
        for turn_id, text in gold.items()
        if not any(covers(item.text, text, share=share) for item in citing.get(turn_id, ()))
    ]


def items_by_turn(items: Iterable[MemoryItem]) -> dict[str, list[MemoryItem]]:
    """Active items by each turn that they cite."""
    by_turn: dict[str, list[MemoryItem]] = {}
    for item in items:
        if item.active:
            for turn_id in item.source_turn_ids:
                by_turn.setdefault(turn_id, []).append(item)
    return by_turn


def abstention_precision_part(*, abstained: bool, unanswerable: bool) -> Part:
    """(abstained rightly, abstained); `ratio` over questions is the precision of abstaining."""
    return float(abstained and unanswerable), float(abstained)


def abstention_recall_part(*, abstained: bool, unanswerable: bool) -> Part:
    """(abstained rightly, unanswerable); `ratio` over questions is the recall of abstaining."""
    return float(abstained and unanswerable), float(unanswerable)


# -- sums and intervals ----------------------------------------------------------------


def token_count(text: str) -> int:
    """Count words and punctuation signs.

    The count needs no model's tokeniser and is the same everywhere.
    """
    return len(_TOKEN.findall(text))


def ratio(parts: Iterable[Part]) -> float | None:
    """Sum of the numerators over the sum of the denominators; None when that is 0."""
    above = below = 0.0
    for part, whole in parts:
        above, below = above + part, below + whole
    return above / below if below else None


def ratio_interval(
    groups: Sequence[Sequence[Part]], *, samples: int = 1_000, level: float = 0.95, seed: int = 0
) -> tuple[float, float] | None:
    """Return the percentile bootstrap interval of `ratio` over resampled groups.

    Groups are conversations; None below two groups with anything in them.
    """
    sums = [(sum(part for part, _ in group), sum(whole for _, whole in group)) for group in groups]
    sums = [pair for pair in sums if pair[1]]
    if len(sums) < 2:
        return None
    drawn = np.random.default_rng(seed).integers(len(sums), size=(samples, len(sums)))
    totals = np.array(sums, dtype=np.float64)[drawn].sum(axis=1)  # (samples, 2)
    values: list[float] = np.sort(totals[:, 0] / totals[:, 1]).tolist()
    tail = (1.0 - level) / 2.0
    return values[int(tail * (samples - 1))], values[round((1.0 - tail) * (samples - 1))]

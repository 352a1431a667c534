"""Which of several statements about the same thing stands: the latest, or one by hand.

Pure. A question about how things are is answered by the latest statement of the same
subject and predicate; a memory that was written or edited by hand comes before any
quote. Questions of a time, of then, and of events ("when did") keep the order they
have.
"""

from __future__ import annotations

import re
from dataclasses import replace

from memagent.memory.judging.certainty import Reading, Scored
from memagent.memory.question import Period, QuestionKind, QuestionView
from memagent.state.tokens import tokenize

_PRESENT = re.compile(
    r"\b(?:is|are|am|does|do|has|have|['’]s|lives?|works?)\b(?!\s+\w*\s*(?:been|gone|had))", re.I
)
_PAST = re.compile(r"\b(?:did|was|were|had|used)\b", re.I)
_MIN_SHARE = 0.15
"""A later statement must be this likely, relative to the best."""


def asks_present(text: str, view: QuestionView) -> bool:
    """Say whether a question asks how things are now."""
    if view.period is Period.NOW:
        return True
    if view.period is Period.THEN or view.span is not None or view.kind is QuestionKind.WHEN:
        return False
    return bool(_PRESENT.search(text)) and not _PAST.search(text)


def latest_first(reading: Reading, view: QuestionView, text: str) -> Reading:
    """Return the reading with what stands now in front, for a question about now."""
    if not reading.order or not asks_present(text, view):
        return reading
    best = reading.order[0]
    rivals = [entry for entry in reading.order if _rival(entry, best, view)]
    if not rivals:
        return reading

    def stands(entry: Scored) -> tuple[bool, float]:
        said_at = entry.evidence.said_at
        return entry.evidence.by_hand, said_at.timestamp() if said_at is not None else 0.0

    front = max([best, *rivals], key=stands)
    if front is best:
        return reading
    order = (front, *(entry for entry in reading.order if entry is not front))
    chosen = (front, *(entry for entry in reading.chosen if entry is not front))
    return replace(reading, order=order, chosen=chosen[: max(1, len(reading.chosen))])


def _rival(entry: Scored, best: Scored, view: QuestionView) -> bool:
    """Say whether a statement is about the same subject and predicate as the best."""
    if entry is best or not entry.evidence.current or entry.who < min(best.who, 1.0):
        return False
    if entry.share < _MIN_SHARE * best.share and not entry.evidence.by_hand:
        return False
    if not entry.evidence.by_hand and entry.evidence.speaker != best.evidence.speaker:
        return False
    asked = set(view.terms)
    mine, theirs = (
        asked & set(tokenize(entry.evidence.text)),
        asked & set(tokenize(best.evidence.text)),
    )
    return (
        bool(mine) and mine >= theirs if entry.evidence.by_hand else entry.cover >= best.cover - 0.1
    )

"""The tense around a time: whether a clause speaks of what is to come.

English leaves it to the clause whether "on Friday" is the last one or the next. Marks of a
plan decide ("we will", "is leaving"), and verbs of travel and timetables in the present
("the train leaves", "we fly").
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_DOING = r"(?:\s+(?!been\b)\w+)?\s+(?!\w*(?:thing|amazing|exciting|interesting|boring)\b)\w+ing"
_FUTURE_CUE = re.compile(
    r"\b(?:will|won['’]t|shall|gonna|going\s+to|about\s+to|plan(?:s|ning)?\s+(?:to|on|for)|planned|see\s+you|upcoming"
    r"|coming\s+up|looking\s+forward|can['’]t\s+wait|hop(?:e|ing)\s+to|wants?\s+to|let(?:['’]s|\s+us)|scheduled|booked|starts|leaves|due"
    rf"|(?:am|is|are|['’](?:m|re|s)){_DOING}|(?:is|are|['’](?:s|re))\s+(?:on|in))\b|['’]ll\b"
    r"|(?:\b(?:is|are)|['’](?:s|re))\s+\Z"
)
_FUTURE_AFTER = re.compile(
    rf",?\s+\w+(?:['’]ll\b|\s+(?:will|won['’]t|shall)\b|(?:['’](?:m|re|s)|\s+(?:am|are|is)){_DOING}\b)"
)
_CLAUSE_END = re.compile(r"[.!?;\n]")
_SINCE = re.compile(r"\bsince\s+(?:the\s+)?\Z")
_DEADLINE = re.compile(
    r"\b(?:until|till|by)\s+(?:the\s+)?(?:(?:early|mid|late|(?:beginning|start|middle|end)\s+of)[\s-]+(?:the\s+)?)?\Z"
)
_PAST_CUE = re.compile(r"\b(?:was|were|did|had|went|took|made|got|lived|\w+ed)\b")
_FUTURATE = re.compile(
    r"\b(?:i|we|they|you|he|she|it|flight|plane|train|bus|ferry|ship|school|course|class|term|show"
    r"|concert|match|game|contract|lease|visa|meeting|exam)\s+(?:leaves?|fl(?:y|ies)|goes|go|meets?"
    r"|starts?|begins?|arrives?|returns?|moves?|travels?|opens?|closes?|ends?|departs?|comes?|lands?"
    r"|sails?|expires?|retires?|marr(?:y|ies)|graduates?)\b"
)


def leans_future(lowered: str, start: int, end: int) -> bool:
    """Tell whether the clause around a phrase at `[start, end)` speaks of a plan."""
    clause = _CLAUSE_END.split(lowered[max(0, start - 60) : start])[-1]
    if _SINCE.search(clause):
        return False
    if _FUTURE_CUE.search(clause) or _FUTURE_AFTER.match(lowered, end):
        return True
    planned = _DEADLINE.search(clause) or _FUTURATE.search(clause)
    return planned is not None and not _PAST_CUE.search(clause)


def tells_of_future(told: Sequence[str], phrase: str) -> bool:
    """Tell whether texts speak of a plan: the first that holds the phrase, else the last."""
    texts, named = [text.lower() for text in told], phrase.lower()
    for text in texts:
        if (start := text.find(named)) >= 0:
            return leans_future(text, start, start + len(named))
    return bool(texts) and leans_future(texts[-1], len(texts[-1]), len(texts[-1]))

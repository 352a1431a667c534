"""Reads the stretch of time a planner's model gives for a question. Pure; never raises.

    {"from": "2023-05-01", "to": "2023-05-31"}      both days included; null leaves an end open, null at both means no time

Bounds may also be phrases ("May 2023", "last week"), read against the day of the
question. What cannot be read is a `Rejected` with its reason, never a window.
"""

from __future__ import annotations

from datetime import datetime

from memagent.core.ops import Parsed, ParseStatus, Rejected, RejectReason
from memagent.core.records import Granularity, TimeSpan
from memagent.replies.tolerant_json import JsonValue, extract_json
from memagent.timex.resolve import resolve_time

_FROM = ("from", "start")
_TO = ("to", "end", "until")
_RAW_CHARS = 300


def parse_window(text: str, *, asked_at: datetime | None) -> Parsed[TimeSpan]:
    """The window as one value; none with a good status when the model says that the
    question is about no particular time.
    """
    found = extract_json(
        text,
        wanted=lambda value: isinstance(value, dict) and any(key in value for key in _FROM + _TO),
    )
    if found.status is ParseStatus.EMPTY:
        return _unread(text, "the reply is empty")
    entry = found.value
    if not isinstance(entry, dict) or not all(
        any(key in entry for key in keys) for keys in (_FROM, _TO)
    ):
        return _unread(text, "the reply does not give both 'from' and 'to'")
    bounds = [
        next((entry[key] for key in keys if entry.get(key) is not None), None)
        for keys in (_FROM, _TO)
    ]
    spans = [_read(bound, asked_at) for bound in bounds]
    for bound, span in zip(bounds, spans, strict=True):
        if bound is not None and span is None:
            return _unread(text, f"{str(bound)[:80]!r} names no date")
    start = spans[0].start if spans[0] is not None else None
    end = spans[1].end if spans[1] is not None else None
    if start is None and end is None:
        return Parsed(status=found.status)
    if (
        spans[0] is not None
        and spans[1] is not None
        and (spans[0].start, spans[0].end) == (spans[1].start, spans[1].end)
    ):
        return Parsed(status=found.status, values=(spans[0].model_copy(update={"text": None}),))
    if start is not None and end is not None and end <= start:
        return _unread(text, "the window ends before it begins")
    return Parsed(
        status=found.status, values=(TimeSpan(start=start, end=end, granularity=Granularity.RANGE),)
    )


def _read(bound: JsonValue, asked_at: datetime | None) -> TimeSpan | None:
    if isinstance(bound, int) and not isinstance(bound, bool) and 1000 <= bound <= 9999:
        bound = str(bound)
    return resolve_time(bound, anchor=asked_at) if isinstance(bound, str) else None


def _unread(text: str, detail: str) -> Parsed[TimeSpan]:
    bad = Rejected(reason=RejectReason.INVALID_FIELDS, detail=detail, raw=text.strip()[:_RAW_CHARS])
    return Parsed(status=ParseStatus.FAILED, rejected=(bad,))

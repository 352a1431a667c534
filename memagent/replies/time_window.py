"""The stretch of time a planner's model gives for a question. Pure; never raises.

    {"from": "2023-05-01", "to": "2023-05-31"}

Both days are included; null leaves an end open, null at both means no time. Bounds may
also be phrases ("May 2023", "last week"), read against the day of the question. What
cannot be read is a `Rejected` with its reason, never a window.
"""

from __future__ import annotations

from datetime import datetime

from memagent.core.ops import Parsed, ParseStatus, RejectReason
from memagent.core.records import Granularity, TimeSpan
from memagent.replies.entries import unreadable, value_at
from memagent.replies.json_answer import extract_json
from memagent.replies.tolerant_json import JsonValue
from memagent.timex.resolve import resolve_time

_FROM = ("from", "start")
_TO = ("to", "end", "until")


def parse_window(text: str, *, asked_at: datetime | None) -> Parsed[TimeSpan]:
    """Read the window as one value.

    None with a good status means that the question is about no particular time.
    """
    reply = extract_json(
        text,
        wanted=lambda value: isinstance(value, dict) and any(key in value for key in _FROM + _TO),
    )
    if reply.status is ParseStatus.EMPTY:
        return _unread(text, "the reply is empty")
    entry = reply.value
    if not isinstance(entry, dict) or not all(
        any(key in entry for key in keys) for keys in (_FROM, _TO)
    ):
        return _unread(text, "the reply does not give both 'from' and 'to'")
    bounds = [value_at(entry, keys) for keys in (_FROM, _TO)]
    first, last = (_read(bound, asked_at) for bound in bounds)
    for bound, span in zip(bounds, (first, last), strict=True):
        if bound is not None and span is None:
            return _unread(text, f"{str(bound)[:80]!r} names no date")
    start, end = first and first.start, last and last.end
    if start is None and end is None:
        return Parsed(status=reply.status)
    if first and last and (first.start, first.end) == (last.start, last.end):
        return Parsed(status=reply.status, values=(first.model_copy(update={"text": None}),))
    if start is not None and end is not None and end <= start:
        return _unread(text, "the window ends before it begins")
    return Parsed(
        status=reply.status, values=(TimeSpan(start=start, end=end, granularity=Granularity.RANGE),)
    )


def _read(bound: JsonValue, asked_at: datetime | None) -> TimeSpan | None:
    if isinstance(bound, int) and not isinstance(bound, bool) and 1000 <= bound <= 9999:
        bound = str(bound)
    return resolve_time(bound, anchor=asked_at) if isinstance(bound, str) else None


def _unread(text: str, detail: str) -> Parsed[TimeSpan]:
    return unreadable(text, detail, reason=RejectReason.INVALID_FIELDS)

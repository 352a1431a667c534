"""Answers of the answerer, read from a model's reply. Pure; never raises.

`{"citations": [ids], "answer": "...", "abstain": false}`, or plain text with marks such
as `[mem_..]` or `[D1:3]`; `"sessions": [ids]` beside them names evidence sessions.
"""

from __future__ import annotations

import re

from memagent.core.ops import Parsed, ParseStatus
from memagent.core.records import Record, Text
from memagent.replies.entries import flat_text, ids_at, unreadable
from memagent.replies.json_answer import extract_json
from memagent.replies.reasoning import outside_reasoning

_ANSWER_KEYS = ("answer", "text", "response")
_CITATION_KEYS = ("citations", "selected", "sources", "evidence")
_SESSION_KEYS = ("sessions", "session_ids", "evidence_sessions")

_MARK = re.compile(r"\s?\[([^\[\]\n]{1,400})\]")
_MARK_ID = re.compile(r"(?:mem|evt)_\w+|[A-Za-z]\w*:\d+")
_ANSWER_LINE = re.compile(
    r"^[^\w\n]{0,4}(?:final )?answer[^\w\n]{0,4}:\W{0,4}(?=\S)", re.IGNORECASE | re.MULTILINE
)
_NO_ANSWER = re.compile(
    r"(?:i (?:do not|don.t) know|unknown|not mentioned|no information(?: available)?"
    r"|not enough information|cannot be answered|unanswerable|n/a)\W{0,3}",
    re.IGNORECASE,
)


class AnswerDraft(Record):
    """An answer as the answerer wrote it.

    Citations are unchecked ids of hits or turns, in order, each once.
    """

    text: Text = ""
    citations: tuple[Text, ...] = ()
    sessions: tuple[Text, ...] = ()
    """Evidence sessions named, unchecked, for answerers that ask for them."""
    abstain: bool = False


def parse_answer(text: str) -> Parsed[AnswerDraft]:
    """Read the answer: one value, or none when the status is EMPTY or FAILED.

    Citation marks inside the answer become citations and leave the text; a stock phrase
    such as "I don't know" or an empty answer abstains.
    """
    reply = extract_json(
        text,
        wanted=lambda value: isinstance(value, dict) and any(key in value for key in _ANSWER_KEYS),
    )
    if reply.status is ParseStatus.EMPTY:
        return Parsed(status=reply.status)
    if reply.problem:
        return unreadable(text, reply.problem, reply=reply)
    plain = outside_reasoning(text).text if reply.status is not ParseStatus.STRICT else text.strip()
    entry = reply.value
    if isinstance(entry, dict) and (
        plain[:1] in ("{", "`") or "answer" in entry or "abstain" in entry
    ):
        key = next((key for key in _ANSWER_KEYS if key in entry), None)
        abstain = entry.get("abstain") is True
        if key is None and not abstain:
            return unreadable(text, "the reply has no answer", reply=reply)
        draft = _draft(flat_text(entry[key]) if key else "", ids_at(entry, _CITATION_KEYS), abstain)
        draft = draft.model_copy(update={"sessions": ids_at(entry, _SESSION_KEYS)})
        return Parsed(status=reply.status, values=(draft,), repairs=reply.repairs)
    if plain[:1] == "{":
        return unreadable(text, "the reply is neither JSON nor plain text")
    start = max((match.end() for match in _ANSWER_LINE.finditer(plain)), default=0)
    draft = _draft(plain[start:], (), False)
    return Parsed(status=ParseStatus.REPAIRED, values=(draft,), repairs=reply.repairs)


def _draft(text: str, citations: tuple[str, ...], abstain: bool) -> AnswerDraft:
    """Lift citation marks out of the text."""
    marked: list[str] = []

    def lift(match: re.Match[str]) -> str:
        ids = [part for part in re.split(r"[,;\s]+", match[1]) if part]
        if not ids or not all(_MARK_ID.fullmatch(part) for part in ids):
            return match[0]
        marked.extend(ids)
        return ""

    text = _MARK.sub(lift, text).strip()
    return AnswerDraft(
        text=text,
        citations=tuple(dict.fromkeys((*citations, *marked))),
        abstain=abstain or not text or _NO_ANSWER.fullmatch(text) is not None,
    )

"""Checking an answer's citations against what the answerer was really shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Protocol

from memagent.core.answers import QUOTED_FROM, Answer, Citation, Hit, Verdict
from memagent.core.records import Session, TimeSpan, Turn
from memagent.language.vocabulary import NEGATION
from memagent.memory.judging.evidence import likeness, words_of
from memagent.memory.question import Period, content_terms, read_question
from memagent.state.effects import tokenize
from memagent.state.fold import folded
from memagent.timex.resolve import format_span

_QUOTE_CHARS = 400
# Two words this like each other say the same.
_LIKE = 0.6
_ASSENT = frozenset(tokenize("yes no yeah nope unknown unclear memory memories answer mention"))
# Least share of an answer's content words that its citations must carry.
_CARRIED = 0.5
_DAY = timedelta(days=1)
NOT_CARRIED = "what is cited does not say this"
OF_ANOTHER = "what is cited is about somebody else"
OPPOSITE = "what is cited says the opposite"
STALE = "what is cited has changed since"
CEILING = {Verdict.UNSUPPORTED: QUOTED_FROM, Verdict.ABSTAINED: QUOTED_FROM}
"""Most that an answer with this verdict may claim to be sure."""


class TurnLookup(Protocol):
    """Finds stored turns with their session."""

    def turn_with_session(self, turn_id: str) -> tuple[Turn, Session] | None:
        """Return the turn and its session, or None."""


def cite(answer: Answer, hits: Sequence[Hit], turns: TurnLookup, *, question: str = "") -> Answer:
    """Return the answer with checked citations, completed with quote, speaker and date.

    Only citations of a hit that was shown, or of a turn of one, stay; `notes` names the
    others. An answer without any is marked unsupported, and so is a model's answer whose
    citations do not carry its words; those of the question need not be carried.
    """
    if answer.abstained:
        return answer.model_copy(update={"hits": tuple(hits), "citations": ()})
    by_id = {hit.id: hit for hit in hits}
    by_turn: dict[str, Hit] = {}
    for hit in hits:
        for turn_id in hit.source_turn_ids:
            by_turn.setdefault(turn_id, hit)
    kept: dict[tuple[str, str | None], Citation] = {}
    dropped: list[str] = []
    for citation in answer.citations:
        hit = (
            by_id.get(citation.hit_id)
            or by_turn.get(citation.hit_id)
            or by_turn.get(citation.turn_id or "")
        )
        if hit is None:
            dropped.append(citation.hit_id)
            continue
        if citation.by_hand:
            kept.setdefault((hit.id, None), _completed(citation, hit, None, turns))
            continue
        cited = citation.turn_id or (citation.hit_id if citation.hit_id not in by_id else None)
        for turn_id in [cited] if cited in hit.source_turn_ids else hit.source_turn_ids or [None]:
            full = _completed(citation, hit, turn_id, turns)
            kept.setdefault((full.hit_id, full.turn_id), full)
    notes = answer.notes
    if dropped:
        names = ", ".join(sorted(set(dropped)))
        notes = (*notes, f"citations to evidence that was not shown were dropped: {names}")
    verdict = answer.verdict if kept else Verdict.UNSUPPORTED
    problem = "" if answer.probability is not None else _problem(answer, question, kept, by_id)
    if problem:
        verdict, notes = Verdict.UNSUPPORTED, (*notes, problem)
    return answer.model_copy(
        update={
            "citations": tuple(kept.values()),
            "hits": tuple(hits),
            "notes": notes,
            "verdict": verdict,
        }
    )


def _problem(
    answer: Answer,
    question: str,
    kept: Mapping[tuple[str, str | None], Citation],
    hits: Mapping[str, Hit],
) -> str:
    """Return why citations do not carry a model's answer; "" when they do, or are none."""
    text, citations = answer.text, list(kept.values())
    if not citations:
        return ""
    if carried(text, question, citations, hits) < _CARRIED:
        return NOT_CARRIED
    items = [item for citation in citations if (item := hits[citation.hit_id].item) is not None]
    view = read_question(question, speakers={item.speaker for item in items if item.speaker})
    texts = [f"{citation.quote}\n{hits[citation.hit_id].text}" for citation in citations]
    if items and len(items) == len(citations) and view.people:
        names = {folded(name) for name in view.people}
        tellers = (
            folded(f"{item.subject or ''} {item.speaker or ''} {text}")
            for item, text in zip(items, texts, strict=True)
        )
        if not any(name in teller for teller in tellers for name in names):
            return OF_ANOTHER
    denies = [_denies(said, text, question) for said in texts]
    own = _denies(text, "\n".join(texts), "")
    if own and not any(NEGATION.search(said) for said in texts):
        return OPPOSITE
    if not own and all(denies):
        return OPPOSITE
    stale = all(
        item.version > (citation.version or item.version)
        for item, citation in zip(items, citations, strict=False)
    )
    if items and stale and view.period is not Period.THEN and view.present:
        return STALE
    return ""


def _denies(said: str, answer: str, question: str) -> bool:
    """Say whether the clause that shares most with an answer and its question denies."""
    asked = set(tokenize(f"{answer} {question}"))
    clauses = re.split(r"[.!?;:,\n]+|\bbut\b", said)
    nearest = max(clauses, key=lambda clause: len(asked & set(tokenize(clause))))
    return NEGATION.search(nearest) is not None


def carried(
    text: str, question: str, citations: Iterable[Citation], hits: Mapping[str, Hit]
) -> float:
    """Return the share of an answer's content words that its citations carry, 0 to 1.

    A citation carries the words of its quote, of its memory, its speaker and its dates;
    words that are nearly the same count. 1 for an answer without content of its own.
    """
    own = [
        term
        for term in content_terms(text)
        if term not in tokenize(question) and term not in _ASSENT
    ]
    if not own:
        return 1.0
    texts: list[str] = []
    for citation in citations:
        hit = hits.get(citation.hit_id)
        record = (hit.item or hit.event) if hit is not None else None
        spans = [record.valid] if record is not None and record.valid is not None else []
        if citation.said_at is not None:
            spans.append(TimeSpan(start=citation.said_at, end=citation.said_at + _DAY))
        dates = [format_span(span) for span in spans]
        texts += [citation.quote, citation.speaker or "", hit.text if hit else "", *dates]
    said = " ".join(texts)
    terms, surface = set(tokenize(said)), words_of(text)
    lacking = [surface.get(term, term) for term in own if term not in terms]
    alike = int((likeness(lacking, [said]) >= _LIKE).sum())
    return (len(own) - len(lacking) + alike) / len(own)


def _completed(citation: Citation, hit: Hit, turn_id: str | None, turns: TurnLookup) -> Citation:
    place = turns.turn_with_session(turn_id) if turn_id is not None else None
    item, by_hand = hit.item, citation.by_hand
    version = item.version if item is not None else None
    if version is not None and citation.version is not None:
        version = min(version, max(1, citation.version))
    if place is None:
        return Citation(
            hit_id=hit.id,
            version=version,
            turn_id=turn_id,
            speaker=item.speaker if item is not None and not by_hand else None,
            said_at=item.said_at if item is not None and not by_hand else None,
            quote=citation.quote or hit.text[:_QUOTE_CHARS],
            by_hand=by_hand,
        )
    turn, session = place
    quote = (
        citation.quote
        if citation.quote and citation.quote in turn.said
        else turn.said[:_QUOTE_CHARS]
    )
    return Citation(
        hit_id=hit.id,
        version=version,
        turn_id=turn.id,
        session_id=session.id,
        speaker=turn.speaker,
        said_at=session.date_of(turn),
        quote=quote,
    )

"""Checking an answer's citations against what the answerer was really shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from memagent.core.answers import Answer, Citation, Hit, Verdict
from memagent.core.records import Session, Turn

_QUOTE_CHARS = 400


class TurnLookup(Protocol):
    """Finds stored turns with their session."""

    def turn_with_session(self, turn_id: str) -> tuple[Turn, Session] | None:
        """Return the turn and its session, or None."""
        ...


def cite(answer: Answer, hits: Sequence[Hit], turns: TurnLookup) -> Answer:
    """Return the answer with checked citations, completed with quote, speaker and date.

    Only citations of a hit that was shown, or of a turn of one, stay; `notes` names the
    others. An answer without any is marked unsupported.
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
    return answer.model_copy(
        update={
            "citations": tuple(kept.values()),
            "hits": tuple(hits),
            "notes": notes,
            "verdict": answer.verdict if kept else Verdict.UNSUPPORTED,
        }
    )


def _completed(citation: Citation, hit: Hit, turn_id: str | None, turns: TurnLookup) -> Citation:
    place = turns.turn_with_session(turn_id) if turn_id is not None else None
    item = hit.item
    version = item.version if item is not None else None
    if version is not None and citation.version is not None:
        version = min(version, max(1, citation.version))
    if place is None:
        return Citation(
            hit_id=hit.id,
            version=version,
            turn_id=turn_id,
            speaker=item.speaker if item is not None else None,
            said_at=item.said_at if item is not None else None,
            quote=citation.quote or hit.text[:_QUOTE_CHARS],
            by_hand=citation.by_hand,
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

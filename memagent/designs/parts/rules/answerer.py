"""Answers without a language model: the best evidence, quoted with speaker and date.

The answerer ranks the hits by rules (`evidence`), names the date for a question of
time, and tells present from replaced versions for questions of now and then. It
abstains when no evidence covers the question, or when the question is about somebody
whom memory never mentions. The surprise: an answer is at most three quotations; it
never joins facts, counts, or says yes or no.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from memagent.core.answers import Answer, Citation, Hit, Query, Question, Verdict
from memagent.core.records import TimeSpan
from memagent.designs.base import SlotContext
from memagent.designs.parts.lines import day_span
from memagent.designs.parts.rules.corrections import stands_alone
from memagent.designs.parts.rules.evidence import (
    Evidence,
    Scored,
    evidence_of,
    ranked,
    term_weights,
)
from memagent.designs.parts.rules.keeping import conflicting, overlap
from memagent.designs.parts.rules.wording import quote_from, said_line, time_for
from memagent.memory.bank import MemoryBank
from memagent.memory.question import Period, QuestionKind, QuestionView, read_question
from memagent.state.fold import BankState, folded
from memagent.timex.resolve import format_span

NO_MODEL_NOTE = "No language model is configured; this answer quotes the best evidence found."
NO_MODEL_ABSTAINED_NOTE = (
    "No language model is configured; what was found was judged by rules alone."
)
NOTHING_FOUND = "Nothing in memory answers this."
_LEXICAL = frozenset({"lexical"})
_MAX_TERMS = 24


@dataclass(frozen=True, kw_only=True)
class EvidenceAnswerer:
    """Answers by quoting the best of the hits. Asks no model."""

    min_cover: float = 0.4
    """Share of the question's content the best evidence must cover; half of it will do at
    a cosine of `min_cosine` to the question.
    """
    min_cosine: float = 0.45
    margin: float = 0.25
    """Evidence whose score is within this of the best is quoted too."""
    min_share: float = 0.7
    """And only if it covers this share of what the best covers."""
    max_citations: int = 3

    async def __call__(
        self, question: Question, hits: Sequence[Hit], ctx: SlotContext, /
    ) -> Answer:
        """Return an answer with one to three quotations, or an abstention that says why."""
        state = ctx.bank.state
        speakers = dict.fromkeys(
            name
            for hit in hits
            if hit.item is not None
            for name in (hit.item.speaker, hit.item.subject)
            if name
        )
        view = read_question(
            question.text, speakers=speakers, asked_at=question.asked_at or ctx.clock()
        )
        stranger = await _stranger(view, list(speakers), ctx.bank)
        if stranger is not None:
            return _abstention(f"{stranger} is never mentioned in memory.")
        weights = await _weights(view, question, ctx.bank)
        past = view.period is Period.THEN or view.span is not None
        order = ranked(
            [entry for hit in hits for entry in evidence_of(hit, state, past=past)], view, weights
        )
        if not order or not self._fits(order[0], view):
            return _abstention("What was found does not fit the question well enough to be quoted.")
        if order[0].who == 0 and any(name in speakers for name in view.people):
            people, speaker = " or ".join(view.people), order[0].evidence.speaker
            return _abstention(
                f"The nearest statement is by {speaker}, who does not speak of {people} there."
            )
        return _answer(view, self._choose(order, view), order, state)

    def _fits(self, best: Scored, view: QuestionView) -> bool:
        if not view.terms:
            return bool(view.people or view.span)
        return best.cover >= self.min_cover or (
            best.cover >= self.min_cover / 2 and best.cosine >= self.min_cosine
        )

    def _choose(self, order: Sequence[Scored], view: QuestionView) -> list[Evidence]:
        """Choose the best evidence, and what may be as good; one entry a turn."""
        best = order[0]
        item = best.evidence.hit.item
        if view.period is not Period.ANY and item is not None and item.version > 1:
            # Memory has followed this fact through its changes.
            return [best.evidence]
        chosen: dict[str, Evidence] = {}
        for entry in order:
            evidence = entry.evidence
            near = (
                best.score - entry.score <= self.margin
                and entry.cover >= self.min_share * best.cover
            )
            if near and evidence.current == best.evidence.current:
                key = evidence.turn_ids[-1] if evidence.turn_ids else evidence.hit.id
                chosen.setdefault(key, evidence)
        return list(chosen.values())[: self.max_citations]


# -- reading memory --------------------------------------------------------------------


async def _weights(view: QuestionView, question: Question, bank: MemoryBank) -> dict[str, float]:
    terms = view.terms[:_MAX_TERMS]
    answers = await bank.search_many(
        [Query(text=term, where=question.where, arms=_LEXICAL) for term in terms], k=10
    )
    rarity = {
        term: max(score for hit in hits for score in hit.why.arms.values())
        for term, hits in zip(terms, answers, strict=True)
        if hits
    }
    return term_weights(terms, rarity, items=len(bank.state.items))


async def _stranger(view: QuestionView, speakers: Sequence[str], bank: MemoryBank) -> str | None:
    """Return a person of the question whom memory never mentions, or None."""
    names = [
        name for name in view.people if not any(_same_name(name, speaker) for speaker in speakers)
    ]
    answers = await bank.search_many([Query(text=name, arms=_LEXICAL) for name in names], k=10)
    unknown = (
        name
        for name, hits in zip(names, answers, strict=True)
        if not any(_mentions(hit, name, bank.state) for hit in hits)
    )
    return next(unknown, None)


def _same_name(name: str, speaker: str) -> bool:
    """Say whether a name is the speaker's, a part or short form of it, or misspelt."""
    name, full = folded(name), folded(speaker)
    if name in (full, *full.split()) or (len(name) >= 3 and full.startswith(name)):
        return True
    similar = SequenceMatcher(None, name, full)
    return len(name) >= 5 and name[0] == full[0] and similar.ratio() >= 0.85


def _mentions(hit: Hit, name: str, state: BankState) -> bool:
    texts = [
        text
        for entry in evidence_of(hit, state)
        for text in (entry.text, entry.speaker or "", *(near for _, near in entry.around))
    ]
    whole_word = rf"(?<!\w){re.escape(folded(name))}(?:['’]?s)?(?!\w)"
    return re.search(whole_word, folded(" ".join((hit.text, *texts)))) is not None


# -- wording ---------------------------------------------------------------------------


def _abstention(reason: str) -> Answer:
    return Answer(
        text=NOTHING_FOUND, verdict=Verdict.ABSTAINED, notes=(NO_MODEL_ABSTAINED_NOTE, reason)
    )


def _answer(
    view: QuestionView, chosen: Sequence[Evidence], order: Sequence[Scored], state: BankState
) -> Answer:
    best = chosen[0]
    when, lead = _lead(best, view)
    lines = [lead] if lead else []
    citations: list[Citation] = []
    for evidence in chosen:
        lines.append(_line(evidence, view.terms))
        citations += _citations(evidence, view)
        lines += _corrected_lines(evidence, state)
    notes = (NO_MODEL_NOTE, *_history(best, state), *_disagreement(best, order))
    return Answer(text="\n".join(lines), citations=tuple(citations), when=when, notes=notes)


def _line(evidence: Evidence, terms: Sequence[str] = ()) -> str:
    return said_line(evidence.speaker, evidence.said_at, quote_from(evidence.text, terms))


def _lead(best: Evidence, view: QuestionView) -> tuple[TimeSpan | None, str]:
    """Return the time, and the first line, for a question of time; else nothing."""
    if view.kind is not QuestionKind.WHEN:
        return None, ""
    span = time_for(best, view)
    if span is not None:
        return span, f"{format_span(span)}."
    if best.said_at is None:
        return None, "No date is told."
    said = day_span(best.said_at)
    return said, f"No date is told; it was said on {format_span(said)}."


def _citations(evidence: Evidence, view: QuestionView) -> list[Citation]:
    """Cite the turn of the words; of a terse correction, the corrected turn too."""
    hit_id, version = evidence.hit.id, evidence.version
    *older, latest = evidence.turn_ids or (None,)
    quote = quote_from(evidence.text, view.terms)
    citations = [Citation(hit_id=hit_id, version=version, turn_id=latest, quote=quote)]
    if older and not stands_alone(evidence.text):
        citations.append(Citation(hit_id=hit_id, version=version, turn_id=older[-1]))
    return citations


def _corrected_lines(evidence: Evidence, state: BankState) -> list[str]:
    if len(evidence.turn_ids) < 2 or stands_alone(evidence.text):
        return []
    turn = state.turn(evidence.turn_ids[-2])
    if turn is None:
        return []
    session = state.sessions[state.turns[turn.id][0]]
    line = said_line(turn.speaker, session.date_of(turn), quote_from(turn.said, ()))
    return [f"This corrects: {line}"]


def _history(best: Evidence, state: BankState) -> list[str]:
    """Note the versions that the answer replaced, or the one that replaced it."""
    versions = evidence_of(best.hit, state, past=True)
    others = [version for version in versions if version.text != best.text]
    if best.current:
        return [f"Updated; before that, {_line(older)}" for older in others[:2]]
    return [f"This has changed since: {_line(newer)}" for newer in others if newer.current]


def _disagreement(best: Evidence, order: Sequence[Scored]) -> list[str]:
    """Note the nearest statement of the same speaker with other numbers, days or names."""
    for entry in order[1:8]:
        other = entry.evidence
        same = (
            other.hit.id != best.hit.id
            and other.current
            and other.speaker is not None
            and other.speaker == best.speaker
        )
        if same and overlap(best.text, other.text) >= 0.5 and conflicting(best.text, other.text):
            return [f"It may not agree: {_line(other)}"]
    return []

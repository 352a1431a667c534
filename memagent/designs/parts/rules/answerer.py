"""Answers without a language model: the best evidence, quoted with speaker and date.

The answerer orders the hits by how well they answer and asks how sure that makes
(`memagent.memory.judging.certainty`): `supported` from a probability of 0.7, `quoted` as the
closest thing said from 0.3, else it abstains. It names the date for a question of time
and the place or number where the statement has just one, and tells present from
replaced versions. It abstains too when the question is about somebody whom memory never
mentions. The surprise: an answer is at most three quotations; it never joins facts,
counts, or says yes or no.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from memagent.core.answers import (
    QUOTED_FROM,
    SUPPORTED_FROM,
    Answer,
    Citation,
    Hit,
    Query,
    Question,
    Verdict,
)
from memagent.core.records import TimeSpan
from memagent.designs.base import SlotContext
from memagent.designs.parts.lines import day_span
from memagent.designs.parts.rules.corrections import stands_alone
from memagent.designs.parts.rules.currency import latest_first
from memagent.designs.parts.rules.keeping import conflicting, overlap
from memagent.designs.parts.rules.overview import overview
from memagent.designs.parts.rules.wording import quote_from, said_line, short_answer, time_for
from memagent.memory.bank import MemoryBank
from memagent.memory.judging.certainty import OPEN_YEAR, Reading, Scored, read_hits, term_weights
from memagent.memory.judging.evidence import Evidence, evidence_of
from memagent.memory.question import Period, QuestionKind, QuestionView, read_question
from memagent.state.fold import BankState, folded
from memagent.timex.resolve import format_span

NO_MODEL_NOTE = "No language model is configured; this answer quotes the best evidence found."
NO_MODEL_ABSTAINED_NOTE = (
    "No language model is configured; what was found was judged by rules alone."
)
NOTHING_FOUND = "Nothing in memory answers this."
CLOSEST = "Not sure. The closest thing said:"
_LEXICAL = frozenset({"lexical"})


@dataclass(frozen=True, kw_only=True)
class EvidenceAnswerer:
    """Answers by quoting the best of the hits. Asks no model."""

    supported: float = SUPPORTED_FROM
    """Least probability of a `supported` answer."""
    quoted: float = QUOTED_FROM
    """Least probability of a `quoted` one; below it the answerer abstains."""

    async def __call__(
        self, question: Question, hits: Sequence[Hit], ctx: SlotContext, /
    ) -> Answer:
        """Return an answer with one to three quotations, or an abstention that says why."""
        if (listed := overview(question, ctx)) is not None:
            return listed.model_copy(update={"notes": (NO_MODEL_NOTE, *listed.notes)})
        bank = ctx.bank
        state = bank.state
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
        stranger = await _stranger(view, list(speakers), bank)
        if stranger is not None:
            return _abstention(f"{stranger} is never mentioned in memory.")
        weights = term_weights(view.terms, bank.view.index)
        reading = read_hits(view, hits, state, text=question.text, weights=weights)
        reading = latest_first(reading, view, question.text)
        if not reading.order:
            return _abstention("Nothing was found.")
        best = reading.order[0]
        sure = reading.sure
        if best.who == 0 and any(name in speakers for name in view.people):
            people, speaker = " or ".join(view.people), best.evidence.speaker
            return _abstention(
                f"The nearest statement is by {speaker}, who does not speak of {people} there.",
                probability=min(sure, self.quoted),
            )
        if sure < self.quoted:
            return _abstention(
                "What was found does not fit the question well enough to be quoted.",
                probability=sure,
            )
        verdict = Verdict.SUPPORTED if sure >= self.supported else Verdict.QUOTED
        return _answer(view, reading, state, verdict=verdict, probability=sure)


# -- reading memory --------------------------------------------------------------------


async def _stranger(view: QuestionView, speakers: Sequence[str], bank: MemoryBank) -> str | None:
    """Return a person of the question whom memory never mentions, or None."""
    names = [
        name for name in view.people if not any(_same_name(name, speaker) for speaker in speakers)
    ]
    if not names:
        return None
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


def _abstention(reason: str, *, probability: float = 0.0) -> Answer:
    return Answer(
        text=NOTHING_FOUND,
        verdict=Verdict.ABSTAINED,
        probability=probability,
        notes=(NO_MODEL_ABSTAINED_NOTE, reason),
    )


def _answer(
    view: QuestionView, reading: Reading, state: BankState, *, verdict: Verdict, probability: float
) -> Answer:
    chosen = _shown(reading, view)
    best = chosen[0]
    when, lead = (None, "") if OPEN_YEAR in reading.doubts else _lead(best, view)
    if not lead and verdict is Verdict.SUPPORTED:
        lead = short_answer(best, view)
    lines = [lead] if lead else []
    if verdict is Verdict.QUOTED:
        lines = [CLOSEST]
    citations: list[Citation] = []
    for evidence in chosen:
        lines.append(_line(evidence, view.terms))
        citations += _citations(evidence, view)
        lines += _corrected_lines(evidence, state)
    doubts = [f"Not sure, because {doubt}." for doubt in reading.doubts]
    notes = (NO_MODEL_NOTE, *doubts, *_history(best, state), *_disagreement(best, reading.order))
    return Answer(
        text="\n".join(lines),
        citations=tuple(citations),
        verdict=verdict,
        probability=probability,
        when=when,
        notes=notes,
    )


def _shown(reading: Reading, view: QuestionView) -> list[Evidence]:
    """Return the statements to quote: of a fact that changed, its right version only."""
    best = reading.chosen[0].evidence
    item = best.hit.item
    changed = view.period is not Period.ANY and item is not None and item.version > 1
    return [best] if changed or best.by_hand else [entry.evidence for entry in reading.chosen]


def _line(evidence: Evidence, terms: Sequence[str] = ()) -> str:
    quote = quote_from(evidence.text, terms)
    if evidence.by_hand:
        return f'Written by hand: "{quote}"'
    return said_line(evidence.speaker, evidence.said_at, quote)


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
    if evidence.by_hand:
        return [Citation(hit_id=hit_id, version=version, quote=quote, by_hand=True)]
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

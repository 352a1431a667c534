"""Answers without a language model: the best evidence, quoted word for word with
speaker and date, or nothing.

The answerer ranks what was found by rules (`evidence`), names the date for a question
of time, tells present from replaced versions for questions of now and then, and
abstains when no evidence covers what is asked or when the question is about somebody
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
from memagent.designs.parts.rules.corrections import stands_alone
from memagent.designs.parts.rules.evidence import (
    Evidence,
    Scored,
    evidence_of,
    ranked,
    term_weights,
)
from memagent.designs.parts.rules.keeping import conflicting, overlap
from memagent.designs.parts.rules.wording import day_of, quote_from, said_line, time_for
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
    """Quotes the best of the hits. Asks no model."""

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
        """An answer with one to three quotations, or an abstention that says why."""
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
            [one for hit in hits for one in evidence_of(hit, state, past=past)], view, weights
        )
        if not order or not self._fits(order[0], view):
            return _abstention("What was found does not fit the question well enough to be quoted.")
        if order[0].who == 0 and any(name in speakers for name in view.people):
            asked, by = " or ".join(view.people), order[0].evidence.speaker
            return _abstention(
                f"The nearest statement is by {by}, who does not speak of {asked} there."
            )
        return _answer(view, [each.evidence for each in self._chosen(order, view)], order, state)

    def _fits(self, best: Scored, view: QuestionView) -> bool:
        """Whether the best evidence is near enough to what is asked to be quoted as an answer."""
        if not view.terms:
            return bool(view.people or view.span)
        return best.cover >= self.min_cover or (
            best.cover >= self.min_cover / 2 and best.cosine >= self.min_cosine
        )

    def _chosen(self, order: Sequence[Scored], view: QuestionView) -> list[Scored]:
        """The best, and those so near to it that they may be the better ones; one for each turn."""
        best = order[0]
        if (
            view.period is not Period.ANY
            and best.evidence.hit.item is not None
            and best.evidence.hit.item.version > 1
        ):
            return [best]  # a fact that memory has followed through its changes
        seen: set[str] = set()
        chosen: list[Scored] = []
        for each in order:
            key = each.evidence.turn_ids[-1] if each.evidence.turn_ids else each.evidence.hit.id
            near = (
                best.score - each.score <= self.margin and each.cover >= self.min_share * best.cover
            )
            if near and key not in seen and each.evidence.current == best.evidence.current:
                seen.add(key)
                chosen.append(each)
        return chosen[: self.max_citations]


# -- reading memory --------------------------------------------------------------------


async def _weights(view: QuestionView, question: Question, bank: MemoryBank) -> dict[str, float]:
    """How much each content term counts: its best keyword score over the memory."""
    terms = view.terms[:_MAX_TERMS]
    found = await bank.search_many(
        [Query(text=term, where=question.where, arms=_LEXICAL) for term in terms], k=10
    )
    rarity = {
        term: max(score for hit in hits for score in hit.why.arms.values())
        for term, hits in zip(terms, found, strict=True)
        if hits
    }
    return term_weights(terms, rarity, items=len(bank.state.items))


async def _stranger(view: QuestionView, speakers: Sequence[str], bank: MemoryBank) -> str | None:
    """Somebody the question names whom memory never mentions, or None."""
    names = [
        name for name in view.people if not any(_same_name(name, speaker) for speaker in speakers)
    ]
    found = await bank.search_many([Query(text=name, arms=_LEXICAL) for name in names], k=10)
    for name, hits in zip(names, found, strict=True):
        if not any(_names(hit, name, bank.state) for hit in hits):
            return name
    return None


def _same_name(name: str, speaker: str) -> bool:
    """Whether a name is the speaker's, its first part, a short form of it, or the same
    but for a slip of the pen.
    """
    one, two = folded(name), folded(speaker)
    if one in (two, *two.split()) or (len(one) >= 3 and two.startswith(one)):
        return True
    return len(one) >= 5 and one[0] == two[0] and SequenceMatcher(None, one, two).ratio() >= 0.85


def _names(hit: Hit, name: str, state: BankState) -> bool:
    """Whether a hit, a turn near it, or its speaker bears the name."""
    texts = [
        text
        for one in evidence_of(hit, state)
        for text in (one.text, one.speaker or "", *(near for _, near in one.around))
    ]
    return (
        re.search(
            rf"(?<!\w){re.escape(folded(name))}(?:['’]?s)?(?!\w)",
            folded(" ".join((hit.text, *texts))),
        )
        is not None
    )


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
    for one in chosen:
        lines.append(said_line(one.speaker, one.said_at, quote_from(one.text, view.terms)))
        citations.extend(_citations(one, view))
        if (slip := _corrected_words(one, state)) is not None:
            lines.append(slip)
    notes = (NO_MODEL_NOTE, *_history(best, state), *_disagreement(best, order))
    return Answer(text="\n".join(lines), citations=tuple(citations), when=when, notes=notes)


def _lead(best: Evidence, view: QuestionView) -> tuple[TimeSpan | None, str]:
    """The time named, and the first line of the answer; both empty for questions that
    ask for no time.
    """
    if view.kind is not QuestionKind.WHEN:
        return None, ""
    told = time_for(best, view)
    if told is not None:
        return told, f"{format_span(told)}."
    if best.said_at is None:
        return None, "No date is told."
    said = day_of(best.said_at)
    return said, f"No date is told; it was said on {format_span(said)}."


def _citations(one: Evidence, view: QuestionView) -> list[Citation]:
    """The turn the words are from; for a correction that says little by itself, the
    corrected turn too.
    """
    if not one.turn_ids:
        return [
            Citation(hit_id=one.hit.id, version=one.version, quote=quote_from(one.text, view.terms))
        ]
    *older, latest = one.turn_ids
    quote = quote_from(one.text, view.terms)
    cited = [Citation(hit_id=one.hit.id, version=one.version, turn_id=latest, quote=quote)]
    if older and not stands_alone(one.text):
        cited.append(Citation(hit_id=one.hit.id, version=one.version, turn_id=older[-1]))
    return cited


def _corrected_words(one: Evidence, state: BankState) -> str | None:
    """The line with the words that a terse correction corrects."""
    if len(one.turn_ids) < 2 or stands_alone(one.text):
        return None
    turn = state.turn(one.turn_ids[-2])
    if turn is None:
        return None
    session = state.sessions[state.turns[turn.id][0]]
    return f"This corrects: {said_line(turn.speaker, session.date_of(turn), quote_from(turn.said, ()))}"


def _history(best: Evidence, state: BankState) -> list[str]:
    """Notes on what the answer replaced, or on what has replaced it, with dates."""
    versions = [one for one in evidence_of(best.hit, state, past=True) if one.text != best.text]
    if best.current:
        older = versions[:2]
        return [
            f"Updated; before that, {said_line(one.speaker, one.said_at, quote_from(one.text, ()))}"
            for one in older
        ]
    newer = [one for one in versions if one.current]
    return [
        f"This has changed since: {said_line(one.speaker, one.said_at, quote_from(one.text, ()))}"
        for one in newer
    ]


def _disagreement(best: Evidence, order: Sequence[Scored]) -> list[str]:
    """A note on the nearest other statement of the same speaker that says nearly the
    same with other numbers, days or names.
    """
    for each in order[1:8]:
        other = each.evidence
        same = (
            other.hit.id != best.hit.id
            and other.current
            and other.speaker is not None
            and other.speaker == best.speaker
        )
        if same and overlap(best.text, other.text) >= 0.5 and conflicting(best.text, other.text):
            return [
                f"It may not agree: {said_line(other.speaker, other.said_at, quote_from(other.text, ()))}"
            ]
    return []

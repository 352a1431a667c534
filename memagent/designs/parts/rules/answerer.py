"""Answers without a language model: the best evidence, quoted with speaker and date.

The answerer orders the hits by how well they answer and asks how sure that makes
(`memagent.memory.judging.certainty`): `supported` from a probability of 0.7, `quoted` as the
closest thing said from 0.3, else it abstains. It names the date for a question of time
and the place or number where the statement has just one, and tells present from
replaced versions. It abstains too when the question is about somebody whom memory never
mentions. The surprise: an answer is at most three quotations; it never joins facts,
counts, or says yes or no.

Questions for all that is known: about somebody, about a thing, or said on a day.

"What do you know about me?", "Who am I?", "Tell me about Clara", "Summarize our chat",
"What did I say on 3 May?", in English, German and Spanish. The answer is a list of
memories, dated and cited, the latest last; no search ranks it and no model words it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from difflib import SequenceMatcher
from math import log
from typing import TYPE_CHECKING, Final, Protocol

from memagent.core import Later
from memagent.core.answers import (
    MAX_RULED_CHARS,
    QUOTED_FROM,
    SUPPORTED_FROM,
    Answer,
    Citation,
    Hit,
    Query,
    Question,
    Verdict,
)
from memagent.core.long_work import aside
from memagent.core.records import MemoryItem, TimeSpan, Trust
from memagent.designs.base import SlotContext
from memagent.designs.parts.lines import day_span
from memagent.designs.parts.retrieval import plain_words
from memagent.designs.parts.rules.manager import stands_alone
from memagent.designs.parts.rules.statements import (
    conflicting,
    overlap,
    quote_from,
    said_line,
    short_answer,
    time_for,
)
from memagent.language.vocabulary import RECURS
from memagent.memory.bank import MemoryBank
from memagent.memory.judging.certainty import (
    OPEN_YEAR,
    OVER,
    Reading,
    Scored,
    read_hits,
    term_weights,
)
from memagent.memory.judging.evidence import Evidence, evidence_of
from memagent.memory.question import (
    ASKER,
    Period,
    QuestionKind,
    QuestionView,
    content_terms,
    read_question,
)
from memagent.state.effects import tokenize
from memagent.state.fold import BankState, folded
from memagent.timex.resolve import find_times, format_span

if TYPE_CHECKING:
    from memagent.designs.parts.rules import standing
else:
    standing = Later("memagent.designs.parts.rules.standing")

MOST_LISTED: Final = 30
"""Memories that a list names; the latest are taken."""
SURE: Final = 0.9
"""Probability of a list: what it quotes is about what is asked, if not all of it."""
_ABOUT = re.compile(
    r"^\W*(?:(?:please|can\s+you|could\s+you|bitte|por\s+favor)\W+)*(?:"
    r"(?:what|everything|all)\s+(?:do\s+|can\s+|that\s+)?you\s+(?:know|remember|tell\s+me|have|can\s+tell\s+me)\s+(?:about|on|of)"
    r"|tell\s+me\s+(?:(?:everything|all|more|something|what)\s+)?(?:you\s+(?:know|remember)\s+)?about"
    r"|(?:summari[sz]e|recap|give\s+me\s+a\s+summary\s+of)(?:\s+(?:everything|all|what))?(?:\s+you\s+(?:know|remember))?(?:\s+about)?"
    r"|was\s+wei(?:ß|ss)t\s+du\s+(?:alles\s+)?(?:über|von)|erzähl(?:e)?\s+mir\s+(?:(?:etwas|alles|mehr|was)\s+)?(?:über|von)"
    r"|fass(?:e)?(?:\s+(?:alles|bitte))*(?:\s+über)?"
    r"|qu[ée]\s+sabes\s+(?:de|sobre|acerca\s+de)|cu[ée]ntame\s+(?:(?:todo|algo|más|lo\s+que\s+sabes)\s+)?(?:de|sobre)|resume(?:\s+(?:todo|lo\s+que\s+sabes))?(?:\s+(?:de|sobre))?"
    r")\s+(?P<what>[^?!.]{1,120}?)(?:\s+zusammen)?\W*$",
    re.I,
)
_SELF = re.compile(r"^\W*(?:who\s+am\s+I|wer\s+bin\s+ich|qui[ée]n\s+soy(?:\s+yo)?)\W*$", re.I)
_SAID = re.compile(
    r"\b(?:what\s+did\s+(?P<who>\w+)\s+(?:say|tell\s+you|talk\s+about|mention)"
    r"|was\s+(?:habe|hat|haben)\s+(?P<wer>\w+)\b.*\b(?:gesagt|erzählt)|qu[ée]\s+(?P<dije>dije|conté|dijo|contó))\b",
    re.I,
)
_ME = frozenset("i me myself us we mich mir ich wir uns mí mi yo nosotros dije conté".split())
_ARTICLE = re.compile(r"^(?:the|my|our|mein[e]?[nr]?|mi|el|la)\s+", re.I)
_ALL = re.compile(
    r"^(?:(?:our|the|this|my|unser[e]?|das|die|nuestra|la|so\s+far)\s+)*(?:chats?|conversations?|talks?|memor(?:y|ies)|everything"
    r"|gespräch|unterhaltung|alles|conversación|charla|todo)(?:\s+(?:so\s+far|bisher))?$",
    re.I,
)


def overview(question: Question, ctx: SlotContext) -> Answer | None:
    """Return the list that a question asks for; None where it asks for something else."""
    items = _asked_for(question, ctx)
    if not items:
        return None
    undated = datetime.min.replace(tzinfo=UTC)
    items = sorted(items, key=lambda item: item.said_at or undated)[-MOST_LISTED:]
    hits = [Hit(id=item.id, score=1.0, item=item) for item in items]
    found = [evidence_of(hit, ctx.bank.state)[0] for hit in hits]
    entries = [replace(own, by_hand=own.by_hand or not own.turn_ids) for own in found]
    return Answer(
        text="\n".join(f"- {_line(entry)}" for entry in entries),
        citations=tuple(_citations(entry)[0] for entry in entries),
        verdict=Verdict.SUPPORTED,
        probability=SURE,
        hits=tuple(hits),
        notes=("This lists what memory holds; nothing was concluded.",),
        question=question,
    )


def _asked_for(question: Question, ctx: SlotContext) -> list[MemoryItem]:
    """Return the memories that are asked for; [] where no list is."""
    text = question.text.strip()
    about, said = _ABOUT.match(text), _SAID.search(text)
    if not about and not said and not _SELF.match(text):
        return []
    if not question.where.model_copy(update={"min_trust": None}).empty:
        return []  # a search keeps to conditions
    now = question.asked_at or ctx.clock()
    least = question.where.min_trust or Trust.UNTRUSTED
    active = [
        item
        for item in ctx.bank.state.active()
        if not item.expired(now) and item.trust.rank <= least.rank
    ]
    if about or not said:
        return _about(about["what"] if about else "me", active)
    times = find_times(text, anchor=now, most=4)
    rest = text
    for mention in reversed(times):
        rest = rest[: mention.start] + rest[mention.end :]
    who = said["who"] or said["wer"] or (said["dije"] if folded(said["dije"]) in _ME else "")
    if not times or set(content_terms(rest)) - _SAYING - set(tokenize(who)):
        return []
    spans = [mention.span for mention in times]
    return [
        item
        for item in _about(who or "me", active, spoken=True)
        if item.said_at is not None and any(span.contains(item.said_at) for span in spans)
    ]


_SAYING = frozenset(
    tokenize(
        "say said tell told talk mention was habe hat haben gesagt erzählt qué que dije conté dijo"
        " contó am el en im"
    )
)


def _about(what: str, items: Sequence[MemoryItem], *, spoken: bool = False) -> list[MemoryItem]:
    """Return what a person said or is told of, or what is told of a thing."""
    name = _ARTICLE.sub("", what.strip(" ,.\"'"))
    people = (item for item in items if item.trust.rank <= Trust.USER.rank)
    speakers = {folded(item.speaker) for item in people if item.speaker}
    if _ALL.match(what):
        return list(items)
    if folded(name) in _ME:
        own = {ASKER} if ASKER in speakers or len(speakers) != 1 else speakers
        return [item for item in items if folded(item.speaker or ASKER) in own]
    named, terms = folded(name), set(content_terms(name)) or set(tokenize(name))
    return [
        item
        for item in items
        if named in (folded(item.speaker or ""), *folded(item.speaker or "").split())
        or (not spoken and terms and terms <= set(tokenize(f"{item.subject or ''} {item.text}")))
    ]


NO_MODEL_NOTE = "No language model is configured; this answer quotes the best evidence found."
NO_MODEL_ABSTAINED_NOTE = (
    "No language model is configured; what was found was judged by rules alone."
)
NOTHING_FOUND = "Nothing in memory answers this."
CLOSEST = "Not sure. The closest thing said:"
THEN_OVER = "Not sure, for that time is over. The closest thing said:"
_LEXICAL = frozenset({"lexical"})
# Statements near the best one that are read for what ends it.
_NEAR: Final = 10
# A word is rare that so many memories say, or 2 in 100.
_RARE: Final = 3


class SecondReader(Protocol):
    """Reads once more what the rules have read, by the meaning of the words."""

    def doubts(self, view: QuestionView, reading: Reading, state: BankState, /) -> tuple[str, ...]:
        """Return what speaks against the best statement, which would be supported."""
        ...

    def by_meaning(self, text: str, reading: Reading, /) -> Reading:
        """Return a reading that is too unsure to be quoted, ordered anew for a question."""
        ...


@dataclass(frozen=True, kw_only=True)
class EvidenceAnswerer:
    """Answers by quoting the best of the hits. Asks no model."""

    supported: float = SUPPORTED_FROM
    """Least probability of a `supported` answer."""
    quoted: float = QUOTED_FROM
    """Least probability of a `quoted` one; below it the answerer abstains."""
    second: SecondReader | None = None
    """Asked where there are several statements, or one that has changed."""

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
        text = plain_words(question.text)
        view = read_question(text, speakers=speakers, asked_at=question.asked_at or ctx.clock())
        stranger = await _stranger(view, list(speakers), bank)
        if stranger is not None:
            return _abstention(f"{stranger} is never mentioned in memory.")
        before, told = view.period is Period.THEN, False
        if before:
            view, hits, told = standing.without_after(view, text, hits)
        weights = term_weights(view.terms, bank.view.index)
        reading = read_hits(view, hits, state, text=text, weights=weights)
        if reading.order and (before or view.now):
            near, rare = await _near(reading, view, bank)
            reading = standing.as_stands(reading, view, told=told, near=near, rare=rare)
        # Another statement, or an earlier wording, stands beside the best one.
        rivals = reading.order[1:] or any((own.evidence.version or 1) > 1 for own in reading.order)
        second = self.second if rivals else None
        if second and reading.sure < self.quoted:
            reading = await aside(second.by_meaning, text, reading)
        elif second and reading.sure >= self.supported:
            doubts = await aside(second.doubts, view, reading, state)
            reading = replace(reading, doubts=(*reading.doubts, *doubts))
        if not reading.order:
            return _abstention("Nothing was found.")
        best, sure = reading.order[0], reading.sure
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


async def _near(
    reading: Reading, view: QuestionView, bank: MemoryBank
) -> tuple[list[Evidence], frozenset[str]]:
    """Return the statements that share most words with the best one, and its rare words.

    A word that many memories say ties no two of them.
    """
    if reading.sure < QUOTED_FROM or not view.now:
        return [], frozenset()
    text, index = reading.order[0].evidence.text[:MAX_RULED_CHARS], bank.view.index
    weights = term_weights(tuple(dict.fromkeys((*view.terms, *tokenize(text)))), index)
    most = max(_RARE, len(index) // 200)
    least = log(1.0 + max(0.0, len(index) - most + 0.5) / (most + 0.5))
    (hits,) = await bank.search_many([Query(text=text, arms=_LEXICAL)], k=_NEAR)
    rare = frozenset(term for term, weight in weights.items() if weight >= least - 1e-3)
    return [evidence_of(hit, bank.state)[0] for hit in hits], rare


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
        lines = [THEN_OVER if OVER in reading.doubts else CLOSEST]
    citations: list[Citation] = []
    for evidence in chosen:
        lines.append(_line(evidence, view.terms))
        citations += _citations(evidence, view.terms)
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
    if RECURS.search(best.text):
        return None, ""
    if best.said_at is None:
        return None, "No date is told."
    said = day_span(best.said_at)
    return said, f"No date is told; it was said on {format_span(said)}."


def _citations(evidence: Evidence, terms: Sequence[str] = ()) -> list[Citation]:
    """Cite the turn of the words; of a terse correction, the corrected turn too."""
    hit_id, version = evidence.hit.id, evidence.version
    *older, latest = evidence.turn_ids or (None,)
    quote = quote_from(evidence.text, terms)
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
    line = said_line(turn.speaker, state.said_at(turn.id), quote_from(turn.said, ()))
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

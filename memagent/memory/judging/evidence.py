"""Hits as evidence for a question, and how a statement fits what is asked.

Pure. A hit becomes `Evidence`: one version of one statement, with the words around it,
because a reply often leaves out what was asked. Each fit is a number in [-1, 1] that
tells one thing: who speaks, the time, now or then. `certainty` weighs them. The
surprise: a version that was edited by hand rests on no turn, whatever turns the item
came from; its words are nobody's quote.

Likeness of single words, by the vectors of the shipped word-piece table.

A question says "automobile" where the statement says "car". A search compares whole
texts; here each word of a question meets each content word of a text. The table is read
once a process (about 20 ms), a word's vector is made once and remembered, and a
question costs one product over the distinct words of its hits. The surprise: the table
is the shipped one whatever embedder the memory has, because a remote embedder would be
asked for single words and because the weights of `certainty` were fitted to it.

Checking an answer's citations against what the answerer was really shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Final

import numpy as np

from memagent.core import Later
from memagent.core.answers import QUOTED_FROM, Answer, Citation, Hit, Verdict
from memagent.core.records import MemoryItem, TimeSpan, Turn, content_id
from memagent.embed.static import open_table
from memagent.language.vocabulary import CORRECTS, GAP, NEGATION, WEEKDAYS, any_of
from memagent.memory.question import (
    Period,
    QuestionKind,
    QuestionView,
    content_terms,
    read_question,
)
from memagent.state.effects import WORD, tokenize
from memagent.state.fold import BankState, folded
from memagent.state.versions import began
from memagent.timex.resolve import format_span

if TYPE_CHECKING:
    from memagent.timex import calendar
else:
    calendar = Later("memagent.timex.calendar")

_MOST_WORDS = 50_000


class _Vectors:
    """Unit vectors of the words met so far, a row each; row 0 is that of unknown words."""

    def __init__(self) -> None:
        self.rows: dict[str, int] = {}
        self.matrix = np.zeros((1_024, open_table().vectors.shape[1]), np.float32)
        self.lock = Lock()

    def rows_of(self, words: Sequence[str]) -> list[int]:
        """Return the row of each word, made when it is new."""
        with self.lock:
            return [
                row if (row := self.rows.get(word)) is not None else self._add(word)
                for word in words
            ]

    def _add(self, word: str) -> int:
        table = open_table()
        pieces = list(table.tokeniser.pieces(word))
        vector = table.scales[pieces] @ table.vectors[pieces].astype(np.float32)
        length = float(np.linalg.norm(vector)) if pieces else 0.0
        at = 0
        if length > 1e-6:
            at = 1 + len(self.rows)
            if at >= len(self.matrix):
                self.matrix = np.concatenate([self.matrix, np.zeros_like(self.matrix)])
            self.matrix[at] = vector / length
        self.rows[word] = at
        return at


@lru_cache(maxsize=1)
def _vectors() -> _Vectors:
    return _Vectors()


@lru_cache(maxsize=16_384)
def _content_words(text: str) -> tuple[str, ...]:
    """Return the distinct words of a text without stop words, in lower case."""
    words = dict.fromkeys(match.group().lower() for match in WORD.finditer(text))
    return tuple(word for word in words if tokenize(word))


def words_of(text: str) -> dict[str, str]:
    """Return the words of a text, in lower case, by their index terms."""
    return {terms[0]: word for word in _content_words(text) if len(terms := tokenize(word)) == 1}


def likeness(words: Sequence[str], texts: Sequence[str]) -> np.typing.NDArray[np.float32]:
    """Return the cosine of each word to the nearest word of each text, 0 to 1.

    Shape (N texts, W words). A word or text that the table does not know gives 0.
    """
    found = np.zeros((len(texts), len(words)), np.float32)
    if not words or not texts:
        return found
    if len(_vectors().rows) > _MOST_WORDS:
        _vectors.cache_clear()
    known = _vectors()
    asked = known.rows_of(words)
    rows = [known.rows_of(_content_words(text)) for text in texts]
    distinct = sorted({row for line in rows for row in line} | {0})
    place = {row: at for at, row in enumerate(distinct)}
    cosines = known.matrix[distinct] @ known.matrix[asked].T
    filled = [at for at, line in enumerate(rows) if line]
    if filled:
        starts = np.cumsum([0, *(len(rows[at]) for at in filled[:-1])])
        places = [place[row] for at in filled for row in rows[at]]
        found[filled] = np.maximum.reduceat(cosines[places], starts, axis=0)
    return np.maximum(found, 0.0)


# Weight of a word in a turn before (negative) or after the statement that asks something,
# relative to the statement itself.
_NEAR = {-2: 0.5, -1: 0.8, 1: 0.5, 2: 0.3}
# Factor on that weight for a turn that asks nothing: a statement seldom answers it.
_NO_QUESTION = 0.4
# Weight of a word in an older version: the corrected words say what a correction omits.
_OTHER_VERSION = 0.95
# Weight of a word in a newer version.
_NEWER_VERSION = 0.4
_OWN = re.compile(r"\b(?:I|me|my|mine|we|us|our)\b", re.I)


@dataclass(frozen=True, slots=True)
class Evidence:
    """One version of a statement that may answer."""

    hit: Hit
    text: str
    turn_ids: tuple[str, ...] = ()
    """Turns it rests on, latest last."""
    speaker: str | None = None
    said_at: datetime | None = None
    valid: TimeSpan | None = None
    since: datetime | None = None
    """The moment from which it held, as far as that is known."""
    until: datetime | None = None
    """The moment from which a newer version held; None for the present one."""
    current: bool = True
    version: int | None = None
    around: tuple[tuple[float, str], ...] = ()
    """(weight, text) of turns near it and of statements it corrects."""
    by_hand: bool = False
    """Whether these words were written or edited by hand, not said in a session."""


# What begins then, and goes on.
_LASTS: Final = re.compile(
    r"\b(?:start|begin|mov(?:e|ing)|marr|join|switch|becom|buy|bought|get(?!\s+together)|adopt|retir|open(?:s|ing)|launch|hir(?:e|ing)|graduat|quit|leav(?:es|ing)|sell"
    r"|sold|turn(?:s|ing)|promot|effective|onwards?|from\s+(?:\w+\s+){1,3}on\b"
    r"|(?:um)?zieh|zog|fang|fäng|heirat|wechs|kauf|verkauf|kündig|werde\b|wird\b|ab\s|mud(?:o|a|amos|an)\b|empiez|empez|comienz|comenz|cas(?:o|a|amos|an)\b|compr|vend|desde\b)",
    re.I,
)


def is_over(entry: Evidence, view: QuestionView) -> bool:
    """Tell whether a statement was about a time to come, which is over when it is asked."""
    asked, said, valid = view.moment, entry.said_at, entry.valid
    if asked is None or said is None or valid is None or valid.end is None:
        return False
    if not said < valid.end <= asked or _LASTS.search(entry.text):
        return False
    ahead = calendar.direction_told([entry.text], valid.text or "")
    return ahead is calendar.Lean.FUTURE


def evidence_of(hit: Hit, state: BankState, *, past: bool = False) -> list[Evidence]:
    """Return the evidence of a hit; with `past` also its older versions, newest first."""
    if hit.item is None:
        evidence = Evidence(hit=hit, text=hit.text, turn_ids=hit.source_turn_ids)
        if (event := hit.event) is None:
            return [evidence]
        speaker = event.people[0] if event.people else None
        return [replace(evidence, speaker=speaker, said_at=event.said_at, valid=event.valid)]
    versions = state.versions(hit.id) or (hit.item,)
    older, newer = (None, *versions[:-1]), (*versions[1:], None)
    by_hand: list[bool] = []
    for item, before in zip(versions, older, strict=True):
        inherited = (
            before is not None
            and by_hand[-1]
            and (item.text, item.source_turn_ids) == (before.text, before.source_turn_ids)
        )
        by_hand.append(inherited or edited(item, before))
    rows = list(zip(versions, by_hand, newer, strict=True))[::-1]
    return [
        _version(hit, item, state, first=item is versions[0], by_hand=written, after=after)
        for item, written, after in (rows if past else rows[:1])
    ]


def edited(item: MemoryItem, before: MemoryItem | None) -> bool:
    """Say whether a version was written by hand: it rests on no turn that is new with it."""
    if before is None:
        return not item.source_turn_ids
    return item.source_turn_ids == before.source_turn_ids and item.text != before.text


def _version(
    hit: Hit,
    item: MemoryItem,
    state: BankState,
    *,
    first: bool,
    by_hand: bool,
    after: MemoryItem | None,
) -> Evidence:
    timed = item.valid is not None and item.valid.start is not None
    evidence = Evidence(
        hit=hit,
        text=item.text,
        turn_ids=() if by_hand else item.source_turn_ids,
        speaker=None if by_hand and not first else item.speaker,
        said_at=item.said_at,
        valid=item.valid,
        since=None if first and not timed else began(item),
        until=began(after) if after is not None else None,
        current=after is None,
        version=item.version,
        by_hand=by_hand,
    )
    if by_hand:
        return evidence
    places = [
        place for turn_id in item.source_turn_ids if (place := state.turns.get(turn_id)) is not None
    ]
    if not places:
        return evidence
    session, at = state.sessions[places[-1][0]], places[-1][1]
    turn = session.turns[at]
    around = [
        (weight * (1.0 if "?" in near.said else _NO_QUESTION), near.said)
        for offset, weight in _NEAR.items()
        if 0 <= at + offset < len(session.turns)
        and not (near := session.turns[at + offset]).recalled
    ]
    around += [
        (_OTHER_VERSION, _replaced(state.sessions[session_id].turns[position], hit, state))
        for session_id, position in places[:-1]
    ]
    if after is not None:
        around.append((_NEWER_VERSION, after.text))
    return replace(
        evidence,
        text=turn.said if _is_told(item, turn) else item.text,
        speaker=turn.speaker,
        said_at=session.date_of(turn),
        around=tuple(around),
    )


def _is_told(item: MemoryItem, turn: Turn) -> bool:
    """Say whether an item's text is a turn's words, or begins with them and tells what was."""
    said = turn.said.strip()
    told = item.text.startswith(f"{said}{CORRECTS}")
    return told or (item.kind == "turn" and said in item.text)


def _replaced(turn: Turn, hit: Hit, state: BankState) -> str:
    """Return a turn's words without those that other items keep of it."""
    text = turn.said
    for ordinal in range(state.ordinals.get(turn.id, 0)):
        item_id = content_id("mem", turn.id, str(ordinal))
        if item_id != hit.id and (versions := state.versions(item_id)):
            text = text.replace(versions[0].text.split(GAP)[-1], " ")
    return text


# -- fits ------------------------------------------------------------------------------


def who_fits(evidence: Evidence, view: QuestionView) -> float:
    """Score speaker and subject against the people whom the question names.

    1 when a named person says it of themselves, less when they speak of others or only
    ask; 0.5 when another speaks of such a person or the speaker is unknown, else 0. 1
    when nobody is named.
    """
    if not view.people:
        return 1.0
    names = [folded(name) for name in view.people]
    if evidence.by_hand:
        item = evidence.hit.item
        about = folded(f"{item.subject or ''} {evidence.text}" if item else evidence.text)
        return 1.0 if any(name in about for name in names) else 0.5
    if evidence.speaker is not None and folded(evidence.speaker) in names:
        asks = evidence.text.rstrip().endswith("?")
        return (1.0 if _OWN.search(evidence.text) else 0.7) - (0.3 if asks else 0.0)
    text = folded(evidence.text)
    return 0.5 if evidence.speaker is None or any(name in text for name in names) else 0.0


def time_fits(evidence: Evidence, view: QuestionView) -> float:
    """Score a statement against the time that a question names or asks for."""
    if view.span is not None:
        if (evidence.valid is not None and evidence.valid.overlaps(view.span)) or (
            not evidence.current and _stood(evidence, view.span)
        ):
            return 1.0
        return 0.5 if evidence.said_at is not None and view.span.contains(evidence.said_at) else 0.0
    asks_time = view.kind in (QuestionKind.WHEN, QuestionKind.HOW_LONG)
    return float(asks_time and evidence.valid is not None)


def period_fits(evidence: Evidence, view: QuestionView, late: float) -> float:
    """Prefer present versions for now, replaced ones for then, and the one of a named time.

    Of present versions, the later said the better.
    """
    if view.period is Period.NOW:
        return 0.5 * late if evidence.current else -1.0
    if view.period is Period.THEN:
        return float(not evidence.current)
    if evidence.current:
        return 0.0
    if view.kind is QuestionKind.WHEN and view.span is None:
        return 0.0 if _held(evidence) else -1.0
    return 1.0 if view.span is not None and _stood(evidence, view.span) else -1.0


def _stood(evidence: Evidence, span: TimeSpan) -> bool:
    """Say whether a version held at some moment of the span.

    One that was corrected rather than outdated never held.
    """
    return _held(evidence) and TimeSpan(start=evidence.since, end=evidence.until).overlaps(span)


def _held(evidence: Evidence) -> bool:
    """Say whether a version ever held: one that was corrected never did."""
    since, until = evidence.since, evidence.until
    return since is None or until is None or since < until


def introduces(evidence: Evidence, view: QuestionView) -> float:
    """For "who is Clara": whether the statement introduces her ("my sister Clara")."""
    role = r"\b(?:my|our|his|her|their|an?|the)\s+(?:\w+\s+){1,2}"
    return float(
        view.kind is QuestionKind.WHO
        and any(
            re.search(rf"{role}{re.escape(name)}\b", evidence.text, re.I) for name in view.people
        )
    )


def echoes(evidence: Evidence, view: QuestionView) -> float:
    """Say whether a statement only asks what the question asks."""
    if not evidence.text.rstrip().endswith("?") or not view.terms:
        return 0.0
    own = set(tokenize(evidence.text))
    return float(set(view.terms) <= own and len(own) <= len(view.terms) + 4)


PLACE_WORD: Final = re.compile(
    r"\b(?:home|park|beach|city|town|house|store|shop|school|studio|cafe|restaurant|cent(?:er|re)"
    r"|museum|mountains?|lake|gym|forest|church|country|state|street|place|spot|downtown|library"
    r"|hospital|farm|shelter)\b",
    re.I,
)
"""Nouns of places."""
SOMEWHERE: Final = re.compile(
    rf"{PLACE_WORD.pattern}|\b(?:in|at|to|from|near|into|by|with|over|under|behind|for|here|there|bei|nach|aus"
    rf"|von|auf|en|de|a|al|del)\b|\bon\s+(?!{any_of(*WEEKDAYS.values())}|\d)|[\w’']+['’]s\b",
    re.I,
)


_COMPOUND = re.compile(
    r"(?P<before>\b(?i:an?|the|my|our|your|his|her|their|its|this|that|these|those|some|any|no|first|second)"
    r"\s+(?:[a-z]+\s+)??|^)(?P<kind>[A-Za-z]+)\s+(?P<noun>(?!(?:\w+(?:ed|s|ly|ing)|broke|came|went|got|ran|fell"
    r"|left|lost|won|sold|bought|made|took|gave|hurt|cost|sat|slept|ate|began|grew|kept|met|knew|threw|stole"
    r"|flew|drove|wrote|woke|drew|sang|spoke|cannot|may|might|must|red|green|blue|yellow|black|white|gr[ae]y"
    r"|brown|pink|orange|purple|today|tonight|tomorrow|yesterday|soon|never|always|because|since|near|outside"
    r"|inside|next|last)\b)[a-z]{3,})\b"
)


def names_beside(evidence: Evidence, view: QuestionView) -> bool:
    """Say whether the question's words only tell the kind of another thing in a statement.

    "My driving test", asked about what one drives.
    """
    asked, text = set(view.terms), evidence.text.strip()
    if not _COMPOUND.search(text):
        return False

    def without_kind(match: re.Match[str]) -> str:
        noun = set(tokenize(match["noun"]))
        return match["before"] if noun and not noun & asked else match[0]

    met = asked & set(tokenize(text))
    return bool(met) and not met & set(tokenize(_COMPOUND.sub(without_kind, text)))


_QUOTE_CHARS = 400
# Two words this like each other say the same.
_LIKE = 0.6
_ASSENT = frozenset(tokenize("yes no yeah nope unknown unclear memory memories answer mention"))
# Least share of an answer's content words that its citations must carry.
_CARRIED = 0.5
NOT_CARRIED = "what is cited does not say this"
OF_ANOTHER = "what is cited is about somebody else"
OPPOSITE = "what is cited says the opposite"
STALE = "what is cited has changed since"
CEILING = {Verdict.UNSUPPORTED: QUOTED_FROM, Verdict.ABSTAINED: QUOTED_FROM}
"""Most that an answer with this verdict may claim to be sure."""


def cite(answer: Answer, hits: Sequence[Hit], state: BankState, *, question: str = "") -> Answer:
    """Return the answer with checked citations, completed with quote, speaker and date.

    Only citations of a hit that was shown, or of a turn of one, stay; `notes` names the
    others. An answer without any is marked unsupported, and so is a model's answer whose
    citations do not carry its words; those of the question need not be carried.
    """
    if answer.abstained:
        return answer.model_copy(update={"hits": tuple(hits), "citations": ()})
    by_id = {hit.id: hit for hit in hits}
    # Of several hits on one turn the first counts.
    by_turn = {turn_id: hit for hit in reversed(hits) for turn_id in hit.source_turn_ids}
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
            kept.setdefault((hit.id, None), _completed(citation, hit, None, state))
            continue
        cited = citation.turn_id or (citation.hit_id if citation.hit_id not in by_id else None)
        for turn_id in [cited] if cited in hit.source_turn_ids else hit.source_turn_ids or [None]:
            full = _completed(citation, hit, turn_id, state)
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
            spans.append(TimeSpan(start=citation.said_at, end=citation.said_at + calendar.DAY))
        dates = [format_span(span) for span in spans]
        texts += [citation.quote, citation.speaker or "", hit.text if hit else "", *dates]
    said = " ".join(texts)
    terms, surface = set(tokenize(said)), words_of(text)
    lacking = [surface.get(term, term) for term in own if term not in terms]
    alike = int((likeness(lacking, [said]) >= _LIKE).sum())
    return (len(own) - len(lacking) + alike) / len(own)


def _completed(citation: Citation, hit: Hit, turn_id: str | None, state: BankState) -> Citation:
    turn = state.turn(turn_id) if turn_id is not None else None
    item, by_hand = hit.item, citation.by_hand
    version = item.version if item is not None else None
    if version is not None and citation.version is not None:
        version = min(version, max(1, citation.version))
    if turn is None:
        return Citation(
            hit_id=hit.id,
            version=version,
            turn_id=turn_id,
            speaker=item.speaker if item is not None and not by_hand else None,
            said_at=item.said_at if item is not None and not by_hand else None,
            quote=citation.quote or hit.text[:_QUOTE_CHARS],
            by_hand=by_hand,
        )
    quote = (
        citation.quote
        if citation.quote and citation.quote in turn.said
        else turn.said[:_QUOTE_CHARS]
    )
    return Citation(
        hit_id=hit.id,
        version=version,
        turn_id=turn.id,
        session_id=state.turns[turn.id][0],
        speaker=turn.speaker,
        said_at=state.said_at(turn.id),
        quote=quote,
    )

"""The statements of one utterance: its sentences, cut where each part has a verb of its own.

Pure; English, German and Spanish. "I live in Lisbon and work as a nurse" makes "I live in
Lisbon" and "I … work as a nurse": a part that leaves its subject to the part before has
it back, with "…" for the words between. All other words stand as they were said. The
surprise: a sentence is left whole wherever a cut might change what a part says. So no
part without a subject of its own is cut off behind a denial, a wish or an infinitive,
and nothing is cut out of a question or a condition.

Where a new statement takes the place of a whole turn, the other statements of that turn
may be kept as items of their own (`kept_part`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from memagent.core.ops import Add
from memagent.core.records import Fact, MemoryItem, Turn, lowest_trust
from memagent.language.vocabulary import GAP, NEGATION, any_of
from memagent.state.versions import bounds

_BASE: Final = (
    "have live work play speak drive own like love hate prefer eat drink keep run sing rent share"
    " need sleep cook coach write paint read swim help use collect volunteer train manage sell"
)
_FIRST: Final = any_of(
    f"are do go study teach {_BASE} bin sind habe haben wohne wohnen lebe leben arbeite spiele"
    " lerne esse trinke fahre mag liebe heiße studiere spreche unterrichte besitze mache gehe"
    " somos tenemos vivimos trabajamos"
)
_THIRD: Final = any_of(
    f"is has does goes studies teaches coaches {' '.join(f'{verb}s' for verb in _BASE.split()[1:])}"
    " ist hat wohnt lebt arbeitet spielt lernt isst trinkt fährt liebt heißt studiert spricht"
    " es tiene vive trabaja está estudia toca juega habla se llama"
)
_PAST: Final = any_of(
    "was were had lived worked moved bought got started began adopted went grew studied taught"
    " played joined opened founded left became met married retired war hatte"
)
# Verbs whose subject is in the form.
_ALONE: Final = any_of(
    "soy estoy tengo vivo trabajo estudio toco juego hablo como bebo conduzco enseño doy hago llevo"
)
_WORD: Final = (
    r"(?!(?:and|or|but|with|who|that|which|und|oder|aber|mit|y|e|o|pero|con|que)\b)[^\W\d_][\w’'-]*"
)
_HEAD: Final = re.compile(
    rf"\W*(?P<subject>(?:(?:{_WORD}\s+){{1,3}}(?:and|und|y)\s+(?=(?:I|ich|yo)\b))?(?:{_WORD}\s+){{0,4}}?)"
    rf"(?P<verb>(?P<short>I|we|you|they|s?he|it)['’](?:m|re|ve|s)|(?P<first>(?<=I\s)am|{_FIRST})"
    rf"|(?P<third>{_THIRD})|{_PAST}|(?P<alone>{_ALONE}))\b(?=\W*\w)",
    re.I,
)
_SENTENCE: Final = re.compile(r"(?<=[.!?\n])\s+")
_JOIN: Final = re.compile(
    r"\s*[,;]?\s+(?:and|but|und|aber|y|pero)\s+(?:(?:also|auch|también)\s+)?|\s*[,;]\s+", re.I
)
_WHOLE: Final = re.compile(
    r"\?|\b(?:if|unless|whether|would|could|might|maybe|perhaps|wish|wenn|falls|ob|dass|würde|könnte"
    r"|vielleicht|si|quizás?|ojalá|either|neither|entweder|weder)\b"
    r"|^\W*(?:when|while|before|after|until|since|als|bevor|nachdem|cuando|antes|después)\b",
    re.I,
)
_GOVERNS: Final = re.compile(
    rf"\b(?:to|zu)\s+(?:\w+ly\s+)?{_FIRST}\b|\bto\s+(?:be|move|get|become|start)\b|['’](?:ll|d)\b"
    r"|\b(?:will|shall|should|can|may|must|let|want|kann|soll|muss|möchte|quiero|puedo|voy)\b",
    re.I,
)
# What points back at the words before: "It is lovely there".
_LEANS: Final = re.compile(
    r"\W*(?:(?:and|but|und|aber|y|pero|so)\s+)?(?:it|that|this|there|these|those|they|s?he|which|das|dort|sie"
    r"|er|eso|esto|allí|ella|él|es\s+(?:ist|war|hat|gibt))\b|[^.!?;,]*\b(?:it|them|him|there|dort|allí)\b",
    re.I,
)
_STARTS: Final = re.compile(
    r"\W*(?:I|we|my|our|the|ich|wir|mein\w*|unser\w*|der|die|yo|mis?|nuestr[oa]s?|el|la|los|las)\b",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Clause:
    """One statement of an utterance, with what points back at it."""

    text: str
    predicate: str
    """Its own words behind the subject."""


def clauses_of(text: str) -> list[Clause]:
    """Return the statements of an utterance in order; what states nothing is left out."""
    clauses: list[Clause] = []
    start = 0
    for end in [*(match.end() for match in _SENTENCE.finditer(text)), len(text)]:
        if end == len(text) or _opens(text, end):
            sentence, start = text[start:end].strip(), end
            clauses += _parts(sentence) if _opens(sentence, 0) else ()
    return clauses


def _opens(text: str, at: int) -> bool:
    """Say whether a statement of its own begins at a place."""
    head = _HEAD.match(text, at)
    named = head is not None and (_subject(head) or head["alone"])
    return bool(named) and not _LEANS.match(text, at)


def _parts(sentence: str) -> list[Clause]:
    """Cut a sentence where what follows has a verb that nothing before governs."""
    head = _HEAD.match(sentence)
    subject, parts, start, gap = _subject(head) if head else "", list[Clause](), 0, ""
    cuts = () if _WHOLE.search(sentence) else _JOIN.finditer(sentence)
    for cut in cuts:
        part, after = sentence[start : cut.start()].strip(), _HEAD.match(sentence, cut.end())
        if after is not None and _cuts(part, subject, after):
            parts.append(Clause(gap + part, part.removeprefix(subject)))
            start, own = cut.end(), _subject(after)
            gap = "" if own or after["alone"] else f"{subject}{GAP}"
            subject = own or subject
    part = sentence[start:]
    return [*parts, Clause(gap + part, part.removeprefix(subject))]


def _subject(head: re.Match[str]) -> str:
    return (head["subject"] + (head["short"] or "")).strip()


def _cuts(part: str, subject: str, after: re.Match[str]) -> bool:
    """Say whether a sentence may be cut before a part that begins with `after`."""
    text, at = after.string, after.start()
    if _opens(text, at):
        own = after["alone"] or after["subject"][:1].isupper() or _STARTS.match(text, at)
        return bool(own) and (not after["alone"] or not _GOVERNS.search(part)) and _opens(part, 0)
    if not subject or NEGATION.search(part) or _GOVERNS.search(part) or _LEANS.match(text, at):
        return False
    first = subject.lower().rpartition(" ")[2] in ("i", "we", "ich", "wir")
    return not after["third" if first else "first"] and _HEAD.match(part) is not None


def kept_part(op: Add, item: MemoryItem, turn: Turn) -> Add | None:
    """Return an op that keeps a statement of a replaced item, as a turn of old vouches for it.

    None unless the text is one whole statement of the turn, as said, and stands in the
    item too. Who said it, and how far it is trusted, is read from turn and item; tags
    and notes are the item's. The proposer adds nothing.
    """
    fact, text = op.fact, op.fact.text.strip()
    said = {clause.text for clause in clauses_of(turn.said)}
    held = text in said and all(piece in item.text for piece in text.split(GAP))
    if not held or fact.source_turn_ids != (turn.id,):
        return None
    kept = Fact(
        text=text,
        kind="passage",
        speaker=turn.speaker,
        subject=item.subject,
        source_turn_ids=(turn.id,),
        valid=fact.valid if bounds(fact.valid) == bounds(item.valid) else None,
        trust=lowest_trust((fact.trust, item.trust, turn.trust)),
        expires_at=item.expires_at,
    )
    return op.model_copy(update={"fact": kept, "tags": item.tags, "metadata": dict(item.metadata)})

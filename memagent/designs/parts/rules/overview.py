"""Questions for all that is known: about somebody, about a thing, or said on a day.

"What do you know about me?", "Who am I?", "Tell me about Clara", "Summarize our chat",
"What did I say on 3 May?", in English, German and Spanish. The answer is a list of
memories, dated and cited, the latest last; no search ranks it and no model words it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from memagent.core.answers import Answer, Citation, Hit, Question, Verdict
from memagent.core.records import MemoryItem, Trust
from memagent.designs.base import SlotContext
from memagent.designs.parts.rules.wording import quote_from, said_line
from memagent.memory.judging.evidence import evidence_of
from memagent.memory.question import ASKER, content_terms
from memagent.state.fold import folded
from memagent.state.tokens import tokenize
from memagent.timex.resolve import find_times

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
    items = sorted(items, key=_said_at)[-MOST_LISTED:]
    hits = [Hit(id=item.id, score=1.0, item=item) for item in items]
    lines: list[str] = []
    citations: list[Citation] = []
    for hit in hits:
        entry = evidence_of(hit, ctx.bank.state)[0]
        quote = quote_from(entry.text, ())
        written = entry.by_hand or not entry.turn_ids
        line = (
            f'Written by hand: "{quote}"'
            if written
            else said_line(entry.speaker, entry.said_at, quote)
        )
        lines.append(f"- {line}")
        turn_id = entry.turn_ids[-1] if entry.turn_ids else None
        citations.append(
            Citation(
                hit_id=hit.id, version=entry.version, turn_id=turn_id, quote=quote, by_hand=written
            )
        )
    return Answer(
        text="\n".join(lines),
        citations=tuple(citations),
        verdict=Verdict.SUPPORTED,
        probability=SURE,
        hits=tuple(hits),
        notes=("This lists what memory holds; nothing was concluded.",),
        question=question,
    )


def _said_at(item: MemoryItem) -> datetime:
    return item.said_at or datetime.min.replace(tzinfo=UTC)


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
        for item in ctx.bank.state.items.values()
        if item.active and not item.expired(now) and item.trust.rank <= least.rank
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

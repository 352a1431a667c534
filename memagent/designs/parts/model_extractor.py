"""An answerer that selects in a call of its own and answers from the selected memories alone.

Memory-R1's distillation as two calls: an answering model that many look-alikes mislead
does not see them when it answers. Both calls are the answerer's, so both are trained.
Where nothing readable is selected, the answer is given from all hits, with a note.

An extractor that asks a model for the facts of a chunk.

The model says what was told and by which turn. Everything that follows from the turn is
the system's work: who said it, when, how far it is trusted. A fact whose turn is not
part of the chunk is rejected, so is one that shares no content with its turn (see
`Dialogue`), and relative time is resolved against the day the turn
was said.

Whether a model's statement rests on what was said. Pure. A statement is grounded when
it shares a word of content with the turns it cites, with the turn before one of them (an
answer takes its words from the question), or with a day that these turns name. Names of
speakers do not count. Examples in prompts carry names that nobody bears; a statement
that repeats one is an echo of the prompt.

The surprise: turns in another language than English share no words with an English note
of them. Where they hold few of the commonest English words, only echoes are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from itertools import takewhile, zip_longest
from typing import Final

from memagent.core.answers import Answer, Hit, Question
from memagent.core.exchange import JsonSchema, Role
from memagent.core.ops import Parsed, ParseStatus, Rejected, RejectReason
from memagent.core.records import Chunk, Fact, TimeSpan, Trust, Turn, lowest_trust
from memagent.designs.base import (
    Answerer,
    OnePrompt,
    Prompt,
    Proposal,
    SlotContext,
    fence,
    load_prompt,
    prompts_of,
    quoted,
)
from memagent.designs.parts.lines import (
    TEXT,
    TEXT_OR_NULL,
    TEXTS,
    JsonCall,
    ask_about,
    ask_for_json,
    date_text,
    hit_line,
    in_time_order,
    list_schema,
    object_schema,
    question_values,
    turn_line,
)
from memagent.designs.parts.model_answerer import ModelAnswerer
from memagent.memory.threads import thread_turns
from memagent.replies.entries import extract_json
from memagent.replies.readers import FactDraft, parse_facts
from memagent.state.effects import tokenize
from memagent.state.fold import folded
from memagent.timex.resolve import MAX_TURN_TIMES, find_times, resolve_time

FACTS_SCHEMA: Final[JsonSchema] = list_schema(
    "facts",
    object_schema(
        {
            "text": TEXT,
            "subject": TEXT_OR_NULL,
            "source": TEXT,
            "when": TEXT_OR_NULL,
            "kind": {"type": "string", "enum": ["event", "preference", "plan", "fact"]},
        }
    ),
)


@dataclass(frozen=True, kw_only=True)
class ModelExtractor(OnePrompt):
    """Turns a chunk into facts with one model call, or two if the first reply is unreadable."""

    prompt: str = "extract"
    context_turns: int = 4
    """Turns before the chunk that are shown for understanding; facts that only they tell
    are not noted again.
    """
    retry: bool = True

    async def __call__(self, chunk: Chunk, ctx: SlotContext, /) -> Proposal[Fact]:
        """Return facts in the order the model wrote them.

        Entries that name no turn of the chunk are rejected.
        """
        earlier = turns_before(chunk, ctx, self.context_turns)
        values = {
            "date": date_text(chunk.at),
            "speakers": ", ".join(dict.fromkeys(quoted(turn.speaker) for turn in chunk.turns)),
            "earlier": fence("earlier", map(turn_line, earlier)),
            "dialogue": fence("dialogue", map(turn_line, chunk.turns)),
        }
        reading = FactReading(chunk=chunk, earlier=earlier, prompt=load_prompt(self.prompt))
        return await reading.ask(ctx, FACTS_SCHEMA, values, retry=self.retry)


@dataclass(frozen=True, kw_only=True)
class FactReading:
    """A chunk whose facts a model is asked for, and the prompt that asks."""

    chunk: Chunk
    earlier: Sequence[Turn] = ()
    """The turns before the chunk."""
    prompt: Prompt
    turn_ids: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names by which the prompt calls the turns, to their ids; ids need none."""

    @cached_property
    def dialogue(self) -> Dialogue:
        """The chunk with the turns before it."""
        return Dialogue((*self.earlier, *self.chunk.turns))

    async def ask(
        self, ctx: SlotContext, schema: JsonSchema, values: dict[str, str], *, retry: bool
    ) -> Proposal[Fact]:
        """Ask with the prompt's values, and propose the grounded facts of the reply."""
        call = JsonCall(role=Role.EXTRACTOR, prompt=self.prompt, schema=schema, parse=self.read)
        reply = await ask_for_json(ctx, call, values, ordinal=0, retry=retry)
        return reply.proposal(reply.parsed.values)

    def read(self, text: str) -> Parsed[Fact]:
        """Read a reply; drafts that do not rest on turns of the chunk are rejected.

        FAILED when nothing is left because every statement was refused.
        """
        parsed = parse_facts(text)
        results = [self._ground(draft) for draft in parsed.values]
        facts = tuple(fact for fact in results if isinstance(fact, Fact))
        bad = tuple(entry for entry in results if isinstance(entry, Rejected))
        status = parsed.status
        if any(entry.reason is RejectReason.UNGROUNDED for entry in bad) or (bad and not facts):
            status = ParseStatus.PARTIAL if facts else ParseStatus.FAILED
        return Parsed(
            status=status,
            values=facts,
            rejected=(*parsed.rejected, *bad),
            repairs=parsed.repairs,
        )

    def _ground(self, draft: FactDraft) -> Fact | Rejected:
        """Fill speaker, date, trust and resolved time of a fact from its turns.

        A missing source is filled only when one turn can be meant.
        """
        turns, problem = self._turns_of(draft)
        if problem:
            return _rejected(draft, RejectReason.FOREIGN_TURN, problem)
        said_at = max((date for turn in turns if (date := turn.at or self.chunk.at)), default=None)
        echo = echo_in(draft.text, self.prompt.examples, self.dialogue)
        if echo is not None:
            return _rejected(
                draft, RejectReason.UNGROUNDED, f"repeats {echo!r} of the prompt's example"
            )
        if not shares_content(draft.text, turns, self.dialogue, said_at=said_at):
            return _rejected(
                draft, RejectReason.UNGROUNDED, "shares no word with the turns that it cites"
            )
        speakers = {turn.speaker for turn in turns}
        return Fact(
            text=draft.text,
            subject=draft.subject,
            speaker=turns[0].speaker if len(speakers) == 1 else None,
            source_turn_ids=tuple(turn.id for turn in turns),
            valid=_time_of(draft, turns, said_at),
            said_at=said_at,
            kind=draft.kind,
            trust=lowest_trust(turn.trust for turn in turns),
        )

    def _turns_of(self, draft: FactDraft) -> tuple[list[Turn], str]:
        """Return the turns that a draft rests on, or why there are none."""
        by_id = {folded(turn.id): turn for turn in self.chunk.turns}
        sources = [self.turn_ids.get(name.strip(), name) for name in draft.source_turn_ids]
        foreign = next((turn_id for turn_id in sources if folded(turn_id) not in by_id), None)
        if foreign is not None:
            return [], f"turn {foreign!r} is not part of the chunk"
        if sources:
            return [by_id[key] for key in dict.fromkeys(map(folded, sources))], ""
        able = [
            turn
            for turn in self.chunk.turns
            if draft.speaker is None or folded(turn.speaker) == folded(draft.speaker)
        ]
        if len(able) != 1:
            return [], "the fact names no turn, and several could be meant"
        return able, ""


def _rejected(draft: FactDraft, reason: RejectReason, detail: str) -> Rejected:
    return Rejected(reason=reason, detail=detail, raw=draft.model_dump_json()[:500])


def _time_of(draft: FactDraft, turns: Sequence[Turn], said_at: datetime | None) -> TimeSpan | None:
    """Resolve the time the draft names, or else the only time its text mentions."""
    told = (*(turn.text for turn in turns), draft.text)
    named = resolve_time(draft.when, anchor=said_at, told=told) if draft.when else None
    if named is not None:
        return named
    spans = {
        (mention.span.start, mention.span.end): mention.span
        for mention in find_times(draft.text, anchor=said_at)
        if not mention.open
    }
    return next(iter(spans.values())) if len(spans) == 1 else None


def turns_before(chunk: Chunk, ctx: SlotContext, count: int) -> list[Turn]:
    """Return at most `count` turns before a chunk, of earlier days of its thread too.

    Those of tools and strangers are left out.
    """
    session = ctx.session
    if session is None or not count:
        return []
    turns = thread_turns(ctx.bank.state, session.thread) if session.thread else session.turns
    before = takewhile(lambda turn: turn.id != chunk.turns[0].id, turns)
    return [turn for turn in before if turn.trust.rank <= Trust.ASSISTANT.rank][-count:]


DISTIL_SCHEMA: Final[JsonSchema] = object_schema({"useful": TEXTS})
ALL_SHOWN: Final = "no selection of memories could be read; the answer is from all of them"


@dataclass(frozen=True, kw_only=True)
class DistillingAnswerer:
    """Selects the useful hits with one call, then has `base` answer from them."""

    base: Answerer = ModelAnswerer()
    most_unselected: int = 5
    """So many hits are answered from without a selection."""

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The prompt of the selection, and those of the base."""
        return (load_prompt("distil"), *prompts_of(self.base))

    async def __call__(
        self, question: Question, hits: Sequence[Hit], ctx: SlotContext, /
    ) -> Answer:
        """Return the base's answer; it lists all hits, and the cost of both calls."""
        if len(hits) <= self.most_unselected:
            return await self.base(question, hits, ctx)
        response = await ask_about(
            question,
            replace(ctx, tools=(), transcript=()),
            Role.ANSWERER,
            "distil",
            DISTIL_SCHEMA,
            memories=fence("memories", map(hit_line, in_time_order(hits))),
            **question_values(question),
        )
        useful = parse_selection(response.text)
        selected = [hit for hit in hits if useful and hit.id in useful]
        unread = not selected and useful != frozenset()
        answer = await self.base(question, hits if unread else selected, ctx)
        return answer.model_copy(
            update={
                "hits": tuple(in_time_order(hits)),
                "usage": response.usage + answer.usage,
                "response_ids": (response.id, *answer.response_ids),
                "notes": (*([ALL_SHOWN] if unread else []), *answer.notes),
            }
        )


def parse_selection(text: str) -> frozenset[str] | None:
    """Read the selected ids; None when the reply holds no list of them."""
    listed = extract_json(text).at("useful")
    if not isinstance(listed, list):
        return None
    return frozenset(str(name).strip().strip("[]") for name in listed)


# -- grounding ---------------------------------------------------------------------------

_FEW_WORDS = 5
# Least share of the commonest English words in English text.
_ENGLISH_SHARE = 0.2
_MAX_DAYS = 31


@dataclass(frozen=True)
class Dialogue:
    """The turns of a conversation up to its end, in order, and their words."""

    turns: Sequence[Turn]

    @cached_property
    def speakers(self) -> frozenset[str]:
        """The words of the speakers' names."""
        return frozenset(_terms({turn.speaker for turn in self.turns}))

    @cached_property
    def words(self) -> frozenset[str]:
        """The words of all turns, and of the speakers' names."""
        return self.speakers | _terms(turn.said for turn in self.turns)


def echo_in(text: str, names: Iterable[str], dialogue: Dialogue) -> str | None:
    """Return the name of a prompt's example that the text repeats and no turn says."""
    terms = set(tokenize(text)) - dialogue.words
    return next((name for name in names if not terms.isdisjoint(tokenize(name))), None)


def shares_content(
    text: str, cited: Sequence[Turn], dialogue: Dialogue, *, said_at: datetime | None
) -> bool:
    """Tell whether the text shares a word with the cited turns of the dialogue."""
    heard = " ".join(turn.said for turn in cited)
    words = len(tokenize(heard, keep_stop_words=True))
    if words >= _FEW_WORDS and words - len(tokenize(heard)) < _ENGLISH_SHARE * words:
        return True  # hardly English
    said = "\n".join(turn.said for turn in _with_turn_before(cited, dialogue.turns))
    told = set(tokenize(text)) - dialogue.speakers
    return not told or not told.isdisjoint(tokenize(said)) or bool(told & _days(said, said_at))


def _terms(texts: Iterable[str]) -> set[str]:
    return {term for text in texts for term in tokenize(text)}


def _with_turn_before(cited: Sequence[Turn], around: Sequence[Turn]) -> list[Turn]:
    ids = {turn.id for turn in cited}
    pairs = zip_longest(around, around[1:])
    return [own for own, after in pairs if own.id in ids or (after and after.id in ids)] or [*cited]


def _days(said: str, said_at: datetime | None) -> set[str]:
    """Return the terms that write out the days which a text names."""
    terms: set[str] = set()
    for mention in find_times(said, anchor=said_at, most=MAX_TURN_TIMES):
        start, end = mention.span.start, mention.span.end
        days = min(_MAX_DAYS, max(1, (end - start).days)) if start and end else 1
        for day in (start + timedelta(days=count) for count in range(days) if start):
            terms |= set(tokenize(f"{day:%B} {day.year} {day.day}"))
    return terms

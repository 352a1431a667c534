"""Parts of a design that keeps a dated log: all of it is shown, and a reflector condenses it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from memagent.core.answers import Hit, Question
from memagent.core.exchange import Role
from memagent.core.ops import Delete, MemoryOp, Update
from memagent.core.records import MemoryItem
from memagent.designs.base import SlotContext
from memagent.designs.parts.lines import hit_line
from memagent.designs.prompting import OnePrompt, fence, load_prompt
from memagent.replies.entries import MAX_FACT_CHARS, ids_at, string_at
from memagent.replies.json_answer import extract_json
from memagent.state.backing import Words, backs_addition
from memagent.state.matching import matches
from memagent.state.tokens import tokenize
from memagent.timex.resolve import format_span


async def whole_log(question: Question, ctx: SlotContext, /) -> list[Hit]:
    """Return every entry in order of time, whatever the question and its k."""
    expired, where = ctx.bank.expired, question.where
    log = [item for item in entries(ctx) if item.id not in expired and matches(item, where)]
    return [Hit(id=item.id, score=1.0, item=item) for item in log]


def entries(ctx: SlotContext) -> list[MemoryItem]:
    """Return the log in the order in which its turns were said, so that it grows at its end."""
    turns = ctx.bank.state.turns

    def place(item: MemoryItem) -> tuple[float, tuple[str, int]]:
        heard = [turns[turn] for turn in item.source_turn_ids if turn in turns]
        return item.said_at.timestamp() if item.said_at else 0.0, min(heard, default=("", 0))

    return sorted(ctx.bank.state.active(), key=place)


@dataclass(frozen=True, kw_only=True)
class LogReflector(OnePrompt):
    """Condenses the older half of the log with one call, when it is too long."""

    prompt: str = "condense"
    share: float = 0.2
    """Most words of the log, as a share of the dialogue's."""

    async def __call__(self, budget: int | None, ctx: SlotContext, /) -> Sequence[MemoryOp]:
        """Return an update for each new entry, and deletions of what it stands for.

        A prompt shows entries of one trust only. A reply that can be read in two ways,
        or is cut off, changes nothing; nor does an entry that the joined ones do not back.
        """
        log, sessions = entries(ctx), ctx.bank.state.sessions.values()
        heard = words(turn.said for session in sessions for turn in session.turns)
        fits = words(item.text for item in log) <= self.share * heard
        if len(log) < 2 or (fits and (budget is None or len(log) <= budget)):
            return ()
        older = log[: (len(log) + 1) // 2]
        levels = sorted({item.trust for item in older}, key=lambda level: level.rank)
        ops: list[MemoryOp] = []
        for level in levels:
            ops += await self._condensed([item for item in older if item.trust is level], ctx)
        return ops

    async def _condensed(self, shown: Sequence[MemoryItem], ctx: SlotContext) -> list[MemoryOp]:
        if len(shown) < 2:
            return []
        older = {item.id: item for item in shown}
        prompt = load_prompt(self.prompt)
        lines = (hit_line(Hit(id=item.id, score=1.0, item=item)) for item in shown)
        reply = await ctx.call(
            Role.MANAGER, prompt.messages(log=fence("log", lines)), prompt_digest=prompt.digest
        )
        ops: list[MemoryOp] = []
        for text, named in condensed(reply.text):
            joined = [older.pop(name) for name in dict.fromkeys(named) if name in older]
            if joined and backs_addition(Words(tuple(_told(joined))), text, suspect=()):
                turn_ids = tuple(dict.fromkeys(t for item in joined for t in item.source_turn_ids))
                ops.append(Update(id=joined[0].id, text=text, source_turn_ids=turn_ids))
                ops += [Delete(id=item.id, source_turn_ids=turn_ids) for item in joined[1:]]
        return ops


def _told(items: Iterable[MemoryItem]) -> Iterator[str]:
    """Yield what entries say: their words, speakers and days."""
    for item in items:
        day = f" {item.said_at:%d %B %Y} {item.said_at.day}" if item.said_at else ""
        span = f" {format_span(item.valid)}" if item.valid else ""
        yield f"{item.speaker or ''} {item.subject or ''}: {item.text}{day}{span}"


def words(texts: Iterable[str]) -> int:
    """Count the words of texts."""
    return sum(len(tokenize(text, keep_stop_words=True)) for text in texts)


def condensed(text: str) -> list[tuple[str, tuple[str, ...]]]:
    """Read the new entries of a reply, each with the ids it stands for.

    Return [] when it is unreadable, ambiguous or cut off.
    """
    found = extract_json(text)
    value = found.value if found.clear else None
    listed = value.get("log") if isinstance(value, dict) else value
    drafts = listed if isinstance(listed, list) else []
    read = [
        (string_at(entry, "text") or "", ids_at(entry, ("from",)))
        for entry in drafts
        if isinstance(entry, dict)
    ]
    return [(said.strip()[:MAX_FACT_CHARS], ids) for said, ids in read if said.strip()]

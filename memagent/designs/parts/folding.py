"""Parts of designs that keep a workspace small: which segments to fold, and into what.

A design of this sort is a chooser and a prompt. The note that stands for the segments is
the model's; a reply that cannot be read is an edit that was refused, with the reason.

Whether a model's statement rests on what was said. Pure.

A statement is grounded when it shares a word of content with the turns it cites, with
the turn before one of them (an answer takes its words from the question), or with a day
that these turns name. Names of speakers do not count. Examples in prompts carry names
that nobody bears; a statement that repeats one is an echo of the prompt.

The surprise: turns in another language than English share no words with an English note
of them. Where they hold few of the commonest English words, only echoes are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from itertools import zip_longest

from memagent.core.exchange import Role
from memagent.core.records import Turn
from memagent.core.trials import Edit
from memagent.core.workspace import Workspace
from memagent.designs.base import OnePrompt, SlotContext, fence, load_prompt, quoted
from memagent.replies.entries import MAX_FACT_CHARS, extract_json, string_at
from memagent.replies.tolerant_json import JsonValue
from memagent.state.effects import tokenize
from memagent.timex.resolve import MAX_TURN_TIMES, find_times

Choose = Callable[[Workspace], tuple[int, ...]]
"""Returns the places of the segments to fold now; () for none."""


@dataclass(frozen=True, kw_only=True)
class Fold(OnePrompt):
    """Folds the chosen segments into one note that the model writes."""

    choose: Choose

    async def __call__(self, workspace: Workspace, ctx: SlotContext, /) -> Edit | None:
        """Return the edit, or None when nothing is to be folded."""
        places = self.choose(workspace)
        if not places:
            return None
        reply = await ask_about_workspace(self.prompt, workspace, places, ctx)
        text = (string_at(reply, "text") or "")[:MAX_FACT_CHARS]
        refused = "" if text else "the reply holds no text for the note"
        return Edit(at=0, folds=places, text=text, refused=refused)


async def ask_about_workspace(
    prompt: str, workspace: Workspace, places: tuple[int, ...], ctx: SlotContext
) -> dict[str, JsonValue]:
    """Show the model some segments with their places; return its object, {} if unreadable."""
    loaded = load_prompt(prompt)
    lines = (f"({place}) {quoted(workspace.segments[place].text)}" for place in places)
    values = {"task": fence("task", [quoted(workspace.goal)]), "steps": fence("steps", lines)}
    reply = await ctx.call(Role.MANAGER, loaded.messages(**values), prompt_digest=loaded.digest)
    value = extract_json(reply.text).value
    return value if isinstance(value, dict) else {}


def all_but_last(workspace: Workspace, keep: int = 1) -> tuple[int, ...]:
    """Choose everything before the last `keep` segments."""
    return tuple(range(len(workspace.segments) - keep))


def trailing_steps(workspace: Workspace, least: int) -> tuple[int, ...]:
    """Choose the steps since the last note, once there are at least `least`."""
    begin = len(workspace.segments)
    while begin and workspace.segments[begin - 1].kind == "step":
        begin -= 1
    places = tuple(range(begin, len(workspace.segments)))
    return places if len(places) >= least else ()


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

"""Parts of designs that learn from trials: cases, notes, refinements, and who is shown them.

A case or a note keeps its outcome as a tag, never in its text, so no search reads what
a trial earned. All rest on the turns of the trial and have the lowest trust of these.

A learned scorer of cases: which words of a case go with which words of a task.

Parts of a design that keeps a dated log: all of it is shown, and a reflector condenses it.

A retriever in two phases: what is similar enough, then by similarity and learned value.

Parts of designs that keep a workspace small: which segments to fold, and into what. A
design of this sort is a chooser and a prompt. The note that stands for the segments is
the model's; a reply that cannot be read is an edit that was refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, takewhile
from statistics import fmean, pstdev
from typing import Final
from zlib import crc32

import numpy as np

from memagent.core.answers import Hit, Question
from memagent.core.errors import InputError
from memagent.core.exchange import Role
from memagent.core.ops import Add, Delete, MemoryOp, Noop, Rejected, Update
from memagent.core.records import Fact, ItemStats, MemoryItem
from memagent.core.trials import FAILED, SUCCEEDED, Edit, Trial
from memagent.core.workspace import Workspace
from memagent.designs.base import (
    Lesson,
    OnePrompt,
    SlotContext,
    fence,
    load_prompt,
    quoted,
)
from memagent.designs.parts.lines import TEXT, JsonCall, ask_for_json, hit_line, list_schema
from memagent.designs.parts.retrieval import query_for
from memagent.memory.bank import query_vectors, text_vectors
from memagent.memory.facade import Memory
from memagent.replies.entries import MAX_FACT_CHARS, extract_json, ids_at, string_at
from memagent.replies.readers import NoteDraft, parse_notes, parse_ops
from memagent.replies.tolerant_json import JsonValue
from memagent.state.backing import Words, backs_addition
from memagent.state.effects import tokenize
from memagent.state.validation import matches
from memagent.timex.resolve import format_span

NOTES: Final = list_schema(
    "notes",
    {"type": "object", "properties": dict.fromkeys(("text", "subject", "id", "tag"), TEXT)},
)
OPS: Final = list_schema("operations", {"type": "object"})


@dataclass(frozen=True, kw_only=True)
class KindRetriever:
    """Searches items of some kinds only, by the question's own words."""

    kinds: frozenset[str]

    async def __call__(self, question: Question, ctx: SlotContext, /) -> list[Hit]:
        """Return at most k hits, best first."""
        where = question.where.model_copy(update={"kinds": self.kinds})
        asked = question.model_copy(update={"where": where})
        return await ctx.bank.search(query_for(asked), k=question.k)


@dataclass(frozen=True, kw_only=True)
class CaseLearner:
    """Keeps each trial as one case: the task and the actions; the outcome is a tag."""

    max_chars: int = 1_900
    only_good: bool = False
    """Whether trials that failed leave no case."""

    async def __call__(self, trial: Trial, ctx: SlotContext, /) -> Lesson:  # noqa: ARG002 - interface
        """Return one ADD, or nothing for a failure that leaves no case."""
        if self.only_good and trial.outcome is not None and not trial.outcome.good:
            return Lesson()
        return Lesson(ops=(case_of(trial, max_chars=self.max_chars),))


def case_of(trial: Trial, *, max_chars: int = 1_900) -> Add:
    """Return the op that keeps a trial as a case."""
    text = "\n".join((trial.task, *(step.action for step in trial.steps)))[:max_chars]
    good = trial.outcome is not None and trial.outcome.good
    return Add(
        fact=Fact(text=text, kind="case", source_turn_ids=trial.turn_ids),
        tags=(SUCCEEDED if good else FAILED,),
    )


def active_of(ctx: SlotContext, kind: str) -> list[MemoryItem]:
    """Return the active items of a kind, in order of id."""
    items = (item for item in ctx.bank.state.active() if item.kind == kind)
    return sorted(items, key=lambda item: item.id)


def trial_text(trial: Trial) -> str:
    """Return a trial for a prompt, fenced: task, steps, outcome."""
    lines = [f"task: {quoted(trial.task)}"]
    for step in trial.steps:
        lines += [f"did: {quoted(step.action)}", f"saw: {quoted(step.observation)}"]
    if trial.outcome is not None:
        verdict = "succeeded" if trial.outcome.good else "failed"
        lines.append(f"outcome: {verdict}. {quoted(trial.outcome.detail)}")
    return fence("trial", lines)


def items_text(items: Iterable[MemoryItem]) -> str:
    """Return memories for a prompt, fenced, each with its id."""
    return fence("memories", (f"[{quoted(item.id)}] {quoted(item.text)}" for item in items))


async def written_notes(
    prompt: str, trials: Sequence[Trial], items: Iterable[MemoryItem], ctx: SlotContext
) -> tuple[list[NoteDraft], tuple[Rejected, ...]]:
    """Ask the model for notes about trials and the memories shown for them."""
    call = JsonCall(role=Role.MANAGER, prompt=load_prompt(prompt), schema=NOTES, parse=parse_notes)
    values = {"trials": "\n".join(map(trial_text, trials)), "memories": items_text(items)}
    reply = await ask_for_json(ctx, call, values, ordinal=0, retry=True)
    return list(reply.parsed.values), reply.parsed.rejected


@dataclass(frozen=True, kw_only=True)
class RefiningLearner(OnePrompt):
    """Keeps each trial as a case and lets the model prune, merge or rewrite those shown."""

    prompt: str = "refine"

    async def __call__(self, trial: Trial, ctx: SlotContext, /) -> Lesson:
        """Return the case and the model's ops on the memories shown."""
        items = (ctx.bank.state.items.get(use.id) for use in trial.shown)
        shown = [item for item in items if item is not None and item.active]
        if not shown:
            return Lesson(ops=(case_of(trial),))
        call = JsonCall(
            role=Role.MANAGER, prompt=load_prompt(self.prompt), schema=OPS, parse=parse_ops
        )
        values = {"trials": trial_text(trial), "memories": items_text(shown)}
        reply = await ask_for_json(ctx, call, values, ordinal=0, retry=True)
        refined = (_resting(op, trial) for op in reply.parsed.values)
        return Lesson(ops=(case_of(trial), *refined), rejected=reply.parsed.rejected)


def _resting(op: MemoryOp, trial: Trial) -> MemoryOp:
    """Return the op with the trial's turns as its evidence; ids stay the model's."""
    match op:
        case Update() | Delete():
            return op.model_copy(update={"source_turn_ids": trial.turn_ids})
        case Add():
            fact = op.fact.model_copy(update={"source_turn_ids": trial.turn_ids})
            return op.model_copy(update={"fact": fact})
        case Noop():
            return op


def no_worse(
    tasks: Sequence[str],
    score: Callable[[Memory, str], Awaitable[float]],
    *,
    evaluation: Iterable[str],
    ties: bool = True,
) -> Callable[[Memory, Memory], Awaitable[bool]]:
    """Return an `accept` that compares held-out tasks without and with a lesson.

    A lesson that changes no score is kept when `ties` is set.
    Raises `InputError` when a held-out task belongs to the evaluation.
    """
    if leaked := set(tasks) & set(evaluation):
        raise InputError(f"the task {min(leaked)!r} is evaluated on; accept lessons on others")

    async def accept(before: Memory, after: Memory) -> bool:
        without, with_lesson = [
            sum([await score(memory, task) for task in tasks]) for memory in (before, after)
        ]
        return with_lesson > without or (ties and with_lesson == without)

    return accept


WIDTH: Final = 4_096


class CaseScorer:
    """A reranker fitted to the rewards of trials: pairs of words, logistic loss."""

    id = "case-scorer/1"

    def __init__(self, trials: Sequence[Trial], items: Mapping[str, MemoryItem]) -> None:
        self.weights = np.zeros(WIDTH)
        pairs = [
            (_features(trial.task, items[credit.id].text), float(credit.reward > 0))
            for trial in sorted(trials, key=lambda trial: trial.id)
            for credit in trial.credit
            if credit.id in items
        ]
        for _ in range(10):
            for (places, counts), good in pairs:
                chance = 1 / (1 + np.exp(-(self.weights[places] @ counts)))
                self.weights[places] += counts * (0.5 * (good - chance) / max(counts.sum(), 1.0))

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the learned log odds that each text helps with the query."""
        found = (_features(query, text) for text in texts)
        return [float(self.weights[places] @ counts) for places, counts in found]


@lru_cache(maxsize=4_096)
def _features(
    task: str, case: str
) -> tuple[np.typing.NDArray[np.int64], np.typing.NDArray[np.float64]]:
    """Return the places of pairs of a word of the task and one of the case, with counts."""
    words = sorted(set(tokenize(case)))
    pairs = ((a, b) for a in sorted(set(tokenize(task))) for b in words)
    hashed = [crc32(f"{a}\x1f{b}".encode()) % WIDTH for a, b in pairs]
    places, counts = np.unique(np.array(hashed, dtype=np.int64), return_counts=True)
    return places, counts.astype(np.float64)


async def keep_helpful(budget: int | None, ctx: SlotContext, /) -> Sequence[MemoryOp]:  # noqa: ARG001 - interface
    """Delete bullets of a playbook that were tagged harmful more often than helpful."""
    stats = ctx.bank.state.stats
    balance = {
        item.id: stats.get(item.id, ItemStats()).counters.get("tagged_helpful", 0.0)
        - stats.get(item.id, ItemStats()).counters.get("tagged_harmful", 0.0)
        for item in ctx.bank.state.active()
        if item.kind == "bullet"
    }
    return [Delete(id=item_id) for item_id, worth in sorted(balance.items()) if worth < 0]


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
    listed = found.at("log") if found.clear else None
    drafts = (
        [entry for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    )
    read = ((string_at(entry, "text"), ids_at(entry, ("from",))) for entry in drafts)
    return [(said[:MAX_FACT_CHARS], ids) for said, ids in read if said]


# Memories, the first by id, whose pairs give the corpus its mean and deviation.
_CORPUS: Final = 64
_CLAMP: Final = 3.0


@dataclass(frozen=True, kw_only=True)
class ValueRetriever:
    """Keeps hits above an absolute cosine, and ranks them by similarity and value.

    The cosine is that of the tasks: the question and the first line of a memory. It is
    standardised by the pairs of the store, which no question changes; the value by that
    of the candidates. An unrelated question finds nothing.
    """

    pool: int = 500
    threshold: float = 0.3
    """Least cosine."""
    weight: float = 1.0
    """Weight of the value; 0 is similarity alone."""
    prior: float = 0.3
    """Value of a case that was not used yet, by the outcome of its own trial."""
    spread: float = 0.25
    """Least deviation of the cosines: a store whose memories all look alike has less, and
    then no value could make up for a cosine."""

    async def __call__(self, question: Question, ctx: SlotContext, /) -> list[Hit]:
        """Return at most k hits, best first."""
        hits = await ctx.bank.search(query_for(question), k=max(self.pool, question.k))
        asked = (await query_vectors(ctx.bank, [question.text])).get(question.text)
        tasks = {hit.id: _task(hit.item) for hit in hits if hit.item is not None}
        vectors = await text_vectors(ctx.bank, tasks.values())
        if asked is None:
            return hits[: question.k]
        cosines = {key: float(asked @ vectors[task]) for key, task in tasks.items()}
        near = [hit for hit in hits if cosines.get(hit.id, -1.0) >= self.threshold]
        mean, spread = await self._corpus(ctx)
        values = _standardised([self.value(hit, ctx) for hit in near])
        ranked = [
            hit.model_copy(
                update={"score": (cosines[hit.id] - mean) / spread + self.weight * value}
            )
            for hit, value in zip(near, values, strict=True)
        ]
        return sorted(ranked, key=lambda hit: (-hit.score, hit.id))[: question.k]

    def value(self, hit: Hit, ctx: SlotContext) -> float:
        """Return what a hit is worth: its value, or its trial's outcome until it is used."""
        stats = ctx.bank.state.stats.get(hit.id, ItemStats())
        tags = hit.item.tags if hit.item is not None and not stats.uses else ()
        return stats.q_value + self.prior * ((SUCCEEDED in tags) - (FAILED in tags))

    async def _corpus(self, ctx: SlotContext) -> tuple[float, float]:
        """Return mean and deviation of the cosines between the store's own tasks."""
        items = sorted(ctx.bank.state.active(), key=lambda item: item.id)[:_CORPUS]
        vectors = await text_vectors(ctx.bank, {_task(item) for item in items})
        rows = np.array([vectors[key] for key in sorted(vectors)])
        cosines = [float(one @ other) for one, other in combinations(rows, 2)]
        if not cosines:
            return 0.0, self.spread
        return fmean(cosines), max(self.spread, pstdev(cosines))


def _task(item: MemoryItem) -> str:
    return item.text.partition("\n")[0]


def _standardised(values: Sequence[float]) -> list[float]:
    """Return z scores within the clamp; zeros where nothing differs."""
    spread = pstdev(values) if len(values) > 1 else 0.0
    if spread <= 1e-12:
        return [0.0 for _ in values]
    return [max(-_CLAMP, min(_CLAMP, (value - fmean(values)) / spread)) for value in values]


# -- workspaces --------------------------------------------------------------------------

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
    steps = takewhile(lambda segment: segment.kind == "step", reversed(workspace.segments))
    count = sum(1 for _ in steps)
    end = len(workspace.segments)
    return tuple(range(end - count, end)) if count >= least else ()

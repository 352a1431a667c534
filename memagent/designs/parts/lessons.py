"""Parts of designs that learn from trials: cases, notes, refinements, and who is shown them.

A case or a note keeps its outcome as a tag, never in its text, so no search reads what
a trial earned. All rest on the turns of the trial and have the lowest trust of these.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from memagent.core.answers import Hit, Question
from memagent.core.errors import InputError
from memagent.core.exchange import Role
from memagent.core.ops import Add, Delete, MemoryOp, Noop, Rejected, Update
from memagent.core.records import Fact, MemoryItem
from memagent.core.trials import FAILED, SUCCEEDED, Trial
from memagent.designs.base import Lesson, SlotContext
from memagent.designs.parts.asking import TEXT, JsonCall, ask_for_json, list_schema
from memagent.designs.parts.retrieval.hybrid import query_for
from memagent.designs.prompting import OnePrompt, fence, load_prompt, quoted
from memagent.memory.facade import Memory
from memagent.replies.notes import NoteDraft, parse_notes
from memagent.replies.ops import parse_ops

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


def actions_of(case: MemoryItem) -> list[str]:
    """Return the actions of a case, in order."""
    return case.text.split("\n")[1:]


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
) -> Callable[[Memory, Memory], Awaitable[bool]]:
    """Return an `accept` that compares held-out tasks without and with a lesson.

    Raises `InputError` when a held-out task belongs to the evaluation.
    """
    if leaked := set(tasks) & set(evaluation):
        raise InputError(f"the task {min(leaked)!r} is evaluated on; accept lessons on others")

    async def accept(before: Memory, after: Memory) -> bool:
        without, with_lesson = [
            sum([await score(memory, task) for task in tasks]) for memory in (before, after)
        ]
        return with_lesson >= without

    return accept

"""Recall, report and tidy: how an agent learns from what came of its attempts.

`recall` shows memories for a task and starts a trial; `report` ends it, counts the use
of what was shown, and lets the design's learner write a lesson. Nothing learns without
an outcome given from outside, and `ask` never reports.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict, Unpack

from pydantic import ValidationError

from memagent.core.answers import Answer, Hit, Question
from memagent.core.errors import (
    ConfigError,
    InputError,
    ModelError,
    boundary,
    check_keywords,
    fault_in,
)
from memagent.core.exchange import Usage
from memagent.core.ops import MemoryOp
from memagent.core.records import Record, Trust, content_id
from memagent.core.snapshot import Commit
from memagent.core.trials import Edit, Outcome, Trial, TrialStep, uses_of
from memagent.core.workspace import workspace_of
from memagent.designs.base import Lesson
from memagent.memory.bank import MemoryBank
from memagent.memory.facade import Memory
from memagent.memory.reporting import (
    TakenLesson,
    TrialReport,
    end_trial,
    get_trial,
    least_useful,
    refuse_lesson,
    start_trial,
    take_lesson,
    tidy_up,
)
from memagent.state.fold import untaught

if TYPE_CHECKING:
    from memagent.graphs.state import AgentContext

Accept = Callable[[Memory, Memory], bool | Awaitable[bool]]
"""Compares the memory without and with a lesson; both are private forks."""


class Recall(Record):
    """The memories for a task, with the trial to report on."""

    trial: Trial
    hits: tuple[Hit, ...] = ()

    @property
    def id(self) -> str:
        """The trial's id."""
        return self.trial.id


class Learned(Record):
    """A trial after its report, with the commit of its lesson."""

    trial: Trial
    lesson: Commit | None = None
    """None when the design has no learner, or the lesson was taken before."""
    usage: Usage = Usage()


class OutcomeArguments(TypedDict, total=False):
    """The optional parts of an outcome."""

    success: bool | None
    """Whether the task was done; None reads it off the reward."""
    detail: str
    """Why, for the learner; no search reads it."""
    steps: Sequence[TrialStep]
    """What was done and seen."""
    credit: Mapping[str, float] | None
    """Reward by item id; None credits the items used in the steps, else all shown."""
    edits: Sequence[Edit]
    """Changes of the trial's workspace, in order; a `Trial` brings its own."""


class ReportOptions(OutcomeArguments, total=False):
    """The optional parts of a report."""

    accept: Accept | None
    """Tries the lesson on a fork first; False leaves the memory as it is."""


async def recall(question: Question, context: AgentContext, *, trust: Trust = Trust.USER) -> Recall:
    """Retrieve for a task and journal the trial that begins; `trust` is the task's."""
    if not question.as_of.now:
        raise InputError("a trial happens now: `recall` takes no `as_of`, `ask` does")
    with boundary(ModelError, f"retriever of {context.design.name}"):
        hits = await context.design.retriever(question, context.slot())
    items = [hit.item for hit in hits if hit.item is not None]
    trial = await start_trial(context.bank, question.text, items, trust=trust)
    return Recall(trial=trial, hits=tuple(hits))


async def report(
    what: Recall | Trial | Answer | str,
    reward: float,
    context: AgentContext,
    **options: Unpack[ReportOptions],
) -> Learned:
    """End a trial and let the design learn from it."""
    known = (*OutcomeArguments.__annotations__, *ReportOptions.__annotations__)
    check_keywords("report()", options, known)
    bank, accept = context.bank, options.get("accept")
    began = await _trial_of(what, bank)
    edits = tuple(options.get("edits", ())) or began.edits
    try:
        told = TrialReport(
            trial=began.model_copy(update={"edits": edits}),
            outcome=Outcome(
                reward=reward, success=options.get("success"), detail=options.get("detail", "")
            ),
            steps=tuple(options.get("steps", ())) or began.steps,
            credit=options.get("credit"),
            gated=accept is not None,
        )
        trial = await end_trial(bank, told, context.design.feedback)
    except ValidationError as exc:
        raise InputError(f"the report cannot be stored: {fault_in(exc)}") from exc
    return await learn(trial, context, accept)


async def _trial_of(what: Recall | Trial | Answer | str, bank: MemoryBank) -> Trial:
    match what:
        case Recall():
            return what.trial
        case Trial():
            return what.model_copy(update={"outcome": None, "credit": (), "taught": False})
        case Answer():
            return _trial_of_answer(what, bank)
        case str():
            return await get_trial(bank, what)
    raise InputError(f"a {type(what).__name__} is no trial, its id, a recall or an answer")


def _trial_of_answer(answer: Answer, bank: MemoryBank) -> Trial:
    """Return the trial that an answer was: what it cites was used, else what was shown."""
    question = answer.question
    if question is None:
        raise InputError("the answer does not name its question; report on one from `ask`")
    asked = question.asked_at.isoformat() if question.asked_at else ""
    trial_id = content_id("trl", question.text, asked, answer.text, *answer.response_ids)
    cited = {citation.hit_id for citation in answer.citations}
    items = [hit.item for hit in answer.hits if hit.item is not None]
    used = tuple(item.id for item in items if item.id in cited)
    return Trial(
        id=trial_id,
        task=question.text,
        shown=uses_of(iter(items)),
        steps=(TrialStep(action=answer.text, used=used),) if answer.text else (),
        at=question.asked_at or bank.now(),
    )


async def learn(trial: Trial, context: AgentContext, accept: Accept | None = None) -> Learned:
    """Take the lesson of a trial that ended, unless it was taken or awaits consent."""
    learner, bank = context.design.learner, context.bank
    if learner is None or trial.taught or (trial.gated and accept is None):
        return Learned(trial=trial)
    slot = context.slot(session=bank.state.sessions.get(trial.id))
    with boundary(ModelError, f"learner of {context.design.name}"):
        proposed: Lesson = await learner(trial, slot)
    lesson = TakenLesson(
        ops=proposed.ops,
        counts=proposed.counts,
        rejected=proposed.rejected,
        response_ids=tuple(response.id for response in slot.trail.responses),
    )
    limits = context.design.limits
    if accept is not None and not await _accepted(bank, trial, lesson, accept, context):
        commit = await refuse_lesson(bank, trial.id, lesson)
    else:
        commit = await take_lesson(bank, trial.id, lesson, limits=limits)
    return Learned(trial=bank.state.trials[trial.id], lesson=commit, usage=slot.trail.usage)


async def _accepted(
    bank: MemoryBank, trial: Trial, lesson: TakenLesson, accept: Accept, context: AgentContext
) -> bool:
    """Carry the lesson out on a fork and ask for consent; both memories are thrown away."""
    before, after = bank.fork(), bank.fork()
    await take_lesson(after, trial.id, lesson, limits=context.design.limits)
    verdict = accept(Memory(before), Memory(after))
    return bool(await verdict if inspect.isawaitable(verdict) else verdict)


async def learn_pending(context: AgentContext) -> list[Learned]:
    """Take the lessons that a crash or a failing model left, oldest first."""
    if context.design.learner is None:
        return []
    state = await context.bank.sync()
    pending = [trial for trial in untaught(state.trials) if not trial.gated]
    pending.sort(key=lambda trial: (trial.at.timestamp() if trial.at else 0.0, trial.id))
    return [await learn(trial, context) for trial in pending]


async def compact(trial: Trial, context: AgentContext) -> Trial:
    """Let the design's compactor edit the workspace of a trial that is under way.

    An edit that does not fit is kept as refused, with the reason.
    """
    compactor = context.design.compactor
    if compactor is None:
        return trial
    workspace = workspace_of(trial)
    with boundary(ModelError, f"compactor of {context.design.name}"):
        edit = await compactor(workspace, context.slot())
    if edit is None:
        return trial
    edit = edit.model_copy(update={"at": len(trial.steps)})
    try:
        workspace.after_edit(edit)
    except InputError as exc:
        edit = edit.model_copy(update={"refused": str(exc)})
    return trial.model_copy(update={"edits": (*trial.edits, edit)})


async def tidy(budget: int | None, context: AgentContext) -> Commit | None:
    """Let the design's keeper put the memory in order; None when nothing was to do."""
    if budget is not None and budget < 0:
        raise ConfigError(f"budget is {budget}; keep at least 0 memories")
    state, keeper = await context.bank.sync(), context.design.keeper
    ops: Sequence[MemoryOp] = ()
    by_model = False
    if keeper is not None:
        slot = context.slot()
        with boundary(ModelError, f"keeper of {context.design.name}"):
            ops = await keeper(budget, slot)
        by_model = bool(slot.trail.responses)
    elif budget is not None:
        ops = least_useful(state, budget)
    limits = context.design.limits.model_copy(
        update={
            "max_ops": max(len(ops), 1),
            "allow": context.design.limits.allow | {"UPDATE", "DELETE"},
        }
    )
    return await tidy_up(context.bank, ops, limits=limits, by_model=by_model)

"""Learning from what came of an agent's attempts: trials, their lessons, and tidying.

`recall` shows memories for a task and starts a trial; `report` ends it, counts the use
of what was shown, and lets the design's learner write a lesson. `tidy` puts the memory in
order. Nothing learns without an outcome given from outside, and `ask` never reports.

First come the verbs over a bank, from `start_trial` to `take_lesson`. Each is one
journal append that is planned anew when another writer came first, so counts are never
lost and a second report of the same outcome changes nothing. Then comes tidying over a
bank (`tidy_up`), and last what an agent calls, from `recall` to `tidy`.

Lessons and tidying are ops that a design proposes beside a conversation. A lesson is a
commit like any other and marks its trial as taught in the same entry; a crash between
report and lesson leaves an untaught trial, which `resume` finds.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, TypedDict, Unpack

from memagent.core.answers import Answer, Hit, Question
from memagent.core.errors import (
    ConfigError,
    InputError,
    MemoryNotFound,
    ModelError,
    boundary,
    check_keywords,
    input_errors,
)
from memagent.core.exchange import Usage
from memagent.core.ops import (
    Add,
    Delete,
    MemoryOp,
    Noop,
    OpBatch,
    OpLimits,
    Rejected,
    RejectReason,
)
from memagent.core.records import (
    Chunk,
    ItemStats,
    MemoryItem,
    Record,
    SourceRef,
    Trust,
    content_id,
    lowest_trust,
)
from memagent.core.snapshot import Commit
from memagent.core.trials import (
    HARMFUL,
    HELPFUL,
    Credit,
    Edit,
    Outcome,
    Trial,
    TrialEnded,
    TrialStarted,
    TrialStep,
    untaught,
    uses_of,
)
from memagent.core.workspace import workspace_of
from memagent.designs.base import Feedback, Lesson
from memagent.memory.bank import MemoryBank
from memagent.memory.facade import Memory
from memagent.state.effects import plan_commit
from memagent.state.fold import BankState, folded
from memagent.state.validation import validate_ops


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialReport:
    """The outcome of a trial as reported, with steps and credit."""

    trial: Trial
    """The trial as it began; one that was never started is stored with its report."""
    outcome: Outcome
    steps: tuple[TrialStep, ...] = ()
    credit: Mapping[str, float] | None = None
    """Reward by item; None gives the outcome's to the items used, else to all shown."""
    gated: bool = False


async def start_trial(
    bank: MemoryBank, task: str, items: Sequence[MemoryItem], *, trust: Trust = Trust.USER
) -> Trial:
    """Journal a new trial of a task, for which these items were shown.

    `trust` is that of the task's words.
    """
    now = bank.now()

    def entry(state: BankState) -> TrialStarted:
        number = len(state.trials)
        while (trial_id := content_id("trl", task, str(number))) in state.trials or (
            trial_id in state.sessions
        ):
            number += 1
        shown = uses_of(iter(items))
        return TrialStarted(trial=Trial(id=trial_id, task=task, trust=trust, shown=shown, at=now))

    return (await bank.record(entry)).trial


def newest_trials(state: BankState) -> list[Trial]:
    """Return all trials, the newest first, undated ones last, ties by id."""
    return sorted(
        state.trials.values(),
        key=lambda trial: (-(trial.at.timestamp() if trial.at else 0.0), trial.id),
    )


async def get_trial(bank: MemoryBank, trial_id: str) -> Trial:
    """Return a trial. Raises `MemoryNotFound`."""
    trial = (await bank.sync()).trials.get(trial_id)
    if trial is None:
        raise MemoryNotFound(f"no trial {trial_id!r} for user {bank.scope.user_id!r}")
    return trial


async def end_trial(bank: MemoryBank, report: TrialReport, feedback: Feedback) -> Trial:
    """Journal the outcome of a trial with the statistics of the items that it credits.

    The same report again changes nothing. Raises `InputError` for another one, and for
    credit to items that this memory does not have.
    """

    def entry(state: BankState) -> TrialEnded | None:
        known = state.trials.get(report.trial.id)
        if known is None or known.outcome is None:
            ended = _ended(state, known or report.trial, report)
            return TrialEnded(trial=ended, stats=_counted(state, ended, feedback))
        stated = {credit.id: credit.reward for credit in known.credit}
        if (
            known.outcome != report.outcome
            or (report.steps and report.steps != known.steps)
            or (report.credit is not None and dict(report.credit) != stated)
        ):
            raise InputError(
                f"trial {known.id} was reported with reward {known.outcome.reward:g} already; "
                "undo that report first"
            )
        return None

    await bank.append(entry)
    return bank.state.trials[report.trial.id]


def _ended(state: BankState, trial: Trial, report: TrialReport) -> Trial:
    if trial.steps and report.steps and trial.steps != report.steps:
        raise InputError(f"trial {trial.id} has its steps already; report the outcome alone")
    steps, edits = trial.steps or report.steps, trial.edits or report.trial.edits
    if report.credit is not None:
        shares = dict(report.credit)
    else:
        used = dict.fromkeys(item_id for step in steps for item_id in step.used)
        shares = dict.fromkeys(used or (use.id for use in trial.shown), report.outcome.reward)
    unknown = [item_id for item_id in shares if item_id not in state.items]
    shown = {use.id: use.version for use in trial.shown}
    if any(item_id not in shown for item_id in unknown):
        raise InputError(f"no memory {unknown[0]!r} to give credit to; nothing was reported")
    credit = tuple(
        Credit(
            id=item_id, version=shown.get(item_id) or state.items[item_id].version, reward=reward
        )
        for item_id, reward in shares.items()
        if item_id not in unknown
    )
    ended = {"steps": steps, "edits": edits, "outcome": report.outcome, "credit": credit}
    # Validated as a whole: an entry that could not be read again would spoil the journal.
    return Trial.model_validate({**dict(trial), **ended, "gated": report.gated})


def _counted(
    state: BankState, trial: Trial, feedback: Feedback
) -> tuple[tuple[str, ItemStats | None], ...]:
    """Return the statistics of the credited items with this trial counted."""
    counted: dict[str, ItemStats] = {}
    for credit in trial.credit:
        name = HELPFUL if credit.reward > 0 else HARMFUL
        stats = raised(state.stats.get(credit.id, ItemStats()), name, 1.0)
        counted[credit.id] = stats.model_copy(
            update={"uses": stats.uses + 1, "last_reward": credit.reward}
        )
    worth = feedback(trial, counted)
    return tuple(
        (item_id, ItemStats.model_validate({**dict(stats), "q_value": worth[item_id]}))
        if item_id in worth
        else (item_id, stats)
        for item_id, stats in counted.items()
    )


def raised(stats: ItemStats, name: str, by: float) -> ItemStats:
    """Return the statistics with one counter raised."""
    counters = {**stats.counters, name: stats.counters.get(name, 0.0) + by}
    return stats.model_copy(update={"counters": dict(sorted(counters.items()))})


async def take_lesson(
    bank: MemoryBank,
    trial_id: str,
    lesson: Lesson,
    *,
    limits: OpLimits,
    response_ids: tuple[str, ...] = (),
) -> Commit | None:
    """Write a lesson and mark its trial as taught, in one entry; None when it is already.

    Ops may name any active item; those that do not fit come back rejected. `response_ids`
    name the model calls that the lesson was made with.
    """

    def entry(state: BankState) -> Commit | None:
        trial = state.trials.get(trial_id)
        if trial is None or trial.outcome is None or trial.taught:
            return None
        session = state.sessions[trial_id]
        chunk = Chunk(
            id=f"{trial_id}#lesson",
            session_id=trial_id,
            index=0,
            count=1,
            at=session.at,
            turns=session.turns,
        )
        batch = validate_ops(
            lesson.ops,
            visible=_visible(state, trial, lesson.ops),
            limits=limits,
            chunk=chunk,
            existing_ids=state.items,
        )
        batch = batch.model_copy(update={"rejected": (*lesson.rejected, *batch.rejected)})
        return _lesson_commit(state, trial, batch, lesson, response_ids)

    return await bank.record(entry)


def _lesson_commit(
    state: BankState, trial: Trial, batch: OpBatch, lesson: Lesson, response_ids: tuple[str, ...]
) -> Commit:
    source = SourceRef(
        session_id=trial.id,
        turn_ids=tuple(turn.id for turn in state.sessions[trial.id].turns),
        response_ids=response_ids,
        actor="lesson",
    )
    commit = plan_commit(state, batch, source=source)
    stats: dict[str, ItemStats] = {}
    for item_id, name, by in lesson.counts:
        if item_id in state.items:
            known = stats.get(item_id) or state.stats.get(item_id, ItemStats())
            stats[item_id] = raised(known, name, by)
    taught = trial.model_copy(update={"taught": True})
    return commit.model_copy(
        update={"stats": tuple(stats.items()), "trials": ((trial.id, taught),)}
    )


def _visible(state: BankState, trial: Trial, ops: Sequence[MemoryOp]) -> dict[str, MemoryItem]:
    """Return the active items that ops name, those shown, and those that say the same."""
    named = [use.id for use in trial.shown]
    for op in ops:
        if isinstance(op, Add):
            named.append(state.texts.get(folded(op.fact.text.strip()), ""))
        elif op.id is not None:
            named.append(op.id)
    items = (state.items.get(item_id) for item_id in named)
    return {item.id: item for item in items if item is not None and item.active}


# -- tidying ---------------------------------------------------------------------------


async def tidy_up(
    bank: MemoryBank, ops: Sequence[MemoryOp], *, limits: OpLimits, by_model: bool = False
) -> Commit | None:
    """Write a keeper's ops as one commit of the actor `tidy`; None when there are none.

    What a model proposed has the lowest trust of all that it cites, and of the whole
    memory where it cites nothing; code of ours may prune whatever there is.
    """
    if not ops:
        return None

    def entry(state: BankState) -> Commit:
        batches: list[OpBatch] = []
        claimed: set[str] = set()
        for level, part in groupby(ops, key=lambda op: _trust_of(op, state, by_model=by_model)):
            named = list(part)
            ids = [op.id for op in named if not isinstance(op, Add) and op.id is not None]
            items = (state.items.get(item_id) for item_id in ids if item_id not in claimed)
            batch = validate_ops(
                named,
                visible={item.id: item for item in items if item is not None and item.active},
                limits=limits,
                existing_ids=state.items,
                actor_trust=level,
            )
            claimed.update(op.id for op in batch.accepted if op.id is not None)
            batches.append(batch)
        whole = OpBatch(
            accepted=tuple(op for batch in batches for op in batch.accepted),
            rejected=tuple(op for batch in batches for op in batch.rejected),
        )
        return plan_commit(state, whole, source=SourceRef(actor="tidy"))

    return await bank.record(entry)


def _trust_of(op: MemoryOp, state: BankState, *, by_model: bool) -> Trust:
    """Return the trust of what a keeper's op rests on."""
    if not by_model:
        return Trust.USER
    cited = () if isinstance(op, Noop) else (op.fact if isinstance(op, Add) else op).source_turn_ids
    if not cited:
        return lowest_trust(item.trust for item in state.active())
    turns = [
        state.sessions[place[0]].turns[place[1]] for t in cited if (place := state.turns.get(t))
    ]
    resting = (item for item in state.active() if not set(cited).isdisjoint(item.source_turn_ids))
    return lowest_trust((*(turn.trust for turn in turns), *(item.trust for item in resting)))


def least_useful(state: BankState, budget: int) -> list[Delete]:
    """Return deletions that leave at most `budget` items: least value, then least used.

    Ties go by date and id, oldest first. A memory that was never used loses its oldest.
    """
    items = list(state.active())

    def worth(item: MemoryItem) -> tuple[float, int, float, str]:
        stats = state.stats.get(item.id, ItemStats())
        said = item.said_at.timestamp() if item.said_at else 0.0
        return stats.q_value, stats.uses, said, item.id

    surplus = max(len(items) - budget, 0)
    return [
        Delete(id=item.id, version=item.version, reason="over the budget")
        for item in sorted(items, key=worth)[:surplus]
    ]


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
    check_keywords("report()", options, ReportOptions.__annotations__)
    bank, accept = context.bank, options.get("accept")
    began = await _trial_of(what, bank)
    edits = tuple(options.get("edits", ())) or began.edits
    with input_errors("the report cannot be stored"):
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
        lesson = await learner(trial, slot)
    ids = tuple(response.id for response in slot.trail.responses)
    if accept is not None and not await _accepted(bank, trial, lesson, accept, context):
        detail = "refused after a try on a fork"
        refused = (
            Rejected(reason=RejectReason.NOT_ACCEPTED, detail=detail, op=op) for op in lesson.ops
        )
        lesson = Lesson(rejected=(*lesson.rejected, *refused))
    limits = context.design.limits
    commit = await take_lesson(bank, trial.id, lesson, limits=limits, response_ids=ids)
    return Learned(trial=bank.state.trials[trial.id], lesson=commit, usage=slot.trail.usage)


async def _accepted(
    bank: MemoryBank, trial: Trial, lesson: Lesson, accept: Accept, context: AgentContext
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

"""Trials over a bank: start one, read it, end it with an outcome, take its lesson.

Each verb is one journal append that is planned anew when another writer came first, so
counts are never lost and a second report of the same outcome changes nothing.

Lessons and tidying are ops that a design proposes beside a conversation. A lesson is a
commit like any other and marks its trial as taught in the same entry; a crash between
report and lesson leaves an untaught trial, which `resume` finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from memagent.core.errors import InputError, MemoryNotFound
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
    Outcome,
    Trial,
    TrialEnded,
    TrialStarted,
    TrialStep,
    uses_of,
)
from memagent.memory.bank import MemoryBank
from memagent.state.effects import plan_commit
from memagent.state.fold import BankState, folded
from memagent.state.validation import validate_ops

Values = Callable[[Trial, Mapping[str, ItemStats]], Mapping[str, float]]
"""The values of the credited items after a trial (a design's `feedback`)."""


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
        known = state.trials
        number = len(known)
        while (trial_id := content_id("trl", task, str(number))) in known or (
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


async def end_trial(bank: MemoryBank, report: TrialReport, values: Values) -> Trial:
    """Journal the outcome of a trial with the statistics of the items that it credits.

    The same report again changes nothing. Raises `InputError` for another one, and for
    credit to items that this memory does not have.
    """

    def entry(state: BankState) -> TrialEnded | None:
        known = state.trials.get(report.trial.id)
        if known is None or known.outcome is None:
            ended = _ended(state, known or report.trial, report)
            return TrialEnded(trial=ended, stats=_counted(state, ended, values))
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
    state: BankState, trial: Trial, values: Values
) -> tuple[tuple[str, ItemStats | None], ...]:
    """Return the statistics of the credited items with this trial counted."""
    counted: dict[str, ItemStats] = {}
    for credit in trial.credit:
        name = HELPFUL if credit.reward > 0 else HARMFUL
        stats = raised(state.stats.get(credit.id, ItemStats()), name, 1.0)
        counted[credit.id] = stats.model_copy(
            update={"uses": stats.uses + 1, "last_reward": credit.reward}
        )
    worth = values(trial, counted)
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


Counts = Iterable[tuple[str, str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenLesson:
    """A lesson to be written: what the learner wants, and what it was made with."""

    ops: Sequence[MemoryOp] = ()
    counts: Counts = ()
    rejected: Sequence[Rejected] = ()
    response_ids: tuple[str, ...] = ()


async def take_lesson(
    bank: MemoryBank, trial_id: str, lesson: TakenLesson, *, limits: OpLimits
) -> Commit | None:
    """Write a lesson and mark its trial as taught, in one entry; None when it is already.

    Ops may name any active item; those that do not fit come back rejected.
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
        return _lesson_commit(state, trial, batch, lesson)

    return await bank.record(entry)


async def refuse_lesson(bank: MemoryBank, trial_id: str, lesson: TakenLesson) -> Commit | None:
    """Journal that the reporter refused a lesson; its trial is not taught again."""
    rejected = tuple(
        Rejected(reason=RejectReason.NOT_ACCEPTED, detail="refused after a try on a fork", op=op)
        for op in lesson.ops
    )
    return await take_lesson(
        bank,
        trial_id,
        TakenLesson(rejected=(*lesson.rejected, *rejected), response_ids=lesson.response_ids),
        limits=OpLimits(),
    )


def _lesson_commit(state: BankState, trial: Trial, batch: OpBatch, lesson: TakenLesson) -> Commit:
    source = SourceRef(
        session_id=trial.id,
        turn_ids=tuple(turn.id for turn in state.sessions[trial.id].turns),
        response_ids=lesson.response_ids,
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

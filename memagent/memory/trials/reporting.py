"""Trials over a bank: start one, read it, end it with an outcome.

Each verb is one journal append that is planned anew when another writer came first, so
counts are never lost and a second report of the same outcome changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from memagent.core.errors import InputError, MemoryNotFound
from memagent.core.records import ItemStats, MemoryItem, Trust, content_id
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
from memagent.state.fold import BankState

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

    row = await bank.append(entry)
    assert row is not None and isinstance(row.entry, TrialStarted)
    return row.entry.trial


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
        if not _repeats(known, report):
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


def _repeats(known: Trial, report: TrialReport) -> bool:
    stated = {credit.id: credit.reward for credit in known.credit}
    return (
        known.outcome == report.outcome
        and (not report.steps or report.steps == known.steps)
        and (report.credit is None or dict(report.credit) == stated)
    )


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

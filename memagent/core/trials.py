"""Trials: what an agent tried, which memories it was shown, and what came of it.

`recall` starts a trial with the item versions that were shown; `report` ends it with an
outcome. The surprise: the text of a trial is kept once, in its journal entry. The fold
makes a session of it, so that lessons cite its turns and `as_of`, erasure and audit
hold; the reward and its detail are in no turn and in no item, so no search reads them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Literal

from pydantic import Field

from memagent.core.records import (
    MAX_TURN_CHARS,
    Id,
    ItemStats,
    MemoryItem,
    Moment,
    Record,
    Session,
    Text,
    Trust,
    Turn,
    written,
)

PREFIX: Final = "trl_"
"""The beginning of every trial's id, which is the id of its session too."""
SUCCEEDED: Final = "succeeded"
FAILED: Final = "failed"
"""Tags of what a trial teaches, by its outcome."""
HELPFUL: Final = "helpful"
HARMFUL: Final = "harmful"
RAW: Final = frozenset({"steps", "edits", "at", "taught"})
"""Fields left out of a trial's hash: raw text, wall clock and progress."""
Reward = Annotated[float, Field(ge=-1e6, le=1e6)]
StepText = Annotated[Text, Field(max_length=MAX_TURN_CHARS)]


class ItemUse(Record):
    """An item at the version that was shown."""

    id: Id
    version: Annotated[int, Field(ge=1)] = 1


class Credit(ItemUse):
    """The share of an outcome that one item gets."""

    reward: Reward


class TrialStep(Record):
    """One action, what was observed after it, and the items that it used."""

    action: StepText
    observation: StepText = ""
    reward: Reward | None = None
    used: tuple[Id, ...] = ()


class Edit(Record):
    """A change of a trial's workspace: segments folded, or a note opened."""

    at: Annotated[int, Field(ge=0)]
    """The number of steps that came before it."""
    folds: tuple[Annotated[int, Field(ge=0)], ...] = ()
    """Places of the segments that leave the prompt."""
    text: StepText = ""
    """The note in their place; "" cuts them out."""
    opens: Annotated[int, Field(ge=0)] | None = None
    """Place of a note whose segments come back."""
    refused: Text = ""
    """Why it was not carried out; "" when it was."""


class Outcome(Record):
    """The result of a trial, as reported from outside."""

    reward: Reward
    success: bool | None = None
    """None where nobody judged; it counts as a success from a reward above 0."""
    detail: Text = ""
    """Why, in the reporter's words; a learner reads it, no search does."""

    @property
    def good(self) -> bool:
        """Whether the trial counts as a success."""
        return self.success if self.success is not None else self.reward > 0


class Trial(Record):
    """One attempt at a task; open until it has an outcome."""

    id: Annotated[Id, Field(pattern=f"^{PREFIX}")]
    task: Annotated[Text, Field(min_length=1, max_length=MAX_TURN_CHARS)]
    trust: Annotated[Trust, Field(exclude_if=lambda trust: trust is Trust.USER)] = Trust.USER
    """Who worded the task: the user, or a model that calls `recall` as a tool."""
    shown: tuple[ItemUse, ...] = ()
    """The items that `recall` gave, best first."""
    steps: Annotated[tuple[TrialStep, ...], Field(max_length=1_000)] = ()
    edits: Annotated[
        tuple[Edit, ...], Field(max_length=2_000, exclude_if=lambda edits: not edits)
    ] = ()
    """Changes of its workspace, in order."""
    outcome: Outcome | None = None
    credit: tuple[Credit, ...] = ()
    """The reward of each item, as counted."""
    gated: bool = False
    """Whether the lesson needs the reporter's consent (`accept`)."""
    at: Moment | None = None
    taught: bool = False
    """Whether its lesson was taken or refused already."""

    @property
    def turn_ids(self) -> tuple[str, ...]:
        """Ids of the turns of the trial's session, in order."""
        return tuple(f"{self.id}:{number}" for number, _ in enumerate(_said(self)))

    def with_step(self, step: TrialStep) -> Trial:
        """Return the trial with one more step."""
        return self.model_copy(update={"steps": (*self.steps, step)})

    def session(self) -> Session:
        """Return the trial's text as a session: the task, then each action and observation.

        Observations have the trust of tools. Turn ids are the trial's id and a number.
        """
        turns = tuple(
            Turn(id=f"{self.id}:{number}", speaker=speaker, text=text, trust=trust)
            for number, (speaker, text, trust) in enumerate(_said(self))
        )
        return Session(id=self.id, at=self.at, turns=turns)


def _said(trial: Trial) -> Iterator[tuple[str, str, Trust]]:
    yield "task", trial.task, trial.trust
    for step in trial.steps:
        yield "agent", step.action, Trust.ASSISTANT
        if step.observation:
            yield "environment", step.observation, Trust.TOOL


def untaught(trials: Mapping[str, Trial]) -> Iterator[Trial]:
    """Yield the trials that ended and whose lesson nobody has taken or refused."""
    return (trial for trial in trials.values() if trial.outcome and not trial.taught)


def failures(trials: Mapping[str, Trial]) -> list[Trial]:
    """Return the trials that failed, oldest first, ties by id."""
    failed = (trial for trial in trials.values() if trial.outcome and not trial.outcome.good)
    return sorted(failed, key=lambda trial: (trial.at.timestamp() if trial.at else 0.0, trial.id))


class TrialStarted(Record):
    """A trial began: the task and the items that were shown for it."""

    kind: Literal["trial_started"] = written("trial_started")
    schema_version: Literal[1] = 1
    trial: Trial


class TrialEnded(Record):
    """A trial has its outcome; the statistics of the items used, as they are afterwards."""

    kind: Literal["trial_ended"] = written("trial_ended")
    schema_version: Literal[1] = 1
    trial: Trial
    stats: tuple[tuple[str, ItemStats | None], ...] = ()


def uses_of(items: Iterator[MemoryItem]) -> tuple[ItemUse, ...]:
    """Return the items at their versions, each once, in order."""
    return tuple({item.id: ItemUse(id=item.id, version=item.version) for item in items}.values())

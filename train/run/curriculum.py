"""The curriculum as data: stages of longer and longer dialogues, each ended by its
steps, its gate or its patience.

Which stage a step belongs to is a function of the step and of the steps that earlier
stages really took, so a resumed run goes on where it stopped. Each stage begins from
the best checkpoint of the one before, and every stage's best is kept: on other data the
model of an early stage is often the better one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from train.errors import TrainFault


class Gate(BaseModel):
    """What validation must show for a stage to end before its steps are used up; all
    that is given must hold.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    f1: float | None = None
    """At least this mean F1."""
    lost: float | None = None
    """At most this share of gold evidence that no note cites (M-Fail)."""

    def passed(self, figures: dict[str, float]) -> bool:
        """Whether figures of a validation pass; a gate without conditions never does."""
        if self.f1 is None and self.lost is None:
            return False
        return (self.f1 is None or figures.get("f1", 0.0) >= self.f1) and (
            self.lost is None or figures.get("lost", 1.0) <= self.lost
        )


class Stage(BaseModel):
    """One stage."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    sessions: Annotated[int, Field(ge=1)] = 8
    """Sessions of an episode."""
    steps: Annotated[int, Field(ge=1)] = 100
    """Optimizer steps at most."""
    tokens: Annotated[int, Field(ge=1)] | None = None
    """Generated tokens at most, for comparisons at equal cost."""
    gate: Gate = Gate()
    """What validation must show for the stage to end early."""
    patience: Annotated[int, Field(ge=1)] | None = None
    """Validations without a new best after which the stage ends."""
    roles: Literal["manager", "answerer", "both"] | None = None
    """Who is trained in this stage, for alternating: manager, answerer or both; None for
    the trainer's own setting.
    """


REFERENCE = (
    Stage(sessions=8, steps=400),
    Stage(sessions=16, steps=200),
    Stage(sessions=32, steps=200),
)
"""Memory-R2's 8, 16, 32 sessions; its 10, 5 and 5 epochs in the proportion of their steps."""


def stage_at(step: int, stages: Sequence[Stage], *, ended: Sequence[int] = ()) -> tuple[int, int]:
    """(stage, first step of it) that global step `step` belongs to; `ended` gives the
    steps that finished stages really took.

    Raises `TrainFault` for a step after the last stage.
    """
    begun = 0
    for place, stage in enumerate(stages):
        length = ended[place] if place < len(ended) else stage.steps
        if step < begun + length:
            return place, begun
        begun += length
    raise TrainFault(
        f"step {step} lies after the last of {len(stages)} stages, which ends at step {begun}"
    )

"""What the tests of trials share: agents over hashed vectors, and learners that count."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from memagent.async_agent import AsyncAgent
from memagent.core.ops import Add, MemoryOp, OpLimits
from memagent.core.records import Fact
from memagent.core.trials import Trial
from memagent.designs.base import Lesson, MemoryDesign, SlotContext
from memagent.designs.verbatim import DESIGN as VERBATIM
from memagent.embed.static import HashEmbedder
from memagent.memory.bank import MemoryBank

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)


def noon() -> datetime:
    """A clock that stands still."""
    return NOON


@dataclass
class CountingLearner:
    """Notes each trial that it is called with, and writes one lesson about it."""

    trials: list[Trial] = field(default_factory=list[Trial])
    ops: tuple[MemoryOp, ...] = ()

    async def __call__(self, trial: Trial, ctx: SlotContext, /) -> Lesson:
        """Return one ADD that rests on the trial's task, or the given ops."""
        self.trials.append(trial)
        fact = Fact(text=f"About {trial.task}: look twice.", source_turn_ids=(f"{trial.id}:0",))
        counts = tuple((use.id, "seen", 1.0) for use in trial.shown)
        return Lesson(ops=self.ops or (Add(fact=fact),), counts=counts)


def learning_design(learner: CountingLearner) -> MemoryDesign:
    """The verbatim design with a learner."""
    return replace(VERBATIM, name="learning", learner=learner, limits=OpLimits())


def agent_of(design: MemoryDesign = VERBATIM, path: Path | None = None) -> AsyncAgent:
    """An agent over hashed vectors: in memory, or in a file."""
    if path is not None:
        return AsyncAgent(design=design, path=path, embedder=HashEmbedder(dim=64), clock=noon)
    return AsyncAgent(
        design=design, bank=MemoryBank(embedder=HashEmbedder(dim=64), clock=noon), clock=noon
    )

"""Adapt the heads of the design `learned` to what a user corrected in a store.

The user's sessions are heard again by private memories; the store is only read. Each
statement is a case: where a correction is about it, the right decision is the user's,
else the design's own. Every third case of both sorts is held out, and new heads are kept
only if they decide no sort of them worse.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from memagent.async_agent import AsyncAgent
from memagent.build import AgentSettings, build_design
from memagent.core.errors import ConfigError
from memagent.core.records import Session
from memagent.designs.base import SlotContext
from memagent.designs.parts.learned.manager import LearnedManager, shipped_choice
from memagent.designs.parts.learned.pairs import Choice, Side
from train.learned.adapt.corrections import Corrections, read_corrections, wording
from train.learned.adapt.heads import (
    DecisionCase,
    Heads,
    agreement,
    answer_of,
    decision_case,
    fit_heads,
    save_heads,
    split_held_out,
)

LEAST: Final = 4
"""Fewest corrected decisions that heads are fitted to."""
_CORRECTED: Final = 6.0
"""Weight of a corrected decision beside one that the user left as it was."""
_LIKED: Final = 3.0
_DISLIKED: Final = 0.3


@dataclass(slots=True)
class Teacher:
    """Decides as the user corrected, else as the shipped heads do, and notes each case."""

    corrections: Corrections
    corrected: list[DecisionCase]
    left: list[DecisionCase]
    """Cases that no correction is about."""

    async def __call__(self, new: Side, memories: Sequence[Side], ctx: SlotContext, /) -> Choice:
        """Return the right choice as far as the user told it."""
        shipped = await shipped_choice(new, memories, ctx)
        right = self._corrected(new, memories, shipped)
        choice = right or shipped
        answer = answer_of(choice)
        if right is not None:
            self.corrected.append(decision_case(new, memories, answer, weight=_CORRECTED))
        else:
            weight = self._weight(wording(new.clause.text))
            self.left.append(decision_case(new, memories, answer, weight=weight))
        return choice

    def _weight(self, text: str) -> float:
        if text in self.corrections.liked:
            return _LIKED
        return _DISLIKED if text in self.corrections.disliked else 1.0

    def _corrected(self, new: Side, memories: Sequence[Side], shipped: Choice) -> Choice | None:
        text = wording(new.clause.text)
        known = [wording(memory.clause.text) for memory in memories]
        words = set(text.split())
        for edit in self.corrections.edits:
            told = set(edit.new.split()) - set(edit.old.split())
            if edit.old in known and told and told <= words:
                return Choice("update", known.index(edit.old), 1.0, "the user wrote it so")
        if text in self.corrections.unwanted:
            return Choice("skip", None, 1.0, "the user deleted it")
        if shipped.target is not None and shipped.replaces:
            old = known[shipped.target]
            if any(one.old == old and one.new in ("", text) for one in self.corrections.apart):
                return Choice("add", None, 1.0, "the user took the change back")
        return None


def tuned(store: Path, out: Path, *, user: str, seed: int) -> dict[str, Any]:
    """Fit heads to what a user corrected in a store. Raises `ConfigError`."""
    if not store.is_file():
        raise ConfigError(f"there is no store at {store}")
    return asyncio.run(_of_store(store, out, user=user, seed=seed))


async def _of_store(store: Path, out: Path, *, user: str, seed: int) -> dict[str, Any]:
    async with AsyncAgent(
        path=store, user_id=user, design="verbatim", settings=AgentSettings(), read_only=True
    ) as agent:
        return await tune(agent, out, seed=seed)


async def tune(agent: AsyncAgent, out: Path, *, seed: int = 0) -> dict[str, Any]:
    """Fit heads to the corrections in a memory and write them if they are no worse.

    Returns the counts, the agreement with held-out decisions before and after, and
    whether the heads were accepted. Raises `ConfigError` where there is too little to
    learn from.
    """
    sessions, corrections = await read_corrections(agent)
    teacher = await _heard(sessions, corrections)
    if len(teacher.corrected) < LEAST:
        raise ConfigError(
            f"{len(teacher.corrected)} decisions of {len(sessions)} sessions were corrected "
            f"({len(corrections)} corrections); at least {LEAST} are needed"
        )
    corrected, held_corrected = split_held_out(teacher.corrected)
    left, held_left = split_held_out(teacher.left)
    heads = fit_heads([*corrected, *left], seed=seed)
    report = {
        "sessions": len(sessions),
        "decisions": len(teacher.corrected) + len(teacher.left),
        "corrected": len(teacher.corrected),
        "held_out": {
            "corrected": _compared(heads, held_corrected),
            "others": _compared(heads, held_left),
        },
    }
    rows = report["held_out"].values()
    accepted = all(row["after"] >= row["before"] for row in rows)
    if accepted:
        save_heads(out, heads)
    return {**report, "accepted": accepted, "heads": str(out) if accepted else None}


async def _heard(sessions: Sequence[Session], corrections: Corrections) -> Teacher:
    """Let a private memory hear the sessions with the user's decisions."""
    teacher = Teacher(corrections, [], [])
    design = build_design("learned", has_model=False)
    design = replace(design, manager=LearnedManager(chooser=teacher))
    async with AsyncAgent(design=design, path=":memory:") as agent:
        for session in sessions:
            await agent.remember(session)
    return teacher


def _compared(heads: Heads, cases: Sequence[DecisionCase]) -> dict[str, float]:
    return {
        "decisions": len(cases),
        "before": round(agreement(Heads(), cases), 3),
        "after": round(agreement(heads, cases), 3),
    }

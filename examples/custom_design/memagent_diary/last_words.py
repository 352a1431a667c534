"""Last words: a workspace that keeps the first step and the last few; asks no model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from memagent.extend import VERBATIM, Edit, MemoryDesign, SlotContext, Workspace


@dataclass(frozen=True, kw_only=True)
class KeepEnds:
    """Folds the middle into a note of its actions once there are too many segments."""

    most: int = 6

    async def __call__(self, workspace: Workspace, ctx: SlotContext, /) -> Edit | None:  # noqa: ARG002 - interface
        """Return the edit, or None while there is room."""
        if len(workspace.segments) <= self.most:
            return None
        places = tuple(range(1, len(workspace.segments) - 2))
        lines = "\n".join(workspace.segments[place].text for place in places).split("\n")
        done = [line.removeprefix("did: ") for line in lines if not line.startswith("saw: ")]
        return Edit(at=0, folds=places, text="; ".join(done)[-500:])


DESIGN: Final[MemoryDesign] = replace(VERBATIM, name="last_words", compactor=KeepEnds())
"""Last words as a filling of the slots."""

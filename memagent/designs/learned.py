"""The default's memory with a reader: a small network sees what a new statement ends.

Turns are kept and quoted as in `verbatim`. A statement that replaces or ends what its
speaker said before becomes the next version of that memory, with the probability in the
op's reason; the old wording answers "before". The network (`memagent.language.reader`)
is part of the wheel and asks no language model.

    Agent()                   # the default without a model

The surprise: the reader's module is imported, and its weights are loaded, only once there
is something that a statement may end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from memagent.core import Later
from memagent.core.ops import MemoryOp, OpLimits
from memagent.designs.base import Proposal, Related, RelateSettings, SlotContext
from memagent.designs.parts.rules.answerer import EvidenceAnswerer
from memagent.designs.parts.rules.manager import KeepingManager, VerbatimManager
from memagent.designs.verbatim import DESIGN as VERBATIM

if TYPE_CHECKING:
    from memagent.designs.parts import reading
else:
    reading = Later("memagent.designs.parts.reading")

_RULES: Final = VerbatimManager()


async def manage(related: Sequence[Related], ctx: SlotContext, /) -> Proposal[MemoryOp]:
    """Return the ops of the rules, one a fact in order, with what new statements end."""
    proposal = await _RULES(related, ctx)
    if len(related) < 2 and not any(entry.hits for entry in related):
        return proposal
    return await reading.with_changes(proposal, related)


DESIGN: Final = replace(
    VERBATIM,
    name="learned",
    manager=KeepingManager(base=manage),
    answerer=EvidenceAnswerer(second=reading),
    limits=OpLimits(max_ops=2_000, max_deletes=8),
    relate=RelateSettings(k=8, cap=128, recent=8, graph=False),
)

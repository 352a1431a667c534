"""The default's memory with a reader: a small network sees what a new statement ends.

Turns are kept and quoted as in `verbatim`. A statement that replaces or ends what its
speaker said before becomes the next version of that memory, with the probability in the
op's reason; the old wording answers "before". The network (`memagent.language.reader`)
is part of the wheel and asks no language model.

    Agent(design="learned")
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from memagent.core.ops import OpLimits
from memagent.designs.base import RelateSettings
from memagent.designs.parts.decisions import DecidingManager
from memagent.designs.parts.reading import ReadingManager
from memagent.designs.verbatim import DESIGN as VERBATIM

DESIGN: Final = replace(
    VERBATIM,
    name="learned",
    manager=ReadingManager(),
    limits=OpLimits(max_ops=2_000, max_deletes=8),
    relate=RelateSettings(k=8, cap=128, recent=8, graph=False),
)

POLICY: Final = replace(DESIGN, name="learned_policy", manager=DecidingManager(), needs_model=True)
"""The same with decisions of a model, such as one that `memagent-train` made; see
`memagent.designs.parts.decisions`.
"""

"""A learned memory without a language model: a small network that copies, points and decides.

The network (`memagent.designs.parts.learned`, about 280,000 weights in numpy) marks the
statements in a turn and compares each with the memories about it: new, known, or in a
memory's place. Facts are stretches of their turns, word for word; a turn that the
network is unsure of is kept whole. It was trained on generated dialogues with random
names and values (`train/learned`).

    Agent(design="learned")
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from memagent.core.ops import OpLimits
from memagent.designs.base import MemoryDesign, RelateSettings
from memagent.designs.parts.learned.answerer import SpanAnswerer
from memagent.designs.parts.learned.extractor import LearnedExtractor
from memagent.designs.parts.learned.heads import FittedChoice, open_heads
from memagent.designs.parts.learned.manager import LearnedManager
from memagent.designs.parts.learned.policy import policy_choice
from memagent.designs.parts.learned.retriever import NotesAndTurns
from memagent.designs.verbatim import DESIGN as VERBATIM

DESIGN: Final = replace(
    VERBATIM,
    name="learned",
    extractor=LearnedExtractor(),
    manager=LearnedManager(),
    retriever=NotesAndTurns(),
    answerer=SpanAnswerer(),
    limits=OpLimits(max_ops=2_000, max_deletes=8),
    relate=RelateSettings(k=12, cap=192, same_subject=False, graph=False),
)


def fitted(heads: str | Path) -> MemoryDesign:
    """Return the design with heads that `memagent-train tune` or `distil` wrote.

    Raises `ConfigError` for a file that is none, or of other shipped weights.
    """
    path = Path(heads).resolve()
    open_heads(path)
    return replace(DESIGN, manager=LearnedManager(chooser=FittedChoice(path=path)))


POLICY: Final = replace(
    DESIGN,
    name="learned_policy",
    manager=LearnedManager(chooser=policy_choice),
    needs_model=True,
)
"""The same with decisions of a model, such as one that `memagent-train` made; see
`memagent.designs.parts.learned.policy`.
"""

VERBATIM_READ: Final = replace(VERBATIM, name="verbatim_read", answerer=SpanAnswerer())
"""The memory of `verbatim` with the answers of `learned`: what the answerer alone adds."""

"""HCAM (arXiv 2105.14039): attend to chunks by their summaries, then within the best ones.

Claim: an agent that recalls whole chunks of its past, chosen by a summary of each, and
attends in detail within the chosen ones only, recalls episodes that flat attention over
all steps loses.
Changed: an attention over text vectors, nothing is trained. A chunk is a run of turns of
one session, its summary the mean of the vectors of its memories; the weight of a memory
is that of its chunk times its own within the chunk. Recall therefore brings turns that
share no word with the question but stand beside those that do.

    Agent(design="hcam")
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from memagent.designs.base import MemoryDesign
from memagent.designs.parts.sessions import ChunkAttention
from memagent.designs.verbatim import DESIGN as VERBATIM

DESIGN: Final[MemoryDesign] = replace(VERBATIM, name="hcam", retriever=ChunkAttention())

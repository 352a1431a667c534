"""Verbatim, which needs no language model: turns are kept and quoted as said.

Each informative turn becomes an item with its speaker and the dates it tells. Exact and
near repeats are dropped, and a plain self-correction ("I've moved to Lisbon") updates
what the same speaker said before. An answer quotes the best evidence with speaker, date
and turn, by rules alone; it abstains when nothing fits. Every answer says that no
language model is configured.

    Agent(design="verbatim")     # the default reads more: see `memagent.designs.learned`
"""

from typing import Final

from memagent.core.ops import OpLimits
from memagent.designs.base import MemoryDesign, RelateSettings, no_indexer
from memagent.designs.parts.retrieval import TimedRetriever
from memagent.designs.parts.rules.answerer import EvidenceAnswerer
from memagent.designs.parts.rules.manager import (
    KeepingManager,
    VerbatimExtractor,
    VerbatimManager,
)

DESIGN: Final = MemoryDesign(
    name="verbatim",
    extractor=VerbatimExtractor(),
    manager=KeepingManager(base=VerbatimManager()),
    indexer=no_indexer,
    retriever=TimedRetriever(),
    answerer=EvidenceAnswerer(),
    limits=OpLimits(max_ops=2_000, allow=frozenset({"ADD", "UPDATE", "NOOP"})),
    relate=RelateSettings(k=8, cap=128, graph=False),
    needs_model=False,
)

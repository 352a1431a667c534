"""Memory-R2 (arXiv 2605.21768): one chunk, two calls, fair credit by shared snapshots.

Claimed: extracting atomic facts and then deciding about all of them in one call, in a
fixed order of decision, trained with local reruns from one shared snapshot beside the
global comparison, gives a memory that answers better than Memory-R1's (LoCoMo with
Qwen2.5-7B: F1 50.60, judge 80.99). Here: the manager sees the chunk's facts with at
most 25 memories of the same person (5 a fact, cosine at least 0.1) and their graph
neighbours, each with the relation that led to it, and decides in the order DELETE,
NOOP, UPDATE, ADD; the answerer reads 30 memories a speaker in order of time. Changed:
of a speaker whom the question does not name beside another it reads 15, which holds as
many gold turns of LoCoMo; the manager's memories have a budget of tokens; the extractor
is told the session's date and time is kept as a span; ids, versions, speakers and
source turns are checked against what was shown; an unreadable reply is recorded, asked
for once more, and never passes for "nothing to do".

    Agent(design="memory_r2", model=...)
"""

from typing import Final

from memagent.designs.base import MemoryDesign, RelateSettings, no_indexer
from memagent.designs.parts.model_answerer import ModelAnswerer
from memagent.designs.parts.model_extractor import ModelExtractor
from memagent.designs.parts.model_manager import ModelManager
from memagent.designs.parts.retrieval import SpeakerRetriever, VersionedRetriever

DESIGN: Final = MemoryDesign(
    name="memory_r2",
    extractor=ModelExtractor(),
    manager=ModelManager(prompt="manage_r2"),
    indexer=no_indexer,
    retriever=VersionedRetriever(base=SpeakerRetriever(per_speaker=30, others=15)),
    answerer=ModelAnswerer(),
    relate=RelateSettings(k=5, min_cosine=0.1, same_subject=True, cap=25, graph=True),
)

"""Observational memory: a dated log that stands whole in the prompt, and is not searched.

Claim (Mastra's observational memory, the leader on LongMemEval among public systems): an
observer that turns messages into a dated log, and a reflector that condenses the log,
beat retrieval, and the provider's prompt cache pays for the length of the log, since
new entries come at its end.
Changed: an entry is a memory that cites its turns; the reflector is the keeper, so it
runs with `agent.tidy()`, once the log outgrows its share of the dialogue, as one commit
that `undo` takes back. It rewrites the older half only, and a condensed entry cites the
turns of all that it stands for.

    Agent(design="observational", model=...)
"""

from dataclasses import replace
from typing import Final

from memagent.core.ops import OpLimits
from memagent.designs.add_only import AppendManager
from memagent.designs.memory_r2 import DESIGN as MEMORY_R2
from memagent.designs.parts.lessons import LogReflector, whole_log
from memagent.designs.parts.model_extractor import ModelExtractor

DESIGN: Final = replace(
    MEMORY_R2,
    name="observational",
    extractor=ModelExtractor(prompt="observe"),
    manager=AppendManager(),
    retriever=whole_log,
    keeper=LogReflector(),
    limits=OpLimits(max_ops=2_000, allow=frozenset({"ADD", "NOOP"})),
)

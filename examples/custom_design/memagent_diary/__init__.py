"""A diary: what a speaker says that they did, under the date of the telling, and nothing else.

One slot is filled anew, the extractor; retrieval and answering are those of `verbatim`,
and the manager only adds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from memagent.extend import (
    VERBATIM,
    AppendManager,
    Chunk,
    Fact,
    MemoryDesign,
    OpLimits,
    Proposal,
    SlotContext,
)

_SENTENCE: Final = re.compile(r"[^.!?\n]+[.!?]?")
_DID: Final = re.compile(
    r"\b(?:I|we)(?:'ve| have)? (?:just )?(?:\w+ed|went|made|bought|met|saw|took|got|had|ran|wrote|"
    r"left)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True)
class DiaryExtractor:
    """Chunk to one fact a sentence that tells what was done. Asks no model."""

    async def __call__(self, chunk: Chunk, _: SlotContext, /) -> Proposal[Fact]:
        """Facts in the order said, each resting on its turn."""
        return Proposal(
            values=tuple(
                Fact(
                    text=f"{turn.speaker}: {sentence.strip()}",
                    subject=turn.speaker,
                    speaker=turn.speaker,
                    source_turn_ids=(turn.id,),
                    said_at=chunk.at,
                    kind="event",
                    trust=turn.trust,
                )
                for turn in chunk.turns
                for sentence in _SENTENCE.findall(turn.said)
                if _DID.search(sentence)
            )
        )


DESIGN: Final[MemoryDesign] = replace(
    VERBATIM,
    name="diary",
    extractor=DiaryExtractor(),
    manager=AppendManager(),
    limits=OpLimits(max_ops=500, allow=frozenset({"ADD", "NOOP"})),
)
"""The diary as a filling of the slots."""

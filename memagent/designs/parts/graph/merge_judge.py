"""A judge of near-equal events that asks a model once a session, about all pairs together.

Pairs whose cosine is at least `sure_cosine` are the same without asking; below the
floor of the merge nobody asks. A pair that the reply does not settle, and all pairs
when it cannot be read, fall back to the cosine, as without a judge. Entries that cannot
be read are returned as rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from memagent.core.exchange import JsonSchema, Role
from memagent.core.ops import Rejected
from memagent.core.records import Event
from memagent.designs.base import SlotContext
from memagent.designs.parts.asking import (
    INTEGER,
    TEXT,
    JsonCall,
    ask_for_json,
    list_schema,
    object_schema,
)
from memagent.designs.parts.lines import event_notes
from memagent.designs.prompting import OnePrompt, fence, load_prompt, quoted
from memagent.events.merge import EventJudge, Judgement, Likeness, MergeSettings
from memagent.replies.events import parse_pairs

PAIRS_SCHEMA: Final[JsonSchema] = list_schema(
    "pairs",
    object_schema(
        {
            "pair": INTEGER,
            "verdict": {"type": "string", "enum": [likeness.value for likeness in Likeness]},
            "label": TEXT,
        }
    ),
)
NearPair = tuple[Event, Event, float]
"""(earlier event, later event, cosine)."""


@dataclass(frozen=True, kw_only=True)
class MergeJudge(OnePrompt):
    """Judges near pairs with at most one model call, or two if the reply is unreadable."""

    sure_cosine: float = 0.97
    """At least this is the same event without asking."""
    most_pairs: int = 40
    """Pairs asked about, nearest first; the cosine decides about the rest."""
    prompt: str = "merge_events"
    retry: bool = True

    async def __call__(
        self, pairs: Sequence[NearPair], ctx: SlotContext, *, settings: MergeSettings, ordinal: int
    ) -> tuple[EventJudge, list[Rejected]]:
        """Return the judge, which asks nothing more, and the entries that were not read.

        `ordinal` counts its call among the indexer's calls.
        """
        verdicts = {
            _key(first, later): Judgement(
                likeness=Likeness.SAME if cosine >= settings.same_cosine else Likeness.NEITHER
            )
            for first, later, cosine in pairs
        }
        unsure = [
            pair
            for pair in pairs
            if pair[2] < self.sure_cosine and pair[0].summary != pair[1].summary
        ][: self.most_pairs]
        rejected: list[Rejected] = []
        if unsure:
            lines = (line for i, pair in enumerate(unsure) for line in _lines(i, pair))
            reply = await ask_for_json(
                ctx,
                JsonCall(
                    role=Role.INDEXER,
                    prompt=load_prompt(self.prompt),
                    schema=PAIRS_SCHEMA,
                    parse=lambda text: parse_pairs(text, pairs=len(unsure)),
                ),
                {"pairs": fence("pairs", lines)},
                ordinal=ordinal,
                retry=self.retry,
            )
            rejected += reply.parsed.rejected
            for draft in reply.parsed.values:
                first, later, _ = unsure[draft.pair]
                verdicts[_key(first, later)] = draft.judgement

        async def judge(first: Event, later: Event) -> Judgement:
            return verdicts.get(_key(first, later)) or Judgement(likeness=Likeness.NEITHER)

        return judge, rejected


def _key(first: Event, later: Event) -> tuple[str, str]:
    return (first.summary, later.summary)


def _lines(index: int, pair: NearPair) -> list[str]:
    first, later, _ = pair
    return [
        f"{index}. first: {event_notes(first)}{quoted(first.summary)}",
        f"   second: {event_notes(later)}{quoted(later.summary)}",
    ]

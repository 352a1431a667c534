"""A judge of near-equal events that asks a model once a session, about all pairs of the
uncertain band together.

Pairs whose cosine is at least `sure_cosine` are the same without asking; below the
floor of the merge nobody asks. A pair the reply does not settle, and all pairs when it
cannot be read, fall back to the cosine, as without a judge; what could not be read is
told as rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from memagent.core.exchange import JsonSchema, Role
from memagent.core.ops import Rejected
from memagent.core.records import Event
from memagent.designs.base import SlotContext
from memagent.designs.parts.asking import ask
from memagent.designs.parts.lines import event_notes
from memagent.designs.prompting import Prompt, fence, load_prompt, quoted
from memagent.events.merge import EventJudge, Judgement, Likeness, MergeSettings
from memagent.replies.events import parse_pairs

PAIRS_SCHEMA: Final[JsonSchema] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["pairs"],
    "properties": {
        "pairs": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["pair", "verdict", "label"],
                "properties": {
                    "pair": {"type": "integer"},
                    "verdict": {"type": "string", "enum": [one.value for one in Likeness]},
                    "label": {"type": "string"},
                },
            },
        }
    },
}
"""What the reply to `merge_events` should look like."""
NearPair = tuple[Event, Event, float]
"""(the one told first, the later one, cosine)."""


@dataclass(frozen=True, kw_only=True)
class MergeJudge:
    """Near pairs to a judge of them, with at most one model call; one more when its
    reply cannot be read.
    """

    sure_cosine: float = 0.97
    """At least this is the same event without asking."""
    most_pairs: int = 40
    """Pairs asked about, nearest first; the cosine decides about the rest."""
    prompt: str = "merge_events"
    retry: bool = True

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The one prompt."""
        return (load_prompt(self.prompt),)

    async def __call__(
        self, pairs: Sequence[NearPair], ctx: SlotContext, *, settings: MergeSettings, call: int
    ) -> tuple[EventJudge, list[Rejected]]:
        """The judge, which asks nothing more, and what could not be read.

        `call` is the ordinal of its call in the indexer's chunk.
        """
        known = {
            _key(first, later): Judgement(
                likeness=Likeness.SAME if cosine >= settings.same_cosine else Likeness.NEITHER
            )
            for first, later, cosine in pairs
        }
        open_ = [
            pair
            for pair in pairs
            if pair[2] < self.sure_cosine and pair[0].summary != pair[1].summary
        ]
        open_ = open_[: self.most_pairs]
        rejected: list[Rejected] = []
        if open_:
            asked = await ask(
                ctx,
                Role.INDEXER,
                load_prompt(self.prompt),
                values={
                    "pairs": fence(
                        "pairs", (line for i, pair in enumerate(open_) for line in _lines(i, pair))
                    )
                },
                schema=PAIRS_SCHEMA,
                parse=lambda text: parse_pairs(text, pairs=len(open_)),
                call=call,
                retry=self.retry,
            )
            rejected = list(asked.parsed.rejected)
            for draft in asked.parsed.values:
                first, later, _ = open_[draft.pair]
                known[_key(first, later)] = draft.judgement

        async def judge(first: Event, later: Event) -> Judgement:
            return known.get(_key(first, later)) or Judgement(likeness=Likeness.NEITHER)

        return judge, rejected


def _key(first: Event, later: Event) -> tuple[str, str]:
    return (first.summary, later.summary)


def _lines(index: int, pair: NearPair) -> list[str]:
    first, later, _ = pair
    return [
        f"{index}. first: {event_notes(first)}{quoted(first.summary)}",
        f"   second: {event_notes(later)}{quoted(later.summary)}",
    ]

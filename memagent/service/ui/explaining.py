"""Search hits with the parts of their scores, and quotations, as values for templates.

Scores are those of the search (`Relevance`): the raw score and rank in every arm, the
fused sum, and the factors it was multiplied by. Tokens are estimates from the letters of
each text; what a model really read is only known as the total that its provider counts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memagent.async_agent import AsyncAgent
from memagent.core.answers import Hit, Verdict
from memagent.core.records import Session, Turn
from memagent.search.cuts import token_estimate

_ARMS: Final[Mapping[str, str]] = {
    "dense": "meaning",
    "dense_context": "meaning, with its neighbours",
    "lexical": "words",
    "lexical_context": "words, with its neighbours",
    "session": "its session",
    "graph": "event graph",
    "window": "time asked about",
}
_FACTORS: Final[Mapping[str, str]] = {
    "time": "at the time asked about",
    "recency": "how recent",
    "importance": "importance",
    "names": "by or about who is named",
    "asking": "states rather than asks",
    "length": "length",
}
VERDICTS: Final[Mapping[Verdict, str]] = {
    Verdict.SUPPORTED: "Supported by what it cites",
    Verdict.QUOTED: "The closest thing said; it may not answer this very question",
    Verdict.UNSUPPORTED: "Not supported: nothing that was shown and carries the answer is cited",
    Verdict.ABSTAINED: "Abstained: no answer was given",
}


@dataclass(frozen=True, kw_only=True)
class HitView:
    """One hit with the parts of its score."""

    rank: int
    hit: Hit
    share: float
    """Its score by the best one's, 0 to 1."""
    tokens: int
    part: float
    """Its share of all tokens taken, 0 to 1; 0 when it was not taken."""
    taken: bool
    cited: bool

    @property
    def arms(self) -> list[tuple[str, float, int | None]]:
        """(name, raw score, rank) in every arm of the search."""
        why = self.hit.why
        return [(_ARMS.get(arm, arm), raw, why.ranks.get(arm)) for arm, raw in why.arms.items()]

    @property
    def factors(self) -> list[tuple[str, float]]:
        """(name, value) of what the fused score was multiplied by."""
        return [(_FACTORS.get(name, name), value) for name, value in self.hit.why.factors.items()]

    @property
    def path(self) -> str:
        """The steps of a walk over the graph that reached it; "" for a hit of the search."""
        return " ".join(
            f"{node} {'→' if on else '←'} {edge}" for node, edge, on in self.hit.why.via
        )


def explain_hits(
    hits: Sequence[Hit], *, taken: Collection[str] = (), cited: Collection[str] = ()
) -> list[HitView]:
    """Return hits in their order; `taken` are the ids that go into the prompt."""
    best = max((hit.score for hit in hits), default=0.0)
    tokens = [token_estimate(hit.text) for hit in hits]
    total = sum(count for hit, count in zip(hits, tokens, strict=True) if hit.id in taken)
    return [
        HitView(
            rank=rank,
            hit=hit,
            share=score_share(hit.score, best),
            tokens=count,
            part=count / total if total and hit.id in taken else 0.0,
            taken=hit.id in taken,
            cited=hit.id in cited,
        )
        for rank, (hit, count) in enumerate(zip(hits, tokens, strict=True), 1)
    ]


def score_share(score: float, best: float) -> float:
    """Return a score as a share of the best one, from 0 to 1."""
    return max(0.0, min(1.0, score / best)) if best > 0 else 0.0


def quotations(agent: AsyncAgent, turn_ids: Iterable[str]) -> dict[str, tuple[Turn, Session]]:
    """Return the stored ones of some turns with their sessions, by id."""
    turns = {turn_id: agent.bank.turn_with_session(turn_id) for turn_id in turn_ids}
    return {turn_id: turn for turn_id, turn in turns.items() if turn is not None}

"""Why a search found what it found, and what an answer rested on, as values for templates.

Pure.

Scores are told as the search tells them (`Relevance`): the raw score and rank in every
arm, the fused sum, and what it was multiplied by. Tokens are estimates from the letters
of each text; what a model really read is only known as the total that its provider
counts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memagent.core.answers import Answer, Citation, Hit, Verdict
from memagent.search.cuts import token_estimate

ARMS: Final[Mapping[str, str]] = {
    "dense": "meaning",
    "dense_context": "meaning, with its neighbours",
    "lexical": "words",
    "lexical_context": "words, with its neighbours",
    "session": "its session",
    "graph": "event graph",
    "window": "time asked about",
}
"""What the arms of a search are called here."""
FACTORS: Final[Mapping[str, str]] = {
    "time": "at the time asked about",
    "recency": "how recent",
    "importance": "importance",
    "names": "by or about who is named",
    "asking": "states rather than asks",
    "length": "length",
}
VERDICTS: Final[Mapping[Verdict, str]] = {
    Verdict.SUPPORTED: "Supported by what it cites",
    Verdict.UNSUPPORTED: "Not supported: nothing that was shown is cited",
    Verdict.ABSTAINED: "Abstained: no answer was given",
}


@dataclass(frozen=True, kw_only=True)
class CandidateTold:
    """One hit with what its score is made of."""

    rank: int
    hit: Hit
    share: float
    """Its score by the best one's, 0 to 1."""
    arms: tuple[tuple[str, float, int | None], ...]
    """(name, raw score, rank)."""
    factors: tuple[tuple[str, float], ...]
    tokens: int
    part: float
    """Its share of all tokens taken, 0 to 1; 0 when it was not taken."""
    taken: bool
    cited: bool

    @property
    def path(self) -> str:
        """How a walk over the graph reached it; "" when it was found by search."""
        return " ".join(
            f"{node} {'→' if on else '←'} {edge}" for node, edge, on in self.hit.why.via
        )


@dataclass(frozen=True, kw_only=True)
class AnswerTold:
    """An answer with what it rests on."""

    answer: Answer
    verdict: str
    candidates: tuple[CandidateTold, ...]
    asked_model: bool
    """Whether a model was asked at all."""

    @property
    def citations(self) -> Sequence[Citation]:
        """The citations that were checked."""
        return self.answer.citations


def candidates_told(
    hits: Sequence[Hit], *, taken: Collection[str], cited: Collection[str] = ()
) -> tuple[CandidateTold, ...]:
    """Hits in their order; `taken` are the ids that went (or would go) into the prompt."""
    best = max((hit.score for hit in hits), default=0.0)
    tokens = [token_estimate(hit.text) for hit in hits]
    total = sum(count for hit, count in zip(hits, tokens, strict=True) if hit.id in taken)
    return tuple(
        CandidateTold(
            rank=rank,
            hit=hit,
            share=max(0.0, min(1.0, hit.score / best)) if best > 0 else 0.0,
            arms=tuple(
                (ARMS.get(name, name), raw, hit.why.ranks.get(name))
                for name, raw in hit.why.arms.items()
            ),
            factors=tuple(
                (FACTORS.get(name, name), value) for name, value in hit.why.factors.items()
            ),
            tokens=count,
            part=count / total if total and hit.id in taken else 0.0,
            taken=hit.id in taken,
            cited=hit.id in cited,
        )
        for rank, (hit, count) in enumerate(zip(hits, tokens, strict=True), 1)
    )


def answer_told(answer: Answer, retrieved: Sequence[Hit]) -> AnswerTold:
    """An answer beside what was retrieved for it, best first."""
    asked = bool(answer.response_ids)
    cited = {citation.hit_id for citation in answer.citations}
    shown = {hit.id for hit in answer.hits} if asked else set[str]()
    return AnswerTold(
        answer=answer,
        verdict=VERDICTS[answer.verdict],
        candidates=candidates_told(retrieved, taken=shown, cited=cited),
        asked_model=asked,
    )

"""The hits of a search, a list that can tell whether they answer what was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from memagent.core.answers import Hit, SearchEvidence


class SearchHits(list[Hit]):
    """Hits, best first, with the evidence of the search as a whole.

    The evidence is worked out when it is first read, from the memory as it was searched.
    """

    def __init__(
        self, hits: Iterable[Hit] = (), *, judge: Callable[[], SearchEvidence] | None = None
    ) -> None:
        """Take the hits, and what judges them; hits without a judge are no evidence."""
        super().__init__(hits)
        self._judge = judge
        self._evidence: SearchEvidence | None = None

    @property
    def evidence(self) -> SearchEvidence:
        """The evidence of the hits: strong, weak or none, with a calibrated probability."""
        if self._evidence is None:
            self._evidence = self._judge() if self._judge is not None else SearchEvidence()
            self._judge = None
        return self._evidence

    def unless_below(self, probability: float | None) -> SearchHits:
        """Return these hits, or none where their evidence is below a probability."""
        if probability is None or self.evidence.probability >= probability:
            return self
        evidence = self.evidence
        return SearchHits(judge=lambda: evidence)

    def __reduce__(self) -> tuple[type[SearchHits], tuple[list[Hit]], dict[str, object]]:
        """Copy and pickle with the evidence, not with the memory that judges it."""
        return SearchHits, (list(self),), {"_evidence": self.evidence, "_judge": None}

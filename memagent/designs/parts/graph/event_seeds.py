"""Where a walk starts: events found by meaning and through the memories told by their
turns, spread over topics.

A pool of events is fused from two arms: cosine of the query with summaries and aliases,
and the bank's hybrid search, whose hits count for the events that rest on their turns
(so keywords find events too). The pool is put in order by the subgoals; the first three
topics among its best five events give up to three start events each.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from memagent.core.answers import Hit, Query, Question
from memagent.core.records import Event
from memagent.events.merge import event_texts
from memagent.events.topics import topics_of
from memagent.events.visibility import events_in_sight
from memagent.memory.bank import MemoryBank
from memagent.memory.event_vectors import query_vectors, text_vectors
from memagent.protocols import Matrix, Vector

RRF_K = 60
"""Rank offset of reciprocal-rank fusion (Cormack, Clarke and Buettcher 2009); larger
flattens the difference between first and tenth.
"""


@dataclass(frozen=True, kw_only=True)
class SeedSettings:
    """How start events are chosen."""

    min_pool: int = 50
    starts: int = 5
    """Best events of the pool whose topics are taken."""
    topics: int = 3
    members: int = 3
    """Most start events a topic."""


@dataclass(slots=True, kw_only=True)
class EventSeeds:
    """The events that may be shown for one question, with their vectors; make it with `open_seeds`."""

    bank: MemoryBank
    question: Question
    settings: SeedSettings
    events: Mapping[str, Event]
    vectors: Mapping[str, Matrix]
    """Vectors (texts, D) of each event that has any."""
    topics: dict[str, int] = field(default_factory=dict[str, int])
    """Topic of each event with a vector; filled by the first `locate`."""
    queries: dict[str, Vector | None] = field(default_factory=dict[str, Vector | None])

    @classmethod
    async def open_seeds(cls, bank: MemoryBank, question: Question, settings: SeedSettings) -> Self:
        """Embeds what is new among the events."""
        events = events_in_sight((await bank.sync()), question.where, expired=bank.expired)
        known = await text_vectors(
            bank, [text for event in events.values() for text in event_texts(event)]
        )
        vectors: dict[str, Matrix] = {}
        for event in events.values():
            rows = [known[text] for text in event_texts(event) if text in known]
            if rows:
                vectors[event.id] = np.stack(rows)
        return cls(bank=bank, question=question, settings=settings, events=events, vectors=vectors)

    async def closeness(self, goal: str, event_ids: Sequence[str]) -> dict[str, float]:
        """Cosine of a text with each event, its nearest text counting; events without a
        vector are left out.
        """
        vector = await self._query(goal)
        if vector is None:
            return {}
        return {
            one: float(np.max(self.vectors[one] @ vector))
            for one in event_ids
            if one in self.vectors
        }

    async def pool(self, query: str, visited: Collection[str] = ()) -> list[tuple[str, float]]:
        """(event id, fused score) of the events that bear on the query, best first, ties by id."""
        size = max(self.settings.min_pool, 10 * self.question.k)
        left = [one for one in self.events if one not in visited]
        cosines = await self.closeness(query, left)
        dense = sorted(cosines, key=lambda one: (-round(cosines[one], 6), one))[:size]
        hits = await self.bank.search(Query(text=query, where=self.question.where), k=size)
        scores: dict[str, float] = {}
        for ranking in (dense, self._told(hits, set(left))[:size]):
            for rank, one in enumerate(ranking, 1):
                scores[one] = scores.get(one, 0.0) + 1.0 / (RRF_K + rank)
        return sorted(scores.items(), key=lambda pair: (-round(pair[1], 9), pair[0]))[:size]

    async def locate(
        self, query: str, goals: Sequence[str], visited: Collection[str]
    ) -> list[list[str]]:
        """Start events by topic, best topic first."""
        if not self.topics and self.vectors:
            labels = topics_of(np.stack([rows[0] for rows in self.vectors.values()]))
            self.topics.update(zip(self.vectors, labels, strict=True))
        pool = [one for one, _ in await self.pool(query, visited)]
        near: dict[str, float] = dict.fromkeys(pool, -1.0)
        for goal in goals or [query]:
            for one, cosine in (await self.closeness(goal, pool)).items():
                near[one] = max(near[one], round(cosine, 6))
        order = sorted(pool, key=lambda one: -near[one])
        chosen = list(dict.fromkeys(self._topic(one) for one in order[: self.settings.starts]))
        groups = [
            [one for one in order if self._topic(one) == topic]
            for topic in chosen[: self.settings.topics]
        ]
        return [group[: self.settings.members] for group in groups]

    def _topic(self, event_id: str) -> int | str:
        return self.topics.get(event_id, event_id)

    def _told(self, hits: Sequence[Hit], left: Collection[str]) -> list[str]:
        """Events that rest on the turns of the hits, in the order of the hits."""
        by_turn: dict[str, list[str]] = {}
        for one in left:
            for turn_id in self.events[one].source_turn_ids:
                by_turn.setdefault(turn_id, []).append(one)
        turns = (turn_id for hit in hits for turn_id in hit.source_turn_ids)
        return list(
            dict.fromkeys(one for turn_id in turns for one in sorted(by_turn.get(turn_id, ())))
        )

    async def _query(self, text: str) -> Vector | None:
        if text not in self.queries:
            self.queries[text] = (await query_vectors(self.bank, [text])).get(text)
        return self.queries[text]

"""Start events of a walk, found by meaning and by keyword, spread over topics.

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
    """Limits on the choice of start events."""

    min_pool: int = 50
    starts: int = 5
    """Best events of the pool whose topics are taken."""
    topics: int = 3
    members: int = 3


@dataclass(slots=True, kw_only=True)
class EventSeeds:
    """The events that may be shown for one question, with their vectors.

    Make it with `open_seeds`.
    """

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
        """Collect the visible events, and embed the new ones among them."""
        events = events_in_sight((await bank.sync()), question.where, expired=bank.expired)
        known = await text_vectors(
            bank, [text for event in events.values() for text in event_texts(event)]
        )
        rows = {
            event.id: [known[text] for text in event_texts(event) if text in known]
            for event in events.values()
        }
        vectors = {
            event_id: np.stack(known_rows) for event_id, known_rows in rows.items() if known_rows
        }
        return cls(bank=bank, question=question, settings=settings, events=events, vectors=vectors)

    async def closeness(self, goal: str, event_ids: Sequence[str]) -> dict[str, float]:
        """Return the cosine of a text with the nearest text of each event.

        Events without a vector are left out.
        """
        if goal not in self.queries:
            self.queries[goal] = (await query_vectors(self.bank, [goal])).get(goal)
        vector = self.queries[goal]
        if vector is None:
            return {}
        return {
            event_id: float(np.max(self.vectors[event_id] @ vector))
            for event_id in event_ids
            if event_id in self.vectors
        }

    async def pool(self, query: str, visited: Collection[str] = ()) -> list[tuple[str, float]]:
        """Return (event id, fused score) of the events that bear on the query.

        Best first, ties by id.
        """
        size = max(self.settings.min_pool, 10 * self.question.k)
        candidates = [event_id for event_id in self.events if event_id not in visited]
        cosines = await self.closeness(query, candidates)
        dense = sorted(cosines, key=lambda event_id: (-round(cosines[event_id], 6), event_id))
        hits = await self.bank.search(Query(text=query, where=self.question.where), k=size)
        scores: dict[str, float] = {}
        for ranking in (dense, self._events_of(hits, candidates)):
            for rank, event_id in enumerate(ranking[:size], 1):
                scores[event_id] = scores.get(event_id, 0.0) + 1.0 / (RRF_K + rank)
        return sorted(scores.items(), key=lambda pair: (-round(pair[1], 9), pair[0]))[:size]

    async def locate(
        self, query: str, goals: Sequence[str], visited: Collection[str]
    ) -> list[list[str]]:
        """Return start events by topic, best topic first."""
        limits = self.settings
        ranked = await self.ranked(query, goals, visited, starts=limits.starts)
        return [group[: limits.members] for group in ranked[: limits.topics]]

    async def ranked(
        self,
        query: str,
        goals: Sequence[str],
        visited: Collection[str],
        *,
        starts: int | None = None,
    ) -> list[list[str]]:
        """Return the events of the pool by topic, best topic and best event first.

        The topics are those of the best `starts` events; None for all.
        """
        if not self.topics and self.vectors:
            labels = topics_of(np.stack([rows[0] for rows in self.vectors.values()]))
            self.topics.update(zip(self.vectors, labels, strict=True))
        nearness = {event_id: -1.0 for event_id, _ in await self.pool(query, visited)}
        pool = list(nearness)
        for goal in goals or [query]:
            for event_id, cosine in (await self.closeness(goal, pool)).items():
                nearness[event_id] = max(nearness[event_id], round(cosine, 6))
        order = sorted(pool, key=lambda event_id: -nearness[event_id])
        groups: dict[int | str, list[str]] = {
            self._topic(event_id): [] for event_id in order[:starts]
        }
        for event_id in order:
            if (topic := self._topic(event_id)) in groups:
                groups[topic].append(event_id)
        return list(groups.values())

    def _topic(self, event_id: str) -> int | str:
        return self.topics.get(event_id, event_id)

    def _events_of(self, hits: Sequence[Hit], candidates: Sequence[str]) -> list[str]:
        """Return candidates that rest on the turns of the hits, in the order of the hits."""
        by_turn: dict[str, list[str]] = {}
        for event_id in sorted(candidates):
            for turn_id in self.events[event_id].source_turn_ids:
                by_turn.setdefault(turn_id, []).append(event_id)
        turns = (turn_id for hit in hits for turn_id in hit.source_turn_ids)
        return list(
            dict.fromkeys(event_id for turn_id in turns for event_id in by_turn.get(turn_id, ()))
        )

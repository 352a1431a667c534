"""Retrievers over the event graph: the compass walk and scored expansion.

A model steers the walk; the expansion asks none. Both add to ordinary search: a kept or
reached node comes with the path that led to it (`why.via`), and hits of the search fill
up the rest, so a walk that goes astray costs its calls and no evidence. Every model
reply is read tolerantly: an unreadable one skips the event it was about, an unreadable
plan leaves the question as its only subgoal.

Start events of a walk, found by meaning and by keyword, spread over topics.

A pool of events is fused from two arms: cosine of the query with summaries and aliases,
and the bank's hybrid search, whose hits count for the events that rest on their turns
(so keywords find events too). The pool is put in order by the subgoals; the first three
topics among its best five events give up to three start events each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count, islice
from typing import Final, Self

import numpy as np

from memagent.core.answers import Hit, Query, Question, Relevance
from memagent.core.exchange import JsonSchema, Role
from memagent.core.records import Event, NodeKind
from memagent.designs.base import (
    Prompt,
    Retriever,
    SlotContext,
    fence,
    load_prompt,
    prompts_of,
    quoted,
)
from memagent.designs.parts.lines import (
    INTEGER,
    TEXT,
    TEXTS,
    ask_about,
    hit_line,
    object_schema,
    question_values,
    turn_line,
)
from memagent.designs.parts.retrieval import TimedRetriever, graph_hit, query_for
from memagent.events.merge import event_texts
from memagent.events.visibility import OutOfSight, events_in_sight, expand, topics_of
from memagent.events.walk import (
    Action,
    Checklist,
    Guide,
    Missing,
    Move,
    Neighbour,
    Walk,
    WalkSettings,
    WalkView,
    compass_walk,
)
from memagent.memory.bank import MemoryBank, query_vectors, text_vectors
from memagent.protocols import Matrix, Vector
from memagent.replies.entries import extract_json
from memagent.replies.tolerant_json import JsonValue

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
        texts = {event.id: event_texts(event) for event in events.values()}
        known = await text_vectors(bank, [text for own in texts.values() for text in own])
        vectors = {
            event_id: np.stack(rows)
            for event_id, own in texts.items()
            if (rows := [known[text] for text in own if text in known])
        }
        return cls(bank=bank, question=question, settings=settings, events=events, vectors=vectors)

    async def closeness(self, goal: str, event_ids: Sequence[str]) -> dict[str, float]:
        """Return the cosine of a text with the nearest text of each event.

        Events without a vector are left out.
        """
        if goal not in self.queries:
            self.queries[goal] = (await query_vectors(self.bank, [goal])).get(goal)
        vector = self.queries[goal]
        return {
            event_id: float(np.max(self.vectors[event_id] @ vector))
            for event_id in event_ids
            if event_id in self.vectors and vector is not None
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
        if not self.topics and self.vectors:
            first = np.stack([rows[0] for rows in self.vectors.values()])
            self.topics |= zip(self.vectors, topics_of(first), strict=True)
        nearness = {event_id: -1.0 for event_id, _ in await self.pool(query, visited)}
        pool = list(nearness)
        for goal in goals or [query]:
            for event_id, cosine in (await self.closeness(goal, pool)).items():
                nearness[event_id] = max(nearness[event_id], round(cosine, 6))
        order = sorted(pool, key=lambda event_id: -nearness[event_id])
        # An event without a topic is one of its own.
        topics = {event_id: self.topics.get(event_id, event_id) for event_id in order}
        chosen = dict.fromkeys(topics[event_id] for event_id in order[: limits.starts])
        groups = ([name for name in order if topics[name] == topic] for topic in chosen)
        return [group[: limits.members] for group in islice(groups, limits.topics)]

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


def goal_lines(subgoals: Sequence[tuple[str, bool]]) -> list[str]:
    """Return a numbered line for each (subgoal, satisfied?)."""
    return [
        f"{i}. [{'x' if met else ' '}] {quoted(goal)}" for i, (goal, met) in enumerate(subgoals)
    ]


PLAN_SCHEMA: Final[JsonSchema] = object_schema({"subgoals": TEXTS})
EXPLORE_SCHEMA: Final[JsonSchema] = object_schema(
    {
        "action": {"type": "string", "enum": ["SKIP", "EXPAND", "ANSWER"]},
        "next": TEXTS,
        "proven": {"type": "array", "items": INTEGER},
    }
)
MISSING_SCHEMA: Final[JsonSchema] = object_schema({"missing": TEXT})
_MAX_SUBGOALS = 5
_MAX_GOAL_CHARS = 400
_MAX_TURNS = 12


@dataclass(frozen=True, kw_only=True)
class GraphWalkRetriever:
    """Plans, walks the graph, and returns the kept events, then search hits."""

    settings: WalkSettings = WalkSettings()
    seeds: SeedSettings = SeedSettings()
    fill: int = 10
    """Hits of the ordinary search after the kept events; the question's k bounds both
    together.
    """

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The prompts of planner, explorer and refinement."""
        return tuple(map(load_prompt, ("plan", "explore", "missing")))

    async def __call__(self, question: Question, ctx: SlotContext, /) -> list[Hit]:
        """Return the kept events in the order visited, then search hits.

        Scores fall from 2 and are comparable within this list only.
        """
        hits = await ctx.bank.search(query_for(question), k=min(self.fill, question.k))
        walk = await self.walk(question, ctx)
        kept = [
            Hit(
                id=event.id,
                kind=NodeKind.EVENT,
                score=1.0 + 1.0 / rank,
                event=event,
                why=Relevance(
                    arms={"walk": 1.0 / rank},
                    ranks={"walk": rank},
                    via=walk.via[event.id],
                    trust=ctx.bank.state.trust_of(event.source_turn_ids),
                ),
            )
            for rank, event in enumerate(walk.kept, 1)
        ]
        return [*kept, *hits][: question.k]

    async def walk(self, question: Question, ctx: SlotContext) -> Walk:
        """Walk the graph; the result holds every visit and the ids of the responses.

        Without events the walk is empty.
        """
        seeds = await EventSeeds.open_seeds(ctx.bank, question, self.seeds)
        if not seeds.events:
            return Walk()
        plan = await ask_about(
            question, ctx, Role.PLANNER, "plan", PLAN_SCHEMA, **question_values(question)
        )
        walk = await compass_walk(
            question.text,
            ctx.bank.state.graph,
            parse_plan(plan.text) or [question.text],
            terrain=seeds,
            guide=Guide(
                explore=partial(_explore, question=question, ctx=ctx, ordinals=count()),
                refine=partial(_missing, question=question, ctx=ctx, ordinals=count(1)),
            ),
            settings=self.settings,
        )
        return replace(walk, response_ids=(plan.id, *walk.response_ids))


@dataclass(frozen=True, kw_only=True)
class GraphExpansionRetriever:
    """Returns the hits of another retriever, then the nodes that the event graph links to them.

    Asks no model.
    """

    base: Retriever = TimedRetriever()
    seeds: SeedSettings = SeedSettings()
    starts: int = 10
    """Best hits of the base that the expansion starts from, and as many events."""
    more: int = 10

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """The prompts of the base."""
        return prompts_of(self.base)

    async def __call__(self, question: Question, ctx: SlotContext, /) -> list[Hit]:
        """Return the base's hits as they are, then up to `more` items and events.

        The added hits have lower scores and come nearest in the graph first.
        """
        hits = await self.base(question, ctx)
        seeds = await EventSeeds.open_seeds(ctx.bank, question, self.seeds)
        pool = await seeds.pool(question.text)
        weights = {hit.id: 1.0 / rank for rank, hit in enumerate(hits[: self.starts], 1)}
        weights |= {event: 1.0 / rank for rank, (event, _) in enumerate(pool[: self.starts], 1)}
        hidden = OutOfSight(ctx.bank.state, question.where, ctx.bank.expired)
        known = {hit.id for hit in hits}
        floor = min((hit.score for hit in hits), default=1.0)
        added: list[Hit] = []
        for node in expand(
            ctx.bank.state.graph, weights, without=hidden, limit=8 * (self.starts + self.more)
        ):
            if not node.via or node.id in known or len(added) == self.more:
                continue
            hit = graph_hit(ctx.bank, node.id, node.via)
            if hit.kind in (NodeKind.ITEM, NodeKind.EVENT):
                why = Relevance(
                    arms={"graph": node.score}, ranks={"graph": len(added) + 1}, via=node.via
                )
                added.append(hit.model_copy(update={"score": floor * node.score, "why": why}))
        return [*hits, *added]


async def _missing(
    _: str,
    subgoals: Checklist,
    kept: Sequence[Event],
    *,
    question: Question,
    ctx: SlotContext,
    ordinals: Iterator[int],
) -> Missing:
    """Ask for what the kept events do not tell; nothing when the reply cannot be read."""
    response = await ask_about(
        question,
        ctx,
        Role.PLANNER,
        "missing",
        MISSING_SCHEMA,
        next(ordinals),
        question=fence("question", [quoted(question.text)]),
        subgoals=fence("subgoals", goal_lines(subgoals)),
        kept=fence("kept", map(_event_line, kept)),
    )
    said = extract_json(response.text).at("missing")
    query = said.strip()[:_MAX_GOAL_CHARS] if isinstance(said, str) else ""
    return Missing(query=query, response_id=response.id)


async def _explore(
    view: WalkView, *, question: Question, ctx: SlotContext, ordinals: Iterator[int]
) -> Move:
    turns = map(ctx.bank.state.turn, view.event.source_turn_ids[:_MAX_TURNS])
    response = await ask_about(
        question,
        ctx,
        Role.EXPLORER,
        "explore",
        EXPLORE_SCHEMA,
        next(ordinals),
        question=fence("question", [quoted(view.question)]),
        subgoals=fence("subgoals", goal_lines(view.subgoals)),
        kept=fence("kept", map(_event_line, view.kept)),
        event=fence("event", [_event_line(view.event)]),
        turns=fence("turns", map(turn_line, filter(None, turns))),
        neighbours=fence("neighbours", map(_neighbour_line, view.neighbours)),
    )
    return replace(parse_move(response.text), response_id=response.id)


def _event_line(event: Event) -> str:
    return hit_line(Hit(id=event.id, score=0.0, event=event))


def _neighbour_line(near: Neighbour) -> str:
    first, last = ("this event", "it") if near.leaving else ("it", "this event")
    label = f" ({quoted(near.label)})" if near.label else ""
    arrow = f"{first} -{near.relation.value}{label}-> {last}"
    return f"[{quoted(near.event.id)}] ({arrow}) {quoted(near.event.summary)}"


def parse_plan(text: str) -> list[str]:
    """Read at most five subgoals of a planner's reply, each once; [] when it holds none."""
    goals = [
        goal.strip()[:_MAX_GOAL_CHARS]
        for goal in _list(extract_json(text).at("subgoals"))
        if isinstance(goal, str) and goal.strip()
    ]
    return list(dict.fromkeys(goals))[:_MAX_SUBGOALS]


def parse_move(text: str) -> Move:
    """Read an explorer's reply; an unreadable one skips the event and follows nothing."""
    value = extract_json(text).value
    if not isinstance(value, dict):
        return Move(action=Action.SKIP)
    word = str(value.get("action", "")).strip().lower()
    follow = [
        name.strip().strip("[]") for name in _list(value.get("next")) if isinstance(name, str)
    ]
    proven = [
        int(number)
        for number in _list(value.get("proven"))
        if isinstance(number, int | str) and str(number).isdecimal() and len(str(number)) <= 3
    ]
    return Move(
        action=next((action for action in Action if action.value == word), Action.SKIP),
        follow=tuple(follow),
        proven=tuple(proven),
    )


def _list(value: JsonValue) -> Sequence[JsonValue]:
    return value if isinstance(value, list) else [] if value is None else [value]

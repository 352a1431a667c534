"""The compass walk: a search for evidence along the graph, steered by a list of subgoals.

Plan, locate, then explore along several paths that share one queue and one set of
visited events, and refine: ask anew for what is still missing. The explorer is a plain
callable and the terrain a small protocol, so a model, a policy in training and a test
fit alike. Paths move in step: each takes its next event, the explorer is asked
about all of them at once, and the replies count in the order of the paths; so no event
is visited twice and equal replies give equal walks. The surprise: priorities are
cosines to the subgoals still open, so the whole queue is scored anew as soon as one is
satisfied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from memagent.core.records import Event, Relation
from memagent.events.visibility import EDGE_WEIGHTS
from memagent.state.adjacency import GraphState, Path

# Most neighbours shown at one event, the strongest relations first.
_MAX_NEIGHBOURS = 24


Checklist = tuple[tuple[str, bool], ...]
"""(text, satisfied?) of each subgoal."""


class Action(StrEnum):
    """The explorer's verdict on an event."""

    SKIP = "skip"
    """It does not help."""
    EXPAND = "expand"
    """It helps; go on from here."""
    ANSWER = "answer"
    """It helps, and this path needs no more."""


@dataclass(frozen=True, kw_only=True)
class Neighbour:
    """An event not visited yet, as the explorer sees it before going there."""

    event: Event
    relation: Relation
    label: str = ""
    leaving: bool
    """Whether the edge leads from the present event to this one."""


@dataclass(frozen=True, kw_only=True)
class WalkView:
    """The explorer's view at one event."""

    question: str
    subgoals: Checklist
    kept: tuple[Event, ...]
    event: Event
    neighbours: tuple[Neighbour, ...]


@dataclass(frozen=True, kw_only=True)
class Move:
    """The explorer's decision at one event."""

    action: Action
    follow: tuple[str, ...] = ()
    """Ids of neighbours to go to, best first; at most three count, others are ignored."""
    proven: tuple[int, ...] = ()
    """Indexes of subgoals that are satisfied now."""
    response_id: str | None = None
    """The model response behind the move."""


@dataclass(frozen=True, kw_only=True)
class WalkStep:
    """One visit."""

    event_id: str
    path: int
    round: int
    move: Move
    via: Path


@dataclass(frozen=True, kw_only=True)
class Walk:
    """A finished walk: the kept events in order, each visit, the check-list at the end."""

    kept: tuple[Event, ...] = ()
    via: Mapping[str, Path] = field(default_factory=dict[str, Path])
    """Path to each visited event, seed first; () for a seed."""
    steps: tuple[WalkStep, ...] = ()
    subgoals: Checklist = ()
    queries: tuple[str, ...] = ()
    """The queries that start events were located with: the question, then refined ones."""
    response_ids: tuple[str, ...] = ()
    """Model responses in order: the plan's, one for each visit, one for each refinement."""


@dataclass(frozen=True, kw_only=True)
class WalkSettings:
    """The bounds of a walk."""

    paths: int = 3
    rounds: int = 3
    """Times that start events are located: once, and then for what is missing."""
    visits: int = 24
    """Most visits a round, over all paths."""
    follow: int = 3
    """Most neighbours queued at one visit."""
    stop_early: bool = True
    """Whether the walk ends as soon as every subgoal is satisfied."""


Explorer = Callable[[WalkView], Awaitable[Move]]


@dataclass(frozen=True, kw_only=True)
class Missing:
    """A text to search for what a walk has not found yet."""

    query: str
    """Empty where nothing could be said; the open subgoals stand for it then."""
    response_id: str | None = None


Refiner = Callable[[str, Checklist, Sequence[Event]], Awaitable[Missing]]
"""Says what is missing, from the question, the check-list and the events kept."""


async def open_subgoals(_: str, subgoals: Checklist, __: Sequence[Event]) -> Missing:
    """Join the open subgoals."""
    return Missing(query=" ".join(goal for goal, met in subgoals if not met))


@dataclass(frozen=True, kw_only=True)
class Guide:
    """The callables that steer a walk."""

    explore: Explorer
    """Decides at an event."""
    refine: Refiner = open_subgoals
    """Says what is missing after a round."""


class Terrain(Protocol):
    """The events that a walk may visit, and the ways to find some of them."""

    @property
    def events(self) -> Mapping[str, Event]:
        """The events by id."""
        ...

    async def locate(
        self, query: str, goals: Sequence[str], visited: Collection[str]
    ) -> Sequence[Sequence[str]]:
        """Return start events in groups by topic, best group and best event first."""
        ...

    async def closeness(self, goal: str, event_ids: Sequence[str]) -> Mapping[str, float]:
        """Return each event's cosine with a goal; events without a vector are left out."""
        ...


async def compass_walk(
    question: str,
    graph: GraphState,
    subgoals: Sequence[str],
    *,
    terrain: Terrain,
    guide: Guide,
    settings: WalkSettings = WalkSettings(),
) -> Walk:
    """Walk the graph for a question over the events of the terrain.

    A round ends when its paths do or when its visits are spent; while a subgoal is open
    and something was kept, the guide says what the next one starts from. An empty
    check-list stands for the question itself. Failures of the callables pass through.
    """
    work = _Work(question, graph, list(subgoals) or [question], terrain, guide.explore, settings)
    query, refined = question, list[str | None]()
    for number in range(1, settings.rounds + 1):
        work.queries.append(query)
        goals = work.unmet if number == 1 else [query]
        seeds = await terrain.locate(query, goals, frozenset(work.visited))
        await work.run(number, [list(group) for group in seeds])
        if number == settings.rounds or not work.unmet or not work.kept:
            break
        missing = await guide.refine(question, work.checklist, tuple(work.kept.values()))
        query = missing.query or " ".join(work.unmet)
        refined.append(missing.response_id)
    ids = (*(step.move.response_id for step in work.steps), *refined)
    return Walk(
        kept=tuple(work.kept.values()),
        via={step.event_id: step.via for step in work.steps},
        steps=tuple(work.steps),
        subgoals=work.checklist,
        queries=tuple(work.queries),
        response_ids=tuple(filter(None, ids)),
    )


@dataclass(slots=True)
class _Work:
    """A walk under way."""

    question: str
    graph: GraphState
    goals: list[str]
    terrain: Terrain
    explore: Explorer
    settings: WalkSettings
    met: set[int] = field(default_factory=set[int])
    kept: dict[str, Event] = field(default_factory=dict[str, Event])
    visited: set[str] = field(default_factory=set[str])
    queue: dict[str, Path] = field(default_factory=dict[str, Path])
    scores: dict[str, float] = field(default_factory=dict[str, float])
    """Priorities of what is queued; emptied when the open subgoals change."""
    steps: list[WalkStep] = field(default_factory=list[WalkStep])
    queries: list[str] = field(default_factory=list[str])

    @property
    def unmet(self) -> list[str]:
        return [goal for index, goal in enumerate(self.goals) if index not in self.met]

    @property
    def checklist(self) -> Checklist:
        return tuple((goal, index in self.met) for index, goal in enumerate(self.goals))

    async def run(self, number: int, groups: list[list[str]]) -> None:
        """Walk one round: until every path ends, the queue is empty or no visits are left.

        A round with start events of its own leaves what the round before had queued.
        """
        if any(groups):
            self.queue.clear()
            self.scores.clear()
        for event_id in (event_id for group in groups for event_id in group):
            if self._walkable(event_id):
                self.queue.setdefault(event_id, ())
        live: dict[int, str | None] = dict.fromkeys(range(self.settings.paths))
        live |= enumerate(group[0] for group in groups[: self.settings.paths] if group)
        left = self.settings.visits
        while live and left > 0 and (self.unmet or not self.settings.stop_early):
            chosen = await self._choose(live, left)
            if not chosen:
                break
            left -= len(chosen)
            moves = await asyncio.gather(
                *(self.explore(self._view(event)) for _, event, _ in chosen)
            )
            for (path, event, via), move in zip(chosen, moves, strict=True):
                self._take(number, path, event, via, move, live)

    async def _choose(
        self, live: Mapping[int, str | None], room: int
    ) -> list[tuple[int, Event, Path]]:
        """Take the next event of each live path from the queue and mark it as visited."""
        chosen: list[tuple[int, Event, Path]] = []
        for path, planned in list(live.items())[:room]:
            event_id = planned if planned in self.queue else await self._best()
            if event_id is not None and (event := self.terrain.events.get(event_id)):
                self.visited.add(event_id)
                chosen.append((path, event, self.queue.pop(event_id)))
        return chosen

    async def _best(self) -> str | None:
        """Return the queued event nearest to an open subgoal; ties by the order of queueing."""
        missing = [event_id for event_id in self.queue if event_id not in self.scores]
        if missing:
            self.scores.update(dict.fromkeys(missing, -1.0))
            for goal in self.unmet or [self.question]:
                for event_id, cosine in (await self.terrain.closeness(goal, missing)).items():
                    self.scores[event_id] = max(self.scores[event_id], round(cosine, 6))
        return max(self.queue, key=lambda event_id: self.scores[event_id], default=None)

    def _take(
        self,
        number: int,
        path: int,
        event: Event,
        via: Path,
        move: Move,
        live: dict[int, str | None],
    ) -> None:
        self.steps.append(WalkStep(event_id=event.id, path=path, round=number, move=move, via=via))
        if move.action is not Action.SKIP:
            self.kept[event.id] = event
        proven = {index for index in move.proven if 0 <= index < len(self.goals)}
        if not proven <= self.met:
            self.met |= proven
            self.scores.clear()
        if move.action is Action.ANSWER:
            live.pop(path, None)
            return
        known = {near.event.id: near for near in self._neighbours(event)}
        follow = [known[event_id] for event_id in dict.fromkeys(move.follow) if event_id in known]
        follow = follow[: self.settings.follow]
        for near in follow:
            self.queue.setdefault(near.event.id, (*via, (event.id, near.relation, near.leaving)))
        live[path] = follow[0].event.id if len(follow) == 1 else None

    def _view(self, event: Event) -> WalkView:
        return WalkView(
            question=self.question,
            subgoals=self.checklist,
            kept=tuple(self.kept.values()),
            event=event,
            neighbours=tuple(self._neighbours(event)),
        )

    def _neighbours(self, event: Event) -> list[Neighbour]:
        neighbours: dict[str, Neighbour] = {}
        edges = sorted(
            self.graph.edges_of(event.id),
            key=lambda step: (-EDGE_WEIGHTS[step[1].relation], step[0], step[1].key, not step[2]),
        )
        for other, edge, leaving in edges:
            if other not in neighbours and self._walkable(other):
                neighbours[other] = Neighbour(
                    event=self.terrain.events[other],
                    relation=edge.relation,
                    label=edge.label,
                    leaving=leaving,
                )
        return list(neighbours.values())[:_MAX_NEIGHBOURS]

    def _walkable(self, event_id: str) -> bool:
        return event_id in self.terrain.events and event_id not in self.visited

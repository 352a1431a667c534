"""Retrievers over the event graph: the compass walk, steered by a model, and scored
expansion, which asks none.

Both add to ordinary search: what was kept or reached comes with the path that led to it
(`why.via`), and hits of the search fill up the rest, so a walk that goes astray costs
its calls and no evidence. Every model reply is read tolerantly: one that cannot be read
skips the event it was about, a plan that cannot be read leaves the question as its only
subgoal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from memagent.core.answers import Hit, Question, Relevance
from memagent.core.exchange import JsonSchema, Role
from memagent.core.records import NodeKind
from memagent.designs.base import Retriever, SlotContext
from memagent.designs.parts.graph.event_seeds import EventSeeds, SeedSettings
from memagent.designs.parts.lines import day_of, hit_line, turn_line
from memagent.designs.parts.retrieval.hybrid import query_for
from memagent.designs.parts.retrieval.timed import TimedRetriever
from memagent.designs.prompting import Prompt, fence, load_prompt, prompts_of, quoted
from memagent.designs.relating import graph_hit
from memagent.events.expansion import expand
from memagent.events.visibility import OutOfSight
from memagent.events.walk import Action, Move, Neighbour, Walk, WalkSettings, WalkView, compass_walk
from memagent.replies.tolerant_json import JsonValue, extract_json

_TEXTS: Final[JsonSchema] = {"type": "array", "items": {"type": "string"}}
PLAN_SCHEMA: Final[JsonSchema] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["subgoals"],
    "properties": {"subgoals": _TEXTS},
}
"""What the planner's reply should look like."""
EXPLORE_SCHEMA: Final[JsonSchema] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["action", "next", "proven"],
    "properties": {
        "action": {"type": "string", "enum": ["SKIP", "EXPAND", "ANSWER"]},
        "next": _TEXTS,
        "proven": {"type": "array", "items": {"type": "integer"}},
    },
}
"""What the explorer's reply should look like."""
_MAX_SUBGOALS = 5
_MAX_GOAL_CHARS = 400
_MAX_TURNS = 12


@dataclass(frozen=True, kw_only=True)
class GraphWalkRetriever:
    """Plan, walk, and give the kept events, then search hits."""

    settings: WalkSettings = WalkSettings()
    seeds: SeedSettings = SeedSettings()
    fill: int = 10
    """Hits of the ordinary search after the kept events; the question's k bounds both
    together.
    """

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """Planner's and explorer's."""
        return (load_prompt("plan"), load_prompt("explore"))

    async def __call__(self, question: Question, ctx: SlotContext, /) -> list[Hit]:
        """Kept events in the order found, then search hits; scores fall from 2 and are
        comparable within this list only.
        """
        found = await ctx.bank.search(query_for(question), k=min(self.fill, question.k))
        walk = await self.walk(question, ctx)
        kept = [
            Hit(
                id=event.id,
                kind=NodeKind.EVENT,
                score=1.0 + 1.0 / rank,
                event=event,
                why=Relevance(
                    arms={"walk": 1.0 / rank}, ranks={"walk": rank}, via=walk.via[event.id]
                ),
            )
            for rank, event in enumerate(walk.kept, 1)
        ]
        return [*kept, *found][: question.k]

    async def walk(self, question: Question, ctx: SlotContext) -> Walk:
        """The walk behind the hits, with every visit and the ids of the model
        responses; an empty one when there are no events.
        """
        seeds = await EventSeeds.open_seeds(ctx.bank, question, self.seeds)
        if not seeds.events:
            return Walk()
        subgoals, planned_by = await _plan(question, ctx)
        ordinal = count()

        async def explore(view: WalkView) -> Move:
            return await _explore(view, question, ctx, next(ordinal))

        walk = await compass_walk(
            question.text,
            ctx.bank.state.graph,
            subgoals,
            terrain=seeds,
            explore=explore,
            settings=self.settings,
        )
        return replace(walk, response_ids=(planned_by, *walk.response_ids))


@dataclass(frozen=True, kw_only=True)
class GraphExpansionRetriever:
    """Hits of another retriever, then what the event graph links to them.

    Asks no model.
    """

    base: Retriever = TimedRetriever()
    seeds: SeedSettings = SeedSettings()
    starts: int = 10
    """Best hits of the base that the expansion starts from, and as many events."""
    more: int = 10
    """Most hits added."""

    @property
    def prompts(self) -> tuple[Prompt, ...]:
        """Those of the base."""
        return prompts_of(self.base)

    async def __call__(self, question: Question, ctx: SlotContext, /) -> list[Hit]:
        """The base's hits as they are, then up to `more` items and events with lower
        scores, nearest in the graph first.
        """
        found = await self.base(question, ctx)
        pool = await (await EventSeeds.open_seeds(ctx.bank, question, self.seeds)).pool(
            question.text
        )
        weights = {hit.id: 1.0 / rank for rank, hit in enumerate(found[: self.starts], 1)}
        weights |= {
            event_id: 1.0 / rank for rank, (event_id, _) in enumerate(pool[: self.starts], 1)
        }
        hidden = OutOfSight(ctx.bank.state, question.where, ctx.bank.expired)
        known = {hit.id for hit in found}
        floor = min((hit.score for hit in found), default=1.0)
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
        return [*found, *added]


async def _plan(question: Question, ctx: SlotContext) -> tuple[list[str], str]:
    """Subgoals and the response they came from; the question itself when nothing could be read."""
    prompt = load_prompt("plan")
    messages = prompt.messages(
        asked=f"The question is asked on {day_of(question.asked_at)}." if question.asked_at else "",
        question=fence("question", [quoted(question.text)]),
    )
    response = await ctx.call(
        Role.PLANNER,
        messages,
        schema=PLAN_SCHEMA,
        question_id=question.id,
        prompt_digest=prompt.digest,
    )
    return parse_plan(response.text) or [question.text], response.id


async def _explore(view: WalkView, question: Question, ctx: SlotContext, call: int) -> Move:
    prompt = load_prompt("explore")
    goals = [
        f"{i}. [{'x' if met else ' '}] {quoted(goal)}"
        for i, (goal, met) in enumerate(view.subgoals)
    ]
    turns = [
        turn
        for one in view.event.source_turn_ids[:_MAX_TURNS]
        if (turn := ctx.bank.turn(one)) is not None
    ]
    messages = prompt.messages(
        question=fence("question", [quoted(view.question)]),
        subgoals=fence("subgoals", goals),
        kept=fence(
            "kept", (_event_line(Hit(id=one.id, score=0.0, event=one)) for one in view.kept)
        ),
        event=fence("event", [_event_line(Hit(id=view.event.id, score=0.0, event=view.event))]),
        turns=fence("turns", map(turn_line, turns)),
        neighbours=fence("neighbours", map(_neighbour_line, view.neighbours)),
    )
    response = await ctx.call(
        Role.EXPLORER,
        messages,
        schema=EXPLORE_SCHEMA,
        question_id=question.id,
        call=call,
        prompt_digest=prompt.digest,
    )
    return replace(parse_move(response.text), response_id=response.id)


def _event_line(hit: Hit) -> str:
    return hit_line(hit, version=False)


def _neighbour_line(near: Neighbour) -> str:
    word = (
        near.relation.value if not near.label else f"{near.relation.value} ({quoted(near.label)})"
    )
    arrow = f"this event -{word}-> it" if near.leaving else f"it -{word}-> this event"
    return f"[{quoted(near.event.id)}] ({arrow}) {quoted(near.event.summary)}"


def parse_plan(text: str) -> list[str]:
    """At most five subgoals of a planner's reply, each once; [] when it holds none."""
    value = extract_json(text).value
    listed: JsonValue = value.get("subgoals") if isinstance(value, dict) else value
    goals = [
        one.strip()[:_MAX_GOAL_CHARS]
        for one in _list(listed)
        if isinstance(one, str) and one.strip()
    ]
    return list(dict.fromkeys(goals))[:_MAX_SUBGOALS]


def parse_move(text: str) -> Move:
    """An explorer's reply as a move; SKIP with nothing to follow when it cannot be read."""
    value = extract_json(text).value
    if not isinstance(value, dict):
        return Move(action=Action.SKIP)
    said = str(value.get("action", "")).strip().lower()
    action = next((one for one in Action if one.value == said), Action.SKIP)
    follow = [
        str(one).strip().strip("[]") for one in _list(value.get("next")) if isinstance(one, str)
    ]
    proven = [
        int(one)
        for one in _list(value.get("proven"))
        if isinstance(one, int | str) and _small(str(one))
    ]
    return Move(action=action, follow=tuple(follow), proven=tuple(proven))


def _list(value: JsonValue) -> Sequence[JsonValue]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _small(text: str) -> bool:
    """Whether a text is a whole number that can be an index."""
    return text.isdecimal() and len(text) <= 3

"""Start events of a walk, chosen by a model: topics first, then events of them.

The pool, its order and its topics are those of `EventSeeds`. A reply that cannot be
read, or that names nothing shown, leaves the choice to the rules.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from memagent.core.answers import Hit
from memagent.core.exchange import JsonSchema, Role
from memagent.core.records import Event
from memagent.designs.base import SlotContext
from memagent.designs.parts.asking import INTEGER, TEXTS, ask_about, object_schema
from memagent.designs.parts.graph.event_seeds import EventSeeds
from memagent.designs.parts.lines import hit_line
from memagent.designs.prompting import fence, quoted
from memagent.replies.json_answer import extract_json

TOPICS_SCHEMA: Final[JsonSchema] = object_schema({"topics": {"type": "array", "items": INTEGER}})
EVENTS_SCHEMA: Final[JsonSchema] = object_schema({"events": TEXTS})
SELECTOR_PROMPTS: Final = ("select_topics", "select_events")
_MAX_TOPICS = 8
_MAX_SAMPLES = 4
_MAX_EVENTS = 12


def goal_lines(subgoals: Sequence[tuple[str, bool]]) -> list[str]:
    """Return a numbered line for each (subgoal, satisfied?)."""
    return [
        f"{i}. [{'x' if met else ' '}] {quoted(goal)}" for i, (goal, met) in enumerate(subgoals)
    ]


@dataclass(frozen=True)
class SelectedSeeds:
    """The events of `seeds`, with start events that a model chooses in two calls."""

    seeds: EventSeeds
    ctx: SlotContext
    ordinals: Iterator[int]
    """Numbers of the planner's calls."""

    @property
    def events(self) -> Mapping[str, Event]:
        """The events by id."""
        return self.seeds.events

    async def closeness(self, goal: str, event_ids: Sequence[str]) -> Mapping[str, float]:
        """Return each event's cosine with a goal."""
        return await self.seeds.closeness(goal, event_ids)

    async def locate(
        self, query: str, goals: Sequence[str], visited: Collection[str]
    ) -> list[list[str]]:
        """Return the chosen start events by topic, in the order of choice."""
        groups = (await self.seeds.ranked(query, goals, visited))[:_MAX_TOPICS]
        if not groups:
            return []
        limits = self.seeds.settings
        shared = {
            "question": fence("question", [quoted(query)]),
            "subgoals": fence("subgoals", goal_lines([(goal, False) for goal in goals])),
        }
        topics = await self._ask(
            "topics", TOPICS_SCHEMA, fence("topics", self._topics(groups)), shared
        )
        numbers = [int(name) for name in topics if name.isdecimal() and int(name) < len(groups)]
        kept = [groups[number] for number in numbers[: limits.topics]] or groups[: limits.topics]
        lines = [self._line(event_id) for group in kept for event_id in group[:_MAX_EVENTS]]
        named = await self._ask("events", EVENTS_SCHEMA, fence("events", lines), shared)
        chosen = [[event_id for event_id in named if event_id in group] for group in kept]
        return [
            (own or group if not any(chosen) else own)[: limits.members]
            for own, group in zip(chosen, kept, strict=True)
            if own or not any(chosen)
        ]

    async def _ask(
        self, key: str, schema: JsonSchema, shown: str, shared: Mapping[str, str]
    ) -> list[str]:
        """Return the entries of the reply as texts, each once."""
        response = await ask_about(
            self.seeds.question,
            self.ctx,
            Role.PLANNER,
            f"select_{key}",
            schema,
            next(self.ordinals),
            **shared,
            **{key: shown},
        )
        value = extract_json(response.text).value
        listed = value.get(key) if isinstance(value, dict) else value
        entries = listed if isinstance(listed, list) else []
        return list(dict.fromkeys(str(entry).strip().strip("[]") for entry in entries))

    def _topics(self, groups: Sequence[Sequence[str]]) -> list[str]:
        return [
            line
            for number, group in enumerate(groups)
            for line in (
                f"Topic {number}:",
                *(f"  {self._line(event_id)}" for event_id in group[:_MAX_SAMPLES]),
            )
        ]

    def _line(self, event_id: str) -> str:
        return hit_line(Hit(id=event_id, score=0.0, event=self.events[event_id]))

"""An indexer that needs no model: a session's turns become events word for word, linked
by time, names and topic.

Informative turns that follow each other and share content words form one event (at most
four turns); it says what was said, with the speakers as its people and the time its
words tell, resolved against the date. MENTIONS lead to people and names, BEFORE follows
resolved times, ELABORATES leads to the event before when both speak of the same thing,
PART_OF leads from the items made of its turns. The surprise: events told twice are
merged only when their words nearly agree, so what is only alike stays apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from memagent.core.records import Event, EventEdge, Relation, Session, Trust, Turn, content_id
from memagent.core.snapshot import Commit, GraphDelta
from memagent.designs.base import SlotContext
from memagent.designs.parts.graph.event_links import linked
from memagent.designs.parts.rules.keeping import content, informative, terms_of
from memagent.designs.parts.rules.wording import time_told
from memagent.events.merge import MergeSettings, event_texts, merge_events, open_events
from memagent.memory.event_vectors import text_vectors

_MAX_SUMMARY_CHARS = 1_200


@dataclass(frozen=True, kw_only=True)
class RuleIndexer:
    """A session to events and edges, merged into the graph. Asks no model."""

    max_turns: int = 4
    """Most turns an event."""
    merge: MergeSettings = MergeSettings(same_cosine=0.95)

    async def __call__(self, commits: Sequence[Commit], ctx: SlotContext, /) -> GraphDelta:
        """What the session adds; empty when no turn says anything."""
        if ctx.session is None:
            return GraphDelta()
        groups = turn_groups(ctx.session, max_turns=self.max_turns)
        events = [_event(ctx.session, group, order) for order, group in enumerate(groups)]
        state = await ctx.bank.sync()
        proposal = linked(state, events)
        elaborations = _elaborations(ctx.session, groups, events)
        proposal = proposal.model_copy(
            update={"edges": (*proposal.edges, *elaborations), "session_id": ctx.session.id}
        )
        texts = [
            text for event in (*open_events(state.graph), *events) for text in event_texts(event)
        ]
        return await merge_events(
            state.graph, proposal, vectors=await text_vectors(ctx.bank, texts), settings=self.merge
        )


def turn_groups(session: Session, *, max_turns: int) -> list[tuple[Turn, ...]]:
    """Runs of neighbouring informative turns on one topic, in order; small talk ends a
    run and belongs to none.
    """
    groups: list[list[Turn]] = []
    running = False
    for turn in session.turns:
        said = not turn.recalled and turn.trust.rank <= Trust.ASSISTANT.rank
        if not said or not informative(turn.said, names=session.speakers):
            running = False
            continue
        joins = running and len(groups[-1]) < max_turns and _shared(session, groups[-1], [turn])
        if joins:
            groups[-1].append(turn)
        else:
            groups.append([turn])
        running = True
    return [tuple(group) for group in groups]


def _shared(session: Session, one: Sequence[Turn], other: Sequence[Turn]) -> bool:
    """Whether two runs of turns share a content word that is no speaker's name."""
    names = terms_of(session.speakers)
    first, second = (
        set[str]().union(*(content(turn.said, but=names) for turn in turns))
        for turns in (one, other)
    )
    return bool(first & second)


def _event(session: Session, turns: Sequence[Turn], order: int) -> Event:
    said_at = session.date_of(turns[0])
    times = (time_told(turn.said, session.date_of(turn)) for turn in turns)
    valid = next((span for span in times if span is not None), None)
    return Event(
        id=content_id("evt", *(turn.id for turn in turns)),
        summary="\n".join(f"{turn.speaker}: {turn.said.strip()}" for turn in turns)[
            :_MAX_SUMMARY_CHARS
        ],
        people=tuple(dict.fromkeys(turn.speaker for turn in turns)),
        source_turn_ids=tuple(turn.id for turn in turns),
        time_text=valid.text if valid else None,
        valid=valid,
        said_at=said_at,
        session_id=session.id,
        order=order,
    )


def _elaborations(
    session: Session, groups: Sequence[Sequence[Turn]], events: Sequence[Event]
) -> list[EventEdge]:
    return [
        EventEdge(
            source=later.id,
            target=earlier.id,
            relation=Relation.ELABORATES,
            evidence_turn_ids=(*earlier.source_turn_ids, *later.source_turn_ids),
        )
        for (one, other), (earlier, later) in zip(pairwise(groups), pairwise(events), strict=True)
        if _shared(session, one, other)
    ]

"""Event graphs without a model: a session's turns become events and edges.

Informative turns that follow each other and share content words form one
event (at most four turns). The event holds the words that were said, with the speakers
as its people and the time its words tell, resolved against the date. MENTIONS lead to
people and names, BEFORE follows resolved times, ELABORATES leads to the event before
when both speak of the same thing, PART_OF leads from the items made of its turns. The
surprise: events told twice are merged only when their words nearly agree, so events that
are only alike stay apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from memagent.core.records import Event, EventEdge, Relation, Session, Trust, Turn, content_id
from memagent.core.snapshot import Commit, GraphDelta
from memagent.designs.base import SlotContext
from memagent.designs.parts.event_indexer import link_events
from memagent.designs.parts.rules.statements import content, informative, terms_of, time_told
from memagent.events.merge import MergeSettings, merge_events

_MAX_SUMMARY_CHARS = 1_200


@dataclass(frozen=True, kw_only=True)
class RuleIndexer:
    """Turns a session into events and edges, merged into the graph. Asks no model."""

    max_turns: int = 4
    merge: MergeSettings = MergeSettings(same_cosine=0.95)

    async def __call__(
        self,
        commits: Sequence[Commit],  # noqa: ARG002 - interface
        ctx: SlotContext,
        /,
    ) -> GraphDelta:
        """Return the session's additions; none when no turn says anything."""
        session = ctx.session
        if session is None:
            return GraphDelta()
        groups = _turn_groups(session, max_turns=self.max_turns)
        events = [_event(session, group, order) for order, group in enumerate(groups)]
        linked = await link_events(ctx.bank, events)
        edges = (*linked.delta.edges, *_elaborations(session, groups, events))
        proposal = linked.delta.model_copy(update={"edges": edges, "session_id": session.id})
        return await merge_events(
            linked.state.graph, proposal, vectors=linked.vectors, settings=self.merge
        )


def _turn_groups(session: Session, *, max_turns: int) -> list[list[Turn]]:
    """Group neighbouring informative turns on one topic, in order.

    Small talk ends a group and belongs to none.
    """
    groups: list[list[Turn]] = []
    running = False
    for turn in session.turns:
        trusted = not turn.recalled and turn.trust.rank <= Trust.ASSISTANT.rank
        if not trusted or not informative(turn.said, names=session.speakers):
            running = False
        elif running and len(groups[-1]) < max_turns and _related(session, groups[-1], [turn]):
            groups[-1].append(turn)
        else:
            groups.append([turn])
            running = True
    return groups


def _related(session: Session, first: Sequence[Turn], second: Sequence[Turn]) -> bool:
    """Say whether two runs of turns share a content word that is no speaker's name."""
    names = terms_of(session.speakers)
    words, others = (
        set[str]().union(*(content(turn.said, but=names) for turn in turns))
        for turns in (first, second)
    )
    return bool(words & others)


def _event(session: Session, turns: Sequence[Turn], order: int) -> Event:
    times = (time_told(turn.said, session.date_of(turn)) for turn in turns)
    valid = next((span for span in times if span is not None), None)
    summary = "\n".join(f"{turn.speaker}: {turn.said.strip()}" for turn in turns)
    return Event(
        id=content_id("evt", *(turn.id for turn in turns)),
        summary=summary[:_MAX_SUMMARY_CHARS],
        people=tuple(dict.fromkeys(turn.speaker for turn in turns)),
        source_turn_ids=tuple(turn.id for turn in turns),
        time_text=valid.text if valid else None,
        valid=valid,
        said_at=session.date_of(turns[0]),
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
        for (first, second), (earlier, later) in zip(
            pairwise(groups), pairwise(events), strict=True
        )
        if _related(session, first, second)
    ]

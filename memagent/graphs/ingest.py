"""The ingest graph: extract, relate, decide, validate, commit, index.

One run a chunk, one journal append a run. Each node is a few lines around a slot or a
pure function. A model failure leaves the run as an exception; nothing has been written
by then but the session's raw turns, so the run can simply be made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from memagent.core.errors import ModelError, boundary
from memagent.core.long_work import LARGE, LARGE_CHARS, aside
from memagent.core.records import Chunk, MemoryItem, Session, SourceRef
from memagent.core.snapshot import Commit
from memagent.designs.base import SlotContext
from memagent.designs.relating import linked_hits, relate as relate_facts
from memagent.graphs.state import AgentContext, Flow, IngestState, NodeRuntime, Step
from memagent.state.adjacency import event_as_item
from memagent.state.validation import validate_ops
from memagent.tracing import step


async def extract(state: IngestState, runtime: NodeRuntime) -> IngestState:
    """Take the facts from the chunk."""
    context = runtime.context
    with boundary(ModelError, f"extractor of {context.design.name}"):
        facts = await context.design.extractor(_chunk(state), _slot(state, context))
    return {"facts": facts}


async def relate(state: IngestState, runtime: NodeRuntime) -> IngestState:
    """Look up what memory holds about each fact."""
    context, facts = runtime.context, state.get("facts")
    values = facts.values if facts is not None else ()
    return {"related": await relate_facts(values, _slot(state, context), context.design.relate)}


async def decide(state: IngestState, runtime: NodeRuntime) -> IngestState:
    """Have the manager propose ops for the facts and what is known."""
    context = runtime.context
    with boundary(ModelError, f"manager of {context.design.name}"):
        proposal = await context.design.manager(state.get("related", ()), _slot(state, context))
    return {"proposal": proposal}


async def validate(state: IngestState, runtime: NodeRuntime) -> IngestState:
    """Sort the proposed ops into accepted and rejected ones.

    An op may touch only what was shown.
    """
    facts, proposal = state.get("facts"), state.get("proposal")
    bank, design = runtime.context.bank, runtime.context.design
    visible: dict[str, MemoryItem] = {}
    for hit in (hit for related in state.get("related", ()) for hit in related.hits):
        item = hit.item or (hit.event and event_as_item(bank.state.graph, hit.event))
        if item is not None:
            visible[item.id] = item
    proposed, chunk = proposal.values if proposal is not None else (), _chunk(state)
    decided = proposal is not None and (proposal.responses or any(op.about for op in proposed))
    guard = None
    if decided:
        from memagent.state.backing import Guard

        linked = frozenset(hit.id for own in state.get("related", ()) for hit in linked_hits(own))
        guard = replace(design.guard or Guard(enforce=False), linked=linked)
    check = partial(
        validate_ops,
        proposed,
        visible=visible,
        limits=design.limits,
        chunk=chunk,
        existing_ids=bank.state.items,
        guard=guard,
        facts=[related.fact for related in state.get("related", ())],
    )
    large = len(proposed) >= LARGE or sum(len(turn.text) for turn in chunk.turns) >= LARGE_CHARS
    batch = await aside(check) if large else check()
    unread = [entry for part in (facts, proposal) if part is not None for entry in part.rejected]
    return {"batch": batch.model_copy(update={"rejected": (*unread, *batch.rejected)})}


async def commit(state: IngestState, runtime: NodeRuntime) -> IngestState:
    """Append the ops, their effects and every edge that follows from them to the journal."""
    chunk, batch = _chunk(state), state.get("batch")
    if batch is None:
        raise ModelError(
            f"the design {runtime.context.design.name} reached commit without a validated batch"
        )
    parts = (state.get("facts"), state.get("proposal"))
    responses = (response for part in parts if part is not None for response in part.responses)
    source = SourceRef(
        session_id=chunk.session_id,
        chunk_id=chunk.id,
        chunk_index=chunk.index,
        chunk_count=chunk.count,
        turn_ids=chunk.turn_ids,
        response_ids=tuple(response.id for response in responses),
    )
    return {"commit": await runtime.context.bank.commit(batch, source=source)}


async def index(state: IngestState, runtime: NodeRuntime) -> IngestState:
    """Bring the search view up to date.

    After a session's last chunk, add what the design's own calls find to the event
    graph.
    """
    context = runtime.context
    await context.bank.follow(context.bank.now())
    chunk = _chunk(state)
    if chunk.index + 1 < chunk.count or "commit" not in state:
        return {}
    with boundary(ModelError, f"indexer of {context.design.name}"):
        part = _part_of(chunk, state.get("session"))
        slot = context.slot(session=part, chunk=chunk)
        commits = await _commits_of(part, (*state.get("earlier", ()), state["commit"]), context)
        delta = await context.design.indexer(commits, slot)
    if delta.empty and not delta.rejected:
        return {"usage": slot.trail.usage}
    return {"usage": slot.trail.usage, "graph": await context.bank.index(delta)}


async def _commits_of(
    part: Session | None, known: Sequence[Commit], context: AgentContext
) -> tuple[Commit, ...]:
    """Return the commits of all chunks of a session's part, in order of the chunks.

    Those that an earlier run made are read from the journal.
    """
    turn_ids = {turn.id for turn in part.turns if not turn.recalled} if part else set[str]()
    commits = [*known]
    if not turn_ids <= {turn_id for commit in known for turn_id in commit.source.turn_ids}:
        rows = [row.entry async for row in context.bank.rows()]
        commits = [entry for entry in rows if isinstance(entry, Commit)]
    by_chunk = {
        commit.source.chunk_index or 0: commit
        for commit in commits
        if commit.source.turn_ids and (not turn_ids or turn_ids.issuperset(commit.source.turn_ids))
    }
    return tuple(by_chunk[place] for place in sorted(by_chunk))


def _chunk(state: IngestState) -> Chunk:
    chunk = state.get("chunk")
    if chunk is None:
        raise ModelError("the ingest graph needs a `chunk` in its input state")
    return chunk


def _part_of(chunk: Chunk, session: Session | None) -> Session | None:
    """Return the session with only the turns of the part that ends with a chunk."""
    if session is None or not session.grown_at:
        return session
    last = chunk.turns[-1].id
    turns = next(
        (part for part in session.parts if any(turn.id == last for turn in part)), session.turns
    )
    return session.model_copy(update={"turns": turns, "grown_at": ()})


def _slot(state: IngestState, context: AgentContext) -> SlotContext:
    return context.slot(session=state.get("session"), chunk=state.get("chunk"))


INGEST: Final = Flow(
    "memagent.ingest",
    IngestState,
    {
        "extract": Step(step(extract), "relate"),
        "relate": Step(step(relate), "decide"),
        "decide": Step(step(decide), "validate"),
        "validate": Step(validate, "commit"),
        "commit": Step(step(commit), "index"),
        "index": Step(step(index)),
    },
)
"""The graph: input `{"session", "chunk"}`, context `AgentContext`."""

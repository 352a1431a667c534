"""The ingest graph: extract, relate, decide, validate, commit, index.

One run a chunk, one journal append a run.

Each node is a few lines around a slot or a pure function. A model failure leaves the
run as an exception; nothing has been written by then but the session's raw turns, so
the run can simply be made again.
"""

from __future__ import annotations

from typing import Any

from langgraph.graph import END, START, StateGraph  # pyright: ignore[reportMissingTypeStubs]
from langgraph.runtime import Runtime

from memagent.core.errors import ModelError, boundary
from memagent.core.records import Chunk, MemoryItem, SourceRef
from memagent.designs.base import SlotContext
from memagent.designs.relating import relate as relate_facts
from memagent.graphs.state import AgentContext, IngestState
from memagent.state.adjacency import event_as_item
from memagent.state.validation import validate_ops
from memagent.tracing import step

INGEST_NODES = ("extract", "relate", "decide", "validate", "commit", "index")
"""The nodes in the order they run."""


async def extract(state: IngestState, runtime: Runtime[AgentContext]) -> IngestState:
    """Chunk to facts."""
    context = runtime.context
    with boundary(ModelError, f"extractor of {context.design.name}"):
        facts = await context.design.extractor(_chunk(state), _slot(state, context))
    return {"facts": facts}


async def relate(state: IngestState, runtime: Runtime[AgentContext]) -> IngestState:
    """Facts to what memory holds about each."""
    context = runtime.context
    facts = state.get("facts")
    values = facts.values if facts is not None else ()
    return {"related": await relate_facts(values, _slot(state, context), context.design.relate)}


async def decide(state: IngestState, runtime: Runtime[AgentContext]) -> IngestState:
    """Facts and what is known to proposed ops."""
    context = runtime.context
    with boundary(ModelError, f"manager of {context.design.name}"):
        proposal = await context.design.manager(state.get("related", ()), _slot(state, context))
    return {"proposal": proposal}


async def validate(state: IngestState, runtime: Runtime[AgentContext]) -> IngestState:
    """Proposed ops to accepted and rejected ones; an op may touch only what was shown."""
    proposal = state.get("proposal")
    bank = runtime.context.bank
    visible: dict[str, MemoryItem] = {}
    for hit in (hit for related in state.get("related", ()) for hit in related.hits):
        shown = hit.item or (
            event_as_item(bank.state.graph, hit.event) if hit.event is not None else None
        )
        if shown is not None:
            visible[shown.id] = shown
    batch = validate_ops(
        proposal.values if proposal is not None else (),
        visible=visible,
        limits=runtime.context.design.limits,
        chunk=_chunk(state),
        existing_ids=bank.state.items,
    )
    earlier = [
        one for part in (state.get("facts"), proposal) if part is not None for one in part.rejected
    ]
    return {"batch": batch.model_copy(update={"rejected": (*earlier, *batch.rejected)})}


async def commit(state: IngestState, runtime: Runtime[AgentContext]) -> IngestState:
    """One journal append with the ops, their effects and every edge that follows from them."""
    chunk = _chunk(state)
    responses = [
        response.id
        for part in (state.get("facts"), state.get("proposal"))
        if part is not None
        for response in part.responses
    ]
    source = SourceRef(
        session_id=chunk.session_id,
        chunk_id=chunk.id,
        chunk_index=chunk.index,
        chunk_count=chunk.count,
        turn_ids=chunk.turn_ids,
        response_ids=tuple(responses),
    )
    batch = state.get("batch")
    if batch is None:
        raise ModelError(
            f"the design {runtime.context.design.name} reached commit without a validated batch"
        )
    return {"commit": await runtime.context.bank.commit(batch, source=source)}


async def index(state: IngestState, runtime: Runtime[AgentContext]) -> IngestState:
    """Search view brought up to date; after a session's last chunk, what the design's
    own calls add to the event graph.
    """
    context = runtime.context
    await context.bank.refresh()
    chunk = _chunk(state)
    if chunk.index + 1 < chunk.count or "commit" not in state:
        return {}
    with boundary(ModelError, f"indexer of {context.design.name}"):
        slot = _slot(state, context)
        delta = await context.design.indexer((state["commit"],), slot)
    if delta.empty and not delta.rejected:
        return {"usage": slot.trail.usage}
    return {"usage": slot.trail.usage, "graph": await context.bank.index(delta)}


def _chunk(state: IngestState) -> Chunk:
    chunk = state.get("chunk")
    if chunk is None:
        raise ModelError("the ingest graph needs a `chunk` in its input state")
    return chunk


def _slot(state: IngestState, context: AgentContext) -> SlotContext:
    return context.slot(session=state.get("session"), chunk=state.get("chunk"))


def _build() -> Any:
    graph: Any = StateGraph(IngestState, context_schema=AgentContext)
    for node in (extract, relate, decide, validate, commit, index):
        graph.add_node(
            node.__name__, step(node) if node in (extract, relate, decide, commit, index) else node
        )
    for before, after in zip((START, *INGEST_NODES), (*INGEST_NODES, END), strict=True):
        graph.add_edge(before, after)
    return graph.compile(name="memagent.ingest")


INGEST = _build()
"""The compiled graph: input `{"session", "chunk"}`, context `AgentContext`."""

"""Remembering a session: its turns stored, then the ingest graph run chunk by chunk.

The turns are stored before any model is asked, so no failure loses them. The graph is
extract, relate, decide, validate, commit, index: one run a chunk, one journal append a
run. Each node is a few lines around a slot or a pure function. A model failure leaves
the run as an exception and ends the session's; the next one begins with that chunk.

A reply that cannot be read, although it was asked for twice, is no failure: the design
that serves (`designs.parts.guarded`) remembers such a chunk by the rules, and the report
says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from memagent.core.errors import ModelError, boundary
from memagent.core.exchange import FinishReason, ModelResponse, Usage
from memagent.core.long_work import LARGE, LARGE_CHARS, aside
from memagent.core.ops import OpBatch
from memagent.core.records import Chunk, MemoryItem, Session, SourceRef
from memagent.core.snapshot import ChunkReport, Commit, IngestReport
from memagent.designs.base import BY_RULES, Proposal
from memagent.designs.parts.retrieval import linked_hits, relate as relate_facts
from memagent.graphs.state import AgentContext, Flow, IngestState, NodeRuntime, Step
from memagent.memory.incoming import split_session
from memagent.state.adjacency import event_as_item
from memagent.state.validation import validate_ops


async def extract(state: IngestState, runtime: NodeRuntime) -> IngestState:
    """Take the facts from the chunk."""
    context = runtime.context
    with boundary(ModelError, f"extractor of {context.design.name}"):
        chunk = _chunk(state)
        slot = context.slot(session=state.get("session"), chunk=chunk)
        return {"facts": await context.design.extractor(chunk, slot)}


async def relate(state: IngestState, runtime: NodeRuntime) -> IngestState:
    """Look up what memory holds about each fact."""
    context, facts = runtime.context, state.get("facts")
    values = facts.values if facts is not None else ()
    slot = context.slot(session=state.get("session"), chunk=state.get("chunk"))
    return {"related": await relate_facts(values, slot, context.design.relate)}


async def decide(state: IngestState, runtime: NodeRuntime) -> IngestState:
    """Have the manager propose ops for the facts and what is known."""
    context = runtime.context
    with boundary(ModelError, f"manager of {context.design.name}"):
        slot = context.slot(session=state.get("session"), chunk=state.get("chunk"))
        return {"proposal": await context.design.manager(state.get("related", ()), slot)}


async def validate(state: IngestState, runtime: NodeRuntime) -> IngestState:
    """Sort the proposed ops into accepted and rejected ones.

    An op may touch only what was shown.
    """
    facts, proposal = state.get("facts"), state.get("proposal")
    bank, design = runtime.context.bank, runtime.context.design
    visible: dict[str, MemoryItem] = {}
    for related in state.get("related", ()):
        for hit in related.hits:
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
        told=bank.state.turn,
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
    responses = [response for part in parts if part is not None for response in part.responses]
    source = SourceRef(
        session_id=chunk.session_id,
        chunk_id=chunk.id,
        chunk_index=chunk.index,
        chunk_count=chunk.count,
        turn_ids=chunk.turn_ids,
        response_ids=tuple([response.id for response in responses]),
    )
    return {"commit": await runtime.context.bank.commit(batch, source=source)}


async def index(state: IngestState, runtime: NodeRuntime) -> IngestState:
    """Bring the search view up to date.

    After a session's last chunk, add what the design's own calls find to the event
    graph.
    """
    context = runtime.context
    await context.bank.follow(context.bank.log.clock())
    chunk = _chunk(state)
    if chunk.index + 1 < chunk.count or "commit" not in state:
        return {}
    with boundary(ModelError, f"indexer of {context.design.name}"):
        part = state.get("session")
        if part is not None and part.grown_at:  # only the turns of the part that ends here
            last = chunk.turns[-1].id
            grown = (turns for turns in part.parts if any(turn.id == last for turn in turns))
            part = part.model_copy(update={"turns": next(grown, part.turns), "grown_at": ()})
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
    commits = known
    if turn_ids.difference(*(commit.source.turn_ids for commit in known)):
        rows = [row.entry async for row in context.bank.rows()]
        commits = [entry for entry in rows if isinstance(entry, Commit)]
    by_chunk = {
        commit.source.chunk_index or 0: commit
        for commit in commits
        if commit.source.turn_ids and (not turn_ids or turn_ids.issuperset(commit.source.turn_ids))
    }
    return tuple(dict(sorted(by_chunk.items())).values())


def _chunk(state: IngestState) -> Chunk:
    chunk = state.get("chunk")
    if chunk is None:
        raise ModelError("the ingest graph needs a `chunk` in its input state")
    return chunk


INGEST: Final = Flow(
    "memagent.ingest",
    IngestState,
    {
        "extract": Step(extract, "relate"),
        "relate": Step(relate, "decide"),
        "decide": Step(decide, "validate"),
        "validate": Step(validate, "commit", traced=False),
        "commit": Step(commit, "index"),
        "index": Step(index),
    },
)
"""The graph: input `{"session", "chunk"}`, context `AgentContext`."""


# -- a session ------------------------------------------------------------------------


async def remember_session(
    session: Session, context: AgentContext, *, tracing: bool, guarded: bool
) -> tuple[IngestReport, ModelError | None]:
    """Store a session's turns and let the design remember what is not remembered yet.

    Returns the report with the model failure that ended the run, if one did; the
    failure carries the report too. With `guarded` the rules remember a chunk whose replies
    cannot be read. Raises `InputError` for a session that clashes with
    a stored one.
    """
    if guarded and context.design.needs_model:
        from memagent.designs.parts import guarded as serving, reading

        design = serving.guarded(context.design, pair=reading.backed_by_reader)
        context = replace(context, design=design)
    bank = context.bank
    fresh = await bank.store_session(session)
    session = bank.state.sessions[session.id]
    done = bank.state.done.get(session.id, frozenset())
    reports: list[ChunkReport] = []
    commits: list[Commit] = []
    usage = Usage()
    failure: ModelError | None = None
    for chunk in split_session(session, chunk_turns=context.design.chunk_turns):
        if chunk.index in done:
            continue
        try:
            ingest = {"session": session, "chunk": chunk, "earlier": tuple(commits)}
            state = await INGEST.run(ingest, context=context, tracing=tracing)
            commits.append(state["commit"])
            reports.append(_chunk_report(chunk, state))
            usage += reports[-1].usage
        except ModelError as error:
            failure = error
            failed = f"{type(error).__name__}: {error.what_happened}"
            reports.append(
                ChunkReport(
                    chunk_id=chunk.id,
                    session_id=chunk.session_id,
                    index=chunk.index,
                    failure=failed,
                )
            )
            break
    report = IngestReport(
        session_id=session.id,
        stored_turns=len(session.turns) if fresh else 0,
        skipped=not fresh and not reports,
        chunks=tuple(reports),
        usage=usage,
    )
    if failure is not None:
        failure.report, failure.stored_turns = report, len(session.turns)
    return report, failure


def _note(parts: Sequence[Proposal[Any]]) -> str:
    """Say why the rules stood in for the model."""
    from memagent.designs.parts.guarded import first_unread

    for role, part in zip(("extractor", "manager"), parts, strict=False):
        if (at := first_unread(part.parse)) is not None:
            replies = part.responses[at : at + 1] or part.responses[-1:]
            return f"{BY_RULES}: {_unreadable(replies[0] if replies else None, role)}"
    return BY_RULES


def _unreadable(last: ModelResponse | None, role: str) -> str:
    """Say what was wrong with a reply, and how to get a better one."""
    name = (last.model if last is not None else "") or "the model"
    text = " ".join(last.text.split()) if last is not None else ""
    if last is not None and last.finish is FinishReason.LENGTH:
        return (
            f"{name}: the {role}'s reply was cut off at {last.usage.completion_tokens} tokens; "
            "raise max_tokens of its sampling, or take a model with longer replies"
        )
    said = f"began {text[:60]!r}" if text else "was empty"
    return (
        f"{name}: the {role}'s reply could not be read, although asked again (it {said}); "
        "use a model that follows a JSON schema, or a design with shorter prompts"
    )


def _chunk_report(chunk: Chunk, state: Mapping[str, Any]) -> ChunkReport:
    commit: Commit = state["commit"]
    parts: Sequence[Proposal[Any]] = [
        part for name in ("facts", "proposal") if (part := state.get(name)) is not None
    ]
    responses = tuple(response for part in parts for response in part.responses)
    facts: Proposal[Any] | None = state.get("facts")
    batch: OpBatch | None = state.get("batch")
    spent: Usage = state.get("usage", Usage())
    by_rules = any(done.op.reason.startswith(BY_RULES) for done in commit.ops)
    return ChunkReport(
        chunk_id=chunk.id,
        session_id=chunk.session_id,
        index=chunk.index,
        facts=facts.values if facts is not None else (),
        shown_ids=tuple(
            dict.fromkeys(hit.id for related in state.get("related", ()) for hit in related.hits)
        ),
        applied=commit.ops,
        rejected=commit.rejected,
        parse=tuple(status for part in parts for status in part.parse),
        repairs=tuple(repair for part in parts for repair in part.repairs),
        responses=responses,
        commit_id=commit.id,
        usage=sum((response.usage for response in responses), spent),
        doubts=batch.doubts if batch is not None else (),
        note=_note(parts) if by_rules else "",
    )

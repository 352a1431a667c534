"""Remember one session: store its turns, then run the ingest graph chunk by chunk.

The turns are stored before any model is asked, so no failure loses them. A chunk that
fails ends the run; the next run of the same session begins with it.

The surprise: whether a reply that cannot be read is a failure is decided by the slots
that the graph runs with. `demanding` wraps a design's extractor and manager so that
such a reply, asked for twice, raises before anything is committed. A rollout runs the
design as it is: there the reply is the policy's deed, and stays data with its parse
status.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from memagent.core.errors import ModelError, ReplyUnreadable
from memagent.core.exchange import FinishReason, ModelResponse, Usage
from memagent.core.ops import ParseStatus
from memagent.core.records import Chunk, Session
from memagent.core.reports import ChunkReport, IngestReport
from memagent.core.snapshot import Commit
from memagent.designs.base import MemoryDesign, Proposal, SlotContext
from memagent.memory.chunking import split_session

if TYPE_CHECKING:
    from memagent.graphs.state import AgentContext

S = TypeVar("S")
OnError = Literal["raise", "keep"]
"""After a model failure: raise it once the turns are stored, or keep it in the report."""
_UNREAD = (ParseStatus.FAILED, ParseStatus.EMPTY)


async def remember_session(
    session: Session, *, context: AgentContext, tracing: bool
) -> tuple[IngestReport, ModelError | None]:
    """Store a session's turns and let the design remember what is not remembered yet.

    Returns the report with the model failure that ended the run, if one did; the
    failure carries the report too. Raises `InputError` for a session that clashes with
    a stored one.
    """
    from memagent.graphs.ingest import INGEST

    bank = context.bank
    fresh = await bank.store_session(session)
    session = bank.state.sessions[session.id]
    done = bank.state.done.get(session.id, frozenset())
    reports: list[ChunkReport] = []
    commits: list[Commit] = []
    failure: ModelError | None = None
    for chunk in split_session(session, chunk_turns=context.design.chunk_turns):
        if chunk.index in done:
            continue
        try:
            ingest = {"session": session, "chunk": chunk, "earlier": tuple(commits)}
            state = await INGEST.run(ingest, context=context, tracing=tracing)
            commits.append(state["commit"])
            reports.append(_chunk_report(chunk, state))
        except ModelError as error:
            failure = error
            reports.append(_failed(chunk, error))
            break
    report = IngestReport(
        session_id=session.id,
        stored_turns=len(session.turns) if fresh else 0,
        skipped=not fresh and not reports,
        chunks=tuple(reports),
        usage=sum((report.usage for report in reports), Usage()),
    )
    if failure is not None:
        failure.report, failure.stored_turns = report, len(session.turns)
    return report, failure


def demanding(design: MemoryDesign) -> MemoryDesign:
    """Return the design with an extractor and a manager that raise `ReplyUnreadable`.

    They do where a reply was empty or unreadable, and the second one to the same
    question as well.
    """
    return replace(
        design,
        extractor=_demanding(design.extractor, "extractor"),
        manager=_demanding(design.manager, "manager"),
    )


def _demanding(
    slot: Callable[[S, SlotContext], Awaitable[Proposal[Any]]], role: str
) -> Callable[[S, SlotContext], Awaitable[Proposal[Any]]]:
    async def demanding_slot(given: S, ctx: SlotContext, /) -> Proposal[Any]:
        proposal = await slot(given, ctx)
        if (at := _first_unread(proposal.parse)) is not None:
            replies = proposal.responses[at : at + 1] or proposal.responses[-1:]
            raise ReplyUnreadable(_unreadable(replies[0] if replies else None, role))
        return proposal

    return demanding_slot


def _first_unread(statuses: Sequence[ParseStatus]) -> int | None:
    """Return the place of the first unreadable reply that no second one made good."""
    at = 0
    while at < len(statuses):
        if statuses[at] in _UNREAD:
            if statuses[at + 1 : at + 2] == () or statuses[at + 1] in _UNREAD:
                return min(at + 1, len(statuses) - 1)
            at += 1
        at += 1
    return None


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


def _failed(chunk: Chunk, error: ModelError) -> ChunkReport:
    return ChunkReport(
        chunk_id=chunk.id,
        session_id=chunk.session_id,
        index=chunk.index,
        failure=f"{type(error).__name__}: {error.what_happened}",
    )


def _chunk_report(chunk: Chunk, state: Mapping[str, Any]) -> ChunkReport:
    commit: Commit = state["commit"]
    parts: Sequence[Proposal[Any]] = [
        part for name in ("facts", "proposal") if (part := state.get(name)) is not None
    ]
    responses = tuple(response for part in parts for response in part.responses)
    facts: Proposal[Any] | None = state.get("facts")
    spent: Usage = state.get("usage", Usage())
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
    )

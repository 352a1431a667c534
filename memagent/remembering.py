"""Remember one session: store its turns, then run the ingest graph chunk by chunk.

The turns are stored before any model is asked, so no failure loses them. A chunk that
fails ends the run; the next run of the same session begins with it.

A reply that cannot be read, although it was asked for twice, is no failure: the design
that serves (`designs.parts.guarded`) remembers such a chunk by the rules, and the report
says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from memagent.core.errors import ModelError
from memagent.core.exchange import FinishReason, ModelResponse, Usage
from memagent.core.ops import OpBatch
from memagent.core.records import Chunk, Session
from memagent.core.reports import ChunkReport, IngestReport
from memagent.core.snapshot import Commit
from memagent.designs.base import BY_RULES, Proposal
from memagent.memory.incoming import split_session

if TYPE_CHECKING:
    from memagent.graphs.state import AgentContext

OnError = Literal["raise", "keep"]
"""After a model failure: raise it once the turns are stored, or keep it in the report."""


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


def _note(parts: Sequence[Proposal[Any]], commit: Commit) -> str:
    """Say why the rules stood in for the model, if they did."""
    if not any(done.op.reason.startswith(BY_RULES) for done in commit.ops):
        return ""
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
    batch: OpBatch | None = state.get("batch")
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
        doubts=batch.doubts if batch is not None else (),
        note=_note(parts, commit),
    )

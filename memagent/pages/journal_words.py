"""The journal told to people: what was stored, decided, refused and why, as values for templates.

Pure.

The journal keeps every op with its reason and sources, every refusal, and what each
changed. It does not keep what the manager was shown when it decided, nor the words that
a model was sent or wrote (only the ids of its responses); nothing here makes such a
thing up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

from memagent.core.ops import Add, Delete, MemoryOp, Noop, Rejected, RejectReason, Update
from memagent.core.records import MemoryItem, Session, SourceRef, Turn
from memagent.core.snapshot import (
    Commit,
    Erased,
    GraphDelta,
    JournalRow,
    Restored,
    SessionStored,
    StatsDelta,
)
from memagent.pages.word_diff import Piece, word_diff
from memagent.state.fold import BankState

Kind = Literal[
    "session", "chat", "decision", "edit", "undo", "graph", "stats", "restored", "erased"
]
OP_WORDS: Final[Mapping[str, str]] = {
    "ADD": "added",
    "UPDATE": "updated",
    "DELETE": "deleted",
    "NOOP": "left as it is",
}
_REFUSALS: Final[Mapping[RejectReason, str]] = {
    RejectReason.NOT_AN_OBJECT: "the entry was no object",
    RejectReason.UNKNOWN_OP: "there is no such op",
    RejectReason.INVALID_FIELDS: "its fields could not be read",
    RejectReason.UNKNOWN_ID: "there is no memory of that id",
    RejectReason.NOT_SHOWN: "the manager was not shown that memory",
    RejectReason.STALE_VERSION: "the memory had changed since it was shown",
    RejectReason.DUPLICATE_TARGET: "another op of the batch was about the same memory",
    RejectReason.DUPLICATE_TEXT: "a memory says just that already",
    RejectReason.EMPTY_TEXT: "the text was empty",
    RejectReason.UNCHANGED: "it would have changed nothing",
    RejectReason.FOREIGN_SPEAKER: "it named a speaker who does not speak there",
    RejectReason.FOREIGN_TURN: "it cited a turn that is not in the part it read",
    RejectReason.SYSTEM_METADATA: "it wrote metadata that is the system's",
    RejectReason.ID_NOT_ALLOWED: "only direct callers may choose an id",
    RejectReason.LOW_TRUST: "its source is trusted less than what it would have changed",
    RejectReason.TOO_MANY_OPS: "the batch had more ops than are taken",
    RejectReason.TEXT_TOO_LONG: "the text was too long",
    RejectReason.UNRESOLVED: "what it refers to could not be told",
}


@dataclass(frozen=True, kw_only=True)
class OpTold:
    """One op that was carried out."""

    op: str
    """`ADD`, `UPDATE`, `DELETE` or `NOOP`."""
    words: str
    item_id: str | None
    version: int | None
    text: str
    """What the memory says afterwards; what it said, for a deletion; the fact, for a NOOP."""
    before: str | None
    """What an update replaced, where the memory still knows."""
    pieces: tuple[Piece, ...]
    """The update word by word; () for other ops, and where what it replaced is not known."""
    reason: str
    turn_ids: tuple[str, ...]
    now: str
    """What has become of the version since; "" when it stands."""
    there: bool
    """Whether the item can still be looked at."""


@dataclass(frozen=True, kw_only=True)
class RefusalTold:
    """One op that was not carried out."""

    op: str
    reason: str
    words: str
    detail: str
    text: str
    item_id: str | None
    turn_ids: tuple[str, ...]
    raw: str


@dataclass(frozen=True, kw_only=True)
class EntryTold:
    """One journal entry."""

    seq: int
    recorded_at: datetime
    kind: Kind
    title: str
    session_id: str | None = None
    commit_id: str = ""
    source: SourceRef = SourceRef()
    undoes: str | None = None
    ops: tuple[OpTold, ...] = ()
    refusals: tuple[RefusalTold, ...] = ()
    turns: tuple[Turn, ...] = ()
    edges: int = 0
    nodes: int = 0
    notes: tuple[str, ...] = ()
    """Further facts: refused edges, the digest that was restored."""

    @property
    def counts(self) -> list[tuple[str, int]]:
        """(op in small letters, how many) of what was done, and the refusals."""
        made = [(op.lower(), sum(one.op == op for one in self.ops)) for op in OP_WORDS]
        return [(name, count) for name, count in (*made, ("refused", len(self.refusals))) if count]


@dataclass(frozen=True, kw_only=True)
class TurnTold:
    """A turn of a session with what was made of it."""

    turn: Turn
    part: int | None
    """Which part of the session it was read in, from 0; None while no part with it was
    decided about.
    """
    ops: tuple[tuple[int, OpTold], ...] = ()
    """(sequence, op) of what rests on it."""
    refusals: tuple[tuple[int, RefusalTold], ...] = ()


@dataclass(frozen=True, kw_only=True)
class SessionTold:
    """A session with all that was decided about it."""

    session: Session
    turns: tuple[TurnTold, ...]
    entries: tuple[EntryTold, ...]
    """Decisions about it, oldest first."""
    stored: EntryTold | None
    decided: int
    """Parts decided about."""
    parts: int
    """Parts it has."""
    counts: tuple[tuple[str, int], ...] = field(default=())


def told(row: JournalRow, state: BankState) -> EntryTold:
    """One row, beside the memory as it is now."""
    entry, seq, at = row.entry, row.seq, row.recorded_at
    match entry:
        case SessionStored(session=session):
            chat = any(turn.recalled for turn in session.turns)
            who = _listed(
                list(
                    dict.fromkeys(
                        turn.speaker for turn in session.turns if not turn.recalled or not chat
                    )
                )
            )
            return EntryTold(
                seq=seq,
                recorded_at=at,
                kind="chat" if chat else "session",
                title=f"A question was answered for {who}"
                if chat
                else f"Session stored: {_turns(len(session.turns))} by {who}",
                session_id=session.id,
                turns=session.turns,
            )
        case Commit():
            kind, title = _commit_title(entry)
            return EntryTold(
                seq=seq,
                recorded_at=at,
                kind=kind,
                title=title,
                session_id=entry.source.session_id,
                commit_id=entry.id,
                source=entry.source,
                undoes=entry.undoes,
                ops=tuple(_op(one.op, one.item_id, one.version, state) for one in entry.ops),
                refusals=tuple(_refusal(one) for one in entry.rejected),
                edges=len(entry.graph.edges),
                nodes=len(entry.graph.nodes),
            )
        case GraphDelta():
            return EntryTold(
                seq=seq,
                recorded_at=at,
                kind="graph",
                title="The event graph grew",
                session_id=entry.session_id,
                edges=len(entry.edges),
                nodes=len(entry.nodes),
                notes=entry.rejected,
            )
        case StatsDelta():
            count = len(entry.updates)
            return EntryTold(
                seq=seq,
                recorded_at=at,
                kind="stats",
                title=f"Use taught about {count} {'memory' if count == 1 else 'memories'}",
            )
        case Restored():
            return EntryTold(
                seq=seq,
                recorded_at=at,
                kind="restored",
                title=f"The memory was set to a snapshot; {len(entry.changes)} memories changed",
                notes=(f"digest {entry.digest[:12]}",) if entry.digest else (),
            )
        case Erased():
            return EntryTold(
                seq=seq, recorded_at=at, kind="erased", title="Everything before this was erased"
            )


def session_told(
    session: Session, rows: Iterable[JournalRow], state: BankState, *, parts: int
) -> SessionTold:
    """A session with the rows about it; `parts` is into how many parts the present
    design divides it.
    """
    entries = [told(row, state) for row in rows if is_about(row, session.id)]
    stored = next((one for one in entries if one.kind in ("session", "chat")), None)
    decisions = [one for one in entries if one is not stored]
    part_of = {
        turn_id: one.source.chunk_index
        for one in decisions
        if one.source.chunk_index is not None
        for turn_id in one.source.turn_ids
    }
    known = max((one.source.chunk_count or 0 for one in decisions), default=0)
    done = state.done.get(session.id, frozenset[int]())
    turns = tuple(_turn(turn, part_of.get(turn.id), decisions) for turn in session.turns)
    counts: dict[str, int] = {}
    for one in decisions:
        for name, count in one.counts:
            counts[name] = counts.get(name, 0) + count
    return SessionTold(
        session=session,
        turns=turns,
        entries=tuple(decisions),
        stored=stored,
        decided=len(done),
        parts=known or parts,
        counts=tuple(counts.items()),
    )


def is_about(row: JournalRow, session_id: str) -> bool:
    """Whether a row stored a session, decided about it, or added to the graph for it."""
    match row.entry:
        case SessionStored(session=session):
            return session.id == session_id
        case Commit(source=source):
            return source.session_id == session_id
        case GraphDelta(session_id=named):
            return named == session_id
        case _:
            return False


def words_of(reason: RejectReason) -> str:
    """A refusal's reason as a clause."""
    return _REFUSALS[reason]


def turns_of(op: MemoryOp) -> tuple[str, ...]:
    """The turns that an op cites."""
    if isinstance(op, Add):
        return op.fact.source_turn_ids
    if isinstance(op, Noop):
        return op.fact.source_turn_ids if op.fact is not None else ()
    return op.source_turn_ids


# -- pieces ----------------------------------------------------------------------------


def _commit_title(commit: Commit) -> tuple[Kind, str]:
    source = commit.source
    if commit.undoes is not None:
        return "undo", f"{commit.undoes} was taken back"
    if source.chunk_index is not None:
        of = f" of {source.chunk_count}" if source.chunk_count else ""
        return "decision", f"Decided about part {source.chunk_index + 1}{of}"
    actors = {"user": "Written directly", "import": "Imported", "agent": "Written by the agent"}
    return "edit", actors.get(source.actor, f"Written by {source.actor}")


def _op(op: MemoryOp, item_id: str | None, version: int | None, state: BankState) -> OpTold:
    target = item_id or (op.id if not isinstance(op, Add) else None)
    versions = {one.version: one for one in state.versions(target)} if target is not None else {}
    now = state.items.get(target) if target is not None else None
    text = _text(op, versions, now)
    old = versions.get(version - 1) if isinstance(op, Update) and version else None
    return OpTold(
        op=op.op,
        words=OP_WORDS[op.op],
        item_id=target,
        version=version,
        text=text,
        before=old.text if old is not None else None,
        pieces=tuple(word_diff(old.text, text)) if old is not None else (),
        reason=op.reason,
        turn_ids=turns_of(op),
        now=_since(op, version, now, target),
        there=now is not None,
    )


def _text(op: MemoryOp, versions: Mapping[int, MemoryItem], now: MemoryItem | None) -> str:
    if isinstance(op, Add):
        return op.fact.text
    if isinstance(op, Update):
        return op.text
    if isinstance(op, Noop) and op.fact is not None:
        return op.fact.text
    wanted = op.version if isinstance(op, Delete) else None
    found = versions.get(wanted) if wanted is not None else now
    return found.text if found is not None else ""


def _since(op: MemoryOp, version: int | None, now: MemoryItem | None, target: str | None) -> str:
    """What became of the version that an op made."""
    if isinstance(op, Noop) or version is None or target is None:
        return ""
    if now is None:
        return "not in the memory now"
    if isinstance(op, Delete):
        return "brought back since" if now.active else ""
    if not now.active:
        return "deleted since"
    return f"at version {now.version} now" if now.version > version else ""


def _refusal(rejected: Rejected) -> RefusalTold:
    op = rejected.op
    text = ""
    if isinstance(op, Add):
        text = op.fact.text
    elif isinstance(op, Update):
        text = op.text
    elif isinstance(op, Noop) and op.fact is not None:
        text = op.fact.text
    return RefusalTold(
        op=op.op if op is not None else "",
        reason=rejected.reason.value,
        words=words_of(rejected.reason),
        detail=rejected.detail,
        text=text,
        item_id=op.id if op is not None else None,
        turn_ids=turns_of(op) if op is not None else (),
        raw=rejected.raw,
    )


def _turn(turn: Turn, part: int | None, decisions: Sequence[EntryTold]) -> TurnTold:
    return TurnTold(
        turn=turn,
        part=part,
        ops=tuple((one.seq, op) for one in decisions for op in one.ops if turn.id in op.turn_ids),
        refusals=tuple(
            (one.seq, bad) for one in decisions for bad in one.refusals if turn.id in bad.turn_ids
        ),
    )


def _listed(names: Sequence[str]) -> str:
    """`Ana`, `Ana and Ben`, `Ana, Ben and 2 more`."""
    if len(names) <= 2:
        return " and ".join(names)
    if len(names) == 3:
        return f"{names[0]}, {names[1]} and {names[2]}"
    return f"{names[0]}, {names[1]} and {len(names) - 2} more"


def _turns(count: int) -> str:
    return f"{count} turn{'s' if count != 1 else ''}"

"""Journal entries in words: what was stored, decided and refused, and why. Pure.

The journal keeps every op with its reason and sources, every refusal, and what each
changed. It does not keep what the manager was shown when it decided, nor the words that
a model was sent or wrote (only the ids of its responses). Nothing here makes such a
thing up.

Figures of a journal over time: when its memories were said, and what was decided.

Rows are counted once, oldest first; later rows are added to the same figures. Whatever
the length of a journal, at most `_MOST_POINTS` points are kept: neighbours merge. Ids
are kept as hashes, so that the figures hold no word of a memory.

Titles for events whose text is a stretch of dialogue: one line that says what it is about.

The difference between two texts, word by word. Pure. Words keep the space behind them, so
a changed word is shown with its own space. Beginnings and ends that are equal are set
aside first; what lies between is compared up to `_MOST_WORDS` a side, and shown as one
replacement beyond, since comparing grows with the square.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from difflib import SequenceMatcher
from functools import partial
from itertools import accumulate, groupby, takewhile
from operator import attrgetter
from textwrap import shorten
from typing import Final, Literal, NamedTuple

from memagent.core.ops import Delete, MemoryOp, Noop, Rejected, RejectReason, Update
from memagent.core.records import MemoryItem, Session, SourceRef, Turn
from memagent.core.snapshot import (
    AppliedOp,
    Commit,
    Erased,
    GraphDelta,
    JournalRow,
    Redacted,
    Restored,
    SessionStored,
    StatsDelta,
    TurnsAdded,
)
from memagent.core.trials import Trial, TrialEnded, TrialStarted
from memagent.pages.charts import (
    Axes,
    Chart,
    Curve,
    column_chart,
    line_chart,
    moments,
    number,
    time_axes,
)
from memagent.state.fold import BankState

_MOST_CHARS: Final = 90
_FEWEST_WORDS: Final = 4
_SENTENCE: Final = re.compile(r"(?<=[.!?…])\s+")
_SPEAKER: Final = re.compile(r"([^\s:][^:\n]{0,39}): (?=\S)")
# First words of sentences that greet, thank or approve.
_OPENERS: Final = frozenset(
    "absolutely aww bye congrats congratulations glad good great haha hello hey hi hope lol nice "
    "ok okay sorry sure thank thanks that's totally woohoo wow yeah yep yes you're".split()
)


def title_of(text: str) -> str:
    """Return the first sentence that states something, behind its speaker's name.

    A text without such a sentence gives its first line; a line is cut between words.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        speaker = _SPEAKER.match(line)
        said = line[speaker.end() :] if speaker else line
        for sentence in _SENTENCE.split(said):
            if _states(sentence):
                return _cut(f"{speaker[1]}: {sentence}" if speaker else sentence)
    return _cut(lines[0]) if lines else ""


def _states(sentence: str) -> bool:
    words = sentence.split()
    opener = words[0].strip(",.!").casefold() if words else ""
    return (
        len(words) >= _FEWEST_WORDS
        and not sentence.rstrip("\"'”").endswith("?")
        and not (opener in _OPENERS and len(words) <= 2 * _FEWEST_WORDS)
    )


def _cut(line: str) -> str:
    """Cut a line between words; text without spaces is cut anywhere."""
    short = shorten(line, _MOST_CHARS, placeholder=" …")
    if not short.endswith(" …"):
        return short if short != "…" else line[: _MOST_CHARS - 1] + "…"
    return short.removesuffix(" …").rstrip(" ,;:-") + " …"


_WORD = re.compile(r"\s+|\w+\s*|[^\w\s]\s*")
_MOST_WORDS: Final = 1_500


class Piece(NamedTuple):
    """A stretch of text that stayed, went or came."""

    kind: Literal["same", "del", "ins"]
    text: str


def word_diff(before: str, after: str) -> list[Piece]:
    """Return the pieces of both texts in order.

    `same` and `del` together are `before`, `same` and `ins` are `after`.
    """
    old, new = _WORD.findall(before), _WORD.findall(after)
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    pieces = [
        Piece("same", "".join(old[:head])),
        *_between(old[head : len(old) - tail], new[head : len(new) - tail]),
        Piece("same", "".join(old[len(old) - tail :])),
    ]
    groups = groupby((piece for piece in pieces if piece.text), key=attrgetter("kind"))
    return [Piece(kind, "".join(piece.text for piece in group)) for kind, group in groups]


def _common(old: list[str], new: list[str]) -> int:
    """Count the words at the beginning that are equal."""
    pairs = zip(old, new, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _between(old: list[str], new: list[str]) -> Iterator[Piece]:
    changes = [("replace", 0, len(old), 0, len(new))]
    if max(len(old), len(new)) <= _MOST_WORDS:
        changes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    for kind, start, end, into, until in changes:
        if kind == "equal":
            yield Piece("same", "".join(old[start:end]))
        else:
            yield Piece("del", "".join(old[start:end]))
            yield Piece("ins", "".join(new[into:until]))


OPS: Final = ("ADD", "UPDATE", "DELETE", "NOOP")
DECISIONS: Final = {"added": 1, "changed": 0, "deleted": 3, "left as it was": 5, "refused": 2}
"""The words for `OPS`, and for ops that were refused, with their tones in a chart."""
_DONE: Final = dict(zip(OPS, DECISIONS, strict=False))
_MOST_POINTS: Final = 2_048
_MOST_COLUMNS: Final = 24


@dataclass(slots=True)
class Point:
    """Some rows: when, and the decisions since the point before."""

    at: float
    """Epoch seconds of the last of the rows."""
    decisions: Counter[str]
    """Counts by the words of `DECISIONS`."""


@dataclass(slots=True)
class JournalFigures:
    """Figures of the rows counted so far, in their order."""

    seq: int = 0
    """The sequence of the last row that was counted."""
    points: list[Point] = field(default_factory=list[Point])
    _active: dict[int, float] = field(default_factory=dict[int, float])
    """When each memory was said, or recorded where that is unknown, in epoch seconds."""

    def add(self, row: JournalRow) -> None:
        """Count one further row."""
        self.seq, entry = row.seq, row.entry
        decisions = Counter[str]()
        if isinstance(entry, Commit):
            decisions.update(_DONE[result.op.op] for result in entry.ops)
            decisions["refused"] = len(entry.rejected)
            decisions["deleted"] += entry.cleared or 0
        if isinstance(entry, Erased) or (isinstance(entry, Commit) and entry.cleared is not None):
            self._active.clear()
        for change in entry.changes if isinstance(entry, Commit | Restored) else ():
            item = change.after
            if item is None or not item.active:
                self._active.pop(hash(change.id), None)
            else:
                said = (item.said_at or row.recorded_at).timestamp()
                self._active.setdefault(hash(change.id), said)
        self.points.append(Point(row.recorded_at.timestamp(), decisions))
        if len(self.points) > _MOST_POINTS:
            pairs = zip(self.points[::2], self.points[1::2], strict=False)
            self.points = [
                Point(second.at, first.decisions + second.decisions) for first, second in pairs
            ] + self.points[len(self.points) // 2 * 2 :]

    def charts(self) -> list[Chart]:
        """Return the charts: today's memories over their days, and decisions over time."""
        return [self._memories(), self._decisions()]

    def _memories(self) -> Chart:
        days = sorted(Counter(self._active.values()).items())
        sums = accumulate(size for _, size in days)
        points = [(at, float(total)) for (at, _), total in zip(days, sums, strict=True)]
        axes = Axes(low=0.0, format_y=whole_number)
        if points:
            axes = time_axes(points[0][0], points[-1][0], axes)
        curve = Curve(name="memories", points=points)
        return line_chart("Memories over time", [curve], axes, note="by when they were said")

    def _decisions(self) -> Chart:
        span = (self.points[0].at, self.points[-1].at) if self.points else (0.0, 0.0)
        starts = moments(*span, most=_MOST_COLUMNS)
        counts = [Counter[str]() for _ in starts]
        for point in self.points:
            counts[max(0, bisect_right(starts, point.at) - 1)].update(point.decisions)
        rows = [
            (start, *(float(column[name]) for name in DECISIONS))
            for start, column in zip(starts, counts, strict=True)
        ]
        axes = time_axes(*span, Axes(low=0.0, format_y=whole_number))
        return column_chart(
            "What was decided", rows, DECISIONS, axes, note="by when it was recorded"
        )


def whole_number(value: float) -> str:
    """Format a count; "" for a value between two counts."""
    return number(value) if value == round(value) else ""


Kind = Literal[
    "session", "chat", "decision", "edit", "undo", "graph", "stats", "trial", "restored", "erased"
]
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
    RejectReason.UNGROUNDED: "nobody said it in the turns that it cites",
    RejectReason.NOT_ACCEPTED: "the reporter tried it on a fork and refused it",
    RejectReason.AMBIGUOUS: "the reply can be read in more than one way",
    RejectReason.CUT_OFF: "the reply broke off",
}


@dataclass(frozen=True, kw_only=True)
class OpView:
    """One op that was carried out."""

    op: str
    """`ADD`, `UPDATE`, `DELETE` or `NOOP`."""
    item_id: str | None
    version: int | None
    text: str
    """The text afterwards; for a deletion the text before, for a NOOP the fact."""
    pieces: tuple[Piece, ...]
    """An update word by word; () for other ops, and where the old text is not known."""
    reason: str
    turn_ids: tuple[str, ...]
    since: str
    """The later fate of the version; "" when it stands."""
    there: bool
    """Whether the item can still be looked at."""


@dataclass(frozen=True, kw_only=True)
class EntryView:
    """One journal entry."""

    seq: int
    recorded_at: datetime
    kind: Kind
    title: str
    session_id: str | None = None
    commit_id: str = ""
    source: SourceRef = SourceRef()
    undoes: str | None = None
    ops: tuple[OpView, ...] = ()
    refusals: tuple[Rejected, ...] = ()
    turns: tuple[Turn, ...] = ()
    edges: int = 0
    nodes: int = 0
    notes: tuple[str, ...] = ()
    """Further facts: refused edges, the digest that was restored."""


@dataclass(frozen=True, kw_only=True)
class TurnView:
    """A turn of a session, with the (sequence, op) of what rests on it."""

    turn: Turn
    part: int | None
    """The part of the session, from 0, in which it was read; None before a decision."""
    ops: tuple[tuple[int, OpView], ...]
    refusals: tuple[tuple[int, Rejected], ...]


@dataclass(frozen=True, kw_only=True)
class SessionView:
    """A session with all that was decided about it."""

    session: Session
    turns: tuple[TurnView, ...]
    entries: tuple[EntryView, ...]
    """Decisions about it, oldest first."""
    stored: EntryView | None
    decided: int
    """Parts with a decision."""
    parts: int


def describe_entry(row: JournalRow, state: BankState) -> EntryView:
    """Put one row into words, beside the memory as it is now."""
    view = partial(EntryView, seq=row.seq, recorded_at=row.recorded_at)
    match row.entry:
        case SessionStored(session=session):
            kind, title = _turns_title(session.turns, "Session stored")
            return view(kind=kind, title=title, session_id=session.id, turns=session.turns)
        case TurnsAdded(session_id=session_id, turns=turns):
            kind, title = _turns_title(turns, "Turns added")
            return view(kind=kind, title=title, session_id=session_id, turns=turns)
        case Commit() as commit:
            kind, title = _commit_title(commit)
            return view(
                kind=kind,
                title=title,
                session_id=commit.source.session_id,
                commit_id=commit.id,
                source=commit.source,
                undoes=commit.undoes,
                ops=tuple(_op(result, state) for result in commit.ops),
                refusals=commit.rejected,
                edges=len(commit.graph.edges),
                nodes=len(commit.graph.nodes),
            )
        case GraphDelta() as graph:
            return view(
                kind="graph",
                title="The event graph grew",
                session_id=graph.session_id,
                edges=len(graph.edges),
                nodes=len(graph.nodes),
                notes=graph.rejected,
            )
        case StatsDelta(updates=updates):
            return view(kind="stats", title=f"Use taught about {_count(updates, 'memory')}")
        case TrialStarted() | TrialEnded():
            return _trial_view(row.entry, view)
        case Restored(changes=changes, digest=digest):
            title = f"The memory was set to a snapshot; {_count(changes, 'memory')} changed"
            notes = (f"digest {digest[:12]}",) if digest else ()
            return view(kind="restored", title=title, notes=notes)
        case Erased():
            return view(kind="erased", title="Everything before this was erased")
        case Redacted(rewritten=rewritten, reason=reason):
            title = f"Words were erased from {_count(rewritten, 'entry')}"
            return view(kind="erased", title=title, notes=tuple(filter(None, [reason])))


def _trial_view(entry: TrialStarted | TrialEnded, view: Callable[..., EntryView]) -> EntryView:
    trial = entry.trial
    if isinstance(entry, TrialStarted):
        title = f"A trial began with {_count(trial.shown, 'memory')}"
        return view(kind="trial", title=title, notes=(trial.task,))
    title = "A trial is open"
    if trial.outcome is not None:
        verdict = "went well" if trial.outcome.good else "failed"
        counted = _count(trial.credit, "memory")
        title = f"A trial {verdict} (reward {trial.outcome.reward:g}); {counted} counted"
    return view(kind="trial", title=title, session_id=trial.id, commit_id=trial.id)


def describe_session(
    session: Session, rows: Iterable[JournalRow], state: BankState, *, parts: int
) -> SessionView:
    """Put a session and the rows about it into words.

    `parts` is into how many parts the present design divides the session.
    """
    entries = [describe_entry(row, state) for row in rows if is_about(row, session.id)]
    stored = next((entry for entry in entries if entry.kind in ("session", "chat")), None)
    decisions = [entry for entry in entries if entry is not stored]
    part_of = {
        turn_id: entry.source.chunk_index
        for entry in decisions
        if entry.source.chunk_index is not None
        for turn_id in entry.source.turn_ids
    }
    return SessionView(
        session=session,
        turns=tuple(_turn(turn, part_of.get(turn.id), decisions) for turn in session.turns),
        entries=tuple(decisions),
        stored=stored,
        decided=len(state.done.get(session.id, ())),
        parts=max((entry.source.chunk_count or 0 for entry in decisions), default=0) or parts,
    )


def is_about(row: JournalRow, session_id: str) -> bool:
    """Return whether a row stored a session, decided about it, or grew the graph for it."""
    match row.entry:
        case (
            SessionStored(session=Session(id=named))
            | TurnsAdded(session_id=named)
            | Commit(source=SourceRef(session_id=named))
            | TrialStarted(trial=Trial(id=named))
            | TrialEnded(trial=Trial(id=named))
            | GraphDelta(session_id=named)
        ):
            return named == session_id
        case _:
            return False


def refusal_words(reason: RejectReason) -> str:
    """Return a refusal's reason as a clause."""
    return _REFUSALS[reason]


def turns_of(op: MemoryOp | None) -> tuple[str, ...]:
    """Return the ids of the turns that an op cites."""
    if isinstance(op, Update | Delete):
        return op.source_turn_ids
    return op.fact.source_turn_ids if op is not None and op.fact is not None else ()


def op_text(op: MemoryOp | None) -> str:
    """Return the text that an op carries itself; "" for a deletion."""
    if isinstance(op, Update):
        return op.text
    fact = None if op is None or isinstance(op, Delete) else op.fact
    return fact.text if fact is not None else ""


# -- pieces ----------------------------------------------------------------------------


def _turns_title(turns: Sequence[Turn], what: str) -> tuple[Kind, str]:
    speakers = [turn.speaker for turn in turns if not turn.recalled]
    if not speakers:
        return "chat", "A message was answered"
    if len(speakers) < len(turns):
        return "chat", f"A question was answered for {_listed(speakers)}"
    return "session", f"{what}: {_count(turns, 'turn')} by {_listed(speakers)}"


def _commit_title(commit: Commit) -> tuple[Kind, str]:
    source = commit.source
    if commit.undoes is not None:
        return "undo", f"{commit.undoes} was taken back"
    if commit.cleared is not None:
        return "edit", f"Everything was deleted: {_count(range(commit.cleared), 'memory')}"
    if source.chunk_index is not None:
        of = f" of {source.chunk_count}" if source.chunk_count else ""
        return "decision", f"Decided about part {source.chunk_index + 1}{of}"
    actors = {"user": "Written directly", "import": "Imported", "agent": "Written by the agent"}
    return "edit", actors.get(source.actor, f"Written by {source.actor}")


def _op(result: AppliedOp, state: BankState) -> OpView:
    op, version, target = result.op, result.version, result.item_id or result.op.id
    versions = {item.version: item for item in state.versions(target)} if target else {}
    now = state.items.get(target) if target is not None else None
    stood = versions.get(op.version) if isinstance(op, Delete) and op.version is not None else now
    text = op_text(op) or (stood.text if stood is not None else "")
    old = versions.get(version - 1) if isinstance(op, Update) and version else None
    return OpView(
        op=op.op,
        item_id=target,
        version=version,
        text=text,
        pieces=tuple(word_diff(old.text, text)) if old is not None else (),
        reason=op.reason,
        turn_ids=turns_of(op),
        since="" if target is None else _since(op, version, now),
        there=now is not None,
    )


def _since(op: MemoryOp, version: int | None, now: MemoryItem | None) -> str:
    """Return what became of the version that an op made."""
    if isinstance(op, Noop) or version is None:
        return ""
    if now is None:
        return "not in the memory now"
    if isinstance(op, Delete):
        return "brought back since" if now.active else ""
    if not now.active:
        return "deleted since"
    return f"at version {now.version} now" if now.version > version else ""


def _turn(turn: Turn, part: int | None, decisions: Sequence[EntryView]) -> TurnView:
    ops = ((entry.seq, op) for entry in decisions for op in entry.ops if turn.id in op.turn_ids)
    refusals = (
        (entry.seq, refusal)
        for entry in decisions
        for refusal in entry.refusals
        if turn.id in turns_of(refusal.op)
    )
    return TurnView(turn=turn, part=part, ops=tuple(ops), refusals=tuple(refusals))


def op_counts(entries: Sequence[EntryView]) -> list[tuple[str, int]]:
    """Return (op in small letters, how many) over some entries, then of the refusals."""
    counts = Counter(op.op for entry in entries for op in entry.ops)
    counts["refused"] = sum(len(entry.refusals) for entry in entries)
    return [(name.lower(), counts[name]) for name in (*OPS, "refused") if counts[name]]


def _listed(names: Iterable[str]) -> str:
    """Return `Ana`, `Ana and Ben`, or `Ana, Ben and 2 more`."""
    *firsts, last = list(dict.fromkeys(names)) or [""]
    if len(firsts) > 2:
        firsts, last = firsts[:2], f"{len(firsts) - 1} more"
    return f"{', '.join(firsts)} and {last}" if firsts else last


def _count(entries: Sequence[object], noun: str) -> str:
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{len(entries)} {noun if len(entries) == 1 else plural}"

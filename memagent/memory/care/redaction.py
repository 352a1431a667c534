"""Journal entries without the words of some memories, turns and sessions.

Pure. What is erased is a set of names (`Erasure`); `redacted` gives an entry without
them, the same object where it names none. A memory goes with all its versions, the ops
that made them, its node and the edges at it. A turn keeps its place, speaker and date,
since other memories may cite it; its words go. People and things that other memories name
stay in the graph, whichever session named them first. The surprise: models repeat texts in
reasons and in refused ops, so a commit that loses anything loses those altogether.

Erasing one memory or one session, beyond recovery, with a receipt that was checked.

The journal's entries are rewritten in place without the words; their headers and the
chain stay, so the audit still proves the order of things. Forks that were stored as
memories of the same user lose the same. Afterwards every file of the store is searched for
the erased texts and for the bytes of their vectors, so a receipt says what is left; a
search that fails is noted in it and undoes nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from memagent.core.crash_points import reach
from memagent.core.errors import MemAgentError, MemoryNotFound
from memagent.core.long_work import aside, let_go
from memagent.core.ops import Noop
from memagent.core.records import Event, EventEdge, Session, Turn
from memagent.core.snapshot import (
    AppliedOp,
    Commit,
    Entry,
    ErasureReceipt,
    GraphDelta,
    JournalRow,
    Place,
    Redacted,
    Restored,
    SessionStored,
    StatsChanges,
    StatsDelta,
    TrialChanges,
    TurnsAdded,
)
from memagent.core.trials import Trial, TrialEnded, TrialStarted
from memagent.memory.bank import MemoryBank
from memagent.protocols import SearchesFiles
from memagent.search.pipeline import index_texts
from memagent.search.segments import NO_ROW
from memagent.state.fold import EMPTY_STATE, BankState, apply, folded

ERASED_WORDS = "[erased]"
# Texts shorter than this occur by chance, and are not looked for in other texts.
_SHORTEST = 6


@dataclass(frozen=True)
class Erasure:
    """The names of what is erased."""

    items: frozenset[str] = frozenset()
    turns: frozenset[str] = frozenset()
    sessions: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()
    """The erased texts, folded."""

    def names(self, text: str) -> bool:
        """Tell whether a text holds an erased one."""
        plain = folded(text)
        return any(
            erased in plain if len(erased) >= _SHORTEST else erased == plain
            for erased in self.texts
        )


def of_item(state: BankState, rows: Sequence[JournalRow], item_id: str, *, turns: bool) -> Erasure:
    """Return the erasure of one memory, with the words of the turns it rests on if asked."""
    versions = state.versions(item_id)
    cited = {name for version in versions for name in version.source_turn_ids}
    own = frozenset(name for name in cited if turns and name in state.turns)
    return _completed(state, rows, Erasure(items=frozenset({item_id}), turns=own))


def of_session(state: BankState, rows: Sequence[JournalRow], session_id: str) -> Erasure:
    """Return the erasure of a session and of every memory that rests on it."""
    session = state.sessions.get(session_id)
    turns = frozenset(turn.id for turn in session.turns) if session else frozenset[str]()
    items = {
        item.id
        for item in state.items.values()
        if any(
            version.session_id == session_id or not turns.isdisjoint(version.source_turn_ids)
            for version in state.versions(item.id)
        )
    }
    for row in rows:
        if isinstance(row.entry, Commit) and row.entry.source.session_id == session_id:
            items |= {change.id for change in row.entry.changes}
    erasure = Erasure(items=frozenset(items), turns=turns, sessions=frozenset({session_id}))
    return _completed(state, rows, erasure)


def joined(
    state: BankState, rows: Sequence[JournalRow], first: Erasure, second: Erasure
) -> Erasure:
    """Return the erasure of what either of two names, in one memory."""
    items, turns = first.items | second.items, first.turns | second.turns
    return _completed(state, rows, Erasure(items, turns, first.sessions | second.sessions))


def rewritten(rows: Iterable[JournalRow], erasure: Erasure) -> dict[int, Entry]:
    """Return the entries that change, by sequence."""
    changed = ((row.seq, row.entry, redacted(row.entry, erasure)) for row in rows)
    return {seq: new for seq, old, new in changed if new is not old}


def _completed(state: BankState, rows: Sequence[JournalRow], erasure: Erasure) -> Erasure:
    """Add the erased texts and the nodes that go along."""
    texts = {version.text for name in erasure.items for version in state.versions(name)}
    texts |= {turn.said for name in erasure.turns if (turn := state.turn(name))}
    plain = frozenset(plain for text in texts if (plain := folded(text)))
    with_texts = Erasure(erasure.items, erasure.turns, erasure.sessions, texts=plain)
    nodes = _erased_nodes(rows, with_texts)
    return Erasure(erasure.items, erasure.turns, erasure.sessions, nodes, plain)


def _erased_nodes(rows: Iterable[JournalRow], erasure: Erasure) -> frozenset[str]:
    """Return the nodes that stand for what is erased, and those that nothing else holds."""
    gone: set[str] = set(erasure.items)
    edges: list[EventEdge] = []
    known: dict[str, Event] = {}
    for row in rows:
        delta = row.entry.graph if isinstance(row.entry, Commit | Restored) else row.entry
        if not isinstance(delta, GraphDelta):
            continue
        for node in delta.nodes:
            known[node.id] = node
            owner = node.id.partition("@")[0]
            rests = not erasure.turns.isdisjoint(node.source_turn_ids)
            if owner in erasure.items or rests or node.session_id in erasure.sessions:
                gone.add(node.id)
        edges += delta.edges
    held: set[str] = set()
    lost: set[str] = set()
    for edge in edges:
        ends = {edge.source, edge.target}
        if ends & gone or not erasure.turns.isdisjoint(edge.evidence_turn_ids):
            lost |= ends
        else:
            held |= ends
    return frozenset(gone | (lost & known.keys()) - held)


def redacted(entry: Entry, erasure: Erasure) -> Entry:
    """Return an entry without what is erased; the same object if it names nothing of it."""
    match entry:
        case SessionStored():
            if entry.session.id in erasure.sessions:
                return Redacted()
            session = _session(entry.session, erasure)
            return entry if session is entry.session else SessionStored(session=session)
        case TurnsAdded():
            if entry.session_id in erasure.sessions:
                return Redacted()
            turns = _turns(entry.turns, erasure)
            return entry if turns == entry.turns else entry.model_copy(update={"turns": turns})
        case Commit():
            return _commit(entry, erasure)
        case GraphDelta():
            return _or_same(entry, _graph(entry, erasure))
        case StatsDelta():
            stats = _stats(entry.updates, erasure)
            return _or_same(entry, entry.model_copy(update={"updates": stats}))
        case TrialStarted() | TrialEnded():
            return _trial_entry(entry, erasure)
        case Restored():
            update = {
                "changes": tuple(each for each in entry.changes if each.id not in erasure.items),
                "graph": _graph(entry.graph, erasure),
                "ordinals": _ordinals(entry.ordinals, erasure),
                "stats": _stats(entry.stats, erasure),
                "trials": _trials(entry.trials, erasure),
                "done": tuple(pair for pair in entry.done if pair[0] not in erasure.sessions),
                "sessions": tuple(
                    _session(session, erasure)
                    for session in entry.sessions
                    if session.id not in erasure.sessions
                ),
            }
            return _or_same(entry, entry.model_copy(update=update))
        case _:
            return entry


def _or_same(old: Entry, new: Entry) -> Entry:
    return old if new == old else new


def _session(session: Session, erasure: Erasure) -> Session:
    turns = _turns(session.turns, erasure)
    return session if turns == session.turns else session.model_copy(update={"turns": turns})


def _turns(turns: tuple[Turn, ...], erasure: Erasure) -> tuple[Turn, ...]:
    words = {"text": ERASED_WORDS, "image_caption": None}
    return tuple(
        turn.model_copy(update=words) if turn.id in erasure.turns else turn for turn in turns
    )


def _commit(commit: Commit, erasure: Erasure) -> Entry:
    if commit.source.session_id in erasure.sessions:
        # The people and things that it was the first to name, where other memories name them.
        named = tuple(node for node in commit.graph.nodes if node.id not in erasure.nodes)
        return GraphDelta(nodes=named) if named else Redacted()
    kept = tuple(applied for applied in commit.ops if not _op_goes(applied, erasure))
    changes = tuple(change for change in commit.changes if change.id not in erasure.items)
    new = commit.model_copy(
        update={
            "ops": kept,
            "changes": changes,
            "graph": _graph(commit.graph, erasure),
            "stats": _stats(commit.stats, erasure),
            "trials": _trials(commit.trials, erasure),
            "ordinals": _ordinals(commit.ordinals, erasure),
            "rejected": tuple(
                refused
                for refused in commit.rejected
                if not erasure.names(f"{refused.detail}\n{refused.raw}")
                and (refused.op is None or not erasure.names(refused.op.model_dump_json()))
                and getattr(refused.op, "id", None) not in erasure.items
            ),
        }
    )
    if new == commit and erasure.turns.isdisjoint(commit.source.turn_ids):
        return commit
    silent = tuple(
        applied.model_copy(update={"op": applied.op.model_copy(update={"reason": ""})})
        for applied in new.ops
    )
    return new.model_copy(update={"ops": silent, "rejected": ()})


def _op_goes(applied: AppliedOp, erasure: Erasure) -> bool:
    op, gone = applied.op, erasure.items | erasure.nodes
    named = applied.item_id in gone or getattr(op, "id", None) in erasure.items
    told = isinstance(op, Noop) and op.fact is not None and erasure.names(op.fact.text)
    return named or told


def _graph(delta: GraphDelta, erasure: Erasure) -> GraphDelta:
    nodes = tuple(node for node in delta.nodes if node.id not in erasure.nodes)
    edges = tuple(
        edge
        for edge in delta.edges
        if {edge.source, edge.target}.isdisjoint(erasure.nodes)
        and erasure.turns.isdisjoint(edge.evidence_turn_ids)
    )
    changed = len(nodes) < len(delta.nodes) or len(edges) < len(delta.edges)
    ours = delta.session_id in erasure.sessions
    if not changed and not ours and not delta.removed_nodes and not delta.removed_edges:
        return delta
    return delta.model_copy(
        update={
            "nodes": nodes,
            "edges": edges,
            "removed_nodes": tuple(
                name for name in delta.removed_nodes if name not in erasure.nodes
            ),
            "removed_edges": tuple(
                key
                for key in delta.removed_edges
                if key[0] not in erasure.nodes and key[1] not in erasure.nodes
            ),
            "session_id": None if ours else delta.session_id,
            "rejected": () if changed or ours else delta.rejected,
        }
    )


def _ordinals(
    ordinals: tuple[tuple[str, int], ...], erasure: Erasure
) -> tuple[tuple[str, int], ...]:
    """Return the id counter without turns of an erased session, whose names go too."""
    if not erasure.sessions:
        return ordinals
    return tuple(
        (key, count) for key, count in ordinals if erasure.turns.isdisjoint(key.split("\x1f"))
    )


def _stats(stats: StatsChanges, erasure: Erasure) -> StatsChanges:
    return tuple(pair for pair in stats if pair[0] not in erasure.items)


def _trials(trials: TrialChanges, erasure: Erasure) -> TrialChanges:
    return tuple(
        (name, None if trial is None else _trial(trial, erasure))
        for name, trial in trials
        if name not in erasure.sessions
    )


def _trial_entry(entry: TrialStarted | TrialEnded, erasure: Erasure) -> Entry:
    if entry.trial.id in erasure.sessions:
        return Redacted()
    update: dict[str, object] = {"trial": _trial(entry.trial, erasure)}
    if isinstance(entry, TrialEnded):
        update["stats"] = _stats(entry.stats, erasure)
    return _or_same(entry, entry.model_copy(update=update))


def _trial(trial: Trial, erasure: Erasure) -> Trial:
    """Return a trial without the words of erased turns, and without erased memories."""
    texts = [turn.text for turn in _turns(trial.session().turns, erasure)]
    said = iter(texts)
    task = next(said)
    steps = tuple(
        step.model_copy(
            update={
                "action": next(said),
                "observation": next(said) if step.observation else "",
                "used": tuple(name for name in step.used if name not in erasure.items),
            }
        )
        for step in trial.steps
    )
    outcome = trial.outcome
    if outcome is not None and ERASED_WORDS in texts:
        outcome = outcome.model_copy(update={"detail": ""})
    return trial.model_copy(
        update={
            "task": task,
            "steps": steps,
            "edits": () if ERASED_WORDS in texts else trial.edits,
            "outcome": outcome,
            "shown": tuple(use for use in trial.shown if use.id not in erasure.items),
            "credit": tuple(use for use in trial.credit if use.id not in erasure.items),
        }
    )


_Choice = Callable[[BankState, Sequence[JournalRow]], Erasure]
_SHORTEST_NEEDLE = 8
_LONGEST_NEEDLE = 200
_MOST_NEEDLES = 2_000


async def erase_item(bank: MemoryBank, item_id: str, *, keep_turns: bool = False) -> ErasureReceipt:
    """Erase a memory with its history, and the words of the turns it rests on.

    `keep_turns` leaves those, though the same may be read in them. Raises
    `MemoryNotFound`, and `StoreError` in a fork.
    """
    if item_id not in (await bank.sync()).items:  # kept by no name: it is freed in slices
        raise MemoryNotFound(f"no memory {item_id!r} for user {bank.scope.user_id!r}")

    def chosen(state: BankState, rows: Sequence[JournalRow]) -> Erasure:
        return of_item(state, rows, item_id, turns=not keep_turns)

    return await _erased(bank, chosen, what="memory", name=item_id)


async def erase_session(bank: MemoryBank, session_id: str) -> ErasureReceipt:
    """Erase a session: its turns, and every memory and event that rests on one of them.

    Raises `MemoryNotFound`, and `StoreError` in a fork.
    """
    if session_id not in (await bank.sync()).sessions:
        raise MemoryNotFound(f"no session {session_id!r} for user {bank.scope.user_id!r}")

    def chosen(state: BankState, rows: Sequence[JournalRow]) -> Erasure:
        return of_session(state, rows, session_id)

    return await _erased(bank, chosen, what="session", name=session_id)


async def _erased(
    bank: MemoryBank, chosen: _Choice, *, what: Literal["memory", "session"], name: str
) -> ErasureReceipt:
    """Erase from stored forks, then from the memory itself, and search the files at the end.

    Whoever asks again after a failure in between finds the memory itself as it was.
    """
    await bank.refresh()
    own = await _chosen(bank, chosen)
    needles = set(await aside(_needles, bank, own))
    journal = bank.log.journal
    others = [  # the other memories of the user in the same journal; forks are among them
        MemoryBank(embedder=bank.embedder, scope=scope, journal=journal)
        for scope in (await journal.scopes() if journal is not None else ())
        if scope.user_id == bank.scope.user_id and scope != bank.scope
    ]

    def in_copy(state: BankState, rows: Sequence[JournalRow]) -> Erasure:
        return joined(state, rows, chosen(state, rows), own)

    rewrites = copies = 0
    for other in others:
        if not _is_copy(bank.state, await other.sync(), own):
            continue
        await other.refresh()
        needles.update(await aside(_needles, other, await _chosen(other, in_copy)))
        rewrites += (await _rewritten(other, in_copy, what))[1]
        copies += 1
    reach("redact.planned")
    erasure, changed, at = await _rewritten(bank, chosen, what)
    reach("redact.written")
    await bank.settle()
    sought = sorted(needles)[:: 1 + len(needles) // _MOST_NEEDLES]
    places, unproven = await asyncio.to_thread(searched, journal, sought)
    left = [await aside(_still_named, await each.sync(), erasure) for each in (bank, *others)]
    let_go(*(part for other in others for part in (other.state, other.view.index)))
    return ErasureReceipt(
        what=what,
        name_digest=hashlib.sha256(name.encode()).hexdigest(),
        items=len(erasure.items),
        turns=len(erasure.turns),
        nodes=len(erasure.nodes),
        rewritten=rewrites + changed,
        needles=len(sought),
        places=places,
        left_in=tuple(sorted({item_id for ids in left for item_id in ids})),
        copies=copies,
        scrubbed=journal is None or not journal.scrub_due,
        unproven=unproven,
        at=at,
    )


async def _chosen(bank: MemoryBank, chosen: _Choice) -> Erasure:
    rows = [row async for row in bank.rows()]
    erasure = await aside(chosen, bank.state, rows)
    let_go(rows)
    return erasure


async def _rewritten(bank: MemoryBank, chosen: _Choice, what: str) -> tuple[Erasure, int, datetime]:
    """Rewrite a journal; return what was erased, the number of entries, and the moment."""
    erasure, changes = Erasure(), dict[int, Entry]()

    def make(state: BankState, rows: Sequence[JournalRow]) -> tuple[Mapping[int, Entry], BankState]:
        nonlocal erasure, changes
        erasure = chosen(state, rows)
        changes = rewritten(rows, erasure)
        # replayed before it is written, so that nothing is written that cannot be read
        return changes, _state_of(rows, changes)

    row = await bank.log.redact(make, reason=what)
    return erasure, len(changes), row.recorded_at


def _is_copy(own: BankState, other: BankState, erasure: Erasure) -> bool:
    """Tell whether a memory has an erased item or session with the same content.

    Ids alone do not tell: two runs may both have a session of one name.
    """
    return any(
        {version.text for version in own.versions(name)}
        & {version.text for version in other.versions(name)}
        for name in erasure.items
    ) or any(
        (turn := own.turn(name)) is not None and other.turn(name) == turn for name in erasure.turns
    )


def searched(journal: object, needles: Sequence[bytes]) -> tuple[tuple[Place, ...], str | None]:
    """Search the files of a journal; return what they hold, or why that cannot be told.

    Nothing that goes wrong here undoes an erasure. Blocks.
    """
    if not needles or not isinstance(journal, SearchesFiles):
        return (), None
    try:
        found = journal.search_files(needles)
    except (MemAgentError, OSError) as exc:
        return (), str(exc)
    return tuple(
        Place(name=name, size_bytes=size, found_after=count)
        for name, (size, count) in sorted(found.items())
    ), None


def _still_named(state: BankState, erasure: Erasure) -> tuple[str, ...]:
    """Return the items whose texts still say what was erased."""
    return tuple(sorted(item.id for item in state.items.values() if erasure.names(item.text)))


def _state_of(rows: Sequence[JournalRow], changes: Mapping[int, Entry]) -> BankState:
    state = EMPTY_STATE
    for row in rows:
        state = apply(state, row.model_copy(update={"entry": changes.get(row.seq, row.entry)}))
    return state


def _needles(bank: MemoryBank, erasure: Erasure) -> list[bytes]:
    """Return the bytes to search for: texts as they are and as JSON, and vectors."""
    state = bank.state
    texts = {version.text for name in erasure.items for version in state.versions(name)}
    texts |= {turn.said for name in erasure.turns if (turn := state.turn(name)) is not None}
    stay = [item.text for item in state.items.values() if item.id not in erasure.items]
    for session in state.sessions.values():
        stay += [turn.said for turn in session.turns if turn.id not in erasure.turns]
    others = [folded(text) for text in stay]
    needles: set[bytes] = set()
    for text in texts:
        if any(folded(text) in other for other in others):
            continue
        for form in (text, json.dumps(text, ensure_ascii=False)[1:-1]):
            needle = form.encode()[:_LONGEST_NEEDLE]
            if len(needle) >= _SHORTEST_NEEDLE:
                needles.add(needle)
    needles |= set(vector_bytes(bank, erasure.items))
    return sorted(needles)[:: 1 + len(needles) // _MOST_NEEDLES]


def needles_of_all(bank: MemoryBank) -> list[bytes]:
    """Return the bytes to search for when a whole memory is erased."""
    state = bank.state
    return _needles(bank, Erasure(items=frozenset(state.items), turns=frozenset(state.turns)))


def vector_bytes(bank: MemoryBank, ids: Iterable[str]) -> list[bytes]:
    """Return the vectors of memories as they are cached: little-endian float32."""
    state, arena = bank.state, bank.view.index.arena
    items = (item for name in ids if (item := state.items.get(name)) is not None)
    rows = (arena.row(index_texts(state, item)[0]) for item in items)
    return [arena.matrix[row].astype("<f4").tobytes() for row in rows if row != NO_ROW]

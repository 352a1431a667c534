"""Erasing one memory or one session, beyond recovery, with a receipt that was checked.

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
from datetime import datetime
from typing import Literal

from memagent.core.crash_points import reach
from memagent.core.errors import MemAgentError, MemoryNotFound
from memagent.core.long_work import aside, free, let_go
from memagent.core.reports import ErasureReceipt, Place
from memagent.core.snapshot import Entry, JournalRow
from memagent.memory.bank import MemoryBank
from memagent.memory.care.redaction import Erasure, joined, of_item, of_session, rewritten
from memagent.protocols import SearchesFiles
from memagent.search.arena import NO_ROW
from memagent.search.projection import index_texts
from memagent.state.fold import EMPTY_STATE, BankState, apply, folded

_Choice = Callable[[BankState, Sequence[JournalRow]], Erasure]
_SHORTEST_NEEDLE = 8
_LONGEST_NEEDLE = 200
_MOST_NEEDLES = 2_000


async def erase_item(bank: MemoryBank, item_id: str, *, keep_turns: bool = False) -> ErasureReceipt:
    """Erase a memory with its history, and the words of the turns it rests on.

    `keep_turns` leaves those, though the same may be read in them. Raises
    `MemoryNotFound`, and `StoreError` in a fork.
    """
    state = await bank.sync()
    if item_id not in state.items:
        raise MemoryNotFound(f"no memory {item_id!r} for user {bank.scope.user_id!r}")

    def chosen(state: BankState, rows: Sequence[JournalRow]) -> Erasure:
        return of_item(state, rows, item_id, turns=not keep_turns)

    return await _erased(bank, chosen, what="memory", name=item_id)


async def erase_session(bank: MemoryBank, session_id: str) -> ErasureReceipt:
    """Erase a session: its turns, and every memory and event that rests on one of them.

    Raises `MemoryNotFound`, and `StoreError` in a fork.
    """
    state = await bank.sync()
    if session_id not in state.sessions:
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
    others = await _of_same_user(bank)

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
    places, unproven = await asyncio.to_thread(searched, bank.log.journal, sought)
    left = [await aside(_still_named, await each.sync(), erasure) for each in (bank, *others)]
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
        scrubbed=not (bank.log.journal is not None and bank.log.journal.scrub_due),
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

    def make(state: BankState, rows: Sequence[JournalRow]) -> Mapping[int, Entry]:
        nonlocal erasure, changes
        erasure = chosen(state, rows)
        changes = rewritten(rows, erasure)
        _replayed(rows, changes)
        return changes

    row = await bank.log.redact(make, reason=what)
    return erasure, len(changes), row.recorded_at


async def _of_same_user(bank: MemoryBank) -> list[MemoryBank]:
    """Return the other memories of the user in the same journal; forks are among them."""
    if bank.log.journal is None:
        return []
    return [
        MemoryBank(embedder=bank.embedder, scope=scope, journal=bank.log.journal)
        for scope in await bank.log.journal.scopes()
        if scope.user_id == bank.scope.user_id and scope != bank.scope
    ]


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


def _replayed(rows: Sequence[JournalRow], changes: Mapping[int, Entry]) -> None:
    """Replay the rewritten journal once, so that nothing is written that cannot be read."""
    free([_state_of(rows, changes)])


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
    others = _staying(state, erasure)
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


def _staying(state: BankState, erasure: Erasure) -> list[str]:
    """Return the texts that are not erased, folded: what they say stays in the files."""
    items = (item.text for item in state.items.values() if item.id not in erasure.items)
    turns = (
        turn.said
        for session in state.sessions.values()
        for turn in session.turns
        if turn.id not in erasure.turns
    )
    return [folded(text) for text in (*items, *turns)]

"""Erasing one memory or one session, beyond recovery, with a receipt that was checked.

The journal's entries are rewritten in place without the words; their headers and the
chain stay, so the audit still proves the order of things. Forks that were stored as
memories of the same user lose the same. Afterwards every file of the store is searched for
the erased texts and for the bytes of their vectors, so a receipt says what is left; a
search that fails is noted in it and undoes nothing.

Only entries that name something of it are decoded, and what is in memory loses just that.
The whole journal is read and replayed where an older assignment shows again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Literal

from memagent.core.crash_points import reach
from memagent.core.errors import MemAgentError, MemoryNotFound, check_id
from memagent.core.long_work import aside, let_go
from memagent.core.records import MemoryItem
from memagent.core.snapshot import Entry, ErasureReceipt, JournalRow, Place
from memagent.memory.bank import MemoryBank
from memagent.memory.care.redaction import (
    Erasure,
    joined,
    lost_versions,
    of_item,
    of_session,
    rewritten,
    sessions_of,
    taken_out,
)
from memagent.memory.log import Rewriting
from memagent.protocols import FindsRows, SearchesFiles
from memagent.search.pipeline import index_texts
from memagent.search.segments import NO_ROW
from memagent.state.adjacency import pairs
from memagent.state.fold import EMPTY_STATE, BankState, apply, folded, names_between

_Choice = Callable[[BankState, Sequence[JournalRow]], Erasure]
_SHORTEST_NEEDLE = 8
_LONGEST_NEEDLE = 200
_MOST_NEEDLES = 2_000


async def erase_item(bank: MemoryBank, item_id: str, *, keep_turns: bool = False) -> ErasureReceipt:
    """Erase a memory with its history, and the words of the turns it rests on.

    `keep_turns` leaves those, though the same may be read in them. Raises
    `MemoryNotFound`, `InputError`, and `StoreError` in a fork.
    """
    check_id("memory", item_id)
    if item_id not in (await bank.sync()).touched:  # kept by no name: it is freed in slices
        raise MemoryNotFound(f"no memory {item_id!r} for user {bank.scope.user_id!r}")

    chosen = partial(of_item, item_id=item_id, turns=not keep_turns)
    return await _erased(bank, chosen, what="memory", name=item_id)


async def erase_session(bank: MemoryBank, session_id: str) -> ErasureReceipt:
    """Erase a session: its turns, and every memory and event that rests on one of them.

    Raises `MemoryNotFound`, `InputError`, and `StoreError` in a fork.
    """
    check_id("session", session_id)
    if session_id not in (await bank.sync()).sessions:
        raise MemoryNotFound(f"no session {session_id!r} for user {bank.scope.user_id!r}")
    chosen = partial(of_session, session_id=session_id)
    return await _erased(bank, chosen, what="session", name=session_id)


async def _erased(
    bank: MemoryBank, chosen: _Choice, *, what: Literal["memory", "session"], name: str
) -> ErasureReceipt:
    """Erase from stored forks, then from the memory itself, and search the files at the end.

    Whoever asks again after a failure in between finds the memory itself as it was.
    """
    await bank.refresh()
    plan = await _planned(bank, bank.state, chosen)
    own = plan.erasure
    needles = set(await aside(_needles, bank, own, plan.rows, plan.near))
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
        theirs = await other.sync()
        emptied = [row async for row in other.rows()] if theirs.cleared else []
        if not _is_copy(bank.state, theirs, own, emptied):
            continue
        await other.refresh()
        copy = await _planned(other, other.state, in_copy)
        needles.update(await aside(_needles, other, copy.erasure, copy.rows, copy.near))
        rewrites += (await _rewritten(other, copy, what))[1]
        copies += 1
    reach("redact.planned")
    plan, changed, at = await _rewritten(bank, plan, what)
    reach("redact.written")
    await bank.settle()
    sought = sorted(needles)[:: 1 + len(needles) // _MOST_NEEDLES]
    places, unproven = await asyncio.to_thread(searched, journal, sought)
    left = [await aside(_still_named, await bank.sync(), plan.erasure, plan)]
    left += [await aside(_still_named, await other.sync(), plan.erasure) for other in others]
    let_go(*(part for other in others for part in (other.state, other.view.index)))
    return ErasureReceipt(
        what=what,
        name_digest=hashlib.sha256(name.encode()).hexdigest(),
        items=len(plan.erasure.items),
        turns=len(plan.erasure.turns),
        nodes=len(plan.erasure.nodes),
        rewritten=rewrites + changed,
        needles=len(sought),
        places=places,
        left_in=tuple(sorted({item_id for ids in left for item_id in ids})),
        copies=copies,
        scrubbed=journal is None or not journal.scrub_due,
        unproven=unproven,
        at=at,
    )


@dataclass(frozen=True)
class _Plan:
    """An erasure from a state, with every row that names something of it."""

    chosen: _Choice
    state: BankState
    erasure: Erasure
    rows: Sequence[JournalRow]
    near: Sequence[MemoryItem]
    """The items whose text may hold an erased one."""


async def _planned(bank: MemoryBank, state: BankState, chosen: _Choice) -> _Plan:
    """Choose what is erased, from the rows that name it; look again for names found there."""
    journal, sought = bank.log.journal, frozenset[str]()
    rows: list[JournalRow] = []
    erasure = await aside(chosen, state, rows)
    while not (names := _names(state, erasure)) <= sought:
        sought |= names
        found = (
            journal.naming(bank.scope, _naming(erasure, sought))
            if isinstance(journal, FindsRows)
            else bank.rows()
        )
        rows = [row async for row in found]
        erasure = await aside(chosen, state, rows)
    return _Plan(chosen, state, erasure, rows, await aside(_near, state, erasure))


def _near(state: BankState, erasure: Erasure) -> list[MemoryItem]:
    return erasure.near([item for _, item in pairs(state.items)], lambda item: item.text)


def _names(state: BankState, erasure: Erasure) -> frozenset[str]:
    """Return all names by which entries are told that lose something.

    The turns of a trial have no ids in the journal, so their session is among them.
    """
    return (
        erasure.items
        | erasure.turns
        | erasure.nodes
        | erasure.sessions
        | sessions_of(state, erasure)
    )


def _naming(erasure: Erasure, names: Iterable[str]) -> Callable[[bytes], bool]:
    """Return a test of encoded entries: no where one neither has a name nor repeats a text."""
    sought = [_as_json(name).encode() for name in names]
    texts = [[_as_json(word) for word in text.split()] for text in erasure.texts]

    def named(body: bytes) -> bool:
        if any(name in body for name in sought):
            return True
        if b'"rejected":' not in body and b'"NOOP"' not in body:
            return False
        said = body.decode().casefold()
        return any(all(word in said for word in words) for words in texts)

    return named


def _as_json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


async def _rewritten(bank: MemoryBank, plan: _Plan, what: str) -> tuple[_Plan, int, datetime]:
    """Rewrite a journal; return what was carried out, the number of entries, and the moment."""
    changes = dict[int, Entry]()

    async def make(state: BankState) -> Rewriting:
        nonlocal plan, changes
        plan = plan if plan.state is state else await _planned(bank, state, plan.chosen)
        changes = await aside(rewritten, plan.rows, plan.erasure)
        after = await aside(taken_out, state, plan.rows, plan.erasure, plan.near)
        if after is not None:
            return changes, after, await aside(_reworded, state, plan.erasure)
        rows = [row async for row in bank.rows()]
        after = await aside(_state_of, rows, changes)
        let_go(rows)
        return changes, after, None

    row = await bank.log.redact(make, reason=what)
    arena = bank.view.index.arena
    texts = await aside(plan.erasure.near, list(arena.texts()), str)
    arena.forget(filter(plan.erasure.names, texts))
    return plan, len(changes), row.recorded_at


def _reworded(state: BankState, erasure: Erasure) -> frozenset[str]:
    """Return the erased items, and those that are indexed with words of the same sessions."""
    sessions = sessions_of(state, erasure)
    return erasure.items | {
        item.id
        for item in (state.active() if sessions else ())
        if any(state.turns.get(name, ("",))[0] in sessions for name in item.source_turn_ids)
    }


def _is_copy(
    own: BankState, other: BankState, erasure: Erasure, rows: Iterable[JournalRow]
) -> bool:
    """Tell whether a memory has an erased item or session with the same content.

    Ids alone do not tell: two runs may both have a session of one name. `rows` are those
    of a memory whose items were all deleted.
    """
    past = lost_versions(other, rows)
    return any(
        folded(version.text) in erasure.texts
        for name in erasure.items
        for version in (*other.versions(name), *past.get(name, ()))
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


def _still_named(state: BankState, erasure: Erasure, plan: _Plan | None = None) -> tuple[str, ...]:
    """Return the items whose texts still say what was erased.

    With a `plan`, those are looked at that were near then, and that changed since.
    """
    names = None if plan is None else names_between(plan.state, state)
    if plan is None or names is None:
        near = _near(state, erasure)
    else:
        near = filter(None, map(state.items.get, names.union(item.id for item in plan.near)))
    return tuple(sorted(item.id for item in near if erasure.names(item.text)))


def _state_of(rows: Sequence[JournalRow], changes: Mapping[int, Entry]) -> BankState:
    state = EMPTY_STATE
    for row in rows:
        state = apply(state, row.model_copy(update={"entry": changes.get(row.seq, row.entry)}))
    return state


def _needles(
    bank: MemoryBank,
    erasure: Erasure,
    rows: Iterable[JournalRow],
    near: Iterable[MemoryItem] = (),
) -> list[bytes]:
    """Return the bytes to search for: texts as they are and as JSON, and vectors.

    A text that another item, one of those `near`, or another turn says is left out.
    """
    state, past = bank.state, lost_versions(bank.state, rows)
    versions = [version for name in erasure.items for version in state.versions(name)]
    versions += chain.from_iterable(past.get(name, ()) for name in erasure.items)
    texts = {version.text for version in versions}
    texts |= {turn.said for name in erasure.turns if (turn := state.turn(name)) is not None}
    stay = [item.text for item in near if item.id not in erasure.items]
    turns = [turn for _, session in pairs(state.sessions) for turn in session.turns]
    said = [turn.said for turn in turns if turn.id not in erasure.turns]
    others = list(map(folded, [*stay, *erasure.near(said, str)]))
    needles: set[bytes] = set()
    for text in texts:
        if any(folded(text) in other for other in others):
            continue
        for form in (text, _as_json(text)):
            needle = form.encode()[:_LONGEST_NEEDLE]
            if len(needle) >= _SHORTEST_NEEDLE:
                needles.add(needle)
    needles |= set(vector_bytes(bank, versions))
    return sorted(needles)[:: 1 + len(needles) // _MOST_NEEDLES]


async def needles_of_all(bank: MemoryBank) -> list[bytes]:
    """Return the bytes to search for when a whole memory is erased."""
    state = await bank.sync()
    rows = [row async for row in bank.rows()] if state.cleared else []
    whole = Erasure(items=frozenset(state.touched), turns=frozenset(state.turns))
    return await aside(_needles, bank, whole, rows)


def vector_bytes(bank: MemoryBank, items: Iterable[MemoryItem]) -> list[bytes]:
    """Return the vectors of memories as they are cached: little-endian float32."""
    state, arena = bank.state, bank.view.index.arena
    rows = (arena.row(index_texts(state, item)[0]) for item in items)
    return [arena.matrix[row].astype("<f4").tobytes() for row in rows if row != NO_ROW]

"""Undo: finding what to take back from the end of the log, and taking it back.

What is older than the entry asked for is not read, but for a trial's report: a lesson may
be older than the last report of its trial, so a trial is followed to its start. Undo
appends an entry like any write, so it can be undone in turn. Undoing the last commit
gives the digest from before it, exactly; undoing an older one is refused when a later
commit changed the same items.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

from memagent.core.errors import MemoryNotFound, StoreError
from memagent.core.long_work import is_large
from memagent.core.snapshot import Commit, Entry, JournalRow
from memagent.core.trials import TrialEnded, TrialStarted
from memagent.memory.bank import MemoryBank
from memagent.state.undoing import inverse

_FIRST_WINDOW: Final = 16
_MOST_WINDOW: Final = 1_024
"""Rows of the log that are read at once on the way back."""


async def undo(bank: MemoryBank, commit_id: str | None = None) -> Commit:
    """Take back a commit or a trial's report, by default the last one not yet undone.

    A report has the trial's id; it stands while a lesson of its trial does. Raises
    `MemoryNotFound`, or `StoreError` when later ones build on it.
    """
    await bank.sync()
    target = await _commit_to_undo(bank, commit_id)
    before = await bank.log.state_at(target.seq - 1)
    commit = target.entry
    assert isinstance(commit, Commit | TrialEnded)
    large = is_large((commit,))
    row = await bank.append(lambda state: inverse(state, before, commit), large=large)
    assert row is not None and isinstance(row.entry, Commit)
    return row.entry


async def adds_items(bank: MemoryBank, commit_id: str | None = None) -> bool:
    """Tell whether the commit that `undo` would take back brought an item into memory.

    Raises as `undo` does.
    """
    await bank.sync()
    target = await _commit_to_undo(bank, commit_id)
    if not isinstance(target.entry, Commit):
        return False
    before = (await bank.log.state_at(target.seq - 1)).items
    return any(
        change.after is not None
        and change.after.active
        and ((old := before.get(change.id)) is None or not old.active)
        for change in target.entry.changes
    )


async def _newest_first(bank: MemoryBank) -> AsyncIterator[JournalRow]:
    """Yield the rows of the log, the newest first, a window of them at a time."""
    end, size = bank.state.seq, _FIRST_WINDOW
    while end > bank.log.base.seq:
        start = max(bank.log.base.seq, end - size)
        window: list[JournalRow] = []
        async for row in bank.rows(after=start):
            if row.seq > end:
                break
            window.append(row)
        for row in reversed(window):
            yield row
            if row.entry.kind == "erased":
                return
        end, size = start, min(4 * size, _MOST_WINDOW)


def _undoable(entry: Entry) -> str | None:
    """Return the name of an entry that changed memory, None for any other."""
    if isinstance(entry, TrialEnded):
        return entry.trial.id
    changed = isinstance(entry, Commit) and (entry.changes or entry.stats or not entry.graph.empty)
    return entry.id if isinstance(entry, Commit) and changed else None


@dataclass(slots=True)
class _Search:
    """The way back through a log, as far as it was gone."""

    name: str | None
    """What to undo; None for the last entry that is neither undone nor an undo."""
    found: JournalRow | None = None
    undone: set[str] = field(default_factory=set[str])
    reported: set[str] = field(default_factory=set[str])

    def over(self, row: JournalRow) -> bool:
        """Look at the row before those seen so far; tell whether it is the last to look at.

        Raises `StoreError` for a lesson of the trial to undo that stands.
        """
        entry, name = row.entry, _undoable(row.entry)
        if name is not None and self.found is None and self._is_asked_for(entry, name):
            self.found, self.name = row, name
        elif name is not None and isinstance(entry, Commit):
            self._refuse_lesson(entry)
        if isinstance(entry, TrialEnded):
            self.reported.add(entry.trial.id)
        elif isinstance(entry, Commit) and entry.undoes is not None:
            self.undone |= {entry.undoes} - self.reported
        if self.found is None:
            return False
        begun = isinstance(entry, TrialStarted) and entry.trial.id == self.name
        return begun or isinstance(self.found.entry, Commit) or self.name in self.undone

    def _is_asked_for(self, entry: Entry, name: str) -> bool:
        if self.name is not None:
            return name == self.name
        undo = isinstance(entry, Commit) and entry.undoes is not None
        return not undo and name not in self.undone

    def _refuse_lesson(self, entry: Commit) -> None:
        of_it = self.name is not None and entry.source.session_id == self.name
        if of_it and entry.id not in self.undone:
            raise StoreError(
                f"cannot undo {self.name}: its lesson {entry.id} stands; undo that first"
            )


async def _commit_to_undo(bank: MemoryBank, commit_id: str | None) -> JournalRow:
    search = _Search(commit_id)
    async for row in _newest_first(bank):
        if search.over(row):
            break
    if search.name is None:
        raise MemoryNotFound(f"nothing to undo for user {bank.scope.user_id!r}")
    if search.name in search.undone:
        raise StoreError(f"commit {commit_id} was undone already; undo its undo to bring it back")
    if search.found is None:
        raise MemoryNotFound(
            f"no commit {commit_id!r} that changed memory for user {bank.scope.user_id!r}"
        )
    return search.found

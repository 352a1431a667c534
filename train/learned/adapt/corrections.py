"""Read what a user corrected off the journal of a store: edits, deletions, undos, thumbs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from memagent.async_agent import AsyncAgent
from memagent.core.ops import Add, Delete, Update
from memagent.core.records import MemoryItem, Session
from memagent.core.snapshot import Commit, JournalRow
from memagent.core.trials import Credit, TrialEnded

_USER = "user"
"""The actor of a direct edit."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """A statement that took, or should have taken, the place of an earlier one."""

    new: str
    old: str


@dataclass(slots=True)
class Corrections:
    """The corrections of a user, by the words of the statements."""

    unwanted: set[str] = field(default_factory=set[str])
    """Statements whose memory the user deleted or whose addition was undone."""
    apart: set[Replaced] = field(default_factory=set[Replaced])
    """Updates and deletions that were undone: the old one holds still."""
    edits: list[Replaced] = field(default_factory=list[Replaced])
    """Memories that the user wrote anew: `old` is what the design had written."""
    liked: set[str] = field(default_factory=set[str])
    """Statements whose memories were used well, by a report above 0."""
    disliked: set[str] = field(default_factory=set[str])
    """The same with reports below 0."""

    def __len__(self) -> int:
        """Return the number of corrections; thumbs are none."""
        return len(self.unwanted) + len(self.apart) + len(self.edits)


def wording(text: str) -> str:
    """Return a text's words in lower case without signs."""
    return " ".join(re.findall(r"\w+", text.lower()))


async def read_corrections(agent: AsyncAgent) -> tuple[list[Session], Corrections]:
    """Return the sessions of an agent's memory, oldest first, and what its user corrected."""
    state = await agent.bank.sync()
    found = _Reader()
    async for row in agent.bank.rows():
        found.take(row)
    sessions = sorted(
        state.sessions.values(), key=lambda own: (own.at.timestamp() if own.at else 0.0, own.id)
    )
    return [session for session in sessions if session.turns], found.corrections


class _Reader:
    """Follows the items through the journal and notes who changed them back."""

    def __init__(self) -> None:
        self.corrections = Corrections()
        self._items: dict[str, list[MemoryItem | None]] = {}
        self._commits: dict[str, Commit] = {}

    def take(self, row: JournalRow) -> None:
        entry = row.entry
        if isinstance(entry, TrialEnded):
            for credit in entry.trial.credit:
                self._credit(credit)
        if not isinstance(entry, Commit):
            return
        if entry.undoes is not None and entry.undoes in self._commits:
            self._undone(self._commits[entry.undoes])
        elif entry.source.actor == _USER:
            self._by_user(entry)
        self._commits[entry.id] = entry
        for change in entry.changes:
            self._items.setdefault(change.id, []).append(change.after)

    def _text(self, item_id: str, back: int = 1) -> str:
        """Return the words of an item, `back` versions ago; "" where there was none."""
        versions = self._items.get(item_id, [])
        item = versions[-back] if len(versions) >= back else None
        return wording(item.text) if item is not None else ""

    def _by_user(self, commit: Commit) -> None:
        for applied in commit.ops:
            op = applied.op
            if isinstance(op, Delete) and (text := self._text(op.id)):
                self.corrections.unwanted.add(text)
            elif isinstance(op, Update) and (text := self._text(op.id)):
                self.corrections.edits.append(Replaced(wording(op.text), text))

    def _undone(self, commit: Commit) -> None:
        if commit.source.actor == _USER:
            self._taken_back(commit)
            return
        for applied in commit.ops:
            op, item_id = applied.op, applied.item_id or ""
            if isinstance(op, Add):
                self.corrections.unwanted.add(wording(op.fact.text))
            elif isinstance(op, Update):
                self.corrections.apart.add(Replaced(self._text(item_id), self._text(item_id, 2)))
            elif isinstance(op, Delete):
                self.corrections.apart.add(Replaced("", self._text(item_id)))

    def _taken_back(self, commit: Commit) -> None:
        """Forget corrections that the user himself undid."""
        for applied in commit.ops:
            if isinstance(applied.op, Delete):
                self.corrections.unwanted.discard(self._text(applied.op.id))
            elif isinstance(applied.op, Update):
                new = wording(applied.op.text)
                own = self.corrections.edits
                self.corrections.edits = [edit for edit in own if edit.new != new]

    def _credit(self, credit: Credit) -> None:
        versions = [item for item in self._items.get(credit.id, []) if item is not None]
        words = [wording(item.text) for item in versions if item.version == credit.version]
        if credit.reward > 0:
            self.corrections.liked.update(words)
        elif credit.reward < 0:
            self.corrections.disliked.update(words)

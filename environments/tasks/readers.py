"""Readers with one fault each, which the players of `worlds.readers.players` do not have.

A fault of hearing is a truth with something left out, played by the usual players: one
session heard only, days not understood. A fault of answering is a `Guesser`: it keeps
what its player keeps, in a real bank, and answers by guessing.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from environments.errors import EnvironmentFault
from environments.worlds.readers.players import Note, Player, read_note
from environments.worlds.truth import ProbeTruth, Truth
from memagent.core.answers import Answer, Question, Verdict
from memagent.core.records import Session
from memagent.core.snapshot import IngestReport, MemorySnapshot

Guess = Callable[[ProbeTruth, Sequence[Note]], str]
"""From what a question wants and all notes kept, in order of telling, to an answer; empty
for none.
"""


def hearing_only(truth: Truth, session: int) -> Truth:
    """Return a truth of which only one session (from 0) was heard.

    It is for players that fold nothing: `append_first`, `append_all`, `random`.
    """
    return replace(
        truth, tellings=tuple(telling for telling in truth.tellings if telling.session == session)
    )


def without_days(truth: Truth) -> Truth:
    """Return a truth in which everything happened on the day on which it was told."""
    return replace(
        truth,
        tellings=tuple(
            replace(telling, day=telling.day and telling.said_on) for telling in truth.tellings
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Guesser:
    """A player's memory with another way of answering."""

    player: Player
    guess: Guess

    async def remember(self, session: Session) -> IngestReport:
        """Remember the session as the player does."""
        return await self.player.remember(session)

    async def ask(self, question: Question) -> Answer:
        """Return the guess; abstain where that is empty.

        Raises `EnvironmentFault` for a question of another episode.
        """
        probe = next(
            (probe for probe in self.player.truth.probes if probe.probe_id == question.id), None
        )
        if probe is None:
            raise EnvironmentFault(
                f"question {question.id!r} is not of episode {self.player.truth.episode_id!r}"
            )
        items = [item for item in self.snapshot().items.values() if item.active]
        items.sort(key=lambda item: int(item.id.removeprefix("mem_T")))
        text = self.guess(probe, [read_note(item) for item in items])
        if not text:
            return Answer(text="", verdict=Verdict.ABSTAINED, question=question)
        return Answer(text=text, question=question)

    def snapshot(self) -> MemorySnapshot:
        """Return the memory as it is."""
        return self.player.snapshot()

    def at(self, snapshot: MemorySnapshot) -> Guesser:
        """Return the same guesser on a private memory that starts from a snapshot."""
        return replace(self, player=self.player.at(snapshot))


def by_chance(probe: ProbeTruth, notes: Sequence[Note]) -> str:
    """One of the two that a question of order names, else the value of any note."""
    options = sorted((probe.value, probe.other)) if probe.other else [note.value for note in notes]
    return random.Random(probe.probe_id).choice(options) if options else ""


def by_majority(probe: ProbeTruth, notes: Sequence[Note]) -> str:
    """Return the commonest value of the relation, the first told among equals."""
    counts = Counter(note.value for note in notes if note.relation == probe.relation)
    return counts.most_common(1)[0][0] if counts else ""

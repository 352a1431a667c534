"""A conversation as read: its sessions and, for benchmark files, gold questions.

The invariant: turn ids and session ids are unique in a conversation, and evidence names
turns that are there. Whatever a reader repaired or left out stands in `warnings`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Annotated, Self

from pydantic import Field, model_validator

from memagent.core.records import Fact, Id, Moment, Record, Session, Text, Turn


class GoldQuestion(Record):
    """A question with its gold answer, as a benchmark file gives it."""

    id: Id
    text: Annotated[Text, Field(min_length=1)]
    answer: Text = ""
    """The gold answer; empty where the right behaviour is to give none."""
    evidence_turn_ids: tuple[Id, ...] = ()
    unresolved_evidence: tuple[Text, ...] = ()
    """Evidence ids of the file that name no turn; they are left out of
    `evidence_turn_ids`.
    """
    category: Text = ""
    """The benchmark's own name or number of the category."""
    asked_at: Moment | None = None
    adversarial_answer: Text | None = None
    """The wrong answer that an adversarial question invites."""


class Conversation(Record):
    """Dated sessions of turns in order, with the file's questions and observations."""

    id: Id
    sessions: Annotated[tuple[Session, ...], Field(min_length=1)]
    questions: tuple[GoldQuestion, ...] = ()
    observations: tuple[Fact, ...] = ()
    """Facts that annotators took from the turns (LoCoMo)."""
    warnings: tuple[Text, ...] = ()
    """One line for each kind of thing that was repaired or left out."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if twice := repeated(session.id for session in self.sessions):
            raise ValueError(f"session ids occur twice: {', '.join(twice)}")
        if twice := repeated(turn.id for turn in self.turns):
            raise ValueError(f"turn ids occur twice: {', '.join(twice)}")
        known = {turn.id for turn in self.turns}
        missing = [
            turn_id
            for question in self.questions
            for turn_id in question.evidence_turn_ids
            if turn_id not in known
        ]
        if missing:
            raise ValueError(f"evidence names turns that are not there: {', '.join(missing[:5])}")
        return self

    @property
    def turns(self) -> tuple[Turn, ...]:
        """All turns in order."""
        return tuple(turn for session in self.sessions for turn in session.turns)

    @property
    def speakers(self) -> tuple[str, ...]:
        """Distinct speakers in order of first appearance."""
        return tuple(dict.fromkeys(turn.speaker for turn in self.turns))


def repeated(ids: Iterable[str]) -> list[str]:
    """Return ids that occur more than once."""
    return [name for name, count in Counter(ids).items() if count > 1]

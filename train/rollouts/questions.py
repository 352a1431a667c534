"""Questions about a memory right after a session.

An episode's own questions mostly come at its end: about half of its sessions hold no
fact that one of them still asks for, and those that were overwritten never do. A world
that knows what held after each session can ask about that instead (`AskedAfter`). Then
a rerun is credited for what its own session taught, whatever became of it later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from environments.play.rollout import MemoryAgent
from environments.records import Episode
from environments.rewards.questions import SessionQuestions, questions_for


@dataclass(frozen=True, kw_only=True)
class QuestionedEpisode:
    """An episode up to a session, with questions about what held right after it."""

    episode: Episode
    """Its sessions up to that one, and the questions."""
    answering: MemoryAgent | None = None
    """Agent that can answer these questions; None for the one that answers the others."""


AskedAfter = Callable[[Episode, int], QuestionedEpisode]
"""Gives an episode as it was asked after the session of that place (from 0)."""


def as_played(episode: Episode, _place: int) -> QuestionedEpisode:
    """Ask an episode's own questions: all that an environment without a truth has."""
    return QuestionedEpisode(episode=episode)


def local_questions(
    group_key: str, asked: QuestionedEpisode, place: int, *, own: int | None, rehearsal: int
) -> SessionQuestions:
    """Draw the questions that reruns of a session are compared by."""
    return questions_for((group_key, place), asked.episode, place, own=own, rehearsal=rehearsal)


def is_due(asked: QuestionedEpisode, place: int) -> bool:
    """Tell whether a rerun of the session could earn anything."""
    return bool(questions_for(("due",), asked.episode, place, rehearsal=0).due)

"""Views of an episode: shorter or narrower ones, made anew; the episode itself never changes.

A probe stays only while all its evidence does, so that no view asks what it no longer
tells.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, cast

from environments.base import Environment, Split
from environments.errors import EnvironmentFault
from environments.records import Episode, Probe
from environments.worlds.truth import Truth
from memagent.core.records import Session
from memagent.plugins import load


def truncate(episode: Episode, sessions: int) -> Episode:
    """Return the first `sessions` sessions and the probes they can answer.

    Returns the episode itself when it is not longer.

    Probes without evidence (most unanswerable ones) stay when they are asked at the
    end. Raises `EnvironmentFault` below 1.
    """
    if sessions < 1:
        raise EnvironmentFault(f"an episode has at least 1 session, not {sessions}")
    if sessions >= len(episode.sessions):
        return episode
    return select_sessions(episode, [session.id for session in episode.sessions[:sessions]])


def select_sessions(episode: Episode, session_ids: Collection[str]) -> Episode:
    """Return the named sessions in their order and the probes they can answer.

    Raises `EnvironmentFault` for an unknown name or none.
    """
    chosen = set(session_ids)
    if unknown := chosen - {session.id for session in episode.sessions}:
        raise EnvironmentFault(
            f"episode {episode.id!r} has no session {', '.join(sorted(unknown))}"
        )
    sessions = tuple(session for session in episode.sessions if session.id in chosen)
    if not sessions:
        raise EnvironmentFault(f"no session of episode {episode.id!r} is selected")
    turns = {turn.id for session in sessions for turn in session.turns}

    def askable(probe: Probe) -> bool:
        return turns.issuperset(probe.evidence_turn_ids) and (
            probe.after_session is None or probe.after_session in chosen
        )

    return episode.model_copy(
        update={"sessions": sessions, "probes": tuple(filter(askable, episode.probes))}
    )


def select_probes(episode: Episode, keep: Callable[[Probe], bool]) -> Episode:
    """All sessions and the probes for which `keep` holds."""
    return episode.model_copy(update={"probes": tuple(filter(keep, episode.probes))})


def select_asks(episode: Episode, truth: Truth, asks: Collection[str]) -> Episode:
    """Return an episode of a known world with the questions of these kinds alone.

    Kinds are `now`, `who` and so on; without a kind all questions stay.
    """
    if not asks:
        return episode
    probe_ids = {probe.probe_id for probe in truth.probes if probe.ask in asks}
    return select_probes(episode, lambda probe: probe.id in probe_ids)


def linked_turns(episode: Episode, before: int) -> Iterator[Episode]:
    """Yield an episode for each question: its turn, and the turns before that one.

    The turn of a question is the last of its evidence. The turns `before` it make the
    bank, then the turn is a session of its own, then the question is asked. So a reward
    right after the turn is about what was done with it (Memory-R1, arXiv 2508.19828, with
    50). A question whose evidence reaches further back, or without an answer, is left out.
    """
    places = {turn.id: place for place, turn in enumerate(episode.turns)}
    for probe in episode.probes:
        evidence = [places[turn_id] for turn_id in probe.evidence_turn_ids]
        if probe.unanswerable or not evidence or max(evidence) - min(evidence) > before:
            continue
        at, sessions = max(evidence), list[Session]()
        for session in episode.sessions:
            for heard, name in ((range(at - before, at), session.id), ([at], f"{session.id}/now")):
                turns = tuple(turn for turn in session.turns if places[turn.id] in heard)
                kept = session.model_copy(update={"id": name, "turns": turns, "grown_at": ()})
                sessions += [kept] if turns else []
        asked = probe.model_copy(update={"after_session": sessions[-1].id})
        yield Episode(id=f"{episode.id}/{probe.id}", sessions=tuple(sessions), probes=(asked,))


class LinkedTurns(Environment):
    """The conversations of another environment, a turn at a time: Memory-R1's episodes."""

    name = "linked_turns"

    def __init__(
        self,
        of: str = "synthetic",
        *,
        before: int = 50,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Open an environment by its name, with its own options."""
        super().__init__()
        make = cast("Callable[..., Environment]", load("environments", of))
        self.env, self.before = make(**(options or {})), before

    def episodes(self, split: Split = "all") -> Iterator[Episode]:
        """Return the episodes of all conversations of a split."""
        whole = self.env.episodes(split)
        return (linked for episode in whole for linked in linked_turns(episode, self.before))

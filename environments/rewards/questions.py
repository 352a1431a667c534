"""The questions of a group: the same ones for every member, by construction.

A draw depends on the group's key and the questions' ids alone, never on who asks, on
the order of a file or on the machine. Draws are made session by session, so no session
goes without questions while it has any; one that has none gets no credit at all
(`None`), not zero.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from environments.errors import EnvironmentFault
from environments.records import Episode, Probe, ProbeScore
from environments.rewards.terms import Measure, mean_value

GroupKey = Sequence[str | int]
"""The key that the members of a group share: role, episode, session, anchor digest, as the case
may be.
"""


@dataclass(frozen=True, kw_only=True)
class SessionQuestions:
    """The questions that one session's credit rests on; probes in order of the episode."""

    session_id: str
    own: tuple[Probe, ...] = ()
    """Probes with evidence in the session, asked where they are due: most at the episode's
    end.
    """
    due: tuple[Probe, ...] = ()
    """Probes with evidence in the session that can be answered right after it: all their
    evidence has been told by then.
    """
    rehearsal: tuple[Probe, ...] = ()
    """A sample of questions about earlier sessions only, for right after the session: what
    must not be lost.
    """

    @property
    def after(self) -> tuple[Probe, ...]:
        """The questions to the memory right after the session."""
        return (*self.due, *self.rehearsal)


def questions_for(
    group_key: GroupKey,
    episode: Episode,
    session: int,
    *,
    own: int | None = None,
    rehearsal: int = 4,
) -> SessionQuestions:
    """Draw the questions of session number `session` (from 0) for a group.

    They are `own` of its own (None for all) and `rehearsal` earlier ones.

    `due` is drawn by itself, so that a session whose `own` draw fell on questions that
    end later still has some. Raises `EnvironmentFault` for a session that is not there.
    """
    if not 0 <= session < len(episode.sessions):
        raise EnvironmentFault(
            f"episode {episode.id!r} has sessions 0 to {len(episode.sessions) - 1}, not {session}"
        )
    places = evidence_places(episode)
    asked_at = asked_places(episode)
    own_probes = [probe for probe in episode.probes if session in places[probe.id]]
    due = [
        probe
        for probe in own_probes
        if max(places[probe.id]) == session and asked_at[probe.id] >= session
    ]
    earlier = [
        probe
        for probe in episode.probes
        if places[probe.id] and max(places[probe.id]) < session and asked_at[probe.id] >= session
    ]
    return SessionQuestions(
        session_id=episode.sessions[session].id,
        own=drawn(group_key, own_probes, own),
        due=drawn(group_key, due, own),
        rehearsal=drawn(group_key, earlier, rehearsal),
    )


def episode_questions(
    group_key: GroupKey, episode: Episode, *, own: int | None = None, rehearsal: int = 4
) -> dict[str, SessionQuestions]:
    """`questions_for` every session, by session id."""
    every = (
        questions_for(group_key, episode, place, own=own, rehearsal=rehearsal)
        for place in range(len(episode.sessions))
    )
    return {questions.session_id: questions for questions in every}


def terminal_probes(
    episode: Episode, questions: Mapping[str, SessionQuestions]
) -> tuple[Probe, ...]:
    """Return every drawn question of any session, each once, in order of the episode.

    A rollout's memories are asked these.
    """
    probe_ids = {
        probe.id for drawn_questions in questions.values() for probe in drawn_questions.own
    }
    return tuple(probe for probe in episode.probes if probe.id in probe_ids)


def drawn(group_key: GroupKey, probes: Iterable[Probe], count: int | None) -> tuple[Probe, ...]:
    """Draw `count` of the probes (all for None), in the order given.

    More probes to draw from never change the order among the old ones.
    """
    listed = list(probes)
    if count is None or count >= len(listed):
        return tuple(listed)
    chosen = {
        probe.id
        for probe in sorted(listed, key=lambda probe: _lot(group_key, probe.id))[: max(0, count)]
    }
    return tuple(probe for probe in listed if probe.id in chosen)


def evidence_places(episode: Episode) -> dict[str, frozenset[int]]:
    """Return the places (from 0) of the sessions that hold evidence, by probe id.

    Empty for a probe without evidence.
    """
    home = {
        turn.id: place for place, session in enumerate(episode.sessions) for turn in session.turns
    }
    return {
        probe.id: frozenset(home[turn_id] for turn_id in probe.evidence_turn_ids)
        for probe in episode.probes
    }


def asked_places(episode: Episode) -> dict[str, int]:
    """By probe id the place (from 0) of the session after which it is asked."""
    places = {session.id: place for place, session in enumerate(episode.sessions)}
    last = len(episode.sessions) - 1
    return {
        probe.id: places[probe.after_session] if probe.after_session is not None else last
        for probe in episode.probes
    }


def _lot(group_key: GroupKey, probe_id: str) -> bytes:
    whole = hashlib.sha256(b"memagent/questions/1")
    for part in (*map(str, group_key), probe_id):
        data = part.encode("utf-8", "replace")
        whole.update(len(data).to_bytes(8, "big") + data)
    return whole.digest()


# Credit for single sessions, on the episode's last memory and on the memory right after.
#
# Two credits with different meanings. The *terminal* one is the mean worth of the
# questions with evidence in the session, asked of the memory that the rollout ended with:
# it compares whole rollouts, and later sessions may have spoilt or saved it. The *after*
# one is asked right after the session: its own questions that are answerable by then, and
# a sample of earlier ones of fixed size, so that forgetting costs; it compares reruns
# from one shared memory. None means masked: a session that nothing was asked about, or
# whose questions all failed.


@dataclass(frozen=True, kw_only=True)
class SessionCredit:
    """The credits of one session; None where it is masked."""

    session_id: str
    terminal: float | None
    after: float | None


def terminal_credit(
    questions: SessionQuestions, scores: Iterable[ProbeScore], *, measure: Measure = "f1"
) -> float | None:
    """Return the mean value of the session's own questions among scores of the last memory.

    Other questions are passed over.
    """
    return mean_value(_of(questions.own, scores), measure=measure)


def after_credit(
    questions: SessionQuestions, scores: Iterable[ProbeScore], *, measure: Measure = "f1"
) -> float | None:
    """Return the mean value of the due and the rehearsal questions among these scores.

    The scores are of the memory right after the session.

    None when no due question has a worth: rehearsal alone would only ever reward doing
    nothing.
    """
    listed = list(scores)
    if mean_value(_of(questions.due, listed), measure=measure) is None:
        return None
    return mean_value(_of(questions.after, listed), measure=measure)


def session_credits(
    questions: Mapping[str, SessionQuestions],
    *,
    terminal: Iterable[ProbeScore],
    after: Mapping[str, Iterable[ProbeScore]],
    measure: Measure = "f1",
) -> dict[str, SessionCredit]:
    """Return both credits of every session.

    `after` gives the scores right after a session by its id, and may lack some.
    """
    listed = list(terminal)
    return {
        session_id: SessionCredit(
            session_id=session_id,
            terminal=terminal_credit(session_questions, listed, measure=measure),
            after=after_credit(session_questions, after.get(session_id, ()), measure=measure),
        )
        for session_id, session_questions in questions.items()
    }


def _of(probes: Iterable[Probe], scores: Iterable[ProbeScore]) -> list[ProbeScore]:
    probe_ids = {probe.id for probe in probes}
    return [score for score in scores if score.probe_id in probe_ids]

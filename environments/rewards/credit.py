"""Credit for single sessions, on the episode's last memory and on the memory right after.

Two credits with different meanings. The *terminal* one is the mean worth of the
questions with evidence in the session, asked of the memory that the rollout ended with:
it compares whole rollouts, and later sessions may have spoilt or saved it. The *after*
one is asked right after the session: its own questions that are answerable by then, and
a sample of earlier ones of fixed size, so that forgetting costs; it compares reruns
from one shared memory. None means masked: a session that nothing was asked about, or
whose questions all failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from environments.records import Probe, ProbeScore
from environments.rewards.questions import SessionQuestions
from environments.rewards.terms import Measure, mean_value


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

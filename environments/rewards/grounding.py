"""Rewards for resting on the right evidence: in memory (FAPO by evidence) and in time (Memory-T1).

Memory-T1's reward is 0.6 accuracy + 0.2 grounding + 0.2 time, and -1 for a reply that
cannot be read. Grounding is about which sessions were chosen; time is the mean over
them of (proximity + fidelity) / 2: is the session's date near the range that the
question asks about, and do the events told there lie in it? Where a case is not covered
by the paper, the choice made here is named at its function.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import exp, inf

from environments.records import Episode, ProbeScore
from environments.rewards.metrics import items_by_turn
from environments.rewards.terms import Measure, Outcome, answer_value
from memagent.core.records import Granularity, MemoryItem, Session, TimeSpan

_DAY_S = 86_400.0

# -- evidence --------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class EvidenceTerm:
    """A term for answers that rest on evidence in memory; the mean over the answers.

    A right answer counts 1 with its evidence in memory and 0 without; a wrong one -1.

    A guess that happens to be right earns less than an answer that memory supports.
    Evidence counts as held when the words of every gold turn are in some item that
    cites it (`ProbeScore.uncovered`).
    """

    measure: Measure = "f1"
    right_at: float = 0.5
    """Worth from which an answer counts as right."""
    name: str = "evidence"

    def __call__(self, outcome: Outcome, /) -> float | None:
        """In [-1, 1]; None without an answer that has a worth."""
        values = [
            evidence_value(right=worth >= self.right_at, grounded=score.uncovered == 0)
            for score in outcome.scores
            if (worth := answer_value(score, measure=self.measure)) is not None
        ]
        return sum(values) / len(values) if values else None


def evidence_value(*, right: bool, grounded: bool) -> float:
    """1 right and grounded, 0 right without evidence (flawed), -1 wrong."""
    return -1.0 if not right else 1.0 if grounded else 0.0


# -- time ------------------------------------------------------------------------------


def session_grounding(chosen: Collection[str], gold: Collection[str]) -> float:
    """Return +1 for exactly the gold sessions, +0.5 for any of them, -1 for none."""
    if set(chosen) == set(gold):
        return 1.0
    return 0.5 if set(chosen) & set(gold) else -1.0


def proximity(*, distance_days: float, range_days: float) -> float:
    """Return 1 inside the asked range (distance 0), else a falling value in [-0.5, 1].

    It is 1.5 / (1 + e^(0.5 d / L)) - 0.5, cut to these bounds.

    L counts at least 1 day.
    """
    if distance_days <= 0:
        return 1.0
    steps = 0.5 * distance_days / max(range_days, 1.0)
    value = 1.5 / (1.0 + exp(steps)) - 0.5 if steps < 700 else -0.5
    return min(1.0, max(-0.5, value))


def session_proximity(at: datetime, asked: TimeSpan) -> float:
    """Return the `proximity` of a session's date to the nearest bound of the asked range.

    A range with an open bound is endless, so L is too.
    """
    before = (asked.start - at).total_seconds() if asked.start is not None else -inf
    after = (at - asked.end).total_seconds() if asked.end is not None else -inf
    if asked.contains(at):
        return 1.0
    length = (asked.end - asked.start).total_seconds() if asked.start and asked.end else inf
    return proximity(distance_days=max(before, after, 1e-9) / _DAY_S, range_days=length / _DAY_S)


def event_fidelity(events: Sequence[TimeSpan], asked: TimeSpan) -> float:
    """Return the mean over a session's events that bear on the question.

    An event counts +1 inside the asked range, +0.5 across a bound, -1 apart from it.

    0 without such events (our choice: nothing is known for or against).
    """
    values = [_fidelity(event, asked) for event in events]
    return sum(values) / len(values) if values else 0.0


def _fidelity(event: TimeSpan, asked: TimeSpan) -> float:
    if not event.overlaps(asked):
        return -1.0
    starts = asked.start is None or (event.start is not None and asked.start <= event.start)
    ends = asked.end is None or (event.end is not None and event.end <= asked.end)
    return 1.0 if starts and ends else 0.5


def time_consistency(
    chosen: Iterable[tuple[datetime, Sequence[TimeSpan]]], asked: TimeSpan
) -> float:
    """Return the mean over the chosen sessions of (proximity + fidelity) / 2.

    Each session is (date, events); none gives the worst, -0.75 (our choice).
    """
    values = [
        (session_proximity(at, asked) + event_fidelity(events, asked)) / 2.0
        for at, events in chosen
    ]
    return sum(values) / len(values) if values else -0.75


def temporal_value(
    *, accuracy: float, grounding: float, time: float, readable: bool = True
) -> float:
    """0.6 accuracy + 0.2 grounding + 0.2 time; -1 for a reply that could not be read."""
    return 0.6 * accuracy + 0.2 * grounding + 0.2 * time if readable else -1.0


class TemporalTerm:
    """Memory-T1's reward over the questions whose asked range is known; the mean.

    The chosen sessions are those that the answer names as its evidence or, where its
    answerer names none, those of the turns it cites. A session's events are the times
    of the memory items that rest on its cited turns, on any of its turns when none is
    cited. An item that names no time counts as the day on which it was said; with
    `told`, for ranges of days on which the evidence was told, every item does.
    """

    def __init__(
        self,
        episode: Episode,
        asked: Mapping[str, TimeSpan],
        *,
        told: bool = False,
        measure: Measure = "f1",
        name: str = "temporal",
    ) -> None:
        """`asked` gives the range in question by probe id."""
        self.name = name
        self._told = told
        self._asked = dict(asked)
        self._measure: Measure = measure
        self._sessions = {session.id: session for session in episode.sessions}
        self._home = {turn.id: session.id for session in episode.sessions for turn in session.turns}

    def __call__(self, outcome: Outcome, /) -> float | None:
        """None when no question about a known range was answered."""
        items = items_by_turn(outcome.memory.items.values()) if outcome.memory is not None else {}
        values = [
            value
            for score in outcome.scores
            if (asked := self._asked.get(score.probe_id)) is not None
            and (value := self._value(score, asked, items)) is not None
        ]
        return sum(values) / len(values) if values else None

    def _value(
        self, score: ProbeScore, asked: TimeSpan, items: Mapping[str, Sequence[MemoryItem]]
    ) -> float | None:
        accuracy = answer_value(score, measure=self._measure)
        if accuracy is None:
            return None
        chosen = self._chosen(score)
        dated = [
            (session.at, self._event_spans(session, cited, items))
            for session, cited in chosen
            if session.at is not None
        ]
        return temporal_value(
            accuracy=accuracy,
            grounding=session_grounding(
                [session.id for session, _ in chosen],
                {self._home[turn_id] for turn_id in score.evidence},
            ),
            time=time_consistency(dated, asked),
            readable=not score.unreadable,
        )

    def _chosen(self, score: ProbeScore) -> list[tuple[Session, list[str]]]:
        """Return the sessions of the episode that the answer chose, each with its cited turns."""
        cited: dict[str, list[str]] = {}
        for turn_id in score.cited:
            if turn_id in self._home:
                cited.setdefault(self._home[turn_id], []).append(turn_id)
        return [
            (self._sessions[session_id], cited.get(session_id, []))
            for session_id in dict.fromkeys(score.evidence_sessions or cited)
            if session_id in self._sessions
        ]

    def _event_spans(
        self, session: Session, cited: Sequence[str], items: Mapping[str, Sequence[MemoryItem]]
    ) -> list[TimeSpan]:
        """Return the times of the items on the cited turns, or on any turn of the session."""
        resting = {
            item.id: item
            for turn_id in cited or [turn.id for turn in session.turns]
            for item in items.get(turn_id, ())
        }
        said = day_span(session.at) if session.at is not None else None
        spans = (said if self._told else item.valid or said for item in resting.values())
        return [span for span in spans if span is not None]


def day_span(at: datetime, until: datetime | None = None) -> TimeSpan:
    """Return the days from that of `at` to that of `until`, both included."""
    first, last = (
        moment.replace(hour=0, minute=0, second=0, microsecond=0) for moment in (at, until or at)
    )
    return TimeSpan(start=first, end=last + timedelta(days=1), granularity=Granularity.RANGE)

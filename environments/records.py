"""Episodes, and the records that playing one leaves.

An `Episode` is dated sessions and the probes asked about them; it is plain data and
survives JSON unchanged. A `Trajectory` is one agent's way through it: the memory before
and after every session (snapshots are values, so keeping them all costs little) and the
answers. A `Score` is plain data again. The surprise: a trajectory holds live snapshots
and is therefore a dataclass, not a record; what is worth keeping of it on disk is its
score.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Self

from pydantic import Field, model_validator

from memagent.core.answers import Answer, Question
from memagent.core.exchange import Usage
from memagent.core.records import Id, Moment, Record, Session, Text, Turn
from memagent.core.snapshot import IngestReport, MemorySnapshot


class Probe(Record):
    """A question with its gold answer."""

    id: Id
    question: Annotated[Text, Field(min_length=1)]
    answers: tuple[Text, ...] = ()
    """Accepted answers; the best match counts. Empty where the right behaviour is to give
    none.
    """
    evidence_turn_ids: tuple[Id, ...] = ()
    """Turns that together hold the answer."""
    unresolved_evidence: tuple[Text, ...] = ()
    """Evidence ids of the data that name no turn; they take part in nothing."""
    category: Text = ""
    """The benchmark's own number or name."""
    after_session: Id | None = None
    """The session right after which it is asked; None for the end of the episode, however
    long that is.
    """
    asked_at: Moment | None = None
    """The date of asking; None for that of the last session heard."""
    unanswerable: bool = False
    """Whether abstaining is the right answer."""
    adversarial_answer: Text | None = None
    """The wrong answer that an adversarial question invites."""

    def as_question(self, *, at: datetime | None, k: int) -> Question:
        """Return the probe as a question to an agent.

        `at` is used when the probe has no date of its own.
        """
        return Question(text=self.question, id=self.id, asked_at=self.asked_at or at, k=k)


class Episode(Record):
    """Dated sessions in order and the probes about them.

    Ids are unique, and every reference is to a session, turn or probe of the episode.
    """

    id: Id
    sessions: Annotated[tuple[Session, ...], Field(min_length=1)]
    probes: tuple[Probe, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for what, ids in (
            ("session", [session.id for session in self.sessions]),
            ("turn", [turn.id for turn in self.turns]),
            ("probe", [probe.id for probe in self.probes]),
        ):
            if twice := _repeated(ids):
                raise ValueError(f"{what} ids occur twice: {', '.join(twice[:5])}")
        turns, sessions = (
            {turn.id for turn in self.turns},
            {session.id for session in self.sessions},
        )
        for probe in self.probes:
            if lost := [turn_id for turn_id in probe.evidence_turn_ids if turn_id not in turns]:
                raise ValueError(
                    f"evidence of probe {probe.id!r} names turns that are not there: "
                    f"{', '.join(lost)}"
                )
            if probe.after_session is not None and probe.after_session not in sessions:
                raise ValueError(
                    f"probe {probe.id!r} is asked after session {probe.after_session!r}, which "
                    "is not there"
                )
        return self

    @property
    def turns(self) -> tuple[Turn, ...]:
        """All turns in order."""
        return tuple(turn for session in self.sessions for turn in session.turns)


@dataclass(frozen=True, kw_only=True)
class SessionTrace:
    """One session heard: the memory before and after, and what happened in between."""

    session_id: str
    report: IngestReport
    before: MemorySnapshot
    after: MemorySnapshot
    seconds: float


@dataclass(frozen=True, kw_only=True)
class ProbeAnswer:
    """One probe asked; exactly one of `answer` and `failure` is set."""

    probe_id: str
    memory: MemorySnapshot
    """The memory at the time of asking."""
    answer: Answer | None = None
    failure: str | None = None
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """One agent's way through an episode.

    With a `failure` it ends early, and what it has is still true.
    """

    episode_id: str
    start: MemorySnapshot
    traces: tuple[SessionTrace, ...] = ()
    answers: tuple[ProbeAnswer, ...] = ()
    failure: str | None = None

    @property
    def end(self) -> MemorySnapshot:
        """The memory after the last session heard."""
        return self.traces[-1].after if self.traces else self.start

    @property
    def usage(self) -> Usage:
        """The cost of remembering."""
        return sum((trace.report.usage for trace in self.traces), Usage())

    @property
    def seconds(self) -> float:
        """Seconds that remembering took."""
        return sum(trace.seconds for trace in self.traces)


class ProbeScore(Record):
    """The score of one probe.

    Measures that do not apply are None: recall without gold evidence, F1 where
    abstaining is right.
    """

    probe_id: Id
    category: Text = ""
    unanswerable: bool = False
    question: Text = ""
    gold: tuple[Text, ...] = ()
    answer: Text = ""
    """The answer; empty for an abstention."""
    abstained: bool = False
    unreadable: bool = False
    """Whether a model replied and nothing could be read; such an answer abstains."""
    evidence: tuple[Id, ...] = ()
    unresolved: int = 0
    """Evidence ids of the data that name no turn."""
    retrieved: tuple[Id, ...] = ()
    """Turns behind the hits, best first, each once."""
    cited: tuple[Id, ...] = ()
    """Turns that the answer cites."""
    evidence_sessions: tuple[Id, ...] = ()
    """Sessions that the answer names as its evidence; empty where the answerer names
    none.
    """
    recall: dict[int, float] | None = None
    """Evidence recall at each k."""
    f1: float | None = None
    f1_memory_r2: float | None = None
    bleu1: float | None = None
    exact: float | None = None
    judged: dict[Text, bool | None] = Field(default_factory=dict[str, bool | None])
    """Whether a model judge calls the answer right, by the judge's prompt; None where the
    judge failed. Empty without a judge.
    """
    lost: int = 0
    """Gold evidence turns that no stored item cites."""
    uncovered: int = 0
    """Gold evidence turns whose words no item that cites them covers; `lost` ones
    included.
    """
    overwritten: bool = False
    """Whether it asks for a value that replaced another; only generated worlds know."""
    usage: Usage = Usage()
    seconds: float = 0.0
    failure: Text | None = None
    """The reason for a missing answer; such a probe takes part in no mean."""

    @property
    def reward(self) -> float | None:
        """The F1 where there is an answer to give, else 1 for abstaining and 0 for not.

        None for a failure.
        """
        if self.failure is not None:
            return None
        return float(self.abstained) if self.unanswerable else self.f1


class Score(Record):
    """The score of one episode."""

    episode_id: Id
    probes: tuple[ProbeScore, ...] = ()
    failure: Text | None = None
    """The reason why the rollout ended early."""
    dialogue_tokens: int = 0
    """Words and signs of the sessions heard."""
    memory_items: int = 0
    memory_tokens: int = 0
    """Words and signs of the items held at the end."""
    ops: dict[Text, int] = Field(default_factory=dict[str, int])
    """Ops applied while remembering by kind, and as REJECTED the facts and ops refused."""
    replies: int = 0
    """Replies of models that were read while remembering."""
    unread: int = 0
    """Those of which nothing could be read."""
    usage: Usage = Usage()
    """The cost of remembering."""
    seconds: float = 0.0
    """Seconds that remembering took."""
    facts: dict[Text, tuple[int, int]] = Field(default_factory=dict[str, tuple[int, int]])
    """(right, all) by figure of `environments.evaluation.fact_figures`, for generated worlds."""

    @property
    def reward(self) -> float | None:
        """Mean reward of the probes that could be scored; None when there is none."""
        rewards = [reward for probe in self.probes if (reward := probe.reward) is not None]
        return sum(rewards) / len(rewards) if rewards else None


def _repeated(ids: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(ids).items() if count > 1]

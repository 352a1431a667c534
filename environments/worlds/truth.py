"""The hidden state of an episode: what was told where, and what held after each session.

`Synthetic.truth(episode)` gives a `Truth`. Its `tellings` are in order of the dialogue;
each says which turn told what. A telling that replaces another names it in
`supersedes`, so the state after session k is a fold over the tellings of sessions 0 to
k and nothing else: `Truth.state(k)` is that fold. Only tellings with `true` set change
the state; jokes, rumours and stories about bystanders do not.

    truth = env.truth(episode)
    for session in truth.sessions:              # one `SessionTruth` a session, in order
        for telling in session.tellings:        # what its turns told
            telling.subject, telling.relation, telling.value, telling.act
            telling.turn_id, telling.supersedes
        session.state[("Ana Reed", "lives_in")] # tuple of `HeldValue` that hold after the session
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from enum import StrEnum
from functools import cached_property
from typing import Literal

from environments.worlds.language.spec import Kind

Key = tuple[str, str]
"""(subject's name, relation's name)."""


class Act(StrEnum):
    """The effect of a telling on the state."""

    ADD = "add"
    """A value that nobody had told before: a first state, a new member of a set, an event,
    a plan, an effect, a bond.
    """
    CHANGE = "change"
    """A new value of a state, preference or bond; the one it supersedes ends when this one
    begins.
    """
    CORRECT = "correct"
    """A value in the place of one that never was true; it takes over the start of the one
    it supersedes.
    """
    REMOVE = "remove"
    """The member of a set that it supersedes is gone."""
    DONE = "done"
    """The plan that it supersedes came true."""
    CANCEL = "cancel"
    """The plan that it supersedes is off."""
    MOVE = "move"
    """The plan that it supersedes has another day."""
    REASON = "reason"
    """The cause of the effect that it supersedes (it adds to it)."""
    REPEAT = "repeat"
    """The telling in `supersedes` once more, in other words; changes nothing."""
    JOKE = "joke"
    """Not meant; `value` is untrue."""
    RUMOUR = "rumour"
    """A wrong report, denied by the person in the next turn."""
    BYSTANDER = "bystander"
    """A fact about somebody whom no question is about, much like one that matters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Telling:
    """One thing told in one turn."""

    id: str
    """Unique in the episode: `T12`."""
    turn_id: str
    session: int
    """Place of the session, from 0."""
    speaker: str
    subject: str
    """The person it is about."""
    relation: str
    kind: Kind
    act: Act
    value: str
    """As it reads in an answer: pronouns of a cause-effect pair are in the third person."""
    said_on: date
    day: date | None = None
    """The day it happened, began or is meant to happen; None when the turn did not say."""
    day_text: str = ""
    """The phrase of time in the turn: "last Friday"; empty when there is none."""
    place: str = ""
    """Where, if told."""
    company: str = ""
    """In whose company, if told."""
    cause: str = ""
    """The cause, for `Act.REASON`."""
    supersedes: str = ""
    """Id of the telling that it changes, corrects, ends or repeats."""
    mention: Literal["", "name", "role"] = ""
    """The mention of the subject: by `name` or by the `role` ("my sister"); empty in the
    first person.
    """
    pronoun: bool = False
    """Whether the turn itself has a pronoun only; `mention` then says how the turn before
    it called the subject.
    """
    role: str = ""
    """The subject's lasting role to the speaker, if any."""
    form: str = ""
    """Id of the surface form: `lives_in.first.2`."""

    @property
    def true(self) -> bool:
        """Whether it changes the state."""
        return self.act not in _IDLE

    @property
    def key(self) -> Key:
        """(subject, relation)."""
        return self.subject, self.relation


_IDLE = frozenset((Act.REPEAT, Act.JOKE, Act.RUMOUR, Act.BYSTANDER))


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldValue:
    """A value as the state holds it.

    What ended stays in the state with its `end`; what was corrected is gone from it.
    """

    value: str
    kind: Kind
    start: date
    """The day that was told, else the day of the telling."""
    end: date | None = None
    """First day on which it no longer held; None while it does."""
    dated: bool = False
    """Whether the day of its start was told, so that one can ask for it."""
    place: str = ""
    company: str = ""
    cause: str = ""
    outcome: bool | None = None
    """Plan: whether it came true; None while open."""
    tellings: tuple[str, ...] = ()
    """Ids of the tellings that it rests on, in order; repetitions are left out."""
    turn_ids: tuple[str, ...] = ()
    """Their turns: the evidence."""

    @property
    def current(self) -> bool:
        """Whether it holds now."""
        return self.end is None


State = Mapping[Key, tuple[HeldValue, ...]]
"""All values of every (subject, relation), oldest first, ended ones included."""


@dataclass(frozen=True, kw_only=True)
class SessionTruth:
    """One session: what its turns told and what holds after it."""

    session_id: str
    date: date
    tellings: tuple[Telling, ...]
    state: State = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class ProbeTruth:
    """The origin of a probe."""

    probe_id: str
    ask: str
    """Its kind: an `Ask`, or `absent` for one without an answer."""
    subject: str
    relation: str
    value: str = ""
    """The value that the question names, if any."""
    other: str = ""
    """The second value of a question of order."""
    chain: str = ""
    """The phrase for the subject, when not the name: "Ana's sister"."""
    day: date | None = None
    """The day that the question names, if any."""
    moments: tuple[tuple[str, str, str], ...] = ()
    """The events whose days it rests on, each a (subject, relation, value)."""
    number: int = 0
    """The number that the question names, if any."""
    form: str = ""
    """Id of the question form."""


@dataclass(frozen=True)
class Truth:
    """Everything behind an episode."""

    episode_id: str
    speakers: tuple[str, ...]
    people: tuple[str, ...]
    """Those whom questions may be about: the speakers and the people they tell of."""
    bystanders: tuple[str, ...]
    dates: tuple[date, ...]
    session_ids: tuple[str, ...]
    tellings: tuple[Telling, ...]
    probes: tuple[ProbeTruth, ...] = ()

    @cached_property
    def by_id(self) -> Mapping[str, Telling]:
        """Tellings by id."""
        return {telling.id: telling for telling in self.tellings}

    @cached_property
    def states(self) -> tuple[State, ...]:
        """The state after each session."""
        return tuple(_states(self))

    def upto(self, sessions: int) -> Truth:
        """Return the truth of the first `sessions` sessions, without probes.

        Returns itself when there are no more.
        """
        if sessions >= len(self.session_ids):
            return self
        tellings = tuple(telling for telling in self.tellings if telling.session < sessions)
        return replace(
            self,
            dates=self.dates[:sessions],
            session_ids=self.session_ids[:sessions],
            tellings=tellings,
            probes=(),
        )

    def state(self, session: int) -> State:
        """Return the state after session number `session`, from 0.

        Negative places count from the end.
        """
        return self.states[session]

    @cached_property
    def sessions(self) -> tuple[SessionTruth, ...]:
        """The sessions in order."""
        tellings: list[list[Telling]] = [[] for _ in self.session_ids]
        for telling in self.tellings:
            tellings[telling.session].append(telling)
        return tuple(
            SessionTruth(session_id=name, date=day, tellings=tuple(some), state=state)
            for name, day, some, state in zip(
                self.session_ids, self.dates, tellings, self.states, strict=True
            )
        )


def _states(truth: Truth) -> Iterator[State]:
    folding = Folding()
    tellings, place = truth.tellings, 0
    for number in range(len(truth.session_ids)):
        while place < len(tellings) and tellings[place].session == number:
            folding.tell(tellings[place])
            place += 1
        yield folding.state()


class Folding:
    """The fold from tellings to the state, one telling at a time."""

    def __init__(self) -> None:
        self._values: dict[Key, tuple[HeldValue, ...]] = {}

    def state(self) -> State:
        """Return the state now; later tellings leave it as it is."""
        return dict(self._values)

    def tell(self, telling: Telling) -> None:
        """Take in one telling."""
        if not telling.true:
            return
        values = list(self._values.get(telling.key, ()))
        if telling.act is Act.ADD:
            values.append(_begun(telling))
        else:
            place = max(i for i, held in enumerate(values) if telling.supersedes in held.tellings)
            values[place : place + 1] = _replaced(values[place], telling)
        self._values[telling.key] = tuple(values)


def _begun(telling: Telling) -> HeldValue:
    return HeldValue(
        value=telling.value,
        kind=telling.kind,
        start=telling.day or telling.said_on,
        dated=telling.day is not None,
        place=telling.place,
        company=telling.company,
        tellings=(telling.id,),
        turn_ids=(telling.turn_id,),
    )


def _replaced(held: HeldValue, telling: Telling) -> list[HeldValue]:
    """Return what takes the place of a value that was changed, corrected, ended or added to."""
    rests = {
        "tellings": (*held.tellings, telling.id),
        "turn_ids": (*held.turn_ids, telling.turn_id),
    }
    day = telling.day or telling.said_on
    if telling.act is Act.CHANGE:
        return [replace(held, end=day, **rests), _begun(telling)]
    if telling.act is Act.CORRECT:
        return [replace(held, value=telling.value, **rests)]
    if telling.act is Act.REMOVE:
        return [replace(held, end=day, **rests)]
    if telling.act is Act.MOVE:
        return [replace(held, start=day, dated=True, **rests)]
    if telling.act is Act.REASON:
        return [replace(held, cause=telling.cause, **rests)]
    return [replace(held, outcome=telling.act is Act.DONE, **rests)]

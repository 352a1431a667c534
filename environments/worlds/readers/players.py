"""Readers that hear everything and remember differently.

They prove that the questions of a world test memory and nothing else.

    oracle        keeps the state: every value with its span, revised as told
    last_write    keeps the newest value of everything and forgets the one it replaces
    append_first  keeps every statement, revises none, believes the first
    append_all    the same, and answers with all of them
    random        keeps every statement and answers with the value of any
    empty         keeps nothing and abstains

They are agents that can be played. What a turn tells and what a question wants is given
to them (the `Truth`); what they *know* when asked is what their bank holds, as items
written through its commits, so snapshots, forks and replays apply to them as to any
agent.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import date
from typing import Final, Literal, get_args

from environments.errors import EnvironmentFault
from environments.worlds.language.days import Calendar, count_answers, day_answers
from environments.worlds.readers.moments import solve
from environments.worlds.truth import Act, Folding, HeldValue, ProbeTruth, State, Telling, Truth
from memagent.async_agent import AsyncAgent
from memagent.core.answers import Answer, Hit, Question, Verdict
from memagent.core.ops import Add, Delete, MemoryOp, OpBatch, Update
from memagent.core.records import Fact, MemoryItem, Session, SourceRef
from memagent.core.snapshot import IngestReport, MemorySnapshot

PlayerName = Literal["oracle", "last_write", "append_first", "append_all", "random", "empty"]
PLAYERS: Final[tuple[PlayerName, ...]] = get_args(PlayerName)
"""Players by name."""
_CHANGES: Final = frozenset((Act.ADD, Act.CHANGE, Act.CORRECT))


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """The note in one item."""

    subject: str
    relation: str
    kind: str
    value: str
    start: str
    end: str = ""
    dated: bool = False
    place: str = ""
    company: str = ""
    cause: str = ""
    outcome: bool | None = None

    @property
    def claim(self) -> tuple[str, str, str]:
        """The claim: (subject, relation, value)."""
        return self.subject, self.relation, self.value

    @property
    def text(self) -> str:
        """The note as an item's text."""
        return json.dumps(asdict(self), ensure_ascii=False)


def read_note(item: MemoryItem) -> Note:
    """Return the note in an item's text."""
    return Note(**json.loads(item.text))


@dataclass(frozen=True, kw_only=True)
class Player:
    """A reader of one episode."""

    base: AsyncAgent
    truth: Truth
    calendar: Calendar
    name: PlayerName

    async def remember(self, session: Session) -> IngestReport:
        """Store the session and update the notes, in one commit."""
        fresh = await self.base.bank.store_session(session)
        if fresh and self.name != "empty":
            number = self.truth.session_ids.index(session.id)
            source = SourceRef(
                session_id=session.id,
                turn_ids=tuple(turn.id for turn in session.turns),
                actor=self.name,
            )
            await self.base.bank.commit(
                OpBatch(accepted=tuple(self._ops(number, session))), source=source
            )
        return IngestReport(
            session_id=session.id,
            stored_turns=len(session.turns) if fresh else 0,
            skipped=not fresh,
        )

    def _ops(self, number: int, session: Session) -> Iterator[MemoryOp]:
        tellings = tuple(telling for telling in self.truth.tellings if telling.session <= number)
        notes = notes_of(self.name, tellings)
        items = self.base.bank.state.items
        for item_id, (note, turn_ids) in notes.items():
            old = items.get(item_id)
            if old is None:
                fact = Fact(
                    text=note.text,
                    subject=note.subject,
                    source_turn_ids=turn_ids,
                    said_at=session.at,
                )
                yield Add(id=item_id, fact=fact)
            elif old.text != note.text:
                yield Update(id=item_id, text=note.text, source_turn_ids=turn_ids)
        for item_id, item in items.items():
            if item.active and item_id not in notes:
                yield Delete(id=item_id)

    async def ask(self, question: Question) -> Answer:
        """Answer from the notes; abstain when they say nothing.

        Raises `EnvironmentFault` for a question of another episode.
        """
        probe = next((probe for probe in self.truth.probes if probe.probe_id == question.id), None)
        if probe is None:
            raise EnvironmentFault(
                f"question {question.id!r} is not of episode {self.truth.episode_id!r}"
            )
        items = [item for item in self.base.bank.state.items.values() if item.active]
        known = sorted(((item, read_note(item)) for item in items), key=lambda pair: _age(pair[0]))
        used = [
            (item, note) for item, note in known if self.name == "random" or _concerns(probe, note)
        ]
        text = answer_from(self.name, self.calendar, probe, [note for _, note in used])
        hits = tuple(Hit(id=item.id, score=1.0, item=item) for item, _ in used)
        if not text:
            return Answer(text="", verdict=Verdict.ABSTAINED, question=question)
        return Answer(text=text, hits=hits, question=question)

    def snapshot(self) -> MemorySnapshot:
        """Return the memory as it is."""
        return self.base.snapshot()

    def at(self, snapshot: MemorySnapshot) -> Player:
        """Return the same player on a private memory that starts from a snapshot."""
        return replace(self, base=self.base.at(snapshot))


def notes_of(
    name: PlayerName, tellings: tuple[Telling, ...]
) -> Mapping[str, tuple[Note, tuple[str, ...]]]:
    """Return what a player holds after these tellings, in order of telling.

    An item id leads to its note and the turns it rests on.
    """
    if name in ("oracle", "last_write"):
        folding = Folding()
        for telling in tellings:
            folding.tell(telling)
        return dict(_held(folding.state(), newest=name == "last_write"))
    return {
        f"mem_{telling.id}": (_note_of(telling), (telling.turn_id,))
        for telling in tellings
        if telling.act in _CHANGES and name != "empty"
    }


def _held(state: State, *, newest: bool) -> Iterator[tuple[str, tuple[Note, tuple[str, ...]]]]:
    for (subject, relation), values in state.items():
        for held in values:
            if held.current or not newest:
                yield f"mem_{held.tellings[0]}", (_note(subject, relation, held), held.turn_ids)


def _note(subject: str, relation: str, held: HeldValue) -> Note:
    return Note(
        subject=subject,
        relation=relation,
        kind=held.kind,
        value=held.value,
        start=held.start.isoformat(),
        end="" if held.end is None else held.end.isoformat(),
        dated=held.dated,
        place=held.place,
        company=held.company,
        cause=held.cause,
        outcome=held.outcome,
    )


def _note_of(telling: Telling) -> Note:
    day = telling.day or telling.said_on
    return Note(
        subject=telling.subject,
        relation=telling.relation,
        kind=telling.kind,
        value=telling.value,
        start=day.isoformat(),
        dated=telling.day is not None,
        place=telling.place,
        company=telling.company,
    )


def _age(item: MemoryItem) -> int:
    return int(item.id.removeprefix("mem_T"))


def _concerns(probe: ProbeTruth, note: Note) -> bool:
    """Whether the note is about what is asked, or tells who the person is."""
    if probe.moments and note.claim in probe.moments:
        return True
    return note.relation == probe.relation or (note.kind == "bond" and note.value == probe.subject)


def answer_from(name: PlayerName, calendar: Calendar, probe: ProbeTruth, notes: list[Note]) -> str:
    """Return the answer that the notes give, oldest first; empty for none."""
    if name == "random":
        return random.Random(probe.probe_id).choice(notes).value if notes else ""
    if probe.moments:
        return _from_days(calendar, probe, notes)
    related = [note for note in notes if note.relation == probe.relation]
    own = (
        related
        if probe.ask == "who"
        else [note for note in related if note.subject == probe.subject]
    )
    if not own:
        return ""
    answers = _READERS[probe.ask](calendar, probe, own)
    if name == "append_all" or (answers and own[0].kind == "set" and probe.ask == "now"):
        return ", ".join(answers)
    return answers[0] if answers else ""


def _from_days(calendar: Calendar, probe: ProbeTruth, notes: list[Note]) -> str:
    """Return the answer that follows from the order or the days of what the question names."""
    if probe.ask == "excerpt":
        claims = [note.claim for note in notes]
        known = [claim for claim in probe.moments if claim in claims]
        first = min(known, key=claims.index, default=None)
        return "" if first is None else (probe.value, probe.other)[probe.moments.index(first)]
    days: dict[tuple[str, str, str], date] = {}
    for note in notes:
        if note.dated:
            days.setdefault(note.claim, date.fromisoformat(note.start))
    if any(claim not in days for claim in probe.moments):
        return ""
    if probe.ask == "co_temporality":
        return answer_from(
            "oracle",
            calendar,
            replace(probe, ask="then", moments=(), day=days[probe.moments[0]]),
            notes,
        )
    moments = [(claim[2], days[claim]) for claim in probe.moments]
    return next(iter(solve(probe.ask, moments, number=probe.number, calendar=calendar)), "")


def _now(_calendar: Calendar, _probe: ProbeTruth, notes: list[Note]) -> list[str]:
    return [note.value for note in notes if not note.end]


def _then(_calendar: Calendar, probe: ProbeTruth, notes: list[Note]) -> list[str]:
    assert probe.day is not None
    day = probe.day.isoformat()
    if notes[0].kind == "event":
        return [note.value for note in notes if note.start == day]
    return [note.value for note in notes if note.start <= day and (not note.end or day < note.end)]


def _when(calendar: Calendar, probe: ProbeTruth, notes: list[Note]) -> list[str]:
    return [
        day_answers(calendar, date.fromisoformat(note.start))[0]
        for note in notes
        if note.value == probe.value and note.dated
    ]


def _count(calendar: Calendar, _probe: ProbeTruth, notes: list[Note]) -> list[str]:
    return [count_answers(calendar, sum(not note.end for note in notes))[0]]


def _order(_calendar: Calendar, probe: ProbeTruth, notes: list[Note]) -> list[str]:
    named = sorted(
        (note for note in notes if note.value in (probe.value, probe.other)),
        key=lambda note: note.start,
    )
    return [note.value for note in named]


def _who(_calendar: Calendar, probe: ProbeTruth, notes: list[Note]) -> list[str]:
    return [note.subject for note in notes if note.value == probe.value and not note.end]


def _where(_calendar: Calendar, probe: ProbeTruth, notes: list[Note]) -> list[str]:
    return [note.place for note in notes if note.value == probe.value and note.place]


def _with(_calendar: Calendar, probe: ProbeTruth, notes: list[Note]) -> list[str]:
    return [note.company for note in notes if note.value == probe.value and note.company]


def _why(_calendar: Calendar, probe: ProbeTruth, notes: list[Note]) -> list[str]:
    return [note.cause for note in notes if note.value == probe.value and note.cause]


def _outcome(_calendar: Calendar, probe: ProbeTruth, notes: list[Note]) -> list[str]:
    outcomes = [
        note.outcome for note in notes if note.value == probe.value and note.outcome is not None
    ]
    return ["yes" if outcome else "no" for outcome in outcomes]


_READERS: Final[Mapping[str, Callable[[Calendar, ProbeTruth, list[Note]], list[str]]]] = {
    "now": _now,
    "then": _then,
    "when": _when,
    "count": _count,
    "order": _order,
    "who": _who,
    "where": _where,
    "with": _with,
    "why": _why,
    "outcome": _outcome,
}
"""The way to read each kind of question off the notes."""

"""Dialogues written by hand, read strictly.

A file is a batch of short dialogues in plain text, because people write and review them.
A file is read whole or refused with the first fault's line. The surprise: a statement's
value is a span of the turn's text, so a label can never say what nobody said.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Literal, NoReturn, cast, get_args

from environments.errors import EnvironmentFault

RelationKind = Literal["replaces", "ends", "adds", "same", "corrects"]
Tense = Literal["past", "now", "future", "none"]

_BATCH = re.compile(r"# batch: (\S+) \| language: ([a-z]{2}) \| voices: (\S.*)")
_CHAT = re.compile(r"# chat: (\S.*), ([A-Za-z]{2,})")
_TURN = re.compile(r"([a-z]) ([^:|]{1,40}): (.+)")
_LINE_OF_CHAT = re.compile(r"([AB]): (\S.*)")


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of a turn about the world that one would look up later."""

    subject: str
    predicate: str
    value: str | None
    """A span of the turn's text."""
    positive: bool
    tense: Tense


@dataclass(frozen=True, slots=True)
class Relation:
    """The relation of a statement to an earlier one of the same dialogue."""

    kind: RelationKind
    to: str


@dataclass(frozen=True, slots=True)
class DialogueTurn:
    """One turn, its day and its label."""

    id: str
    session: int
    """Counted from 0."""
    day: date
    speaker: str
    text: str
    statement: Statement | None
    relations: tuple[Relation, ...]


@dataclass(frozen=True, slots=True)
class DialogueQuestion:
    """A question asked after the dialogue."""

    text: str
    turn_ids: tuple[str, ...]
    answers: tuple[str, ...]
    """Spans of those turns."""


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A few turns over one to several sessions, with questions."""

    id: str
    batch: str
    language: str
    persona: str
    turns: tuple[DialogueTurn, ...]
    questions: tuple[DialogueQuestion, ...]


@dataclass(frozen=True, slots=True)
class SmallTalk:
    """A chat that states nothing one would look up later."""

    about: str
    language: str
    lines: tuple[tuple[str, str], ...]
    """Speaker (A or B) and text."""


def read_dialogues(path: Path) -> tuple[Dialogue, ...]:
    """Return the dialogues of one batch file; a fault names the file and the line."""
    lines = _lines(path)
    head = _BATCH.fullmatch(lines[0])
    if head is None or head[1] != path.stem:
        _fail(path, 1, f"expected '# batch: {path.stem} | language: .. | voices: ..'")
    drafts: list[_Draft] = []
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        try:
            if line.startswith("=== "):
                drafts.append(_Draft.begun(line, head[1], len(drafts) + 1))
            elif not drafts:
                raise ValueError("expected '=== id | persona'")
            else:
                drafts[-1].take(line)
        except ValueError as fault:
            _fail(path, number, str(fault))
    try:
        return tuple(draft.finished(head[1], head[2]) for draft in drafts)
    except ValueError as fault:
        _fail(path, len(lines), str(fault))


def read_small_talk(path: Path) -> tuple[SmallTalk, ...]:
    """Return the talks of one file; a blank line ends a talk."""
    lines = _lines(path)
    head = _CHAT.fullmatch(lines[0])
    if head is None:
        _fail(path, 1, "expected '# chat: who with whom, language'")
    talks: list[SmallTalk] = []
    talk: list[tuple[str, str]] = []
    for number, line in enumerate([*lines[1:], ""], start=2):
        if line.strip():
            parts = _LINE_OF_CHAT.fullmatch(line)
            if parts is None:
                _fail(path, number, "expected 'A: text' or 'B: text'")
            talk.append((parts[1], parts[2]))
        elif talk:
            talks.append(SmallTalk(head[1], head[2], tuple(talk)))
            talk = []
    return tuple(talks)


@dataclass(slots=True)
class _Draft:
    """A dialogue while its lines are read."""

    id: str
    persona: str
    sessions: int = 0
    day: date | None = None
    turns: dict[str, DialogueTurn] = field(default_factory=dict[str, DialogueTurn])
    questions: list[DialogueQuestion] = field(default_factory=list[DialogueQuestion])

    @classmethod
    def begun(cls, line: str, batch: str, number: int) -> _Draft:
        """Return the dialogue that a line `=== id | persona` begins."""
        name, _, persona = line.removeprefix("=== ").partition(" | ")
        if name != f"{batch}-{number:03}" or not persona.strip():
            raise ValueError(f"expected '=== {batch}-{number:03} | persona'")
        return cls(name, persona.strip())

    def take(self, line: str) -> None:
        """Take a session's date, a turn or a question."""
        if line.startswith("@ "):
            day = date.fromisoformat(line[2:].strip())
            if self.day is not None and day < self.day:
                raise ValueError("a session lies before the one above it")
            self.day, self.sessions = day, self.sessions + 1
        elif line.startswith("? "):
            self.questions.append(self._question(line[2:]))
        else:
            self._turn(line)

    def _turn(self, line: str) -> None:
        if self.day is None or self.questions:
            raise ValueError("a turn stands after a date and before the questions")
        said, *fields = line.rstrip().split(" || ")
        parts = _TURN.fullmatch(said)
        expected = chr(ord("a") + len(self.turns))
        if parts is None or parts[1] != expected or not 1 <= len(fields) <= 2:
            raise ValueError(f"expected '{expected} Speaker: text || label [|| relations]'")
        text = parts[3].strip()
        statement = _statement(fields[0], text)
        relations = tuple(map(self._relation, fields[1].split(","))) if fields[1:] else ()
        if relations and statement is None:
            raise ValueError("a turn that states nothing has no relations")
        if len({relation.to for relation in relations}) < len(relations):
            raise ValueError("one relation to an earlier statement is enough")
        place = (self.sessions - 1, self.day)
        self.turns[expected] = DialogueTurn(expected, *place, parts[2], text, statement, relations)

    def _relation(self, text: str) -> Relation:
        kind, _, to = text.strip().partition(" ")
        if to not in self.turns or self.turns[to].statement is None:
            raise ValueError(f"no earlier statement {to!r}")
        if kind not in get_args(RelationKind):
            raise ValueError(f"no relation {kind!r}")
        return Relation(cast(RelationKind, kind), to)

    def _question(self, line: str) -> DialogueQuestion:
        text, *fields = (part.strip() for part in line.split("|"))
        if fields in (["-"], ["-", ""]):
            return DialogueQuestion(text, (), ())
        if len(fields) != 2:
            raise ValueError("expected '? text | id | answer' or '? text | -'")
        ids = tuple(fields[0].split("+"))
        for unknown in [name for name in ids if name not in self.turns]:
            raise ValueError(f"no turn {unknown!r}")
        answers = tuple(fields[1].split(" + "))
        for answer in answers:
            if not answer or not any(answer in self.turns[name].text for name in ids):
                raise ValueError(f"the answer {answer!r} is no span of turn {fields[0]}")
        return DialogueQuestion(text, ids, answers)

    def finished(self, batch: str, language: str) -> Dialogue:
        """Return the dialogue; it has two to fourteen turns."""
        if not 2 <= len(self.turns) <= 14:
            raise ValueError(f"{self.id} has {len(self.turns)} turns, not two to fourteen")
        turns = tuple(self.turns.values())
        return Dialogue(self.id, batch, language, self.persona, turns, tuple(self.questions))


def _statement(label: str, text: str) -> Statement | None:
    if label.strip() == "-":
        return None
    fields = [part.strip() for part in label.split(" | ")]
    if len(fields) != 5 or not fields[0] or not re.fullmatch(r"[a-z]+( [a-z]+)?", fields[1]):
        raise ValueError("expected '-' or 'subject | predicate | value | + or - | time'")
    subject, predicate, value, polarity, time = fields
    if value != "~" and (not value or value not in text):
        raise ValueError(f"the value {value!r} is no span of the text")
    if polarity not in ("+", "-"):
        raise ValueError(f"no polarity {polarity!r}")
    if time not in get_args(Tense):
        raise ValueError(f"no time {time!r}")
    spoken = None if value == "~" else value
    return Statement(subject, predicate, spoken, polarity == "+", cast(Tense, time))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as fault:
        raise EnvironmentFault(f"{path}: not UTF-8 text ({fault})") from fault


def _fail(path: Path, line: int, fault: str) -> NoReturn:
    raise EnvironmentFault(f"{path}:{line}: {fault}")


if __name__ == "__main__":
    for name in map(Path, sys.argv[1:]):
        read = read_small_talk if name.parent.name == "chat" else read_dialogues
        sys.stdout.write(f"{name}: {len(read(name))}\n")

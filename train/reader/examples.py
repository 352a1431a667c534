"""Hand-written dialogues as examples for the heads, split by file.

Files of even number are held out: nothing that fits or chooses may read them. Of the
others every eighth, and those in a folder `choice`, are the *choice* part, on which
thresholds are set; those in a folder `later` are kept from the network, so that what
decides about a change is fitted to dialogues that it has not read; those in `next` wait
for the next fit. A turn of small talk states nothing.

Which relation a pair has is not always known. A statement that an earlier turn has
already ended, and one that stands to a related statement as its elaboration, may or may
not be touched by a later turn; such pairs carry `UNKNOWN` and no head sees them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Final, Literal

from environments.dialogues import records
from memagent.language.reader import RELATIONS, Statement

Part = Literal["fit", "choice", "later", "held out"]
SUBJECTS: Final = ("self", "named", "other")
TIMES: Final = ("past", "now", "future", "none")
POLARITIES: Final = ("+", "-")
MATCHES: Final = ("answers", "speaks", "no")
"""Classes of a statement beside a question."""
UNKNOWN: Final = -1
UNRELATED: Final = RELATIONS.index("unrelated")
_CHOICE_OF = 8
_CHANGES: Final = {"replaces": "replaces", "corrects": "replaces", "ends": "ends"}
_NUMBER = re.compile(r"(\d+)$")
_CHAT_DAY = date(2024, 3, 1)


@dataclass(frozen=True)
class TurnLabel:
    """The classes of a turn that states something."""

    subject: int
    time: int
    polarity: int
    predicate: str
    value: tuple[int, int] | None
    """Characters of the text."""


@dataclass(frozen=True)
class Turn:
    """A turn of a talk, its label if it states something."""

    said: Statement
    label: TurnLabel | None


@dataclass(frozen=True)
class Question:
    """A question about one talk."""

    text: str
    matches: tuple[int, ...]
    """A class of `MATCHES` for every turn of the talk."""


@dataclass(frozen=True)
class Talk:
    """A dialogue or a piece of small talk."""

    id: str
    topic: str
    """Name of the file without its number."""
    language: str
    turns: tuple[Turn, ...]
    pairs: tuple[tuple[int, int, int], ...]
    """Old turn, new turn and a class of `RELATIONS` or `UNKNOWN`; none of small talk."""
    questions: tuple[Question, ...]

    @property
    def is_chat(self) -> bool:
        """Whether this is small talk."""
        return self.topic == "chat"

    def ended(self) -> dict[int, int]:
        """Return the turns that a later turn ends or replaces, by their place, and which."""
        changes = {RELATIONS.index("replaces"), RELATIONS.index("ends")}
        return {old: new for old, new, relation in reversed(self.pairs) if relation in changes}

    def lasting_turns(self) -> frozenset[int]:
        """Return the turns whose statement must stay, by their place."""
        unsure = {old for old, _, relation in self.pairs if relation == UNKNOWN}
        stated = {place for place, turn in enumerate(self.turns) if turn.label is not None}
        return frozenset(stated - unsure - self.ended().keys())


def read_talks(folders: Sequence[Path], part: Part) -> list[Talk]:
    """Return the talks of one part, in the order of the files' names."""
    files = sorted(
        (path for folder in folders for path in folder.rglob("*.txt")),
        key=lambda path: (path.parent.name, path.stem),
    )
    open_files = [path for path in files if _number(path) % 2]
    named = {
        name: [path for path in open_files if path.parent.name == name]
        for name in ("choice", "later", "next")
    }
    others = [path for path in open_files if path.parent.name not in named]
    choice = [*others[3::_CHOICE_OF], *named["choice"]]
    parts: dict[Part, list[Path]] = {
        "fit": [path for path in others if path not in choice],
        "choice": choice,
        "later": named["later"],
        "held out": [path for path in files if not _number(path) % 2],
    }
    return [talk for path in parts[part] for talk in _talks(path)]


def _number(path: Path) -> int:
    match = _NUMBER.search(path.stem)
    if match is None:
        raise ValueError(f"{path}: a batch's name ends in its number")
    return int(match[1])


def _talks(path: Path) -> list[Talk]:
    if path.parent.name == "chat":
        return [
            _small_talk(f"chat-{path.stem}-{number}", talk)
            for number, talk in enumerate(records.read_small_talk(path))
        ]
    topic = path.stem.rpartition("-")[0]
    return [_dialogue(topic, dialogue) for dialogue in records.read_dialogues(path)]


def _small_talk(name: str, talk: records.SmallTalk) -> Talk:
    at = _moment(_CHAT_DAY)
    turns = tuple(Turn(Statement(text, speaker, at), None) for speaker, text in talk.lines)
    return Talk(name, "chat", talk.language.lower(), turns, (), ())


def _dialogue(topic: str, dialogue: records.Dialogue) -> Talk:
    places = {turn.id: place for place, turn in enumerate(dialogue.turns)}
    turns = tuple(_turn(turn) for turn in dialogue.turns)
    links = {
        (places[link.to], place): link.kind
        for place, turn in enumerate(dialogue.turns)
        for link in turn.relations
    }
    pairs = tuple(
        (old, new, _relation(links, old, new)) for new in range(len(turns)) for old in range(new)
    )
    return Talk(
        dialogue.id,
        topic,
        dialogue.language,
        turns,
        pairs,
        tuple(_question(question, turns, links, places) for question in dialogue.questions),
    )


def _turn(turn: records.DialogueTurn) -> Turn:
    said = Statement(turn.text, turn.speaker, _moment(turn.day) + timedelta(hours=turn.session))
    stated = turn.statement
    if stated is None:
        return Turn(said, None)
    subject = "self" if stated.subject == "self" else "named"
    subject = "other" if stated.subject == "other" else subject
    span = None
    if stated.value is not None:
        first = turn.text.index(stated.value)
        span = first, first + len(stated.value)
    return Turn(
        said,
        TurnLabel(
            SUBJECTS.index(subject),
            TIMES.index(stated.tense),
            POLARITIES.index("+" if stated.positive else "-"),
            stated.predicate,
            span,
        ),
    )


def _relation(links: Mapping[tuple[int, int], str], old: int, new: int) -> int:
    """Return the class of a pair: as labelled, unknown, or unrelated."""
    kind = links.get((old, new))
    if kind is not None:
        return RELATIONS.index(_CHANGES.get(kind, kind))
    kin = {other for other in range(new) if (min(old, other), max(old, other)) in links}
    if any((other, new) in links for other in kin):
        return UNKNOWN  # the new turn touches something that the old one is bound to
    if any(links.get((old, later)) in _CHANGES for later in range(old + 1, new)):
        return UNKNOWN
    return UNRELATED


def _question(
    question: records.DialogueQuestion,
    turns: Sequence[Turn],
    links: Mapping[tuple[int, int], str],
    places: dict[str, int],
) -> Question:
    gold = {places[name] for name in question.turn_ids}
    related = {place for pair in links for place in pair if gold & set(pair)}
    predicates = {label.predicate for place in gold if (label := turns[place].label)}
    matches: list[int] = []
    for place, turn in enumerate(turns):
        alike = turn.label is not None and turn.label.predicate in predicates
        match = "answers" if place in gold else "speaks" if place in related or alike else "no"
        matches.append(MATCHES.index(match))
    return Question(question.text, tuple(matches))


def _moment(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, 12, tzinfo=UTC)

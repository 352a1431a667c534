"""What a reader is worth: figures on talks that no fit has seen, and false changes in chat.

A dialogue is played turn by turn, each against all earlier turns that still stand, as a
memory would. Found is an ended or replaced statement that the right turn or a later one
ended; wrong is one that nothing ends and that was ended all the same. Statements whose
state the labels leave open count for neither.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from sklearn.metrics import roc_auc_score

from memagent.language.reader import (
    MATCHES,
    POLARITIES,
    SUBJECTS,
    TIMES,
    Reader,
    Statement,
    TurnReading,
    together,
)
from train.reader.examples import UNKNOWN, Talk

_SESSION = re.compile(r"session_(\d+)")


@dataclass(frozen=True)
class Scored:
    """A pair of a dialogue with its label and both heads' probabilities of a change."""

    language: str
    relation: int
    light: float
    change: float

    @property
    def is_change(self) -> bool:
        """Whether the label says that the old statement holds no longer."""
        return self.relation < 2


@dataclass(frozen=True)
class Played:
    """The fate of the statements of dialogues that were played."""

    updates: int
    found: int
    kept: int
    """Statements that must stay."""
    wrong: int
    """Of them, those that were ended."""
    faults: tuple[str, ...]
    """Wrong changes in words."""
    missed: tuple[str, ...]


@dataclass(frozen=True)
class ChatChange:
    """A change that a reader made in a conversation."""

    conversation: str
    old: Statement
    new: Statement
    relation: str
    probability: float


def read_vectors(reader: Reader, talks: Sequence[Talk]) -> list[Talk]:
    """Return talks whose statements carry their vectors."""
    known = iter(reader.read([turn.said for talk in talks for turn in talk.turns]))
    return [
        replace(talk, turns=tuple(replace(turn, said=next(known)) for turn in talk.turns))
        for talk in talks
    ]


def score_pairs(reader: Reader, talks: Sequence[Talk]) -> list[Scored]:
    """Return every labelled pair of dialogues that carry their vectors, scored by both heads."""
    scored: list[Scored] = []
    for talk in talks:
        for new in range(1, len(talk.turns)):
            pairs = [pair for pair in talk.pairs if pair[1] == new and pair[2] != UNKNOWN]
            old = [talk.turns[pair[0]].said for pair in pairs]
            said = talk.turns[new].said
            scored += [
                Scored(talk.language, pair[2], float(light), reading.change)
                for pair, light, reading in zip(
                    pairs, reader.propose(old, said), reader.compare(old, said), strict=True
                )
            ]
    return scored


def aurocs(scored: Sequence[Scored]) -> dict[str, float]:
    """Return the area under the curve of "replaces or ends", for both heads."""
    truth = [pair.is_change for pair in scored]
    if len(set(truth)) < 2:
        return {}
    return {
        "light": float(roc_auc_score(truth, [pair.light for pair in scored])),
        "together": float(roc_auc_score(truth, [pair.change for pair in scored])),
    }


def play(reader: Reader, talks: Sequence[Talk]) -> Played:
    """Play dialogues through `Reader.changes`, turn by turn."""
    counts: Counter[str] = Counter()
    faults: list[str] = []
    missed: list[str] = []
    for talk in talks:
        ended = _changes(reader, talk)
        truth = talk.ended()
        unsure = {old for old, _, relation in talk.pairs if relation == UNKNOWN}
        for place, turn in enumerate(talk.turns):
            by = ended.get(place)
            if place in truth:
                counts["updates"] += 1
                counts["found"] += by is not None and by >= truth[place]
                if by is None:
                    missed.append(_line(talk, place, truth[place]))
            elif turn.label is not None and place not in unsure:
                counts["kept"] += 1
                if by is not None:
                    counts["wrong"] += 1
                    faults.append(_line(talk, place, by))
    return Played(
        updates=counts["updates"],
        found=counts["found"],
        kept=counts["kept"],
        wrong=counts["wrong"],
        faults=tuple(faults),
        missed=tuple(missed),
    )


def statement_shares(reader: Reader, talks: Sequence[Talk]) -> tuple[list[float], list[float]]:
    """Return the highest `together` of a change: of ended statements, of those that stay.

    An ended statement's is that of the turn that ends it. The dialogues were read
    (`read_vectors`).
    """
    ended: list[float] = []
    kept: list[float] = []
    for talk in talks:
        truth = talk.ended()
        unsure = {old for old, _, relation in talk.pairs if relation == UNKNOWN}
        shares = [0.0] * len(talk.turns)
        said = [turn.said for turn in talk.turns]
        for new in range(1, len(said)):
            for old, reading in enumerate(reader.compare(said[:new], said[new])):
                if truth.get(old, new) == new:
                    share = together(reading.change, said[old].states, said[new].states)
                    shares[old] = max(shares[old], share)
        for place, turn in enumerate(talk.turns):
            if place in truth:
                ended.append(shares[place])
            elif turn.label is not None and place not in unsure:
                kept.append(shares[place])
    return ended, kept


def turn_scores(reader: Reader, talks: Sequence[Talk]) -> dict[str, float]:
    """Return the turn head's accuracies; `value` counts equal spans."""
    right: Counter[str] = Counter()
    seen: Counter[str] = Counter()

    def count(name: str, is_right: bool) -> None:
        seen[name] += 1
        right[name] += is_right

    for talk, readings in zip(talks, _readings(reader, talks), strict=True):
        for turn, reading in zip(talk.turns, readings, strict=True):
            label = turn.label
            states = reading.states >= 0.5
            name = "small talk" if talk.is_chat else "states" if label else "states nothing"
            count(name, states == (label is not None))
            if label is not None:
                count("subject", SUBJECTS[label.subject] == reading.subject)
                count("time", TIMES[label.time] == reading.time)
                count("polarity", POLARITIES[label.polarity] == reading.polarity)
                count("value", label.value == reading.value)
    return {name: right[name] / total for name, total in seen.items()}


def match_scores(reader: Reader, talks: Sequence[Talk]) -> dict[str, float]:
    """Return how well questions find their turns: area, first hits, spans."""
    truth: list[bool] = []
    shares: list[float] = []
    right: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    for talk in talks:
        for question in talk.questions:
            readings = reader.match(question.text, [turn.said for turn in talk.turns])
            gold = [MATCHES[match] == "answers" for match in question.matches]
            truth += gold
            shares += [reading.answers for reading in readings]
            if any(gold):
                best = int(np.argmax([reading.answers for reading in readings]))
                seen["first"] += 1
                right["first"] += gold[best]
                if gold[best]:
                    seen["span"] += 1
                    right["span"] += readings[best].span == question.spans[best]
    scores = {name: right[name] / total for name, total in seen.items()}
    if len(set(truth)) == 2:
        scores["answers, area"] = float(roc_auc_score(truth, shares))
    return scores


def read_conversation(path: Path) -> list[Statement]:
    """Return the turns of a conversation of LoCoMo, in order."""
    conversation = json.loads(path.read_text(encoding="utf-8"))["conversation"]
    numbers = sorted(int(match[1]) for name in conversation if (match := _SESSION.fullmatch(name)))
    turns: list[Statement] = []
    for number in numbers:
        written = conversation[f"session_{number}_date_time"]
        at = datetime.strptime(written, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
        turns += [
            Statement(turn["text"], turn["speaker"], at)
            for turn in conversation[f"session_{number}"]
            if turn["text"].strip()
        ]
    return turns


def chat_changes(
    reader: Reader, name: str, turns: Sequence[Statement], *, same_speaker: bool = True
) -> list[ChatChange]:
    """Return every change in a conversation, each turn judged against its speaker's earlier ones.

    A statement that was ended is no candidate any more.
    """
    known = reader.read(turns)
    gone: set[int] = set()
    changes: list[ChatChange] = []
    for place, turn in enumerate(known):
        earlier = [
            number
            for number in range(place)
            if number not in gone and (not same_speaker or known[number].speaker == turn.speaker)
        ]
        for change in reader.changes(turn, [known[number] for number in earlier]):
            old = earlier[change.index]
            gone.add(old)
            changes.append(ChatChange(name, known[old], turn, change.relation, change.probability))
    return changes


def _changes(reader: Reader, talk: Talk) -> dict[int, int]:
    """Return the turns that were ended, by their place, and the turn that ended each."""
    ended: dict[int, int] = {}
    for new in range(1, len(talk.turns)):
        standing = [old for old in range(new) if old not in ended]
        for change in reader.changes(
            talk.turns[new].said, [talk.turns[old].said for old in standing]
        ):
            ended[standing[change.index]] = new
    return ended


def _readings(reader: Reader, talks: Sequence[Talk]) -> list[tuple[TurnReading, ...]]:
    texts = [turn.said.text for talk in talks for turn in talk.turns]
    readings = iter(reader.read_turns(texts))
    return [tuple(next(readings) for _ in talk.turns) for talk in talks]


def _line(talk: Talk, old: int, new: int) -> str:
    first, second = talk.turns[old].said, talk.turns[new].said
    return f"{talk.id}: {first.speaker}: {first.text} -> {second.speaker}: {second.text}"

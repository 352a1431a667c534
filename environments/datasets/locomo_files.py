"""Reader of the files of LoCoMo (Maharana et al., 2024): dialogues, questions, observed facts.

A file is one conversation or a list of them (`locomo10.json`). Turn ids are the file's
`dia_id`s ("D1:3"), sessions are `session_1` and so on, dated in UTC. The surprise: the
data is known to be dirty. Two ids in one text ("D8:6; D9:17") are taken apart, and an
answer that is a number is read as text. Whatever cannot be used is left out, such as the
evidence "D" or the date of a session that does not exist; `warnings` has a line for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from memagent.core.records import Fact, Session
from memagent.readers import FileFormat
from memagent.readers.files import (
    Conversation,
    GoldQuestion,
    Utterance,
    bad_input,
    build_session,
    faults_of,
    json_records,
    list_in,
    object_in,
    text_in,
)

ACCEPTED = "a LoCoMo conversation (an object with 'conversation' and 'qa'), or a JSON list of them"
_SESSION = re.compile(r"session_(\d+)")
_DATE = "%I:%M %p on %d %B, %Y"  # 1:56 pm on 8 May, 2023


def read_locomo(path: str | Path) -> list[Conversation]:
    """Read all conversations of a LoCoMo file; raise `InputError` for another file."""
    return list(iter_locomo(path))


def iter_locomo(path: str | Path) -> Iterator[Conversation]:
    """Yield the conversations of a LoCoMo file one by one; raise `InputError` for another file."""
    file = Path(path)
    for number, (line, data) in enumerate(json_records(file, accepted=ACCEPTED), start=1):
        if not isinstance(data.get("conversation"), dict):
            raise bad_input(file, f"line {line}", "the object has no 'conversation'", ACCEPTED)
        name = text_in(data.get("sample_id")) or (
            file.stem if number == 1 else f"{file.stem}-{number}"
        )
        with faults_of(file, "", ACCEPTED):  # an invalid record is the file's `InputError`
            conversation = _Reader(file, name, data).read()
        yield conversation


class _Reader:
    """One conversation being read, with its warnings."""

    def __init__(self, path: Path, name: str, data: dict[str, object]) -> None:
        self.path, self.name, self.data = path, name, data
        self.warnings: list[str] = []
        self.turn_ids: set[str] = set()

    def read(self) -> Conversation:
        """Read the conversation and check evidence against its turns."""
        sessions = self._sessions()
        if not sessions:
            raise bad_input(
                self.path, f"conversation {self.name!r}", "there are no turns", ACCEPTED
            )
        self.turn_ids = {turn.id for session in sessions for turn in session.turns}
        questions = self._questions()
        observations = self._observations({session.id: session for session in sessions})
        return Conversation(
            id=self.name,
            sessions=sessions,
            questions=questions,
            observations=observations,
            warnings=tuple(self.warnings),
        )

    def _sessions(self) -> tuple[Session, ...]:
        conversation = object_in(self.data["conversation"])
        numbers = sorted(
            int(match[1]) for key in conversation if (match := _SESSION.fullmatch(key))
        )
        sessions: list[Session] = []
        for number in numbers:
            name = f"session_{number}"
            turns = list_in(conversation[name])
            if not turns:
                self.warnings.append(f"{name} has no turns and is left out")
                continue
            at = self._date(f"{name}_date_time", conversation.get(f"{name}_date_time"))
            said = [
                found
                for place, turn in enumerate(turns, start=1)
                if (found := self._turn(name, place, turn))
            ]
            if said:
                sessions.append(build_session(self.path, name, at, said, accepted=ACCEPTED))
        dates = [
            key
            for key in conversation
            if key.endswith("_date_time") and key.removesuffix("_date_time") not in conversation
        ]
        if dates:
            self.warnings.append(f"dates without a session are left out: {', '.join(dates)}")
        return tuple(sessions)

    def _date(self, key: str, value: object) -> datetime | None:
        try:
            return datetime.strptime(text_in(value).strip(), _DATE).replace(tzinfo=UTC)
        except ValueError:
            self.warnings.append(
                f"{key} is no date ({text_in(value)!r}); its session stays undated"
            )
            return None

    def _turn(self, session: str, place: int, value: object) -> Utterance | None:
        turn, where = object_in(value), f"conversation {self.name!r}, {session}, turn {place}"
        speaker, caption = text_in(turn.get("speaker")), text_in(turn.get("blip_caption")) or None
        if not speaker:
            raise bad_input(self.path, where, "the turn has no 'speaker'", ACCEPTED)
        text, name = text_in(turn.get("text")), text_in(turn.get("dia_id"))
        if not text and not caption:
            self.warnings.append(
                f"{session}, turn {place} has neither text nor image and is left out"
            )
            return None
        if not name:
            self.warnings.append(
                f"{session}, turn {place} has no dia_id; it is named {session}:{place}"
            )
        return Utterance(
            where=where,
            speaker=speaker,
            text=text,
            caption=caption,
            id=name or f"{session}:{place}",
        )

    def _questions(self) -> tuple[GoldQuestion, ...]:
        questions: list[GoldQuestion] = []
        for number, value in enumerate(list_in(self.data.get("qa")), start=1):
            entry = object_in(value)
            text = text_in(entry.get("question"))
            if not text:
                self.warnings.append(f"question {number} has no text and is left out")
                continue
            evidence, unresolved = self._evidence(f"question {number}", entry.get("evidence"))
            questions.append(
                GoldQuestion(
                    id=f"{self.name}:q{number}",
                    text=text,
                    answer=text_in(entry.get("answer")),
                    evidence_turn_ids=evidence,
                    unresolved_evidence=unresolved,
                    category=text_in(entry.get("category")),
                    adversarial_answer=text_in(entry.get("adversarial_answer")) or None,
                )
            )
        return tuple(questions)

    def _observations(self, sessions: dict[str, Session]) -> tuple[Fact, ...]:
        facts: list[Fact] = []
        for key, by_speaker in object_in(self.data.get("observation")).items():
            session = sessions.get(key.removesuffix("_observation"))
            for speaker, entries in object_in(by_speaker).items():
                for value in list_in(entries):
                    # An observation is [text, evidence]; None where one is missing.
                    text, evidence = ([*list_in(value), None, None])[:2]
                    sources, _ = self._evidence(f"an observation of {key}", evidence)
                    said_at = session.at if session else None
                    try:
                        facts.append(
                            Fact(
                                text=text_in(text),
                                subject=speaker,
                                speaker=speaker,
                                source_turn_ids=sources,
                                said_at=said_at,
                            )
                        )
                    except ValidationError:
                        self.warnings.append(
                            f"an observation of {key} is empty or too long and is left out"
                        )
        return tuple(facts)

    def _evidence(self, owner: str, value: object) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return turn ids of a string or a list of strings, and unknown ids, with a warning."""
        named = " ".join(text_in(entry) for entry in (list_in(value) or [value]))
        ids = list(dict.fromkeys(re.split(r"[;,\s]+", named.strip()))) if named.strip() else []
        lost = [name for name in ids if name not in self.turn_ids]
        if lost:
            self.warnings.append(
                f"{owner}: left out {len(lost)} of {len(ids)} evidence ids: {', '.join(lost)}"
            )
        return tuple(name for name in ids if name in self.turn_ids), tuple(lost)


FORMAT = FileFormat(fields=("conversation",), accepted=ACCEPTED, read=iter_locomo)
"""What `memagent ingest` and `iter_conversations` find as the format `locomo`."""

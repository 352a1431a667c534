"""What every reader uses: text and JSON of a file, conversations as read, their sessions.

Every failure is an `InputError` that names the file, the place in it, the fault and
what is accepted. Whatever a reader repaired or left out stands in the warnings of the
conversation, whose turn ids and session ids are unique and whose evidence names turns
that are there. The surprise: a JSON list is never held as a whole: `json_records` keeps
one element and a buffer, so that a file of gigabytes costs its largest element.
"""

from __future__ import annotations

import codecs
import json
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, BinaryIO, Self, cast

from pydantic import Field, ValidationError, model_validator

from memagent.core.errors import InputError, fault_in
from memagent.core.records import (
    MAX_TURN_CHARS,
    Fact,
    Id,
    Moment,
    Record,
    Session,
    Text,
    Trust,
    Turn,
    as_utc,
)

TRUST_OF_ROLE = {
    "user": Trust.USER,
    "assistant": Trust.ASSISTANT,
    "tool": Trust.TOOL,
    "function": Trust.TOOL,
    "system": Trust.SYSTEM,
    "developer": Trust.SYSTEM,
}
"""Trust in the words of each role."""
_CHUNK_BYTES = 1 << 20
_HEAD_BYTES = 1 << 12
_BOMS = {
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
    codecs.BOM_UTF32_BE: "UTF-32",
}
_OS_FAULTS: dict[type[OSError], str] = {
    FileNotFoundError: "there is no such file",
    IsADirectoryError: "it is a folder",
}
_JSON_KINDS: dict[type, str] = {
    str: "a string",
    list: "a list",
    type(None): "null",
    bool: "a boolean",
}
_DECODER = json.JSONDecoder()
_MILLISECONDS_FROM = 1e11


class GoldQuestion(Record):
    """A question with its gold answer, as a benchmark file gives it."""

    id: Id
    text: Annotated[Text, Field(min_length=1)]
    answer: Text = ""
    """The gold answer; empty where the right behaviour is to give none."""
    evidence_turn_ids: tuple[Id, ...] = ()
    unresolved_evidence: tuple[Text, ...] = ()
    """Evidence ids of the file that name no turn; they are left out of
    `evidence_turn_ids`.
    """
    category: Text = ""
    """The benchmark's own name or number of the category."""
    asked_at: Moment | None = None
    adversarial_answer: Text | None = None
    """The wrong answer that an adversarial question invites."""


class Conversation(Record):
    """Dated sessions of turns in order, with the file's questions and observations."""

    id: Id
    sessions: Annotated[tuple[Session, ...], Field(min_length=1)]
    questions: tuple[GoldQuestion, ...] = ()
    observations: tuple[Fact, ...] = ()
    """Facts that annotators took from the turns (LoCoMo)."""
    warnings: tuple[Text, ...] = ()
    """One line for each kind of thing that was repaired or left out."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if twice := repeated(session.id for session in self.sessions):
            raise ValueError(f"session ids occur twice: {', '.join(twice)}")
        if twice := repeated(turn.id for turn in self.turns):
            raise ValueError(f"turn ids occur twice: {', '.join(twice)}")
        known = {turn.id for turn in self.turns}
        missing = [
            turn_id
            for question in self.questions
            for turn_id in question.evidence_turn_ids
            if turn_id not in known
        ]
        if missing:
            raise ValueError(f"evidence names turns that are not there: {', '.join(missing[:5])}")
        return self

    @property
    def turns(self) -> tuple[Turn, ...]:
        """All turns in order."""
        return tuple(turn for session in self.sessions for turn in session.turns)

    @property
    def speakers(self) -> tuple[str, ...]:
        """Distinct speakers in order of first appearance."""
        return tuple(dict.fromkeys(turn.speaker for turn in self.turns))


def repeated(ids: Iterable[str]) -> list[str]:
    """Return ids that occur more than once."""
    return [name for name, count in Counter(ids).items() if count > 1]


def bad_input(path: Path, where: str, wrong: str, accepted: str) -> InputError:
    """Return the error for one fault at a place such as "line 3", or "" for the whole file."""
    return InputError(f"{path}{f', {where}' if where else ''}: {wrong}. Accepted: {accepted}")


def lines_of(path: Path, *, accepted: str) -> Generator[tuple[int, str], None, None]:
    """Yield (line number from 1, line without its end) of a UTF-8 text file.

    A byte order mark is dropped. Raises `InputError` for a missing, empty or binary
    file and for bytes that are not UTF-8, naming their offset in bytes.
    """
    offset = 0
    with _opened(path, accepted) as stream:
        for number, raw in enumerate(stream, start=1):
            yield number, _decoded(path, raw, number, offset, accepted)
            offset += len(raw)
    if offset == 0:
        raise bad_input(path, "", "the file is empty", accepted)


def head_of(path: Path, *, accepted: str) -> str:
    """Return the first few thousand characters of a text file.

    Raises `InputError` for a missing, empty or binary file.
    """
    with _opened(path, accepted) as stream:
        raw = stream.read(_HEAD_BYTES)
    if not raw.strip():
        raise bad_input(path, "", "the file is empty", accepted)
    _refuse_marks(path, raw, accepted)
    _refuse_binary(path, raw, accepted)
    return raw.decode("utf-8-sig", "replace")


@contextmanager
def _opened(path: Path, accepted: str) -> Generator[BinaryIO]:
    try:
        with path.open("rb") as stream:
            yield stream
    except OSError as exc:
        reason = _OS_FAULTS.get(type(exc)) or exc.strerror or type(exc).__name__
        raise bad_input(path, "", f"cannot be read ({reason})", accepted) from exc


def _decoded(path: Path, raw: bytes, number: int, offset: int, accepted: str) -> str:
    if number == 1:
        _refuse_marks(path, raw, accepted)
    _refuse_binary(path, raw, accepted, where=f"line {number}", offset=offset)
    try:
        return raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as exc:
        mark = 3 if number == 1 and raw.startswith(codecs.BOM_UTF8) else 0
        wrong = _not_utf8(exc.object[exc.start], offset + mark + exc.start)
        raise bad_input(path, f"line {number}", wrong, accepted) from exc


def _not_utf8(byte: int, offset: int) -> str:
    return f"byte 0x{byte:02x} at offset {offset} is not UTF-8; save the file as UTF-8"


def _refuse_marks(path: Path, raw: bytes, accepted: str) -> None:
    for mark, encoding in _BOMS.items():
        if raw.startswith(mark):
            raise bad_input(path, "", f"the file is {encoding}; save it as UTF-8", accepted)


def _refuse_binary(
    path: Path, raw: bytes, accepted: str, *, where: str = "", offset: int = 0
) -> None:
    if raw.startswith(b"PK\x03\x04"):
        raise bad_input(path, "", "it is a zip archive; unpack it and give its file", accepted)
    if b"\x00" in raw:
        place = offset + raw.index(b"\x00")
        raise bad_input(path, where, f"the file is binary (a NUL byte at offset {place})", accepted)


def json_records(path: Path, *, accepted: str) -> Iterator[tuple[int, dict[str, object]]]:
    """Yield (line number, object) of each element of a JSON list, as they come.

    A file of one object yields that object.
    """
    with _opened(path, accepted) as stream:
        text = _JsonText(path, stream, accepted)
        if text.sign() != "[":
            yield text.line, text.record()
        else:
            text.skip()
            if text.sign() == "]":
                raise text.fault("the JSON list is empty")
            sign = ","
            while sign == ",":
                yield text.line, text.record()
                sign = text.sign()
                if not sign:
                    raise text.fault("the JSON list has no end")
                if sign not in ",]":
                    raise text.fault(f"expected ',' or ']' in the JSON list, found {sign!r}")
                text.skip()
                text.sign()
        if text.sign():
            raise text.fault(f"unexpected {text.sign()!r} after the end of the JSON")


class _JsonText:
    """The text of a JSON file from its first unread character, which is on `line`."""

    def __init__(self, path: Path, stream: BinaryIO, accepted: str) -> None:
        self.path, self.accepted, self.line = path, accepted, 1
        self._stream, self._buffer, self._at, self._offset = stream, "", 0, 0
        self._decode = codecs.getincrementaldecoder("utf-8-sig")()
        self._ended = False
        if not self._fill():
            raise bad_input(path, "", "the file is empty", accepted)

    def fault(self, wrong: str) -> InputError:
        """Return an error at the present line."""
        return bad_input(self.path, f"line {self.line}", wrong, self.accepted)

    def sign(self) -> str:
        """Return the next character that is not blank, unread; "" at the end."""
        while True:
            stop = self._at
            while stop < len(self._buffer) and self._buffer[stop].isspace():
                stop += 1
            self._move(stop)
            if stop < len(self._buffer):
                return self._buffer[stop]
            if not self._fill():
                return ""

    def skip(self) -> None:
        """Read past one character."""
        self._move(self._at + 1)

    def record(self) -> dict[str, object]:
        """Read one JSON object."""
        if not self.sign():
            raise self.fault("the JSON ends too early")
        while True:
            try:
                value, stop = _DECODER.raw_decode(self._buffer, self._at)
                break
            except json.JSONDecodeError as exc:
                if not self._fill():
                    self.line += self._buffer.count("\n", self._at, exc.pos)
                    raise self.fault(f"this is no JSON ({exc.msg})") from exc
            except (RecursionError, ValueError) as exc:
                # Nested too deeply, or a number of thousands of digits.
                raise self.fault(f"the JSON cannot be read ({exc})") from exc
        if not isinstance(value, dict):
            raise self.fault(f"expected a JSON object, found {_kind_of(value)}")
        self._move(stop)
        return cast("dict[str, object]", value)

    def _move(self, at: int) -> None:
        self.line += self._buffer.count("\n", self._at, at)
        self._at = at

    def _fill(self) -> bool:
        """Read on, or return False at the end of the file.

        The buffer doubles, so that one long element costs linear time.
        """
        if self._ended:
            return False
        self._buffer = self._buffer[self._at :]
        self._at = 0
        raw = self._stream.read(max(_CHUNK_BYTES, len(self._buffer)))
        self._ended = not raw
        waiting = len(self._decode.getstate()[0])
        if self._offset == 0:
            _refuse_marks(self.path, raw, self.accepted)
        try:
            self._buffer += self._decode.decode(raw, final=not raw)
        except UnicodeDecodeError as exc:
            mark = 3 if self._offset == 0 and raw.startswith(codecs.BOM_UTF8) else 0
            place = self._offset - waiting + mark + exc.start
            raise bad_input(
                self.path, "", _not_utf8(exc.object[exc.start], place), self.accepted
            ) from exc
        self._offset += len(raw)
        return bool(raw)


def parse_line(path: Path, number: int, line: str, *, accepted: str) -> dict[str, object]:
    """Read the JSON object on one line."""
    where = f"line {number}"
    try:
        value: object = json.loads(line)
    except json.JSONDecodeError as exc:
        wrong = f"this is no JSON ({exc.msg} at column {exc.colno})"
        raise bad_input(path, where, wrong, accepted) from exc
    except (RecursionError, ValueError) as exc:
        raise bad_input(path, where, f"the JSON cannot be read ({exc})", accepted) from exc
    if not isinstance(value, dict):
        raise bad_input(path, where, f"expected a JSON object, found {_kind_of(value)}", accepted)
    return cast("dict[str, object]", value)


def _kind_of(value: object) -> str:
    return _JSON_KINDS.get(type(value), "a number")


def object_in(value: object) -> dict[str, object]:
    """Return a JSON object, or {} for anything else."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def list_in(value: object) -> list[object]:
    """Return a JSON list, or [] for anything else."""
    return cast("list[object]", value) if isinstance(value, list) else []


def text_in(value: object) -> str:
    """Return a JSON string or number as text, or "" for anything else."""
    text = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value) if text else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Utterance:
    """A turn as read, before it has an id; `where` is its place in the file."""

    where: str
    speaker: str
    text: str
    at: datetime | None = None
    trust: Trust = Trust.USER
    caption: str | None = None
    id: str | None = None


def moment_in(value: object) -> datetime | None:
    """Return the moment of ISO 8601 or of seconds (or milliseconds) since 1970, or None."""
    try:
        if isinstance(value, int | float) and not isinstance(value, bool):
            seconds = value / 1_000 if abs(value) >= _MILLISECONDS_FROM else value
            return datetime.fromtimestamp(seconds, tz=UTC)
        return as_utc(datetime.fromisoformat(text_in(value).strip()))
    except (ValueError, OverflowError, OSError):
        return None


def gather(
    path: Path,
    said: Iterable[tuple[str, Utterance]],
    warnings: list[str],
    *,
    accepted: str,
    lacking: str = "words",
) -> Conversation:
    """Build a conversation, named by the file's stem, of utterances by their session's id.

    A session is dated by its first dated utterance. An utterance with neither words nor a
    caption is left out and counted as `lacking`. Raises `InputError` when none is left.
    """
    by_session: dict[str, list[Utterance]] = {}
    empty = 0
    for session_id, utterance in said:
        if utterance.text.strip() or utterance.caption:
            by_session.setdefault(session_id, []).append(utterance)
        else:
            empty += 1
    if empty:
        warnings.append(f"{empty} messages without {lacking} are left out")
    if not by_session:
        raise bad_input(path, "", f"there is no message with {lacking}", accepted)
    sessions = [
        build_session(
            path, name, next((said.at for said in turns if said.at), None), turns, accepted=accepted
        )
        for name, turns in by_session.items()
    ]
    with faults_of(path, "", accepted):
        return Conversation(id=path.stem, sessions=tuple(sessions), warnings=tuple(warnings))


def build_session(
    path: Path,
    session_id: str,
    at: datetime | None,
    utterances: Sequence[Utterance],
    *,
    accepted: str,
) -> Session:
    """Build the session of some utterances.

    An utterance without an id of its own gets `{session_id}:{n}`, n from 1. Raises
    `InputError` at the place of an utterance that is too long, bears the id of an
    earlier one or is otherwise unusable.
    """
    turns: dict[str, Turn] = {}
    for number, said in enumerate(utterances, start=1):
        turn_id = said.id or f"{session_id}:{number}"
        if turn_id in turns:
            wrong = f"turn id {turn_id!r} occurs twice"
            raise bad_input(path, said.where, wrong, f"{accepted}, turn ids unique")
        if max(len(said.text), len(said.caption or "")) > MAX_TURN_CHARS:
            wrong = f"a turn of {len(said.text):,} characters; split it into several turns"
            limit = f"at most {MAX_TURN_CHARS:,} characters a turn"
            raise bad_input(path, said.where, wrong, limit)
        with faults_of(path, said.where, accepted):
            turns[turn_id] = Turn(
                id=turn_id,
                speaker=said.speaker,
                text=said.text,
                at=said.at,
                image_caption=said.caption,
                trust=said.trust,
            )
    where = utterances[0].where if utterances else ""
    with faults_of(path, where, accepted, record=f"session {session_id!r}: "):
        return Session(id=session_id, at=at, turns=tuple(turns.values()))


@contextmanager
def faults_of(path: Path, where: str, accepted: str, *, record: str = "") -> Generator[None]:
    """Raise the faults of records that are made in the block as faults of the file."""
    try:
        yield
    except ValidationError as exc:
        raise bad_input(path, where, f"{record}{fault_in(exc)}", accepted) from exc

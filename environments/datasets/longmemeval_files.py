"""The LongMemEval benchmark (Wu et al., 2024): each question has its own chat sessions.

A file is a list of instances; each becomes one conversation with one question. Turn ids
are `{session id}:{n}`, n from 1 over the turns kept; evidence is the turns marked
`has_answer`. Sessions are put in the order of their dates. Instances are read one by
one, since the large file does not fit into memory. The surprise: a question whose id
ends in `_abs` cannot be answered, so that its category gets the same ending and its
`answer` explains why rather than answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain, count, repeat
from pathlib import Path

from memagent.core.records import Session
from memagent.readers import FileFormat
from memagent.readers.files import (
    TRUST_OF_ROLE,
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

ACCEPTED = (
    "a LongMemEval instance (an object with 'question', 'haystack_sessions' and "
    "'haystack_dates'), or a JSON list of them"
)
_DATE = "%Y/%m/%d %H:%M"  # 2023/05/20 (Sat) 02:21, without the weekday


def read_longmemeval(path: str | Path) -> list[Conversation]:
    """Read all instances of a LongMemEval file; raise `InputError` for another file.

    For large files see `iter_longmemeval`.
    """
    return list(iter_longmemeval(path))


def iter_longmemeval(path: str | Path) -> Iterator[Conversation]:
    """Read a LongMemEval file one by one: each instance is a conversation with a question."""
    file = Path(path)
    for line, data in json_records(file, accepted=ACCEPTED):
        if not isinstance(data.get("haystack_sessions"), list):
            raise bad_input(file, f"line {line}", "the object has no 'haystack_sessions'", ACCEPTED)
        yield _instance(file, line, data)


def _instance(path: Path, line: int, data: dict[str, object]) -> Conversation:
    name, text = text_in(data.get("question_id")), text_in(data.get("question"))
    if not name or not text:
        raise bad_input(
            path, f"line {line}", "the instance has no 'question_id' or no 'question'", ACCEPTED
        )
    warnings: list[str] = []
    sessions, evidence = _haystack(path, name, data, warnings)
    if not sessions:
        raise bad_input(path, f"line {line}, question {name!r}", "there are no turns", ACCEPTED)
    category = text_in(data.get("question_type")) + ("_abs" if name.endswith("_abs") else "")
    asked_at = _date(text_in(data.get("question_date")), "question_date", warnings)
    with faults_of(path, "", ACCEPTED):
        question = GoldQuestion(
            id=name,
            text=text,
            answer=text_in(data.get("answer")),
            evidence_turn_ids=evidence,
            category=category,
            asked_at=asked_at,
        )
        return Conversation(
            id=name, sessions=sessions, questions=(question,), warnings=tuple(warnings)
        )


def _haystack(
    path: Path, name: str, data: dict[str, object], warnings: list[str]
) -> tuple[tuple[Session, ...], tuple[str, ...]]:
    """Read the sessions in the order of their dates, and the ids of turns with the answer."""
    haystack, dates = list_in(data["haystack_sessions"]), list_in(data.get("haystack_dates"))
    ids = list_in(data.get("haystack_session_ids"))
    sessions: list[Session] = []
    evidence: list[str] = []
    taken: set[str] = set()
    named = zip(haystack, chain(ids, repeat(None)), chain(dates, repeat(None)), strict=False)
    for number, (value, raw_id, date) in enumerate(named, start=1):
        session_id = _free(text_in(raw_id) or f"session_{number}", taken, warnings)
        at = _date(text_in(date), f"session {session_id}", warnings)
        where = f"question {name!r}, session {session_id!r}"
        turns = [
            _utterance(path, f"{where}, turn {place}", turn)
            for place, turn in enumerate(list_in(value), start=1)
        ]
        spoken = [(said, has_answer) for said, has_answer in turns if said.text.strip()]
        if len(spoken) < len(turns):
            warnings.append(
                f"session {session_id}: {len(turns) - len(spoken)} turns without text are left out"
            )
        if not spoken:
            warnings.append(f"session {session_id} has no turns and is left out")
            continue
        said = [utterance for utterance, _ in spoken]
        sessions.append(build_session(path, session_id, at, said, accepted=ACCEPTED))
        evidence += [
            f"{session_id}:{place}"
            for place, (_, has_answer) in enumerate(spoken, start=1)
            if has_answer
        ]
    ordered = sorted(sessions, key=lambda session: session.at or datetime.max.replace(tzinfo=UTC))
    if all(session.at for session in sessions) and ordered != sessions:
        warnings.append("the sessions are put in the order of their dates")
        sessions = ordered
    return tuple(sessions), tuple(evidence)


def _free(session_id: str, taken: set[str], warnings: list[str]) -> str:
    copies = (f"{session_id}#{number}" for number in count(2))
    name = next(name for name in chain([session_id], copies) if name not in taken)
    if name != session_id:
        warnings.append(f"session id {session_id} occurs again and is named {name}")
    taken.add(name)
    return name


def _utterance(path: Path, where: str, value: object) -> tuple[Utterance, bool]:
    turn = object_in(value)
    role = text_in(turn.get("role"))
    if role not in TRUST_OF_ROLE:
        accepted = f"the roles {', '.join(TRUST_OF_ROLE)}"
        raise bad_input(path, where, f"unknown role {role!r}", accepted)
    said = Utterance(
        where=where, speaker=role, text=text_in(turn.get("content")), trust=TRUST_OF_ROLE[role]
    )
    return said, turn.get("has_answer") is True


def _date(value: str, what: str, warnings: list[str]) -> datetime | None:
    try:
        date = re.sub(r"\s*\(\w+\)", "", value).strip()
        return datetime.strptime(date, _DATE).replace(tzinfo=UTC)
    except ValueError:
        warnings.append(f"{what}: {value!r} is no date; it stays undated")
        return None


FORMAT = FileFormat(fields=("haystack_sessions",), accepted=ACCEPTED, read=iter_longmemeval)
"""What `memagent ingest` and `iter_conversations` find as the format `longmemeval`."""

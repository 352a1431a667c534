"""The LongMemEval benchmark (Wu et al., 2024): each question comes with its own
haystack of dated chat sessions.

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
from pathlib import Path

from memagent.core.records import Session, Trust
from memagent.readers.files import bad_input, json_records, list_in, object_in, text_in
from memagent.readers.records import Conversation, GoldQuestion
from memagent.readers.utterances import TRUST_OF_ROLE, Utterance, build_conversation, build_session

ACCEPTED = "a LongMemEval instance (an object with 'question', 'haystack_sessions' and 'haystack_dates'), or a JSON list of them"
_DATE = "%Y/%m/%d %H:%M"  # 2023/05/20 (Sat) 02:21, without the weekday


def read_longmemeval(path: str | Path) -> list[Conversation]:
    """All instances of a LongMemEval file; raises `InputError` for a file that is none.

    See `iter_longmemeval` for large ones.
    """
    return list(iter_longmemeval(path))


def iter_longmemeval(path: str | Path) -> Iterator[Conversation]:
    """The instances of a LongMemEval file one by one, each a conversation with its question."""
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

    def build() -> Conversation:
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

    return build_conversation(path, build, accepted=ACCEPTED)


def _haystack(
    path: Path, name: str, data: dict[str, object], warnings: list[str]
) -> tuple[tuple[Session, ...], tuple[str, ...]]:
    """Sessions in the order of their dates, and the ids of the turns that hold the answer."""
    held, dates = list_in(data["haystack_sessions"]), list_in(data.get("haystack_dates"))
    ids = [text_in(value) for value in list_in(data.get("haystack_session_ids"))]
    sessions: list[Session] = []
    evidence: list[str] = []
    taken: set[str] = set()
    for index, value in enumerate(held):
        session_id = _free(
            ids[index] if index < len(ids) and ids[index] else f"session_{index + 1}",
            taken,
            warnings,
        )
        at = _date(
            text_in(dates[index]) if index < len(dates) else "", f"session {session_id}", warnings
        )
        where = f"question {name!r}, session {session_id!r}"
        said = [
            _utterance(path, f"{where}, turn {place}", turn)
            for place, turn in enumerate(list_in(value), start=1)
        ]
        kept = [utterance for utterance, _ in said if utterance.text.strip()]
        if len(kept) < len(said):
            warnings.append(
                f"session {session_id}: {len(said) - len(kept)} turns without text are left out"
            )
        if not kept:
            warnings.append(f"session {session_id} has no turns and is left out")
            continue
        sessions.append(build_session(path, session_id, at, kept, accepted=ACCEPTED))
        answers = [has_answer for utterance, has_answer in said if utterance.text.strip()]
        evidence += [
            f"{session_id}:{place}"
            for place, has_answer in enumerate(answers, start=1)
            if has_answer
        ]
    ordered = sorted(sessions, key=lambda session: session.at or datetime.max.replace(tzinfo=UTC))
    if all(session.at for session in sessions) and ordered != sessions:
        warnings.append("the sessions are put in the order of their dates")
        sessions = ordered
    return tuple(sessions), tuple(evidence)


def _free(session_id: str, taken: set[str], warnings: list[str]) -> str:
    name, copy = session_id, 1
    while name in taken:
        copy += 1
        name = f"{session_id}#{copy}"
    if copy > 1:
        warnings.append(f"session id {session_id} occurs again and is named {name}")
    taken.add(name)
    return name


def _utterance(path: Path, where: str, value: object) -> tuple[Utterance, bool]:
    turn = object_in(value)
    role = text_in(turn.get("role"))
    if role not in TRUST_OF_ROLE:
        raise bad_input(
            path, where, f"unknown role {role!r}", f"the roles {', '.join(TRUST_OF_ROLE)}"
        )
    trust: Trust = TRUST_OF_ROLE[role]
    text = text_in(turn.get("content"))
    return Utterance(where=where, speaker=role, text=text, trust=trust), turn.get(
        "has_answer"
    ) is True


def _date(value: str, what: str, warnings: list[str]) -> datetime | None:
    try:
        return datetime.strptime(re.sub(r"\s*\(\w+\)", "", value).strip(), _DATE).replace(
            tzinfo=UTC
        )
    except ValueError:
        warnings.append(f"{what}: {value!r} is no date; it stays undated")
        return None

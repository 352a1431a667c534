"""The input of a memory: sessions and questions made of loose input, and sessions cut up.

Loose input is texts, chat messages and turns; it is read here and nowhere else
(`as_session`, `as_question`). Input that cannot be used is an `InputError` that names the
turn and the fix, before anything is written. `split_session` cuts a session into balanced,
contiguous chunks, and `session_entry` makes the journal entry of what is new of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from math import ceil
from typing import Any, cast

from memagent.core.answers import MAX_QUESTION_CHARS, AsOf, Question
from memagent.core.errors import InputError, check_type, input_errors
from memagent.core.recipes import Recipe
from memagent.core.records import MAX_TURN_CHARS, Chunk, Session, Trust, Turn, as_utc, content_id
from memagent.core.snapshot import SessionStored, TurnsAdded
from memagent.core.trials import PREFIX
from memagent.state.fold import BankState


def split_session(session: Session, *, chunk_turns: int = 8) -> tuple[Chunk, ...]:
    """Cut a session into chunks of at most `chunk_turns` turns; sizes differ by one at most.

    Ids are `{session}#{index}`. Turns made from recalled memory are left out, so memory
    never feeds on itself; () when nothing else is left, and for the text of a trial, of
    which a design's learner takes lessons. Each part by which a session
    grew is cut by itself, so the chunks of earlier parts stay as they were.
    """
    chunks: list[Chunk] = []
    for part in () if session.id.startswith(PREFIX) else session.parts:
        turns = [turn for turn in part if not turn.recalled]
        total, first = len(turns), len(chunks)
        count = ceil(total / chunk_turns)
        bounds = [round(i * total / count) for i in range(count + 1)] if count else []
        chunks += [
            Chunk(
                id=f"{session.id}#{i}",
                session_id=session.id,
                index=i,
                count=first + count,
                at=session.at,
                turns=tuple(turns[lo:hi]),
            )
            for i, (lo, hi) in enumerate(pairwise(bounds), first)
        ]
    return tuple(chunks)


def session_entry(state: BankState, session: Session) -> SessionStored | TurnsAdded | None:
    """Return the entry that stores what a memory lacks of a session; None when it has all.

    Raises `InputError` on a clash of ids.
    """
    known, size = state.sessions.get(session.id), 0
    if known is not None:
        size = len(known.turns)
        both = min(size, len(session.turns))
        if (known.at, known.turns[:both]) != (session.at, session.turns[:both]):
            raise InputError(
                f"session {session.id!r} is stored already with other content; "
                f"give the new one another id (it has {len(session.turns)} turns, "
                f"the stored one {size})"
            )
        if len(session.turns) <= size:
            return None  # it has grown since, as a conversation does
    for turn in session.turns[size:]:
        if turn.id in state.turns:
            raise InputError(
                f"turn id {turn.id!r} of session {session.id!r} is taken by session "
                f"{state.turns[turn.id][0]!r}; turn ids must be unique"
            )
    if known is None:
        return SessionStored(session=session)
    return TurnsAdded(session_id=session.id, turns=session.turns[size:])


Said = Session | str | Mapping[str, Any] | Sequence[Any]
"""Input to remember: a session, one utterance, one message, or a list of messages.

A message is a `Turn`, a chat message (its `content` a text or OpenAI content parts), or
a message of LangChain.
"""
When = datetime | str
"""A moment, or an ISO date such as `2024-05-01`."""
# Names of roles by the types of LangChain's messages, where they differ.
_TYPES = {"human": "user", "ai": "assistant"}
TRUST_OF_ROLE = {
    "user": Trust.USER,
    "assistant": Trust.ASSISTANT,
    "tool": Trust.TOOL,
    "system": Trust.SYSTEM,
}
"""Trust in the author of a chat message; any other role is not trusted."""


def as_session(what: Said, *, at: When | None, session_id: str | None, now: datetime) -> Session:
    """Return a caller's input as a session, dated `at` or else now.

    Messages that only call tools are left out. Raises `InputError` naming the turn that
    cannot be used.
    """
    if isinstance(what, Session):
        return what
    moment = now if at is None else as_moment(at, name="at")
    messages: list[object] = []
    for message in _listed(what):
        fields = None if isinstance(message, Turn) else _fields(message)
        if not fields or not fields.get("tool_calls") or fields.get("content"):
            messages.append(message)
    if not messages:
        raise InputError("there are no turns to remember")
    name = session_id or content_id("ses", moment.isoformat(), *map(str, messages))
    turns = tuple(_turn(turn, f"{name}:{at}", at) for at, turn in enumerate(messages, 1))
    with input_errors(f"session {name!r} cannot be stored"):
        return Session(id=name, at=moment, turns=turns)


def as_question(
    asked: Question | str,
    *,
    k: int | None = None,
    as_of: AsOf | When | None = None,
    recipe: Recipe | str | None = None,
    min_trust: Trust | str | None = None,
) -> Question:
    """Return a text as a question; what is given replaces the question's own.

    A moment or ISO date as `as_of` means what had been said by then, the whole day
    included. Raises `InputError` for an empty or too long text, and for wrong options.
    """
    if isinstance(asked, str):
        if not asked.strip():
            raise InputError("the question is empty")
        if len(asked) > MAX_QUESTION_CHARS:
            raise InputError(
                f"the question has {len(asked):,} characters; "
                f"ask with at most {MAX_QUESTION_CHARS:,}"
            )
        asked = Question(text=asked)
    elif not isinstance(asked, Question):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(
            f"the question is of type {type(asked).__name__}; give a text such as "
            "'Where do I live?', or a Question"
        )
    point = as_point(as_of) if as_of is not None else None
    given: dict[str, object] = {"k": k, "as_of": point, "recipe": recipe}
    given = {name: value for name, value in given.items() if value is not None}
    if min_trust is not None:
        from memagent.memory.options import trusting

        given["where"] = trusting(asked.where, min_trust)
    if not given:
        return asked
    with input_errors("the question cannot be asked"):
        return Question.model_validate({**dict(asked), **given})


def as_point(when: AsOf | When) -> AsOf:
    """Return a point in time; a moment or ISO date means what had been said by then.

    Raises `InputError`.
    """
    return when if isinstance(when, AsOf) else AsOf(said=as_moment(when, name="as_of", end=True))


def as_moment(given: When, *, name: str, end: bool = False) -> datetime:
    """Return a datetime or an ISO date as a moment in UTC; with `end` a day's last one.

    Raises `InputError` that names the argument.
    """
    wanted = "a datetime such as datetime(2024, 3, 4, tzinfo=UTC), or '2024-03-04'"
    check_type(f"`{name}`", given, datetime | str, wanted)
    if isinstance(given, datetime):
        return given
    text = given.strip()
    try:
        moment = as_utc(datetime.fromisoformat(text))
    except ValueError:
        raise InputError(
            f"`{name}` is {given[:40]!r}, which is no ISO date; "
            "write '2024-05-01' or '2024-05-01T13:56'"
        ) from None
    whole_day = end and len(text) <= len("2024-05-01")
    return moment + timedelta(days=1, microseconds=-1) if whole_day else moment


def _listed(what: object) -> Sequence[object]:
    if isinstance(what, str):
        return [{"role": "user", "content": what}]
    if isinstance(what, Mapping | Turn) or _fields(what):
        return [cast("object", what)]
    if not isinstance(what, Sequence) or isinstance(what, bytes):
        raise InputError(
            f"a {type(what).__name__} cannot be remembered; "
            "give a text, a Session, or a list of turns or chat messages"
        )
    return cast("Sequence[object]", what)


def _fields(message: object) -> Mapping[str, Any] | None:
    """Return the fields of a chat message, or of a message of LangChain; None of others."""
    if isinstance(message, Mapping):
        return cast("Mapping[str, Any]", message)
    kind, content = getattr(message, "type", None), getattr(message, "content", None)
    if not isinstance(kind, str) or not isinstance(content, str | list):
        return None
    return {
        "role": getattr(message, "role", None) or _TYPES.get(kind, kind),
        "name": getattr(message, "name", None),
        "content": cast("object", content),
        "tool_calls": getattr(message, "tool_calls", None),
    }


def _text_of(content: object) -> str | None:
    """Return a message's text: the parts of a list, with a placeholder for each picture."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else None
    texts = [_part_text(part) for part in cast("list[object]", content)]
    return "\n".join(text for text in texts if text.strip())


def _part_text(part: object) -> str:
    if isinstance(part, str):
        return part
    fields = _mapping(part)
    if isinstance(text := fields.get("text"), str):
        return text
    if "image" not in str(fields.get("type") or ""):
        return ""
    places = (fields, _mapping(fields.get("image_url")))
    names = ("alt", "alt_text", "caption")
    alts = [str(place[name]) for place in places for name in names if place.get(name)]
    return f"[image: {alts[0]}]" if alts else "[image]"


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _turn(message: object, turn_id: str, number: int) -> Turn:
    if isinstance(message, Turn):
        return message
    fields = _fields(message)
    if fields is None:
        raise InputError(
            f"turn {number} is a {type(message).__name__}; give a Turn or a chat message "
            "such as {'role': 'user', 'content': 'Hello'}"
        )
    text = _text_of(fields.get("content", fields.get("text")))
    if text is None or not text.strip():
        raise InputError(
            f"turn {number} has no text: give it as `content`, a string that is not empty"
        )
    if len(text) > MAX_TURN_CHARS:
        raise InputError(
            f"turn {number} has {len(text):,} characters, "
            f"a turn holds at most {MAX_TURN_CHARS:,}; split it into several"
        )
    role = str(fields.get("role") or "user")
    with input_errors(f"turn {number} cannot be stored"):
        return Turn(
            id=str(fields.get("id") or turn_id),
            speaker=str(fields.get("name") or fields.get("speaker") or role),
            text=text,
            at=fields.get("at"),
            trust=TRUST_OF_ROLE.get(role, Trust.UNTRUSTED),
            recalled=bool(fields.get("recalled", False)),
        )

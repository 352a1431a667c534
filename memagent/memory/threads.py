"""Threads: conversations as sessions that grow, one session a day.

A thread is an ordered log of turns under an id. Its turns stand in ordinary sessions,
so remembering, citing and erasing work on them as on any other; a session of a thread
grows with each message, and the first message of a day (UTC) begins a new one. Turn ids
follow from the place in the session, so a history that is sent again adds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import count, takewhile
from typing import NamedTuple

from memagent.core.errors import InputError
from memagent.core.records import MAX_TURN_CHARS, Session, Trust, Turn, as_utc, content_id
from memagent.core.snapshot import SessionStored, TurnsAdded
from memagent.memory.bank import MemoryBank
from memagent.state.fold import BankState

_AGENT = "assistant"
_LONGEST_THREAD = 256
_LONGEST_NAME = 200


class Spoken(NamedTuple):
    """One message of a conversation, before it is a turn."""

    text: str
    speaker: str = "user"
    trust: Trust = Trust.USER
    recalled: bool = False
    """Whether the words rest on recalled memory; such words are never read as new facts."""


@dataclass(frozen=True, slots=True)
class ThreadEnd:
    """The place in a thread after a write: its session and the turns that were added."""

    session: Session
    turns: tuple[Turn, ...]


def reply_of(text: str, trust: Trust = Trust.ASSISTANT) -> Spoken:
    """Return the words of the agent itself; an empty reply is stored as a dash."""
    return Spoken(text or "-", speaker=_AGENT, trust=trust, recalled=True)


def is_reply(turn: Turn | Spoken) -> bool:
    """Tell whether the agent said a turn; a reply that showed a tool's words has their trust."""
    lowered = turn.recalled and turn.speaker == _AGENT and turn.trust.rank > Trust.USER.rank
    return turn.trust is Trust.ASSISTANT or lowered


def thread_turns(state: BankState, thread: str) -> list[Turn]:
    """Return the turns of a thread, oldest first; [] for an unknown one."""
    sessions = (state.sessions[session_id] for session_id in state.threads.get(thread, ()))
    return [turn for session in sessions for turn in session.turns]


async def store_message(
    bank: MemoryBank, thread: str, message: Spoken, *, at: datetime
) -> ThreadEnd:
    """Journal a message at the end of a thread.

    A message that stands there already without a reply, after a crash or a failure of
    the model, is not repeated. Raises `InputError` as `add_to_thread` does.
    """
    state = await bank.sync()
    sessions = state.threads.get(thread, ())
    session = state.sessions[sessions[-1]] if sessions else None
    if session is not None:
        last = session.turns[-1]
        if not is_reply(last) and (last.speaker, last.text) == (message.speaker, message.text):
            return ThreadEnd(session, (last,))
    return await add_to_thread(bank, thread, [message], at=at)


async def add_to_thread(
    bank: MemoryBank,
    thread: str,
    messages: Sequence[Spoken],
    *,
    at: datetime,
    before: Callable[[tuple[Turn, ...]], None] | None = None,
) -> ThreadEnd:
    """Journal messages at the end of a thread, in the session of their day.

    `before` sees the turns right before they are written. Raises `InputError` for a
    message that is empty or too long, or a thread's id that is; nothing is written then.
    """
    if not 0 < len(thread) <= _LONGEST_THREAD:
        raise InputError(f"a thread's id has 1 to {_LONGEST_THREAD} characters")
    for message in messages:
        if not message.text.strip():
            raise InputError("the message is empty")
        if len(message.text) > MAX_TURN_CHARS:
            raise InputError(
                f"the message has {len(message.text):,} characters; "
                f"send at most {MAX_TURN_CHARS:,} at a time"
            )

    def entry(state: BankState) -> SessionStored | TurnsAdded:
        session_id, known = _session_of_day(state, thread, at)
        size = len(known.turns) if known is not None else 0
        turns = tuple(
            Turn(
                id=f"{session_id}:{number}",
                speaker=message.speaker,
                text=message.text,
                at=at if known is not None and known.at != as_utc(at) else None,
                trust=message.trust,
                recalled=message.recalled,
            )
            for number, message in enumerate(messages, size + 1)
        )
        if before is not None:
            before(turns)
        if known is not None:
            return TurnsAdded(session_id=session_id, turns=turns)
        return SessionStored(session=Session(id=session_id, at=at, turns=turns, thread=thread))

    written = await bank.record(entry)
    if isinstance(written, SessionStored):
        return ThreadEnd(written.session, written.session.turns)
    return ThreadEnd(bank.state.sessions[written.session_id], written.turns)


class ThreadMatch(NamedTuple):
    """The thread that a client's history belongs to."""

    thread: str
    stored: int
    """How many of the messages it holds already."""
    known: int
    """How many of the messages an earlier thread holds at the same places."""


def match_history(state: BankState, history: Sequence[Spoken]) -> ThreadMatch:
    """Find the thread that a history continues, for clients that send all of it each time.

    The thread's turns are the beginning of the history, white space aside. A history
    that departs from every stored one gets a thread of its own; `known` says how much
    of it need not be read again. The last message is always new.
    """
    known = 0
    for number in count():
        thread = content_id("thr", _plain(history[0].text), str(number))
        turns = thread_turns(state, thread)
        if not turns:
            return ThreadMatch(thread, 0, known)
        pairs = zip(map(_key, turns), map(_key, history), strict=False)
        common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        if common == len(turns):
            return ThreadMatch(thread, min(common, len(history) - 1), 0)
        known = max(known, min(common, len(history) - 1))
    raise AssertionError("unreachable")


def continued(state: BankState, thread: str, history: Sequence[Spoken]) -> ThreadMatch:
    """Return what a named thread holds of a history that a client sends.

    A client may send all of it or its end only: the last stored turn that the history
    repeats marks what is new. Without one, only the last message counts as new.
    """
    turns = thread_turns(state, thread)
    if not turns:
        return ThreadMatch(thread, 0, 0)
    earlier = [_key(message) for message in reversed(history[:-1])]
    back = _overlap([_key(turn) for turn in reversed(turns)], earlier)
    return ThreadMatch(thread, len(earlier) - back, 0)


def _overlap(pattern: Sequence[object], text: Sequence[object]) -> int:
    """Return where a pattern first begins in a text, whole or cut off by the text's end.

    0 where it does nowhere. Linear, as Knuth, Morris and Pratt search.
    """
    borders, length = [0] * len(pattern), 0
    for at in range(1, len(pattern)):
        while length and pattern[at] != pattern[length]:
            length = borders[length - 1]
        length += pattern[at] == pattern[length]
        borders[at] = length
    length = 0
    for at, value in enumerate(text):
        while length and value != pattern[length]:
            length = borders[length - 1]
        length += value == pattern[length]
        if length == len(pattern):
            return at + 1 - length
    return len(text) - length if length else 0


def _key(message: Turn | Spoken) -> tuple[str, bool]:
    """Return what two messages agree in that are the same."""
    return _plain(message.text), is_reply(message)


def _plain(text: str) -> str:
    return " ".join(text.split())


def _session_of_day(state: BankState, thread: str, at: datetime) -> tuple[str, Session | None]:
    """Return the id of the thread's session on a day, and the session if it is stored.

    An id that another session has is left to it.
    """
    name = thread if len(thread) <= _LONGEST_NAME else content_id("thr", thread)
    day_id = f"{name}@{as_utc(at):%Y-%m-%d}"
    session_id, number = day_id, 1
    while (known := state.sessions.get(session_id)) is not None and known.thread != thread:
        number += 1
        session_id = f"{day_id}~{number}"
    return session_id, known

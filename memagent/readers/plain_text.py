"""Conversations in dated plain text, the format people can write by hand.

    # 8 May 2023, 1:56 pm          a heading begins a session
    Ana Silva: Hi!                 a turn: a name of one to four words, a colon, a space
      More of the same turn.       lines without a name go on with the turn
    [2023-05-08 13:58] Ben: Hey    a turn with its own time

A heading may also be "--- 2023-05-08 ---" or "[2023-05-08]"; a line of a turn that
looks like "Name: text" must be indented. A session is named by its date ("2023-05-08",
a second one that day "2023-05-08-2") or, undated, by its place ("session_2"); turns are
`{session id}:{n}`. Turns with their own dates outside any heading are one session a
day. The surprise: a name of several words counts only if all its words are capitalised
or it occurs twice, so that "she said: no" stays a sentence.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from memagent.core.records import Granularity, Session, Trust
from memagent.readers.files import bad_input, lines_of
from memagent.readers.records import Conversation
from memagent.readers.utterances import Utterance, build_session, faults_of

ACCEPTED = (
    "lines 'Speaker: text' under date headings such as '# 8 May 2023, 1:56 pm', "
    "or '[2023-05-08 13:56] Speaker: text'"
)
_HEADING = re.compile(
    r"#{1,6}\s+(?P<hash>.+)|(?:-{3,}|={3,})\s*(?P<rule>[^-=\s].*?)\s*(?:-{3,}|={3,})?"
    r"|\[(?P<date>[^\]]*\d{4}[^\]]*)\]"
)
_RULE = re.compile(r"[-=*_]{3,}")
_TURN = re.compile(
    r"(?:\[(?P<at>[^\]]*\d{4}[^\]]*)\]\s*)?"
    r"(?P<speaker>[^\W\d_](?:[\w.'’()&-]| (?=\S)){0,59}?)\s?:(?:\s+(?P<text>.*)|$)"
)
_TRUST = {"assistant": Trust.ASSISTANT, "tool": Trust.TOOL}
"""Speakers trusted less than a person; no name in a text file earns more."""
_DATED = {Granularity.DAY, Granularity.HOUR, Granularity.MINUTE}
_LONE_SPEAKER_FROM = 20


@dataclass(slots=True)
class _Turn:
    """A turn whose lines are still being gathered."""

    line: int
    speaker: str
    at: datetime | None
    lines: list[str]

    @property
    def text(self) -> str:
        """All lines, without blank ones at either end."""
        return "\n".join(self.lines).strip()


@dataclass(slots=True)
class _Part:
    """A session being gathered: begun by a heading, or by the date of a turn outside any."""

    at: datetime | None
    headed: bool
    turns: list[_Turn] = field(default_factory=list["_Turn"])


def read_plain_text(path: str | Path) -> Conversation:
    """Read the conversation of a dated plain text file, named by the file's stem.

    Raises `InputError` naming the first line at fault.
    """
    file = Path(path)
    lines = list(lines_of(file, accepted=ACCEPTED))
    warnings: list[str] = []
    parts = _gather(file, lines, warnings)
    sessions = _sessions(file, parts, warnings)
    if not sessions:
        raise bad_input(file, "", "there are no turns", ACCEPTED)
    _warn_of_lone_speakers(parts, warnings)
    with faults_of(file, "", ACCEPTED):
        return Conversation(id=file.stem, sessions=sessions, warnings=tuple(warnings))


def _gather(path: Path, lines: list[tuple[int, str]], warnings: list[str]) -> list[_Part]:
    labels = Counter(match["speaker"] for _, line in lines if (match := _TURN.match(line)))
    parts = [_Part(at=None, headed=False)]
    turn: _Turn | None = None
    for number, line in lines:
        heading = _HEADING.fullmatch(line.strip()) if not line[:1].isspace() else None
        match = _TURN.match(line)
        if _RULE.fullmatch(line.strip()):
            turn = None
        elif heading and (begun := _part(number, heading, warnings)):
            parts.append(begun)
            turn = None
        elif match and _is_name(match["speaker"], labels):
            turn = _Turn(
                number,
                match["speaker"],
                _moment(match["at"], number, warnings),
                [match["text"] or ""],
            )
            last = parts[-1]
            if (
                turn.at
                and not last.headed
                and last.turns
                and (not last.at or last.at.date() != turn.at.date())
            ):
                parts.append(_Part(at=turn.at, headed=False))
            elif turn.at and not last.at and not last.turns:
                last.at = turn.at
            parts[-1].turns.append(turn)
        elif turn is not None:
            turn.lines.append(line.strip())
        elif line.strip():
            raise bad_input(
                path,
                f"line {number}",
                f"{line.strip()[:40]!r} is neither a heading nor a turn",
                ACCEPTED,
            )
    return parts


def _part(number: int, heading: re.Match[str], warnings: list[str]) -> _Part | None:
    """Begin a session at a heading; return None when the line is no heading after all."""
    text = heading["hash"] or heading["rule"] or heading["date"]
    at = _read_date(text)
    if at is None and heading["hash"] is None:
        return None
    if at is None and any(sign.isdigit() for sign in text):
        warnings.append(f"line {number}: no date in the heading {text!r}; its session is undated")
    return _Part(at=at, headed=True)


def _sessions(path: Path, parts: list[_Part], warnings: list[str]) -> tuple[Session, ...]:
    sessions: list[Session] = []
    taken: Counter[str] = Counter()
    for part in parts:
        said = [
            Utterance(
                where=f"line {turn.line}",
                speaker=turn.speaker,
                text=turn.text,
                at=turn.at,
                trust=_TRUST.get(turn.speaker.lower(), Trust.USER),
            )
            for turn in part.turns
            if turn.text
        ]
        warnings += [
            f"line {turn.line}: a turn without words is left out"
            for turn in part.turns
            if not turn.text
        ]
        if not said:
            continue
        name = f"{part.at:%Y-%m-%d}" if part.at else f"session_{len(sessions) + 1}"
        taken[name] += 1
        unique = name if taken[name] == 1 else f"{name}-{taken[name]}"
        sessions.append(build_session(path, unique, part.at, said, accepted=ACCEPTED))
    return tuple(sessions)


def _is_name(label: str, labels: Counter[str]) -> bool:
    words = label.split()
    capitalised = all(word[0].isupper() or not word[0].isalpha() for word in words)
    return len(words) <= 4 and (len(words) == 1 or labels[label] > 1 or capitalised)


def _read_date(text: str) -> datetime | None:
    # Imported late: other formats need no time grammar.
    from memagent.timex.resolve import find_times

    spans = (mention.span for mention in find_times(text, anchor=None))
    return next((span.start for span in spans if span.granularity in _DATED), None)


def _moment(text: str | None, number: int, warnings: list[str]) -> datetime | None:
    if text is None:
        return None
    at = _read_date(text)
    if at is None:
        warnings.append(f"line {number}: {text!r} is no date; the turn has its session's")
    return at


def _warn_of_lone_speakers(parts: list[_Part], warnings: list[str]) -> None:
    turns = [turn for part in parts for turn in part.turns]
    if len(turns) < _LONE_SPEAKER_FROM:
        return
    count = Counter(turn.speaker for turn in turns)
    warnings += [
        f"line {turn.line}: {turn.speaker!r} speaks only here; "
        "indent the line if it belongs to the turn before"
        for turn in turns
        if count[turn.speaker] == 1
    ]

"""The prompts of an agent read back: turns, facts and memories by the names they have there.

The surprise: prompts show a memory with its time after it, "Ana lives in Bonn (since 5
May) (5 May 2024)"; the second bracket is no part of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memagent.core.records import Session

_SHOWN_TURN = re.compile(
    r"^(?:\[(?P<id>[^\]]+)\]|(?P<number>\d+)) (?P<speaker>[^:\n]+): (?P<text>.*)$", re.MULTILINE
)
_SHOWN_LINE = re.compile(
    r"^(?:\[(?P<id>[^\] ]+)[^\]]*\]|(?P<number>\d+)\.?) "
    r"(?:\((?:said|by|about|turns|time) [^()]*\) )?(?P<text>.*)$"
)
_SHOWN_TIME = re.compile(
    r"(?<=\)) \([^()]*\)$| \((?!(?:on|since|at|with|because|it was) )[^()]*\)$"
)


@dataclass(frozen=True, kw_only=True)
class PromptLine:
    """A line of a prompt: the name it goes by there, and its text."""

    name: str
    text: str


def shown_turns(prompt: str, session: Session) -> list[tuple[str, str]]:
    """Return (name in the prompt, turn id) of the turns that an extractor is asked about.

    They are in order; [] when the prompt shows none of the session's.

    They stand between dialogue tags, or as numbered lines, and are a run of the
    session's turns.
    """
    matches = list(_SHOWN_TURN.finditer(prompt.rpartition("<dialogue>")[2]))
    texts = [match["text"] for match in matches]
    spoken = [" ".join(turn.said.split()) for turn in session.turns]
    for start in range(len(spoken) - len(texts) + 1):
        if spoken[start : start + len(texts)] == texts:
            turns = session.turns[start : start + len(texts)]
            return [
                (match["number"] or match["id"], turn.id)
                for match, turn in zip(matches, turns, strict=True)
            ]
    return []


def fact_entry(
    text: str, source: str, *, subject: str | None, when: str | None = None, kind: str = "fact"
) -> dict[str, str | None]:
    """Return a fact as the prompt asks for it: in brief where turns go by number."""
    if source.isdecimal():
        return {"source": source, "text": text}
    return {"text": text, "subject": subject, "source": source, "when": when, "kind": kind}


def brief_op(op: Mapping[str, Any], facts: Sequence[PromptLine]) -> dict[str, Any]:
    """Return an op in its brief form: the fact first, and no text where it is the fact's."""
    short: dict[str, Any] = {
        name: value
        for name, value in op.items()
        if name != "text" or value != facts[int(op["fact"])].text
    }
    return {"fact": op["fact"]} | {
        name: short[name] for name in ("op", "id", "text") if name in short
    }


def compact_json(value: Mapping[str, Any]) -> str:
    """Return JSON without white space."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def entries_of(reply: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the list in a reply: facts or ops; [] for an answer."""
    return reply.get("facts", reply.get("ops", []))


def facts_and_memories(prompt: str) -> tuple[list[PromptLine], list[PromptLine]]:
    """Return the facts and the memories that a manager's prompt shows, in either form."""
    lines: dict[str, list[PromptLine]] = {"facts": [], "memories": []}
    part = ""
    for line in prompt.splitlines():
        heading = line.strip("<>/: ").lower()
        if line.startswith("</"):
            part = ""
        elif heading in lines:
            part = heading
        elif part and (shown := shown_line(line)) is not None:
            lines[part].append(shown)
    return lines["facts"], lines["memories"]


def shown_line(line: str) -> PromptLine | None:
    """Read a line of a prompt; return None for one that shows nothing."""
    match = _SHOWN_LINE.match(line.strip())
    if match is None:
        return None
    return PromptLine(name=match["id"] or match["number"], text=_SHOWN_TIME.sub("", match["text"]))

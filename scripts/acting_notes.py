"""What scripted models write in acting tasks, and how a player reads it back.

A script stands for a model that makes no mistake of its own: it keeps statements word for
word and tells what worked from what failed. So the tables of `acting_table.py` show what
a design does with good notes, not how good a model's notes are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

from environments.acting.schedule import SAID
from memagent.core.exchange import ModelRequest
from memagent.core.records import MemoryItem
from memagent.core.trials import FAILED, SUCCEEDED
from memagent.designs.base import load_prompt

STATEMENT: Final = re.compile(
    "|".join(
        (
            r"\w+ has number \d+",
            r"let us talk of the \w+",
            r"(?:lamp|trait) \d+: .+? = \w+",
            *(said.replace("{}", r"\w+") for said in SAID.values()),
        )
    )
)
"""What the scripts keep word for word: numbers, topics, answers of labs, facts of plans."""
_NUMBERED: Final = re.compile(r"\b([A-Za-z]+)\d\w*")
_ATTEMPT: Final = re.compile(r"(worked|failed): (.+)")
_SHOWN: Final = re.compile(r"^\[(\S+)\] (.+(?:\n(?!\[|</).+)*)", re.MULTILINE)
MOST_CHARS: Final = 1_800


def noted(request: ModelRequest) -> str:
    """Write what the prompt of the request asks for."""
    return _WRITERS.get(request.prompt_digest, workspace_note)(request.messages[-1].content)


def workspace_note(prompt: str) -> str:
    """Keep the statements, and fold all but the last segment."""
    shown = prompt.split("<steps>")[1]
    places = [int(place) for place in re.findall(r"^\((\d+)\)", shown, re.MULTILINE)]
    text = "; ".join(dict.fromkeys(STATEMENT.findall(shown))) or "nothing yet"
    return json.dumps({"folds": places[:-1], "text": text})


def attempts_in(prompt: str) -> list[str]:
    """Return a line for each trial of a prompt: what worked or failed, without thing's numbers."""
    lines: list[str] = []
    for trial in re.findall(r"<trial>\n(.+?)\n</trial>", prompt, re.DOTALL):
        task = re.findall(r"^task: (.+)$", trial, re.MULTILINE)[0]
        word = "worked" if "\noutcome: succeeded" in trial else "failed"
        lines.append(attempt(task, re.findall(r"^did: (.+)$", trial, re.MULTILINE), word))
    return lines


def attempt(task: str, actions: Sequence[str], word: str) -> str:
    """Return one line for an attempt, without the numbers that are new in each task."""
    return _NUMBERED.sub(r"\1", f"{word}: " + " | ".join((task, *actions)))


def reflected(prompt: str) -> str:
    """Write a rule for an attempt that no shown rule tells, else tag the one that does."""
    (rule,) = attempts_in(prompt)
    known = [item_id for item_id, text in _SHOWN.findall(prompt) if text == rule]
    notes = [{"id": item_id, "tag": "helpful"} for item_id in known] or [{"text": rule}]
    return json.dumps({"notes": notes})


def refined(prompt: str) -> str:
    """Delete shown cases that tell the same attempt as another one."""
    first: dict[str, str] = {}
    double = [
        item_id
        for item_id, text in _SHOWN.findall(prompt)
        if first.setdefault(_NUMBERED.sub(r"\1", text), item_id) != item_id
    ]
    return json.dumps({"operations": [{"op": "DELETE", "id": item_id} for item_id in double]})


def mistaken(prompt: str) -> str:
    """Write one note for each sort of task: what failed, with what the note told before."""
    known = {
        text.split(" | ")[0].removeprefix("failed: "): text
        for _, text in _SHOWN.findall(prompt)
        if text.startswith("failed: ")
    }
    for line in attempts_in(prompt):
        subject = line.split(" | ")[0].removeprefix("failed: ")
        lines = dict.fromkeys((*known.get(subject, line).split(" || "), line))
        kept = list(lines)
        while len(" || ".join(kept)) > MOST_CHARS:
            kept.pop(0)
        known[subject] = " || ".join(kept)
    notes = [{"subject": subject, "text": text} for subject, text in known.items()]
    return json.dumps({"notes": notes})


_WRITERS: Final = {
    load_prompt(name).digest: write
    for name, write in (
        ("reflect", reflected),
        ("refine", refined),
        ("note_mistakes", mistaken),
    )
}


def as_cases(items: Sequence[MemoryItem]) -> list[MemoryItem]:
    """Return memories as a player reads them: rules, notes and episodes become cases."""
    cases: list[MemoryItem] = []
    for item in items:
        attempts = [_ATTEMPT.search(line) for line in item.text.split(" || ")]
        cases += [
            item.model_copy(
                update={
                    "text": "\n".join(found[2].split(" | ")),
                    "tags": (SUCCEEDED if found[1] == "worked" else FAILED,),
                }
            )
            for found in attempts
            if found is not None
        ] or [item]
    return cases

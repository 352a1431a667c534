"""A stand-in for a hosted language model that plays the conversations of the pages.

It speaks OpenAI's API on this machine and reads the real prompts. What a model would
note, decide, answer or say stands in the tables below, by words of the prompt. A reply
of the table needs its evidence: the words it rests on must stand in the prompt, so a
page whose memory does not reach the model prints "I don't know that." and fails.

A token is four characters here, rounded up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from pydantic import JsonValue

from memagent.testing import Reply


class Note(NamedTuple):
    """A fact that the extractor notes when a turn holds `words`."""

    words: str
    text: str
    subject: str
    when: str | None = None
    kind: str = "fact"


class Rewrite(NamedTuple):
    """A memory that a fact changes: both are known by words of theirs."""

    fact: str
    memory: str
    text: str


class Line(NamedTuple):
    """An answer or a chat reply to a message that holds `words`, if `evidence` was shown."""

    words: str
    text: str
    evidence: str = ""


NOTES = (
    Note("I work as a nurse", "Mira lives in Bern and works as a nurse", "Mira"),
    Note("allergic to peanuts", "Mira's daughter Lena is allergic to peanuts", "Lena"),
    Note("moved to Basel", "Mira moved from Bern to Basel", "Mira", "14 March 2026", "event"),
    Note("My order 4711", "Order 4711 of Jonas arrived with a cracked screen", "Jonas"),
    Note("I prefer e-mail", "Jonas prefers e-mail to calls", "Jonas", None, "preference"),
    Note("Rex is allergic to chicken", "Ana's dog Rex is allergic to chicken", "Rex"),
)
REWRITES = (
    Rewrite(
        "Mira moved from Bern to Basel",
        "Mira lives in Bern",
        "Mira works as a nurse; she lived in Bern until she moved to Basel on 14 March 2026",
    ),
)
ANSWERS = (
    Line("Where does Mira live", "Basel", "moved to Basel on 14 March 2026"),
    Line("allergic", "peanuts", "Lena is allergic to peanuts"),
)
REPLIES = (
    Line("I'm Mira", "Welcome, Mira. I will keep that in mind."),
    Line("What should I not bake", "No peanuts: Lena is allergic to them.", "Lena is allergic"),
    Line("moved to Basel", "Congratulations on the move to Basel!"),
    Line("Where do I live", "You live in Basel now; you moved there on 14 March.", "Basel"),
    Line("nurse there", "Basel has several hospitals that look for nurses.", "Basel"),
    Line("My order 4711", "I am sorry about the screen. A replacement is on its way."),
    Line("I prefer e-mail", "Noted: e-mail it is."),
    Line("what was wrong", "Your order 4711 came with a cracked screen.", "cracked screen"),
    Line("Rex is allergic", "I will remember that for Rex."),
    Line("feed Rex", "Anything without chicken: Rex is allergic to it.", "allergic to chicken"),
)
UNKNOWN = "I don't know that."


def docs_model(body: Mapping[str, JsonValue], _index: int) -> Reply:
    """Answer a request of `ScriptedServer` by the part that its prompt asks for."""
    messages = _messages(body)
    system, last = messages[0], messages[-1]
    if system.startswith("You keep the notes"):
        text = _notes(last)
    elif system.startswith("You manage a memory"):
        text = _ops(last)
    elif system.startswith("You answer questions from a memory"):
        text = _answer(last)
    else:
        text = _reply(messages)
    return Reply(
        text=text,
        prompt_tokens=sum(-(-len(message) // 4) for message in messages),
        completion_tokens=-(-len(text) // 4),
    )


def _messages(body: Mapping[str, JsonValue]) -> list[str]:
    listed = body.get("messages")
    assert isinstance(listed, list)
    return [
        str(message.get("content") or "") for message in listed if isinstance(message, dict)
    ] or [""]


def _notes(prompt: str) -> str:
    turns = re.findall(
        r"^\[([^\]]+)\] [^:]+: (.*)$", prompt.split("Turns to take notes of:")[1], re.M
    )
    facts = [
        {"text": note.text, "subject": note.subject, "source": turn_id, "when": note.when}
        | {"kind": note.kind}
        for turn_id, said in turns
        for note in NOTES
        if note.words in said
    ]
    return json.dumps({"facts": facts})


def _ops(prompt: str) -> str:
    facts, _, memories = prompt.partition("Stored memories:")
    known = re.findall(r"^\[(mem_\w+)[^\]]*\] ?(.*)$", memories, re.M)
    ops: list[dict[str, object]] = []
    for number, text in re.findall(r"^(\d+)\. (.*)$", facts, re.M):
        ops.append({"op": "ADD", "fact": int(number)})
        for rewrite in REWRITES:
            for item_id, memory in known:
                if rewrite.fact in text and rewrite.memory in memory:
                    changed = {"id": item_id, "text": rewrite.text, "fact": int(number)}
                    ops[-1] = {"op": "UPDATE", **changed}
        for item_id, memory in known:
            if memory.endswith(text):
                ops[-1] = {"op": "NOOP", "fact": int(number), "id": item_id}
    return json.dumps({"ops": ops})


def _answer(prompt: str) -> str:
    memories, _, question = prompt.rpartition("<question>")
    for line in ANSWERS:
        cited = re.findall(rf"^\[(mem_\w+)\].*{re.escape(line.evidence)}", memories, re.M)
        if line.words in question and cited:
            return json.dumps({"citations": cited[:1], "answer": line.text, "abstain": False})
    return json.dumps({"citations": [], "answer": "", "abstain": True})


def _reply(messages: list[str]) -> str:
    shown = "\n".join(messages)
    for line in REPLIES:
        if line.words in messages[-1] and line.evidence in shown:
            return line.text
    return UNKNOWN

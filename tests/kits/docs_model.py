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
from scripted_server import Reply

from memagent.core.exchange import ToolCall


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
    Note("starts school", "Lena starts school in August 2026", "Lena", "August 2026", "plan"),
    Note("moved to Basel", "Mira moved from Bern to Basel", "Mira", "14 March 2026", "event"),
    Note("cracked screen", "Order 4711 of Jonas arrived with a cracked screen", "Jonas"),
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
    Line("Where does Mira live", "Bern", "lives in Bern"),
    Line("allergic", "peanuts", "Lena is allergic to peanuts"),
)
REPLIES = (
    Line("Where do I live", "You live in Basel now.", "moved to Basel on 14 March 2026"),
    Line("work as", "You are a nurse.", "works as a nurse"),
    Line("not bake", "No peanuts: Lena is allergic to them.", "Lena is allergic to peanuts"),
    Line("vet says", "I will remember that for Rex."),
    Line("feed Rex", "Anything without chicken: Rex is allergic to it.", "allergic to chicken"),
    Line("Forget the dog", "Done."),
    Line("My order 4711", "I am sorry about the screen. A replacement is on its way."),
    Line("I prefer e-mail", "E-mail it is."),
    Line(
        "What was wrong with my order", "Order 4711 came with a cracked screen.", "cracked screen"
    ),
)
BASEL = json.dumps({"city": "Basel"})
SAMPLE = re.compile(r"^Speakers: .*\bLeonor\b", re.MULTILINE)
"""The sample conversation: each of its turns of `LONG_TURN` words or more is one fact."""
LONG_TURN = 8
UNKNOWN = "I don't know that."


def docs_model(body: Mapping[str, JsonValue], index: int) -> Reply:
    """Answer a request of `ScriptedServer` by the part that its prompt asks for."""
    messages = _messages(body)
    system, last = messages[0].text, messages[-1].text
    calls: tuple[ToolCall, ...] = ()
    if system.startswith("You keep the notes"):
        text = _notes(last)
    elif system.startswith("You manage a memory"):
        text = _ops(last)
    elif system.startswith("You answer questions from a memory"):
        text = _answer(last)
    elif messages[-1].role == "tool":
        text = f"Take an umbrella: {last}."
    elif body.get("tools") and "umbrella" in last:
        text, calls = "", (ToolCall(id=f"call_{index}", name="forecast", arguments=BASEL),)
    else:
        text = _reply([message.text for message in messages])
    return Reply(
        text=text,
        tool_calls=calls,
        prompt_tokens=sum(-(-len(message.text) // 4) for message in messages),
        completion_tokens=-(-len(text) // 4),
    )


class Said(NamedTuple):
    """A message of a request."""

    role: str
    text: str


def _messages(body: Mapping[str, JsonValue]) -> list[Said]:
    listed = body.get("messages")
    assert isinstance(listed, list)
    return [
        Said(str(message.get("role")), str(message.get("content") or ""))
        for message in listed
        if isinstance(message, dict)
    ]


def _notes(prompt: str) -> str:
    turns = re.findall(
        r"^\[([^\]]+)\] [^:]+: (.*)$", prompt.split("Turns to take notes of:")[1], re.M
    )
    facts: list[dict[str, str | None]] = [
        {"text": note.text, "subject": note.subject, "source": turn_id, "when": note.when}
        | {"kind": note.kind}
        for turn_id, said in turns
        for note in NOTES
        if note.words in said
    ]
    for turn_id, said in turns if SAMPLE.search(prompt) else ():
        words = said.split()
        if len(words) >= LONG_TURN:
            text = " ".join(words[:20])
            facts.append({"text": text, "source": turn_id, "when": None, "kind": "fact"})
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
    said = messages[-1].rpartition("</memories>")[2]
    shown = "\n".join(messages)
    for line in REPLIES:
        if line.words in said and line.evidence in shown:
            marks = re.findall(rf"^\[(mem_\w+)\].*{re.escape(line.evidence)}", shown, re.M)
            return f"{line.text} [{marks[0]}]" if line.evidence and marks else line.text
    return UNKNOWN

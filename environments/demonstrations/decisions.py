"""The right decisions of a memory manager, and guesses."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

from environments.demonstrations.prompts import PromptLine, entries_of, facts_and_memories
from environments.worlds.readers.notes import NoteLanguage
from environments.worlds.readers.players import Note
from environments.worlds.truth import Act, Telling, Truth

GONE: Final = " no more"
"""The end of a fact that ends a value."""
_SINGLE: Final = frozenset(("state", "preference", "bond"))
"""Kinds of which a person has one value at a time."""
_GUESSES: Final = ("ADD", "ADD", "ADD", "UPDATE", "UPDATE", "DELETE", "NOOP")
"""The ops that a guess is drawn from."""


class OpDecider:
    """Decides what facts do to a memory, as it stands."""

    def __init__(
        self, truth: Truth, language: NoteLanguage, sources: Mapping[str, Telling]
    ) -> None:
        """Decide about the facts of one world.

        `sources` has the telling behind each fact noted so far, by the fact's text.
        """
        self._truth, self._language, self._sources = truth, language, sources
        self._written: set[str] = set()
        """Texts that recorded replies have put into memory and not taken out."""

    def decide(
        self, facts: Sequence[PromptLine], memories: Sequence[PromptLine]
    ) -> list[dict[str, Any]]:
        """Return one op for each fact; of two facts about one thing the later counts."""
        free = {memory.name: memory for memory in memories}
        known = {memory.text: memory.name for memory in reversed(memories)}
        ops: list[dict[str, Any]] = []
        added: set[str] = set()
        for place, fact in enumerate(facts):
            text = fact.text.removesuffix(GONE)
            op: dict[str, Any] = {"op": "NOOP"}
            if fact.text != text:
                op = self._end(text, free)
            elif text in known:
                op = {"op": "NOOP", "fact": place, "id": known[text]}
                free.pop(known[text], None)
            elif text not in added and text not in self._written:
                op = self._place(text, facts[place + 1 :], free)
                if op["op"] == "ADD":
                    added.add(text)
            ops.append(op if "fact" in op else {**op, "fact": place})
        return ops

    def _end(self, text: str, free: dict[str, PromptLine]) -> dict[str, Any]:
        """Delete the memory of a value that ended, if there is one."""
        note = self._language.read(text)
        for name, memory in free.items():
            other = self._language.read(memory.text)
            if note is not None and other is not None and note.claim == other.claim:
                del free[name]
                return {"op": "DELETE", "id": name}
        return {"op": "NOOP"}

    def _place(
        self, text: str, later: Sequence[PromptLine], free: dict[str, PromptLine]
    ) -> dict[str, Any]:
        """Update the memory that a new fact replaces, else add the fact.

        Do nothing when a later fact of the batch overtakes it.
        """
        note = self._language.read(text)
        notes = [self._language.read(fact.text.removesuffix(GONE)) for fact in later]
        if any(_overtakes(note, other) for other in notes):
            return {"op": "NOOP"}
        for name, memory in free.items():
            if self._replaces(text, note, self._language.read(memory.text)):
                del free[name]
                return {"op": "UPDATE", "id": name, "text": text}
        return {"op": "ADD"}

    def _replaces(self, text: str, note: Note | None, memory: Note | None) -> bool:
        """Whether the fact takes the memory's place.

        It is another value of a state, more about the same event, or its correction.
        """
        if note is None or memory is None or not _same_topic(note, memory):
            return False
        return (
            note.kind in _SINGLE
            or note.value == memory.value
            or memory.value in self._corrected(text)
        )

    def _corrected(self, text: str) -> set[str]:
        """Return the wrong values that the fact corrects."""
        telling, wrong = self._sources.get(text), set[str]()
        while telling is not None and telling.supersedes:
            before = self._truth.by_id[telling.supersedes]
            if telling.act is Act.CORRECT:
                wrong.add(before.value)
            telling = before
        return wrong

    def record(self, prompt: str, reply: str) -> None:
        """Record what a manager's reply puts into memory and takes out."""
        facts, memories = facts_and_memories(prompt)
        texts = {memory.name: memory.text for memory in memories}
        for op in entries_of(json.loads(reply)):
            if op["op"] in ("UPDATE", "DELETE"):
                self._written.discard(texts[op["id"]])
            if op["op"] in ("ADD", "UPDATE"):
                self._written.add(op["text"] if "text" in op else facts[int(op["fact"])].text)


def guess_ops(
    rng: random.Random,
    share: float,
    right: Sequence[dict[str, Any]],
    facts: Sequence[PromptLine],
    memories: Sequence[PromptLine],
) -> list[dict[str, Any]]:
    """Replace a share of the ops by guesses that do not look at the memory.

    Guesses are mostly ADD, else anything that is allowed.
    """
    guessed = [rng.random() < share for _ in right]
    taken = {op.get("id") for op, is_guess in zip(right, guessed, strict=True) if not is_guess}
    free = [memory.name for memory in memories if memory.name not in taken]
    rng.shuffle(free)
    ops: list[dict[str, Any]] = []
    for op, is_guess in zip(right, guessed, strict=True):
        if not is_guess:
            ops.append(op)
            continue
        kind, fact = rng.choice(_GUESSES), op["fact"]
        if kind in ("UPDATE", "DELETE") and free:
            text = {"text": facts[int(fact)].text} if kind == "UPDATE" else {}
            ops.append({"op": kind, "id": free.pop(), **text, "fact": fact})
        else:
            ops.append({"op": "NOOP" if kind == "NOOP" else "ADD", "fact": fact})
    return ops


def _same_topic(note: Note, other: Note) -> bool:
    return (note.subject, note.relation) == (other.subject, other.relation)


def _overtakes(note: Note | None, later: Note | None) -> bool:
    """Whether a later fact of the same batch says the newer thing about the same."""
    if note is None or later is None or not _same_topic(note, later):
        return False
    return note.kind in _SINGLE or note.value == later.value

"""A model whose replies are right, because it knows what a world's dialogue told.

`OracleModel` stands where a language model would. It reads the very prompts that the
agent sends, and replies in the JSON that they ask for, so the real agent is played and
nothing is imitated. On request it makes mistakes (`Mistakes`). With `noise` some replies
are spoiled as a weak model would spoil them (`spoil`); the next prompts then show a
memory that is not ideal, and the oracle decides rightly about *that* one.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

from environments.demonstrations.decisions import OpDecider, guess_ops
from environments.demonstrations.extraction import FactNoter
from environments.demonstrations.prompts import (
    brief_op,
    compact_json,
    entries_of,
    facts_and_memories,
    shown_line,
)
from environments.worlds.language.lexicon import Lexicon
from environments.worlds.readers.notes import NoteLanguage
from environments.worlds.readers.players import answer_from
from environments.worlds.truth import Truth
from memagent.core.exchange import ModelRequest, ModelResponse, Role, Usage
from memagent.core.records import Session, content_id


def spoil(rng: random.Random, reply: str) -> str:
    """Spoil a right reply: cut it off, drop an entry, double one, or add everything.

    The result is never the reply itself.
    """
    has_entries = entries_of(json.loads(reply))
    kinds = ["cut", "missing", "twice", "added"] if has_entries else ["cut"]
    rng.shuffle(kinds)
    return next(text for kind in kinds if (text := _spoil_as(kind, rng, reply)) != reply)


def _spoil_as(kind: str, rng: random.Random, reply: str) -> str:
    value: dict[str, Any] = json.loads(reply)
    entries = entries_of(value)
    if kind == "cut":
        return reply[: rng.randrange(1, len(reply))]
    if kind == "missing":
        del entries[rng.randrange(len(entries))]
    elif kind == "twice":
        entries.append(rng.choice(entries))
    elif "ops" in value:
        value["ops"] = [
            {name: entry[name] for name in entry if name in ("op", "fact")} | {"op": "ADD"}
            for entry in entries
        ]
    return compact_json(value)


class Mistakes(TypedDict, total=False):
    """Deliberate mistakes of the oracle; none by default."""

    noise: float
    """Chance that a reply is given spoiled."""
    guess: float
    """Chance that one of the manager's ops is a guess that counts as right."""
    guess_answers: float
    """Chance that an answer is read off any memory shown."""
    seed: int


class OracleModel:
    """A `ChatModel` that knows what a world's dialogue told.

    One object plays one episode.
    """

    def __init__(
        self,
        truth: Truth,
        sessions: Sequence[Session],
        lexicon: Lexicon,
        **mistakes: Unpack[Mistakes],
    ) -> None:
        self._truth = truth
        self._sessions = {session.id: session for session in sessions}
        self._language = NoteLanguage(lexicon)
        self._noter = FactNoter(truth, self._language)
        self._decider = OpDecider(truth, self._language, self._noter.sources)
        self._mistakes = mistakes
        self._rng = random.Random(f"{mistakes.get('seed', 0)}/{truth.episode_id}")
        self.calls: list[tuple[ModelRequest, str, bool]] = []
        """Every request, the right reply to it, and whether it was given as it is."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Return the right reply, or with the chance of `noise` a spoiled one."""
        right = self._reply(request)
        noisy = self._rng.random() < self._mistakes.get("noise", 0.0)
        text = spoil(self._rng, right) if noisy else right
        self.calls.append((request, right, text == right))
        if text == right and request.role is Role.MANAGER:
            self._decider.record(request.messages[-1].content, right)
        return ModelResponse(
            id=content_id("res", self._truth.episode_id, str(len(self.calls)), text),
            text=text,
            usage=Usage(calls=1, completion_tokens=len(text.split())),
            model="oracle",
        )

    def _reply(self, request: ModelRequest) -> str:
        prompt = request.messages[-1].content
        if request.role is Role.EXTRACTOR:
            session = self._sessions[request.step.session_id or ""]
            return compact_json({"facts": self._noter.facts(prompt, session)})
        if request.role is Role.MANAGER:
            return self._decision(prompt)
        return self._answer(prompt, request.step.question_id or "")

    def _decision(self, prompt: str) -> str:
        facts, memories = facts_and_memories(prompt)
        ops = self._decider.decide(facts, memories)
        if share := self._mistakes.get("guess", 0.0):
            ops = guess_ops(self._rng, share, ops, facts, memories)
        brief = prompt.startswith("facts\n")
        return compact_json({"ops": [brief_op(op, facts) for op in ops] if brief else ops})

    def _answer(self, prompt: str, question_id: str) -> str:
        probes = (probe for probe in self._truth.probes if probe.probe_id == question_id)
        probe = next(probes, None)
        lines = [line for text in prompt.splitlines() if (line := shown_line(text)) is not None]
        notes = [
            (line.name, note)
            for line in reversed(lines)
            if (note := self._language.read(line.text)) is not None
        ]
        if probe is None:
            return _answer_json([], "")
        guess = self._mistakes.get("guess_answers", 0.0)
        if notes and guess and self._rng.random() < guess:
            name, note = self._rng.choice(notes)
            return _answer_json([name], note.subject if probe.ask == "who" else note.value)
        used = [(name, note) for name, note in notes if note.relation == probe.relation]
        text = answer_from("oracle", self._language.calendar, probe, [note for _, note in used])
        cited = [
            name
            for name, note in used
            if text and (note.subject == probe.subject or probe.ask == "who")
        ]
        return _answer_json(cited, text)


def _answer_json(citations: list[str], text: str) -> str:
    return compact_json({"citations": citations, "answer": text, "abstain": not text})

"""What an ideal agent of a world would have replied: demonstrations for a warm start,
with a knob for mistakes.

`OracleModel` stands where a language model would. It knows the world's truth, reads the
very prompts that the agent sends, and replies in the JSON that they ask for, so the
real agent is played and nothing is imitated. With `noise` some replies are spoiled as a
weak model would spoil them; the next prompts then show a memory that is not ideal, and
the oracle decides rightly about *that* one. `demonstrations` plays episodes and gives
each call as one chat with the right reply, whatever was played: a student sees right
replies to imperfect states. The surprise: prompts show a memory with its time after it,
"Ana lives in Bonn (since 5 May) (5 May 2024)"; the second bracket is no part of it.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from environments.datasets.synthetic import Part, Synthetic
from environments.play.rollout import play
from environments.views import select_asks
from environments.worlds.language.days import day_text
from environments.worlds.language.lexicon import Lexicon
from environments.worlds.readers.notes import NoteLanguage
from environments.worlds.readers.players import Note, answer_from
from environments.worlds.truth import Act, Held, Telling, Truth
from memagent.async_agent import AsyncAgent
from memagent.core.exchange import ModelRequest, ModelResponse, Role, Usage
from memagent.core.records import Record, Session, content_id
from memagent.core.snapshot import EMPTY

_SHOWN_TURN = re.compile(
    r"^(?:\[(?P<id>[^\]]+)\]|(?P<number>\d+)) (?P<speaker>[^:\n]+): (?P<text>.*)$", re.MULTILINE
)
_SHOWN_LINE = re.compile(
    r"^(?:\[(?P<id>[^\] ]+)[^\]]*\]|(?P<number>\d+)\.?) (?:\((?:said|by|about|turns|time) [^()]*\) )?(?P<text>.*)$"
)
_SHOWN_TIME = re.compile(
    r"(?<=\)) \([^()]*\)$| \((?!(?:on|since|at|with|because|it was) )[^()]*\)$"
)
_UNTOLD = frozenset((Act.JOKE, Act.RUMOUR, Act.BYSTANDER))
_SINGLE = frozenset(("state", "preference", "bond"))
"""Kinds of which a person has one value at a time."""
_GONE = " no more"
"""What a fact ends in that ends a value."""
_GUESSES = ("ADD", "ADD", "ADD", "UPDATE", "UPDATE", "DELETE", "NOOP")
"""What a guess is drawn from."""


class Demonstration(Record):
    """One call: the messages sent and the right reply."""

    episode_id: str
    role: Role
    messages: tuple[dict[str, str], ...]
    reply: str

    def chat(self) -> dict[str, Any]:
        """The call as one conversation, the form that fine-tuning takes."""
        return {"messages": [*self.messages, {"role": "assistant", "content": self.reply}]}


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A line of a prompt: the name it goes by there, and its text."""

    name: str
    text: str


class OracleModel:
    """A `ChatModel` that knows what a world's dialogue told.

    One object plays one episode.
    """

    def __init__(
        self,
        truth: Truth,
        sessions: Sequence[Session],
        lexicon: Lexicon,
        *,
        noise: float = 0.0,
        guess: float = 0.0,
        guess_answers: float = 0.0,
        seed: int = 0,
    ) -> None:
        """`noise` is the chance that a reply is given spoiled; `guess` that one of the
        manager's ops is a guess that passes for right, `guess_answers` that an
        answer is.
        """
        self._truth = truth
        self._sessions = {session.id: session for session in sessions}
        self._language = NoteLanguage(lexicon)
        self._noise, self._guess, self._guess_answers = noise, guess, guess_answers
        self._draws = random.Random(f"{seed}/{truth.episode_id}")
        self._by_turn: dict[str, list[Telling]] = {}
        self._told: dict[str, Telling] = {}
        """The telling behind each fact noted so far."""
        self._written: set[str] = set()
        """Texts that unspoiled replies have put into memory and not taken out."""
        for telling in truth.tellings:
            self._by_turn.setdefault(telling.turn_id, []).append(telling)
        self.calls: list[tuple[ModelRequest, str, bool]] = []
        """Every request, the right reply to it, and whether it was given as it is."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """The right reply, or with the chance of `noise` a spoiled one."""
        right = self._reply(request)
        text = self._spoiled(right) if self._draws.random() < self._noise else right
        self.calls.append((request, right, text == right))
        if text == right and request.role is Role.MANAGER:
            self._keep(request.messages[-1].content, right)
        return ModelResponse(
            id=content_id("res", self._truth.episode_id, str(len(self.calls)), text),
            text=text,
            usage=Usage(calls=1, completion_tokens=len(text.split())),
            model="oracle",
        )

    def _reply(self, request: ModelRequest) -> str:
        prompt = request.messages[-1].content
        if request.role is Role.EXTRACTOR:
            return compact_json({"facts": self._facts(prompt, request.step.session_id or "")})
        if request.role is Role.MANAGER:
            facts, memories = _facts_and_memories(prompt)
            ops = self._ops(facts, memories)
            if self._guess:
                ops = self._guessed(ops, facts, memories)
            return compact_json(
                {"ops": [_brief(op, facts) for op in ops] if prompt.startswith("facts\n") else ops}
            )
        return self._answer(prompt, request.step.question_id or "")

    # -- extract -----------------------------------------------------------------------

    def _facts(self, prompt: str, session_id: str) -> list[dict[str, str | None]]:
        """A note for each telling of the turns shown that deserves one, by what the
        turn is called there.
        """
        found: list[dict[str, str | None]] = []
        for name, turn_id in shown_turns(prompt, self._sessions[session_id]):
            for telling in self._by_turn.get(turn_id, ()):
                if telling.act in _UNTOLD:
                    continue
                text, held = self._noted(telling)
                self._told[text] = telling
                day = held.start if held is not None and held.dated else telling.day
                kind = telling.kind if telling.kind in ("event", "preference", "plan") else "fact"
                found.append(
                    fact_entry(
                        text,
                        name,
                        subject=telling.subject,
                        when=day_text("long", day) if day else None,
                        kind=kind,
                    )
                )
        return found

    def _noted(self, telling: Telling) -> tuple[str, Held | None]:
        """What to note of a telling, and the value that it leaves behind; for an end
        the value that ends.

        A turn is noted as it was said even when a later one corrects it: which of the
        two counts the manager decides, who sees both.
        """
        if telling.act is Act.REMOVE:
            return f"{self._language.told(telling)}{_GONE}", None
        held = self._after(telling)
        if held is None or held.value != telling.value:
            return self._language.told(telling), None
        return self._language.held(telling.subject, telling.relation, held), held

    def _after(self, telling: Telling) -> Held | None:
        """The value that a telling adds to, or repeats, as it holds after the session;
        None when it holds no longer.
        """
        meant = telling.supersedes if telling.act is Act.REPEAT else telling.id
        values = self._truth.state(telling.session).get(telling.key, ())
        return next(
            (held for held in reversed(values) if meant in held.tellings and held.current), None
        )

    # -- decide ------------------------------------------------------------------------

    def _ops(self, facts: Sequence[Shown], memories: Sequence[Shown]) -> list[dict[str, Any]]:
        """For each fact what it does to the memories as they stand; of two facts about
        one thing the later counts.
        """
        free = {one.name: one for one in memories}
        ops: list[dict[str, Any]] = []
        added: set[str] = set()
        for place, fact in enumerate(facts):
            text = fact.text.removesuffix(_GONE)
            note = self._language.read(text)
            later = [
                self._language.read(one.text.removesuffix(_GONE)) for one in facts[place + 1 :]
            ]
            known = next((one for one in memories if one.text == text), None)
            if fact.text != text:
                gone = next((one for one in free.values() if self._same(note, one)), None)
                ops.append(
                    {"op": "DELETE", "id": gone.name, "fact": place}
                    if gone
                    else {"op": "NOOP", "fact": place}
                )
                if gone:
                    del free[gone.name]
            elif known is not None:
                ops.append({"op": "NOOP", "fact": place, "id": known.name})
                free.pop(known.name, None)
            elif (
                text in added
                or text in self._written
                or any(_overtakes(note, one) for one in later)
            ):
                ops.append({"op": "NOOP", "fact": place})
            elif (
                old := next((one for one in free.values() if self._replaced(text, note, one)), None)
            ) is not None:
                del free[old.name]
                ops.append({"op": "UPDATE", "id": old.name, "text": text, "fact": place})
            else:
                added.add(text)
                ops.append({"op": "ADD", "fact": place})
        return ops

    def _guessed(
        self, right: Sequence[dict[str, Any]], facts: Sequence[Shown], memories: Sequence[Shown]
    ) -> list[dict[str, Any]]:
        """The ops, some in favour of what somebody would do who has not looked: mostly
        ADD, else anything that is allowed.
        """
        guessed = [self._draws.random() < self._guess for _ in right]
        taken = {op.get("id") for op, is_guess in zip(right, guessed, strict=True) if not is_guess}
        free = [one.name for one in memories if one.name not in taken]
        self._draws.shuffle(free)
        ops: list[dict[str, Any]] = []
        for op, is_guess in zip(right, guessed, strict=True):
            if not is_guess:
                ops.append(op)
                continue
            kind, fact = self._draws.choice(_GUESSES), op["fact"]
            if kind in ("UPDATE", "DELETE") and free:
                text = {"text": facts[int(fact)].text} if kind == "UPDATE" else {}
                ops.append({"op": kind, "id": free.pop(), **text, "fact": fact})
            else:
                ops.append({"op": "NOOP" if kind == "NOOP" else "ADD", "fact": fact})
        return ops

    def _same(self, note: Note | None, memory: Shown) -> bool:
        other = self._language.read(memory.text)
        return note is not None and other is not None and note.claim == other.claim

    def _replaced(self, text: str, note: Note | None, memory: Shown) -> bool:
        """Whether the fact takes the memory's place: another value of a state, more
        about the same event, or its correction.
        """
        other = self._language.read(memory.text)
        if (
            note is None
            or other is None
            or (note.subject, note.relation) != (other.subject, other.relation)
        ):
            return False
        return (
            note.kind in _SINGLE
            or note.value == other.value
            or other.value in self._corrected(text)
        )

    def _corrected(self, text: str) -> set[str]:
        """Wrong values that the fact corrects."""
        telling, wrong = self._told.get(text), set[str]()
        while telling is not None and telling.supersedes:
            before = self._truth.by_id[telling.supersedes]
            if telling.act is Act.CORRECT:
                wrong.add(before.value)
            telling = before
        return wrong

    def _keep(self, prompt: str, reply: str) -> None:
        """Note what a manager's reply puts into memory and takes out."""
        facts, memories = _facts_and_memories(prompt)
        texts = {one.name: one.text for one in memories}
        for op in _entries(json.loads(reply)):
            if op["op"] in ("UPDATE", "DELETE"):
                self._written.discard(texts[op["id"]])
            if op["op"] in ("ADD", "UPDATE"):
                self._written.add(op["text"] if "text" in op else facts[int(op["fact"])].text)

    # -- answer ------------------------------------------------------------------------

    def _answer(self, prompt: str, question_id: str) -> str:
        probe = next((one for one in self._truth.probes if one.probe_id == question_id), None)
        shown = [one for line in prompt.splitlines() if (one := _line(line)) is not None]
        read = [
            (one, note)
            for one in reversed(shown)
            if (note := self._language.read(one.text)) is not None
        ]
        if probe and read and self._guess_answers and self._draws.random() < self._guess_answers:
            one, note = self._draws.choice(read)
            text = note.subject if probe.ask == "who" else note.value
            return compact_json({"citations": [one.name], "answer": text, "abstain": False})
        used = [
            (one, note)
            for one, note in read
            if probe is not None and note.relation == probe.relation
        ]
        text = (
            answer_from("oracle", self._language.calendar, probe, [note for _, note in used])
            if probe
            else ""
        )
        cited = [
            one.name
            for one, note in used
            if probe and (note.subject == probe.subject or probe.ask == "who")
        ]
        return compact_json(
            {"citations": cited if text else [], "answer": text, "abstain": not text}
        )

    # -- mistakes ----------------------------------------------------------------------

    def _spoiled(self, right: str) -> str:
        """A reply as a weak model might give it, never the right one: cut off, an entry
        missing, an entry twice, or all of it added.
        """
        kinds = ["cut", "missing", "twice", "added"] if _entries(json.loads(right)) else ["cut"]
        self._draws.shuffle(kinds)
        return next(text for kind in kinds if (text := self._spoiled_as(kind, right)) != right)

    def _spoiled_as(self, kind: str, right: str) -> str:
        value: dict[str, Any] = json.loads(right)
        entries = _entries(value)
        if kind == "cut":
            return right[: self._draws.randrange(1, len(right))]
        if kind == "missing":
            del entries[self._draws.randrange(len(entries))]
        elif kind == "twice":
            entries.append(self._draws.choice(entries))
        elif "ops" in value:
            value["ops"] = [
                {name: entry[name] for name in entry if name in ("op", "fact")} | {"op": "ADD"}
                for entry in entries
            ]
        return compact_json(value)


async def demonstrations(
    env: Synthetic,
    agent: AsyncAgent,
    *,
    split: Part = "train",
    indexes: Iterable[int] = range(10),
    noise: float = 0.1,
    guess: float = 0.0,
    guess_answers: float = 0.0,
    seed: int = 0,
    roles: frozenset[Role] = frozenset((Role.EXTRACTOR, Role.MANAGER)),
    asks: Sequence[str] = (),
) -> list[Demonstration]:
    """Right replies to the prompts that the agent's design sends over these episodes; answers only when the answerer is among the roles, and then to questions of the kinds in `asks`, or to all.

    `noise` spoils the memory on the way, not what is demonstrated; `guess` is the share
    of the manager's ops that are demonstrated at random, for a policy that has yet to
    learn when to do what, and `guess_answers` that of answers read off any memory
    shown, for one that has yet to learn which to believe.
    """
    found: list[Demonstration] = []
    for index in indexes:
        episode = env.episode(split, index)
        truth = env.truth(episode)
        episode = select_asks(episode, truth, asks)
        model = OracleModel(
            truth,
            episode.sessions,
            env.lexicon(split),
            noise=noise,
            guess=guess,
            guess_answers=guess_answers,
            seed=seed,
        )
        await play(agent.at(EMPTY).with_model(model), episode, ask=Role.ANSWERER in roles)
        found += [
            demonstration_of(episode.id, request, right)
            for request, right, _ in model.calls
            if request.role in roles
        ]
    return found


def demonstration_of(episode_id: str, request: ModelRequest, reply: str) -> Demonstration:
    """A request with the right reply."""
    return Demonstration(
        episode_id=episode_id,
        role=request.role,
        messages=tuple(
            {"role": message.role, "content": message.content} for message in request.messages
        ),
        reply=reply,
    )


def write_demonstrations(path: Path, found: Iterable[Demonstration]) -> int:
    """Demonstrations as JSON Lines in chat form; gives how many."""
    lines = [json.dumps(one.chat() | {"role": one.role.value}, ensure_ascii=False) for one in found]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return len(lines)


def lines_of(found: Iterable[Demonstration]) -> Iterator[str]:
    """All text of the demonstrations, for a tokenizer to be made from."""
    for one in found:
        yield from (message["content"] for message in one.messages)
        yield one.reply


# -- reading prompts -------------------------------------------------------------------


def shown_turns(prompt: str, session: Session) -> list[tuple[str, str]]:
    """(name in the prompt, turn id) of the turns that an extractor's prompt asks about,
    in order; [] when it shows none of the session's.

    They stand between dialogue tags, or as numbered lines, and are a run of the
    session's turns.
    """
    shown = list(_SHOWN_TURN.finditer(prompt.rpartition("<dialogue>")[2]))
    texts = [match["text"] for match in shown]
    said = [" ".join(turn.said.split()) for turn in session.turns]
    for start in range(len(said) - len(texts) + 1):
        if said[start : start + len(texts)] == texts:
            turns = session.turns[start : start + len(texts)]
            return [
                (match["number"] or match["id"], turn.id)
                for match, turn in zip(shown, turns, strict=True)
            ]
    return []


def fact_entry(
    text: str, source: str, *, subject: str | None, when: str | None = None, kind: str = "fact"
) -> dict[str, str | None]:
    """A fact as the prompt asks for it: where turns go by number, in brief."""
    if source.isdecimal():
        return {"source": source, "text": text}
    return {"text": text, "subject": subject, "source": source, "when": when, "kind": kind}


def _brief(op: Mapping[str, Any], facts: Sequence[Shown]) -> dict[str, Any]:
    """An op in its brief form: the fact first, and no text where it is the fact's."""
    short: dict[str, Any] = {
        name: value
        for name, value in op.items()
        if name != "text" or value != facts[int(op["fact"])].text
    }
    return {"fact": op["fact"]} | {
        name: short[name] for name in ("op", "id", "text") if name in short
    }


def compact_json(value: Mapping[str, Any]) -> str:
    """JSON without white space."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _entries(reply: dict[str, Any]) -> list[dict[str, Any]]:
    """The list in a reply that is one: facts or ops; [] for an answer."""
    return reply.get("facts", reply.get("ops", []))


def _facts_and_memories(prompt: str) -> tuple[list[Shown], list[Shown]]:
    """The facts and the memories that a manager's prompt shows, in either form."""
    found: dict[str, list[Shown]] = {"facts": [], "memories": []}
    part = ""
    for line in prompt.splitlines():
        heading = line.strip("<>/: ").lower()
        if line.startswith("</"):
            part = ""
        elif heading in found:
            part = heading
        elif part and (shown := _line(line)) is not None:
            found[part].append(shown)
    return found["facts"], found["memories"]


def _line(line: str) -> Shown | None:
    match = _SHOWN_LINE.match(line.strip())
    return (
        Shown(name=match["id"] or match["number"], text=_SHOWN_TIME.sub("", match["text"]))
        if match
        else None
    )


def _overtakes(note: Note | None, later: Note | None) -> bool:
    """Whether a later fact of the same batch says the newer thing about the same."""
    if (
        note is None
        or later is None
        or (note.subject, note.relation) != (later.subject, later.relation)
    ):
        return False
    return note.kind in _SINGLE or note.value == later.value

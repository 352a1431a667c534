"""A model that answers any prompt of a design by the schema of its request, and a scenario
in which every part of a design that asks a model does so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Sequence

from pydantic import JsonValue

from memagent.async_agent import AsyncAgent
from memagent.core.exchange import ModelRequest
from memagent.core.records import Session, Turn
from memagent.core.trials import Trial, TrialStep

SAID = (
    "I moved to Porto. Ana moved to Porto in May.",
    "Ana moved to Lisbon by train with her two old cats and a big grey piano in May.",
    "Ana moved to Lisbon by train with her two old cats and a big grey piano in June.",
)
SESSIONS = tuple(
    Session(id=f"s{number}", turns=(Turn(id=f"s{number}:1", speaker="Ana", text=text),))
    for number, text in enumerate(SAID, 1)
)
MORE = [f"Ana has boat {number} in a harbour of its own." for number in range(6)]
QUESTION = "Where did Ana move to?"
_NAMED = re.compile(r"\[([\w:#-]+)[\]\s]")
_SENTENCE = re.compile(r"Ana moved to [^.,\n<]+")
_NAMES = frozenset("source sources turn turns id event events topics citations".split())


def obliging(request: ModelRequest) -> str:
    """Answer with the first value that fits the schema, out of the words of the prompt."""
    prompt = request.messages[-1].content
    if request.schema_ is None:
        return f"{_sentences(prompt)[-1]}."
    return json.dumps(_filled(request.schema_, prompt))


def _filled(schema: dict[str, JsonValue], prompt: str, key: str = "", place: int = 0) -> JsonValue:
    one_of = schema.get("anyOf", schema.get("oneOf"))
    if isinstance(one_of, list) and isinstance(one_of[0], dict):
        return _filled(one_of[0], prompt, key, place)
    kind = schema.get("type")
    properties, items = schema.get("properties"), schema.get("items")
    match kind[0] if isinstance(kind, list) else kind:
        case _ if isinstance(chosen := schema.get("enum"), list):
            return "EXPAND" if "EXPAND" in chosen else chosen[0]
        case "object" if isinstance(properties, dict):
            return {
                name: _filled(inner, prompt, name, place)
                for name, inner in properties.items()
                if isinstance(inner, dict)
            }
        case "array" if isinstance(items, dict):
            texts = 0 if items.get("type") == "integer" else 1
            count = 2 if items.get("type") == "object" and key != "ops" else texts
            return [_filled(items, prompt, key, at) for at in range(count)]
        case "integer" | "number":
            return int(key == "to")
        case "boolean":
            return False
        case _:
            return _text(prompt, key, place)


def _text(prompt: str, key: str, place: int) -> str:
    named = _NAMED.findall(prompt)
    if key == "op":
        return "ADD"
    if key in _NAMES:
        return named[-1] if named else "0"
    return _sentences(prompt)[-1 - place]


def _sentences(prompt: str) -> list[str]:
    return [QUESTION, *_SENTENCE.findall(prompt)] if _SENTENCE.search(prompt) else [QUESTION] * 2


async def remember(agent: AsyncAgent) -> None:
    """Remember all sessions, and some more memories than an answerer reads unselected."""
    for session in SESSIONS:
        await agent.remember(session)
    missing = [text for text in MORE if text not in {i.text for i in await agent.memory.get_all()}]
    await agent.memory.add_many(missing)


async def ask(agent: AsyncAgent) -> None:
    """Ask a question."""
    await agent.ask(QUESTION)


async def work(agent: AsyncAgent) -> None:
    """Fail at a task three times, with a workspace that grows."""
    for _ in range(3):
        trial: Trial = (await agent.recall("Find out where Ana moved to")).trial
        for number in range(9):
            name = "subgoal: part" if number % 4 == 2 else f"enter room {number}"
            seen = f"room {number} is bare, with four grey walls " * 6
            trial = await agent.compact(trial.with_step(TrialStep(action=name, observation=seen)))
        await agent.report(trial, reward=0.0)


async def tidy(agent: AsyncAgent) -> None:
    """Keep a budget of one memory."""
    await agent.tidy(1)


STEPS: Sequence[Callable[[AsyncAgent], Awaitable[None]]] = (remember, ask, work, tidy)

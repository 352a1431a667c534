"""A small world for the tests of rollouts: dated sessions with a fact a turn, and a
model whose answers follow from the request alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta

from environments import Episode, Probe
from memagent.async_agent import AsyncAgent
from memagent.build import open_agent
from memagent.core.exchange import ModelRequest, ModelResponse, Role, Usage
from memagent.core.records import Session, Turn, content_id
from memagent.llm.wrappers import request_digest
from memagent.testing import FunctionModel

DAY = datetime(2024, 1, 1, 18, tzinfo=UTC)
THINGS = ("boat", "kettle", "violin", "ladder", "candle", "basket", "mirror", "saddle")
_TURN = re.compile(r"^\[(\w+:\d+)\] (\w+): (.*)$", re.MULTILINE)
_FACT = re.compile(r"^(\d+)\. (?:\(.*?\) )?(.*)$", re.MULTILINE)
_MEMORY = re.compile(r"^\[(mem_\w+)[^\]]*\] (?:\(.*?\) )?(.*)$", re.MULTILINE)


def episode(sessions: int = 4, *, turns: int = 3, name: str = "world") -> Episode:
    """Each session tells where Ana keeps `turns` things; things come back in later
    sessions with another place.
    """
    told = [
        Session(
            id=f"{name}_s{number}",
            at=DAY + timedelta(days=7 * number),
            turns=tuple(
                Turn(
                    id=f"{name}{number}:{at}",
                    speaker=("Ana", "Bo")[at % 2],
                    text=f"I keep the {THINGS[(number * turns + at) % len(THINGS)]} in room {number}{at}.",
                )
                for at in range(turns)
            ),
        )
        for number in range(sessions)
    ]
    probes = tuple(
        Probe(
            id=f"{name}:p{number}.{at}",
            question=f"Where is the {THINGS[(number * turns + at) % len(THINGS)]} kept?",
            answers=(f"room {number}{at}",),
            evidence_turn_ids=(f"{name}{number}:{at}",),
        )
        for number in range(sessions)
        for at in range(turns)
    )
    return Episode(id=name, sessions=tuple(told), probes=probes)


def reply(request: ModelRequest) -> str:
    """Keep every turn; update a memory about the same thing, pass over what is known;
    answer with the newest memory of the thing.
    """
    shown = request.messages[1].content
    if request.role is Role.EXTRACTOR:
        said = _TURN.findall(shown.partition("<dialogue>")[2])
        facts = [
            {
                "text": f"{who}: {text}",
                "subject": None,
                "source": turn_id,
                "when": None,
                "kind": "fact",
            }
            for turn_id, who, text in said
        ]
        return json.dumps({"facts": facts})
    memories = _MEMORY.findall(shown)
    if request.role is Role.MANAGER:
        ops: list[dict[str, object]] = []
        taken: set[str] = set()
        for index, text in _FACT.findall(shown.partition("<facts>")[2].partition("</facts>")[0]):
            old = next(
                (
                    one
                    for one, held in memories
                    if _thing(held) == _thing(text) and one not in taken
                ),
                None,
            )
            taken.add(old or "")
            ops.append(
                {"op": "ADD", "fact": int(index)}
                if old is None
                else {"op": "UPDATE", "id": old, "text": text, "fact": int(index)}
            )
        return json.dumps({"ops": ops})
    wanted = _thing(shown.partition("<question>")[2])
    found = [(one, held) for one, held in memories if _thing(held) == wanted]
    room = re.search(r"room \d+", found[-1][1]) if found else None
    answer = (
        {"answer": room[0], "citations": [found[-1][0]]}
        if room
        else {"abstain": True, "answer": "", "citations": []}
    )
    return json.dumps(answer)


def _thing(text: str) -> str | None:
    return next((thing for thing in THINGS if f"the {thing}" in text), None)


def model(answer: Callable[[ModelRequest], str] = reply) -> FunctionModel:
    """A model that gives equal responses, ids included, to equal requests."""

    def respond(request: ModelRequest) -> ModelResponse:
        text = answer(request)
        return ModelResponse(
            id=content_id("res", request_digest(request), text),
            text=text,
            usage=Usage(calls=1),
            model="function",
        )

    return FunctionModel(respond)


def open_r2(
    answer: Callable[[ModelRequest], str] = reply,
) -> AbstractAsyncContextManager[AsyncAgent]:
    """An agent of the design `memory_r2` with that model, in memory."""
    return open_agent(path=":memory:", design="memory_r2", model=model(answer), embedder="hashing")


def open_verbatim() -> AbstractAsyncContextManager[AsyncAgent]:
    """An agent of the design `verbatim`, in memory."""
    return open_agent(path=":memory:", design="verbatim", embedder="hashing")

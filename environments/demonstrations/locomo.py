"""Demonstrations for an extractor from LoCoMo's annotation, facts that its authors noted.

Each fact names the turn it rests on, so the right reply to an extractor's prompt can be
built for any design: the real agent is played, and its question about a chunk is
answered with that chunk's facts, under the names that the prompt gives its turns. A
fact that rests on several turns goes to the last of them. Facts that cannot be placed
are counted, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from environments.datasets.locomo_files import iter_locomo
from environments.demonstrations.ideal import Demonstration, demonstration_of
from environments.demonstrations.prompts import compact_json, fact_entry, shown_turns
from environments.errors import EnvironmentFault
from memagent.build import open_agent
from memagent.core.exchange import ModelRequest, ModelResponse, Role, Usage
from memagent.core.records import Fact, Session, content_id
from memagent.readers import Conversation


@dataclass(frozen=True, kw_only=True)
class Observed:
    """Demonstrations made from observed facts."""

    demonstrations: tuple[Demonstration, ...]
    """One a chunk, those of chunks with no fact included."""
    facts: int
    """Facts that they hold."""
    left_out: int
    """Facts that name no turn which was shown."""


class ObservingModel:
    """A `ChatModel` that answers extractors with observed facts, and keeps memory empty."""

    def __init__(self, sessions: Sequence[Session], facts: Sequence[Fact]) -> None:
        self._sessions = {session.id: session for session in sessions}
        places = {
            turn.id: place for session in sessions for place, turn in enumerate(session.turns)
        }
        self._by_turn: dict[str, list[Fact]] = {}
        for fact in facts:
            if known := [turn_id for turn_id in fact.source_turn_ids if turn_id in places]:
                self._by_turn.setdefault(max(known, key=places.__getitem__), []).append(fact)
        self.calls: list[tuple[ModelRequest, str]] = []
        """Every extractor's request with its reply."""
        self.used = 0
        """Facts given so far."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Return the facts of the turns shown; nothing to do for any other role."""
        text = '{"ops":[]}'
        if request.role is Role.EXTRACTOR:
            text = self._facts(request)
            self.calls.append((request, text))
        return ModelResponse(
            id=content_id("res", request.messages[-1].content, text),
            text=text,
            usage=Usage(calls=1),
            model="observed",
        )

    def _facts(self, request: ModelRequest) -> str:
        session = self._sessions[request.step.session_id or ""]
        facts = [
            fact_entry(fact.text, name, subject=fact.subject)
            for name, turn_id in shown_turns(request.messages[-1].content, session)
            for fact in self._by_turn.get(turn_id, ())
        ]
        self.used += len(facts)
        return compact_json({"facts": facts})


async def locomo_demonstrations(path: str | Path, *, design: str = "memory_r2") -> Observed:
    """Return an extractor's right replies over all conversations of LoCoMo files.

    `path` is one file or a folder of such files. Raises `EnvironmentFault` for a folder
    without files and a design that asks no model for facts, `InputError` for a file
    that is not LoCoMo's.
    """
    parts = [await _observe(conversation, design) for conversation in _conversations(path)]
    return Observed(
        demonstrations=tuple(chat for part in parts for chat in part.demonstrations),
        facts=sum(part.facts for part in parts),
        left_out=sum(part.left_out for part in parts),
    )


def _conversations(path: str | Path) -> Iterator[Conversation]:
    home = Path(path).expanduser()
    files = sorted(home.glob("*.json")) if home.is_dir() else [home]
    if not files:
        raise EnvironmentFault(f"{home} holds no .json file")
    return (conversation for file in files for conversation in iter_locomo(file))


async def _observe(conversation: Conversation, design: str) -> Observed:
    model = ObservingModel(conversation.sessions, conversation.observations)
    async with open_agent(path=":memory:", design=design, embedder="hashing", model=model) as agent:
        for session in conversation.sessions:
            await agent.remember(session)
    if not model.calls:
        raise EnvironmentFault(
            f"design {design!r} asks no model for facts, so there is nothing to demonstrate"
        )
    return Observed(
        demonstrations=tuple(
            demonstration_of(conversation.id, request, reply) for request, reply in model.calls
        ),
        facts=model.used,
        left_out=len(conversation.observations) - model.used,
    )

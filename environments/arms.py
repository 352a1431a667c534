"""The arms of an evaluation: what is played beside the memory under test, so that its figures mean something.

A *design arm* is a memory design by name, with its own memory. A *turn arm* keeps every turn as an item of its own and differs from the
others only in which turns it shows the answerer; all turn arms have one and the same answerer, that of the answering design.

    empty           nothing is remembered
    append_turns    the bank's own search over every turn, nothing updated or deleted (ADD-only without a model)
    bm25            BM25 over turns                         bm25_window    over a turn with its neighbours
    dense           cosine over turns                       rrf            bm25 and dense, fused by rank
    four_way        bm25 and dense, each over turns and windows, fused by rank
    five_way        bm25 over windows, the embedder and the static table each over turns and windows; for embedders other than static
    full_context    all turns within a budget, newest first
    oracle          the gold evidence, nothing else
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from environments.errors import EnvironmentFault
from environments.metrics import token_count
from environments.rankings import TurnIndex, fused
from environments.records import Episode
from environments.rollout import MemoryAgent
from memagent.async_agent import AsyncAgent
from memagent.build import Store, build_embedder
from memagent.core.answers import Answer, Hit, Query, Question
from memagent.core.ops import Add, OpBatch
from memagent.core.records import Fact, Scope, Session, SourceRef, content_id
from memagent.core.reports import IngestReport
from memagent.core.snapshot import MemorySnapshot
from memagent.protocols import Embedder

MAX_HITS = 1_000
"""Most hits the full context shows."""


@dataclass(frozen=True, kw_only=True)
class Shelf:
    """What the turn arms of one episode share: an index for each run of sessions, the gold evidence, the embedders."""

    embedder: Embedder
    context_tokens: int
    evidence: Mapping[str, tuple[str, ...]]
    """Gold turns by probe id."""
    indexes: dict[tuple[str, ...], TurnIndex] = field(default_factory=dict[tuple[str, ...], TurnIndex])

    async def index(self, agent: AsyncAgent) -> TurnIndex:
        """The index over what the agent has heard."""
        sessions = await agent.memory.sessions()
        key = tuple(session.id for session in sessions)
        if key not in self.indexes:
            self.indexes[key] = TurnIndex(sessions)
        return self.indexes[key]


Chooser = Callable[[Question, AsyncAgent, Shelf], Awaitable[list[str]]]
"""A question to turn ids, best first; they are cut to the question's k, but for the full context."""


async def _empty(question: Question, agent: AsyncAgent, shelf: Shelf) -> list[str]:
    return []


async def _oracle(question: Question, agent: AsyncAgent, shelf: Shelf) -> list[str]:
    return list(shelf.evidence.get(question.id or "", ()))


async def _append_turns(question: Question, agent: AsyncAgent, shelf: Shelf) -> list[str]:
    hits = await agent.bank.search(Query(text=question.text, where=question.where), k=question.k)
    return [turn_id for hit in hits for turn_id in hit.source_turn_ids]


async def _bm25(question: Question, agent: AsyncAgent, shelf: Shelf) -> list[str]:
    return (await shelf.index(agent)).lexical(question.text, field="turn")


async def _bm25_window(question: Question, agent: AsyncAgent, shelf: Shelf) -> list[str]:
    return (await shelf.index(agent)).lexical(question.text, field="window")


async def _dense(question: Question, agent: AsyncAgent, shelf: Shelf) -> list[str]:
    return await (await shelf.index(agent)).dense(question.text, field="turn", embedder=shelf.embedder)


async def _rrf(question: Question, agent: AsyncAgent, shelf: Shelf) -> list[str]:
    return fused([await _bm25(question, agent, shelf), await _dense(question, agent, shelf)])


async def _four_way(question: Question, agent: AsyncAgent, shelf: Shelf) -> list[str]:
    index, text = await shelf.index(agent), question.text
    rankings = [index.lexical(text, field="turn"), index.lexical(text, field="window")]
    rankings += [await index.dense(text, field=one, embedder=shelf.embedder) for one in ("turn", "window")]
    return fused(rankings)


async def _five_way(question: Question, agent: AsyncAgent, shelf: Shelf) -> list[str]:
    index, text = await shelf.index(agent), question.text
    embedders = (shelf.embedder, build_embedder("static"))
    rankings = [index.lexical(text, field="window")]
    rankings += [
        await index.dense(text, field=one, embedder=embedder) for embedder in embedders for one in ("turn", "window")
    ]
    return fused(rankings)


async def _full_context(question: Question, agent: AsyncAgent, shelf: Shelf) -> list[str]:
    left = shelf.context_tokens
    chosen: list[str] = []
    for turn in reversed((await shelf.index(agent)).turns):
        left -= token_count(turn.said)
        if left < 0 or len(chosen) == MAX_HITS:
            break
        chosen.append(turn.id)
    return chosen


TURN_ARMS: Final[Mapping[str, Chooser]] = {
    "empty": _empty,
    "append_turns": _append_turns,
    "bm25": _bm25,
    "bm25_window": _bm25_window,
    "dense": _dense,
    "rrf": _rrf,
    "four_way": _four_way,
    "five_way": _five_way,
    "full_context": _full_context,
    "oracle": _oracle,
}
"""Turn arms by name."""


@dataclass(frozen=True, kw_only=True)
class TurnAgent:
    """A turn arm as an agent that can be played: it keeps turns as they are and shows the answerer those that its arm chooses."""

    base: AsyncAgent
    arm: str
    shelf: Shelf

    async def remember(self, session: Session) -> IngestReport:
        """Store the session and, unless the arm is `empty`, one item a turn in one commit."""
        fresh = await self.base.bank.store_session(session)
        if fresh and self.arm != "empty":
            ops = tuple(
                Add(
                    id=item_id(turn.id),
                    fact=Fact(
                        text=turn.said,
                        kind="turn",
                        speaker=turn.speaker,
                        subject=turn.speaker,
                        source_turn_ids=(turn.id,),
                        said_at=session.date_of(turn),
                        trust=turn.trust,
                    ),
                )
                for turn in session.turns
                if turn.said.strip()
            )
            source = SourceRef(session_id=session.id, turn_ids=tuple(turn.id for turn in session.turns), actor=self.arm)
            await self.base.bank.commit(OpBatch(accepted=ops), source=source)
        return IngestReport(session_id=session.id, stored_turns=len(session.turns) if fresh else 0, skipped=not fresh)

    async def ask(self, question: Question) -> Answer:
        """The answering design's answer from the turns that the arm chooses."""
        chosen = list(dict.fromkeys(await TURN_ARMS[self.arm](question, self.base, self.shelf)))
        if self.arm != "full_context":
            chosen = chosen[: question.k]
        items = self.base.bank.state.items
        hits = [
            Hit(id=found.id, score=1.0 / rank, item=found)
            for rank, turn_id in enumerate(chosen, start=1)
            if (found := items.get(item_id(turn_id))) is not None
        ]

        async def retrieve(question: Question, ctx: object, /) -> list[Hit]:
            return hits

        return await replace(self.base, design=replace(self.base.design, retriever=retrieve)).ask(question)

    def snapshot(self) -> MemorySnapshot:
        """The memory as it is."""
        return self.base.snapshot()

    def at(self, snapshot: MemorySnapshot) -> TurnAgent:
        """The same arm on a private memory that starts from a snapshot."""
        return replace(self, base=self.base.at(snapshot))


def item_id(turn_id: str) -> str:
    """Id of the item that a turn arm makes of a turn."""
    return content_id("mem", "turn", turn_id)


def default_arms(*, model: bool, embedder: str) -> tuple[str, ...]:
    """The arms of an evaluation that names none."""
    designs = ("memory_r2", "add_only", "verbatim") if model else ("verbatim",)
    turns = tuple(name for name in TURN_ARMS if name != "five_way" or embedder != "static")
    return (*designs, *turns)


def open_arm(name: str, store: Store, shelf: Shelf, *, model: str | None) -> MemoryAgent:
    """The agent of an arm, on a memory of its own in the store. Raises `ConfigError` for a name that is neither arm nor design."""
    scope = Scope(user_id=f"arm_{name}")
    if name not in TURN_ARMS:
        return store.agent(scope, model=model, design=name)
    if name == "five_way" and shelf.embedder.id == build_embedder("static").id:
        raise EnvironmentFault("arm 'five_way' needs an embedder besides the static table: --embedder minilm")
    answering = "verbatim" if model is None else "memory_r2"
    return TurnAgent(base=store.agent(scope, model=model, design=answering), arm=name, shelf=shelf)


def shelf_for(episode: Episode, store: Store, *, context_tokens: int) -> Shelf:
    """What the turn arms of an episode share."""
    evidence = {probe.id: probe.evidence_turn_ids for probe in episode.probes}
    return Shelf(embedder=store.embedder, context_tokens=context_tokens, evidence=evidence)

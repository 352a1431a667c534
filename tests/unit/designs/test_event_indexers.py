"""Both indexers and the two designs of the event graph: what a session becomes, what
unreadable replies cost, and the laws of a design.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime

import numpy as np
import pytest

from memagent.async_agent import AsyncAgent
from memagent.core.answers import Filter, Question
from memagent.core.errors import EmbeddingError
from memagent.core.exchange import ModelRequest, Role
from memagent.core.records import Event, EventEdge, NodeKind, Relation, Session, Turn
from memagent.core.snapshot import GraphDelta
from memagent.designs.base import SlotContext, load_prompt
from memagent.designs.compass_mem import DESIGN, MODEL_FREE
from memagent.designs.parts.event_indexer import (
    EVENTS_SCHEMA,
    RELATIONS_SCHEMA,
    EventIndexer,
)
from memagent.designs.parts.graph_walk import GraphWalkRetriever, parse_move, parse_plan
from memagent.designs.parts.rule_indexer import RuleIndexer
from memagent.embed.static import HashEmbedder
from memagent.events.visibility import expand, topics_of
from memagent.events.walk import Action
from memagent.memory.bank import MemoryBank, system_clock
from memagent.plugins import load
from memagent.protocols import Matrix
from memagent.replies.readers import parse_events, parse_relations
from memagent.state.adjacency import graph_of
from memagent.testing import FunctionModel, ScriptedModel, check_design

AT = datetime(2023, 5, 8, 18, tzinfo=UTC)
SESSION = Session(
    id="s1",
    at=AT,
    turns=(
        Turn(id="D1:1", speaker="Ana", text="Hey! How are you?"),
        Turn(
            id="D1:2", speaker="Bo", text="My knee operation was on 3 May 2023 at Mercy hospital."
        ),
        Turn(
            id="D1:3",
            speaker="Ana",
            text="Oh, the knee operation! Did the hospital treat you well?",
        ),
        Turn(id="D1:4", speaker="Bo", text="Thanks, yes!"),
        Turn(
            id="D1:5", speaker="Ana", text="Yesterday I signed up for a marathon with Carla Diaz."
        ),
    ),
)


async def indexed(
    indexer: RuleIndexer | EventIndexer, model: FunctionModel
) -> tuple[GraphDelta, MemoryBank]:
    async def run() -> tuple[GraphDelta, MemoryBank]:
        bank = MemoryBank(embedder=HashEmbedder(dim=64))
        await bank.store_session(SESSION)
        delta = await indexer(
            (), SlotContext(model=model, bank=bank, clock=system_clock, session=SESSION)
        )
        return await bank.index(delta), bank.fork()

    return await run()


def silent() -> FunctionModel:
    return FunctionModel(lambda request: pytest.fail(f"asked a model: {request.role}"))


def events_of(delta: GraphDelta) -> list[Event]:
    return [node for node in delta.nodes if node.kind is NodeKind.EVENT]


async def test_rules_make_events_of_informative_runs_with_time_people_and_names() -> None:
    delta, _ = await indexed(RuleIndexer(), silent())
    operation, marathon = events_of(delta)
    assert operation.source_turn_ids == ("D1:2", "D1:3") and operation.people == ("Bo", "Ana")
    assert (
        marathon.source_turn_ids == ("D1:5",)
        and marathon.valid is not None
        and marathon.valid.start is not None
    )
    assert marathon.valid.start.date().isoformat() == "2023-05-07"
    before = [edge for edge in delta.edges if edge.relation is Relation.BEFORE]
    assert [(edge.source, edge.target) for edge in before] == [(operation.id, marathon.id)]
    names = {node.summary for node in delta.nodes if node.kind is NodeKind.ENTITY}
    assert {"Ana", "Bo", "Carla Diaz"} <= names


async def test_indexing_a_session_again_changes_nothing() -> None:
    bank = MemoryBank(embedder=HashEmbedder(dim=64))
    await bank.store_session(SESSION)
    ctx = SlotContext(model=silent(), bank=bank, clock=system_clock, session=SESSION)
    await bank.index(await RuleIndexer()((), ctx))
    assert (await RuleIndexer()((), ctx)).empty


async def test_a_model_s_events_are_grounded_and_what_does_not_fit_is_told() -> None:
    told = {
        "events": [
            {
                "summary": "Bo had a knee operation",
                "people": ["Bo"],
                "turns": ["D1:2", "D9:9"],
                "when": "3 May 2023",
            },
            {
                "summary": "Ana signed up for a marathon",
                "people": [],
                "turns": ["[D1:5]"],
                "when": "yesterday",
            },
            {"summary": "From nowhere", "people": [], "turns": ["D7:1"], "when": None},
            {"people": ["Ana"]},
        ]
    }
    linked = {
        "relations": [
            {"source": "1", "target": 0, "relation": "after", "turns": ["D1:5"], "confidence": 2},
            {"source": 0, "target": 1, "relation": "supersedes"},
            {"source": 0, "target": 5, "relation": "causes"},
        ]
    }
    model = ScriptedModel(
        ["no idea", json.dumps(told), f"Sure:\n```json\n{json.dumps(linked)}\n```"]
    )
    delta, _ = await indexed(EventIndexer(), model)
    operation, marathon = events_of(delta)
    assert (
        operation.source_turn_ids == ("D1:2",)
        and operation.valid is not None
        and operation.time_text == "3 May 2023"
    )
    assert (
        marathon.people == ("Ana",)
        and marathon.valid is not None
        and marathon.valid.start is not None
    )
    assert marathon.valid.start.date().isoformat() == "2023-05-07"
    after = [edge for edge in delta.edges if edge.relation is Relation.AFTER]
    assert [(edge.source, edge.target, edge.confidence) for edge in after] == [
        (marathon.id, operation.id, 1.0)
    ]
    assert len(delta.rejected) == 4
    assert [request.step.call for request in model.requests] == [0, 1, 2]
    assert [request.schema_ for request in model.requests] == [
        EVENTS_SCHEMA,
        EVENTS_SCHEMA,
        RELATIONS_SCHEMA,
    ]


async def test_an_unreadable_session_adds_nothing_and_says_why() -> None:
    delta, bank = await indexed(EventIndexer(retry=False), ScriptedModel(["what?"]))
    assert delta.empty and len(delta.rejected) == 1 and len(bank.state.graph) == 0


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"events": 3}', '{"events": [3, {"summary": 4}]}', "\x00<|x|>"]
)
def test_no_reply_breaks_a_parser(text: str) -> None:
    assert parse_events(text).values == () and parse_relations(text, events=3).values == ()
    assert parse_plan(text) == [] and parse_move(text).action is Action.SKIP


def test_the_examples_in_the_prompts_are_read_by_their_parsers() -> None:
    examples = {
        name: load_prompt(name).text for name in ("segment", "relate_events", "plan", "explore")
    }
    shown = {
        name: next(line for line in text.splitlines() if line.startswith("{"))
        for name, text in examples.items()
    }
    (event,) = parse_events(shown["segment"]).values
    assert event.people == ("Vexil",) and event.when == "7 May 2023"
    (relation,) = parse_relations(shown["relate_events"], events=3).values
    assert (relation.source, relation.target, relation.relation) == (0, 2, Relation.CAUSES)
    assert len(parse_plan(shown["plan"])) == 2
    assert parse_move(shown["explore"]).proven == (0,)


def playing_model() -> FunctionModel:
    """Makes one event of each turn, relates neighbours, plans one subgoal, skips every
    event, and answers without citing.
    """

    def answer(request: ModelRequest) -> str:
        if request.role is Role.INDEXER and "<events>" in request.messages[-1].content:
            return json.dumps(
                {"relations": [{"source": 0, "target": 1, "relation": "causes", "turns": []}]}
            )
        if request.role is Role.INDEXER:
            ids = [
                line[1:].split("]")[0]
                for line in request.messages[-1].content.splitlines()
                if line.startswith("[D")
            ]
            return json.dumps(
                {"events": [{"summary": f"told in {one}", "turns": [one]} for one in ids]}
            )
        replies = {
            Role.PLANNER: '{"subgoals": ["where Ana lives"]}',
            Role.EXPLORER: '{"action": "SKIP"}',
        }
        return replies.get(request.role, '{"citations": [], "answer": "Porto", "abstain": false}')

    return FunctionModel(answer)


async def test_both_designs_keep_the_laws() -> None:
    await check_design(DESIGN, playing_model)
    await check_design(MODEL_FREE, silent)
    assert (
        load("designs", "compass_mem") is DESIGN and load("designs", "compass_rules") is MODEL_FREE
    )


async def test_the_design_without_a_model_remembers_and_quotes_through_the_agent() -> None:
    agent = AsyncAgent(
        design=MODEL_FREE, model=silent(), bank=MemoryBank(embedder=HashEmbedder(dim=64))
    )
    await agent.remember(SESSION)
    kinds = Counter(edge.relation for edge in agent.bank.state.graph.all_edges())
    assert kinds[Relation.PART_OF] == 3, "each remembered turn is part of its event"
    answer = await agent.ask(Question(text="When was Bo's knee operation?", asked_at=AT))
    assert "3 May 2023" in answer.text and not answer.abstained


async def test_a_filter_keeps_walks_and_expansions_inside() -> None:
    bank = MemoryBank(embedder=HashEmbedder(dim=64))
    nodes = (
        Event(id="evt_a", summary="Ana sails", people=("Ana",), session_id="s1"),
        Event(id="evt_b", summary="Bo sails", people=("Bo",), session_id="s2"),
    )
    edge = EventEdge(source="evt_a", target="evt_b", relation=Relation.CAUSES)
    await bank.index(GraphDelta(nodes=nodes, edges=(edge,)))
    model = FunctionModel(
        lambda _: '{"subgoals": ["sails"], "action": "EXPAND", "next": ["evt_a", "evt_b"]}'
    )
    question = Question(text="Who sails?", where=Filter(session_ids=frozenset({"s1"})))
    ctx = SlotContext(model=model, bank=bank, clock=system_clock)
    for retriever in (GraphWalkRetriever(), MODEL_FREE.retriever):
        assert "evt_b" not in [hit.id for hit in await retriever(question, ctx)]
    assert [hit.id for hit in await GraphWalkRetriever()(question, ctx)] == ["evt_a"]


class FailingEmbedder(HashEmbedder):
    """Always fails."""

    async def embed(self, texts: object) -> Matrix:
        raise EmbeddingError("down")


async def test_indexing_and_walking_go_on_by_keyword_while_the_embedder_fails() -> None:
    agent = AsyncAgent(
        design=MODEL_FREE, model=silent(), bank=MemoryBank(embedder=FailingEmbedder(dim=64))
    )
    await agent.remember(SESSION)
    model = FunctionModel(
        lambda _: '{"subgoals": ["knee operation"], "action": "ANSWER", "proven": [0]}'
    )
    ctx = SlotContext(model=model, bank=agent.bank, clock=system_clock)
    hits = await GraphWalkRetriever(fill=1)(Question(text="Bo knee operation hospital"), ctx)
    assert hits[0].kind is NodeKind.EVENT and "D1:2" in hits[0].source_turn_ids


def test_expansion_shares_add_up_and_favour_causes_over_mentions() -> None:
    nodes = [Event(id=name, summary=name) for name in "abcd"]
    edges = [
        EventEdge(source="a", target="b", relation=Relation.CAUSES),
        EventEdge(source="c", target="a", relation=Relation.MENTIONS),
        EventEdge(source="b", target="d", relation=Relation.CAUSES),
    ]
    reached = expand(graph_of(nodes, edges), {"a": 1.0}, tolerance=1e-6)
    shares = {one.id: one.score for one in reached}
    assert sum(shares.values()) == pytest.approx(1.0) and shares["b"] > shares["c"]
    assert next(one.via for one in reached if one.id == "d") == (
        ("a", Relation.CAUSES, True),
        ("b", Relation.CAUSES, True),
    )
    assert expand(graph_of(nodes, edges), {"zz": 1.0}) == []
    assert "b" not in [one.id for one in expand(graph_of(nodes, edges), {"a": 1.0}, without={"b"})]


def test_topics_put_like_events_together_and_do_not_depend_on_chance() -> None:
    rng = np.random.default_rng(0)
    centres = np.eye(2, 16, dtype=np.float32)
    rows = np.concatenate(
        [centres[[i % 2]] + rng.normal(0, 0.05, (1, 16)).astype(np.float32) for i in range(8)]
    )
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    labels = topics_of(rows)
    assert labels == topics_of(rows) and len(set(labels)) == 2
    assert len(set(labels[::2])) == 1 and topics_of(rows[:0]) == []


async def test_related_items_are_found_by_keyword_while_the_embedder_fails() -> None:
    bank = MemoryBank(embedder=FailingEmbedder(dim=64))
    agent = AsyncAgent(design=MODEL_FREE, model=silent(), bank=bank)
    await agent.remember(SESSION)
    (item, *_) = bank.state.active()
    (found,) = await bank.most_similar([item.text], k=3)
    assert item.id in [candidate.id for candidate in found]

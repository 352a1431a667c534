"""The judge of near-equal events: one call a session, what it decides, and what happens
when it says nothing of use.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from memagent.core.exchange import ModelRequest, Role
from memagent.core.ops import ParseStatus
from memagent.core.records import Event, Relation, Session, Turn
from memagent.core.snapshot import GraphDelta
from memagent.designs.base import SlotContext, load_prompt
from memagent.designs.parts.event_indexer import PAIRS_SCHEMA, EventIndexer, MergeJudge
from memagent.embed.static import HashEmbedder
from memagent.events.merge import Likeness, event_texts, near_pairs, open_events
from memagent.memory.bank import MemoryBank, system_clock
from memagent.replies.readers import parse_pairs
from memagent.testing import FunctionModel

DAY = datetime(2024, 1, 1, tzinfo=UTC)
WALK = "Ana and Bo walked the coast path to the lighthouse near Porto together"
TOLD = (
    (WALK, "Bo sold his old car"),
    (f"{WALK} with Carla", "Bo sold his old red car", "Ana bakes bread"),
    (WALK, "It rained all week in Braga"),
)
"""Summaries of the events of three sessions: the second's walk is near the first's, the
third's equals it.
"""


def model_for(*judgements: str) -> FunctionModel:
    """Make an event of each turn, relate nothing, judge by one reply after the other."""
    replies = list(judgements)

    def answer(request: ModelRequest) -> str:
        shown = request.messages[1].content
        if "<pairs>" in shown:
            return replies.pop(0)
        if "<events>" in shown:
            return '{"relations": []}'
        turns = re.findall(r"^\[(.+?)\] Ana: (.+)$", shown, re.M)
        return json.dumps({"events": [{"summary": said, "turns": [turn]} for turn, said in turns]})

    return FunctionModel(answer)


async def indexed(
    model: FunctionModel, indexer: EventIndexer, told: Sequence[Sequence[str]] = TOLD
) -> list[GraphDelta]:
    async def run() -> list[GraphDelta]:
        bank = MemoryBank(embedder=HashEmbedder(dim=256))
        deltas: list[GraphDelta] = []
        for number, summaries in enumerate(told):
            turns = tuple(
                Turn(id=f"D{number}:{i}", speaker="Ana", text=text)
                for i, text in enumerate(summaries, 1)
            )
            session = Session(id=f"s{number}", at=DAY + timedelta(weeks=number), turns=turns)
            await bank.store_session(session)
            ctx = SlotContext(model=model, bank=bank, clock=system_clock, session=session)
            deltas.append(await bank.index(await indexer((), ctx)))
        deltas.append(
            GraphDelta(
                nodes=tuple(open_events(bank.state.graph)),
                edges=tuple(bank.state.graph.all_edges()),
            )
        )
        return deltas

    return await run()


def verdicts(**pairs: str) -> str:
    return json.dumps(
        {
            "pairs": [
                {"pair": int(n[1:]), "verdict": word, "label": "twice"} for n, word in pairs.items()
            ]
        }
    )


def judging(model: FunctionModel) -> list[ModelRequest]:
    return [request for request in model.requests if "<pairs>" in request.messages[1].content]


def events(deltas: Sequence[GraphDelta]) -> dict[str, Event]:
    return {one.summary: one for one in deltas[-1].nodes}


async def test_all_near_pairs_of_a_session_are_judged_in_one_call() -> None:
    model = model_for(verdicts(p0="same", p1="neither"))
    deltas = await indexed(model, EventIndexer(), TOLD[:2])
    (request,) = judging(model)
    assert (request.role, request.step.call, request.schema_) == (Role.INDEXER, 4, PAIRS_SCHEMA)
    assert request.prompt_digest == load_prompt("merge_events").digest
    shown = request.messages[1].content
    assert shown.count(" first: ") == shown.count(" second: ") == 2 and "bakes bread" not in shown
    assert "0. first: (said 1 January 2024; by Ana) " in shown
    pairs = re.findall(r"first: \(.*?\) (.+)", shown)
    same, apart = pairs
    found = events(deltas)
    assert f"{same} again" not in found if same == WALK else "Bo sold his old red car" not in found
    assert apart in found and len(found) == 4


async def test_what_is_plainly_the_same_or_plainly_not_is_never_asked_about() -> None:
    model = model_for()
    deltas = await indexed(model, EventIndexer(), (TOLD[0], TOLD[2]))
    assert judging(model) == [] and events(deltas)[WALK].source_turn_ids == ("D0:1", "D1:1")
    surer = await indexed(model_for(), EventIndexer(judge=MergeJudge(sure_cosine=0.9)), TOLD[:2])
    assert len(events(surer)) == 3, "both near pairs are beyond 0.9"


async def test_an_overlap_becomes_a_labelled_edge_between_two_events() -> None:
    deltas = await indexed(
        model_for(verdicts(p0="overlapping", p1="overlapping")), EventIndexer(), TOLD[:2]
    )
    assert len(events(deltas)) == 5
    related = [edge for edge in deltas[-1].edges if edge.relation is Relation.RELATED]
    assert [edge.key for edge in related] == ["related:twice"] * 2


@pytest.mark.parametrize(
    ("replies", "calls", "told"),
    [
        (["what?", "still what?"], 2, "no list under 'pairs'"),
        (["", verdicts(p0="perhaps", p7="same")], 2, "is no verdict"),
        (['{"pairs": []}'], 1, None),
    ],
)
async def test_what_the_judge_leaves_open_the_cosine_decides(
    replies: list[str], calls: int, told: str | None
) -> None:
    model = model_for(*replies)
    deltas = await indexed(model, EventIndexer(), TOLD[:2])
    without = await indexed(model_for(), EventIndexer(judge=None), TOLD[:2])
    assert events(deltas) == events(without)
    assert len(judging(model)) == calls
    reasons = deltas[1].rejected
    assert any(told in reason for reason in reasons) if told else reasons == ()


async def test_without_a_judge_nobody_is_asked() -> None:
    model = model_for()
    await indexed(model, EventIndexer(judge=None))
    assert (
        judging(model) == []
        and len(EventIndexer(judge=None).prompts) == 2
        and len(EventIndexer().prompts) == 3
    )


async def test_only_the_nearest_pairs_are_asked_about() -> None:
    model = model_for(verdicts(p0="neither"))
    await indexed(model, EventIndexer(judge=MergeJudge(most_pairs=1)), TOLD[:2])
    (request,) = judging(model)
    assert request.messages[-1].content.count(" second: ") == 1


async def test_near_pairs_are_nearest_first_and_told_before_later() -> None:
    nodes = [
        Event(
            id=f"evt_{s}{i}",
            summary=text,
            said_at=DAY + timedelta(weeks=s),
            session_id=f"s{s}",
            order=i,
        )
        for s, told in enumerate(TOLD)
        for i, text in enumerate(told)
    ]
    bank = MemoryBank(embedder=HashEmbedder(dim=256))
    texts = [text for one in nodes for text in event_texts(one)]
    vectors = dict(zip(texts, await HashEmbedder(dim=256).embed(texts), strict=True))
    pairs = near_pairs(bank.state.graph, nodes, vectors=vectors)
    cosines = [cosine for *_, cosine in pairs]
    assert cosines == sorted(cosines, reverse=True) and min(cosines) >= 0.85
    assert all((one.said_at or DAY) <= (other.said_at or DAY) for one, other, _ in pairs)
    assert pairs[0][0].summary == pairs[0][1].summary == WALK
    assert near_pairs(bank.state.graph, nodes, vectors={}) == []


def test_the_example_in_the_prompt_is_read_and_bad_entries_are_refused_alone() -> None:
    example = next(
        line for line in load_prompt("merge_events").text.splitlines() if line.startswith("{")
    )
    drafts = parse_pairs(example, pairs=3).values
    assert [draft.judgement.likeness for draft in drafts] == list(Likeness)
    assert drafts[1].judgement.label == "second visit"
    parsed = parse_pairs(
        '{"pairs": [{"pair": 9, "verdict": "same"}, {"pair": "0", "verdict": "SAME EVENT"}, 3]}',
        pairs=2,
    )
    assert [draft.pair for draft in parsed.values] == [0] and len(parsed.rejected) == 2
    assert parsed.status is ParseStatus.PARTIAL

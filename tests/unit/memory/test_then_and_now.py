"""Answers over a memory that has changed: which wording is shown for which time, what
may be cited, and both sides of a contradiction.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from memagent.async_agent import AsyncAgent
from memagent.build import NoModel
from memagent.core.answers import Answer, AsOf, Filter, Hit, Question, Verdict
from memagent.core.exchange import ModelRequest, Role
from memagent.core.ops import Add, Delete, OpBatch, Update
from memagent.core.records import (
    Event,
    EventEdge,
    Fact,
    Relation,
    Session,
    SourceRef,
    TimeSpan,
    Turn,
)
from memagent.core.snapshot import GraphDelta
from memagent.designs.base import MemoryDesign
from memagent.designs.compass_mem import DESIGN as COMPASS_MEM
from memagent.designs.memory_r1 import DESIGN as MEMORY_R1
from memagent.designs.memory_r2 import DESIGN as MEMORY_R2
from memagent.designs.memory_t1 import DESIGN as MEMORY_T1
from memagent.designs.verbatim import DESIGN as VERBATIM
from memagent.embed.static import HashEmbedder
from memagent.memory.bank import MemoryBank
from memagent.state.versions import clashes, wordings
from memagent.testing import FunctionModel
from memagent.timex.resolve import resolve_time

LATER = datetime(2025, 3, 1, tzinfo=UTC)
BERLIN, LISBON = (
    "I live in Berlin now, in a small flat near the canal.",
    "I've moved to Lisbon! I live there since January 2024.",
)
SAID = {
    "s1": ("2023-05-08", BERLIN),
    "s2": ("2024-02-11", LISBON),
    "s3": ("2024-03-01", "I play the piano every evening."),
}
MODEL_DESIGNS = [MEMORY_R1, MEMORY_R2, COMPASS_MEM, MEMORY_T1]
Play = Callable[[ModelRequest], str]


def sessions() -> list[Session]:
    return [
        Session(id=name, at=at(date), turns=(Turn(id=f"{name}:1", speaker="Anna", text=text),))
        for name, (date, text) in SAID.items()
    ]


def at(date: str) -> datetime:
    return datetime.fromisoformat(date).replace(tzinfo=UTC)


def span(phrase: str) -> TimeSpan | None:
    return resolve_time(phrase, anchor=LATER)


def fact(name: str, *, when: str | None = None) -> Fact:
    date, text = SAID[name]
    return Fact(
        text=text,
        subject="Anna",
        speaker="Anna",
        source_turn_ids=(f"{name}:1",),
        said_at=at(date),
        valid=span(when) if when else None,
        kind="turn",
    )


async def changed(how: str) -> MemoryBank:
    """Anna lived in Berlin and then in Lisbon: as one memory rewritten, or as one taken
    out for another.
    """
    bank = MemoryBank(embedder=HashEmbedder(dim=512), clock=lambda: LATER)
    for one in sessions():
        await bank.store_session(one)
    first = await bank.commit(
        OpBatch(accepted=(Add(fact=fact("s1")),)), source=SourceRef(session_id="s1")
    )
    old = first.changes[0].id
    moved = fact("s2", when="since January 2024")
    if how == "update":
        ops: tuple[Any, ...] = (
            Update(id=old, text=moved.text, source_turn_ids=("s2:1",), valid=moved.valid),
        )
    else:
        ops = (Delete(id=old, source_turn_ids=("s2:1",)), Add(fact=moved))
    await bank.commit(OpBatch(accepted=ops), source=SourceRef(session_id="s2"))
    await bank.commit(OpBatch(accepted=(Add(fact=fact("s3")),)), source=SourceRef(session_id="s3"))
    return bank


def reader(told: Callable[[str], tuple[list[str], str]] | None = None) -> FunctionModel:
    """Answers with the first memory of a city that the prompt shows, or as
    `told(prompt)` says; plans and windows are empty.
    """

    def answer(request: ModelRequest) -> str:
        if request.role is not Role.ANSWERER:
            return '{"subgoals": [], "from": null, "to": null, "action": "SKIP"}'
        shown = request.messages[-1].content
        cited, text = told(shown) if told is not None else first_city(shown)
        named = re.findall(r"^Session \[(.+?)\]", shown, re.M)
        return json.dumps({"sessions": named, "citations": cited, "answer": text, "abstain": False})

    return FunctionModel(answer)


def first_city(shown: str) -> tuple[list[str], str]:
    match = re.search(r"\[(mem_[^\]]+)\] [^\n]*?(Berlin|Lisbon)", shown)
    return ([match[1]], match[2]) if match else ([], "nowhere")


async def ask(
    design: MemoryDesign,
    text: str,
    *,
    how: str = "update",
    model: FunctionModel | None = None,
    **more: Any,
) -> tuple[Answer, FunctionModel]:
    async def run() -> tuple[Answer, FunctionModel]:
        bank = await changed(how)
        used = model or reader()
        agent = AsyncAgent(design=design, model=used, bank=bank, clock=lambda: LATER)
        return await agent.ask(Question(text=text, asked_at=LATER, **more)), used

    return await run()


def cities(answer: Answer) -> list[str]:
    """Which wordings were shown, in the order of the hits' dates."""
    texts = [
        hit.text
        for hit in sorted(
            answer.hits, key=lambda hit: hit.item.said_at or LATER if hit.item else LATER
        )
    ]
    return [city for text in texts for city in ("Berlin", "Lisbon") if city in text]


# -- which wording for which time ------------------------------------------------------


@pytest.mark.parametrize("how", ["update", "delete and add"])
@pytest.mark.parametrize("design", MODEL_DESIGNS, ids=lambda design: design.name)
async def test_a_question_about_a_time_gets_the_wording_that_held_then(
    design: MemoryDesign, how: str
) -> None:
    now, _ = await ask(design, "Where does Anna live now?", how=how)
    assert cities(now) == ["Lisbon"] and now.text == "Lisbon"
    assert [(one.turn_id, one.version) for one in now.citations][-1] == (
        "s2:1",
        2 if how == "update" else 1,
    )
    for then in ("Where did Anna live in 2021?", "Where did Anna live in June 2023?"):
        answer, _ = await ask(design, then, how=how)
        assert cities(answer) == ["Berlin", "Lisbon"] and answer.text == "Berlin"
        (cited,) = answer.citations
        assert (cited.turn_id, cited.version, cited.quote) == ("s1:1", 1, BERLIN)
        assert answer.verdict is Verdict.SUPPORTED
    later, _ = await ask(design, "Where did Anna live in October 2024?", how=how)
    assert cities(later) == ["Lisbon"] and not later.notes


@pytest.mark.parametrize("design", MODEL_DESIGNS, ids=lambda design: design.name)
async def test_both_wordings_are_shown_with_their_dates_and_noted_whatever_the_model_says(
    design: MemoryDesign,
) -> None:
    model = reader(lambda _: (["mem_made_up"], "somewhere between Berlin and Lisbon"))
    answer, _ = await ask(design, "Where did Anna live before?", model=model)
    shown = model.requests[-1].messages[-1].content
    told = re.search(
        r"\[(\S+)\] \(said 8 May 2023\) was replaced by \[(\S+)\] \(said 11 February 2024\)", shown
    )
    assert told is not None
    for name, city in zip(told.groups(), ("Berlin", "Lisbon"), strict=True):
        assert re.search(rf"\[{name}\] [^\n]*{city}", shown)
    assert BERLIN in shown and LISBON in shown
    (note,) = [note for note in answer.notes if note.startswith("This has changed")]
    assert (
        "8 May 2023" in note
        and "11 February 2024" in note
        and "Berlin" in note
        and "Lisbon" in note
    )
    if design is not MEMORY_T1:
        assert answer.verdict is Verdict.UNSUPPORTED and answer.citations == ()
    assert any("dropped" in note and "mem_made_up" in note for note in answer.notes)


async def test_without_a_model_the_version_that_held_is_quoted_and_cited_as_that_version() -> None:
    async def run(text: str) -> Answer:
        agent = AsyncAgent(
            design=VERBATIM, model=NoModel(), bank=await changed("update"), clock=lambda: LATER
        )
        return await agent.ask(Question(text=text, asked_at=LATER))

    for text, turn, version in (
        ("Where does Anna live now?", "s2:1", 2),
        ("Where did Anna live in 2021?", "s1:1", 1),
        ("Where did Anna live in June 2023?", "s1:1", 1),
        ("Where did Anna live in January 2024?", "s2:1", 2),
        ("Where did Anna live in October 2024?", "s2:1", 2),
    ):
        answer = await run(text)
        assert [(one.turn_id, one.version) for one in answer.citations][:1] == [(turn, version)], (
            text
        )
        assert answer.verdict is Verdict.SUPPORTED
        other = LISBON if version == 1 else BERLIN
        assert any(other[:20] in note and " on " in note for note in answer.notes), (
            "the other wording with its date"
        )


async def test_a_question_about_no_time_gets_both_the_present_one_first() -> None:
    answer, _ = await ask(MEMORY_R1, "Where does Anna live?")
    by_rank = [hit.text for hit in await hits_of(MEMORY_R1, "Where does Anna live?")]
    assert by_rank.index(LISBON) + 1 == by_rank.index(BERLIN)
    assert any(note.startswith("This has changed") for note in answer.notes)


async def hits_of(design: MemoryDesign, text: str, **more: Any) -> list[Hit]:
    agent = AsyncAgent(
        design=design, model=reader(), bank=await changed("update"), clock=lambda: LATER
    )
    return (
        list((await agent.ask(Question(text=text, **more))).hits)
        if more
        else await found(agent, text)
    )


async def found(agent: AsyncAgent, text: str) -> list[Hit]:
    return await agent.design.retriever(Question(text=text, asked_at=LATER), agent.context.slot())


async def test_filters_and_points_in_time_hold_for_older_wordings_too() -> None:
    nobody = Filter(speakers=frozenset({"Bo"}))
    assert await hits_of(MEMORY_R1, "Where did Anna live before?", where=nobody) == []
    past = await hits_of(
        MEMORY_R1, "Where did Anna live before?", as_of=AsOf(said=at("2023-12-01"))
    )
    assert [hit.text for hit in past] == [BERLIN]


def test_what_a_user_deleted_is_nobody_s_older_wording() -> None:
    async def run() -> list[str]:
        bank = await changed("delete and add")
        agent = AsyncAgent(design=MEMORY_R1, model=reader(), bank=bank, clock=lambda: LATER)
        piano = next(item for item in bank.state.active() if "piano" in item.text)
        await agent.memory.delete(piano.id)
        return [hit.text for hit in await found(agent, "What did Anna play before?")]

    assert not any("piano" in text for text in asyncio.run(run()))


# -- the rules -------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["update", "delete and add"])
async def test_wordings_follow_one_another_without_a_gap(how: str) -> None:
    bank = await changed(how)
    item = next(one for one in bank.state.active() if one.text == LISBON)
    now, before = wordings(bank.state, Hit(id=item.id, score=1.0, item=item), now=LATER)
    assert (now.current, before.current, before.node_id.rpartition("@")[2]) == (
        True,
        False,
        "1",
    )
    assert (
        before.begins is None and before.ends == now.begins == at("2024-01-01") and now.ends is None
    )
    for phrase, old, new in (
        ("2021", True, False),
        ("2024", False, True),
        ("winter 2023", True, True),
    ):
        asked = span(phrase)
        assert asked is not None and (before.held_in(asked), now.held_in(asked)) == (
            old,
            new,
        ), phrase


async def test_a_wording_that_was_wrong_from_the_start_never_held() -> None:
    bank = MemoryBank(embedder=HashEmbedder(dim=64), clock=lambda: LATER)
    await bank.store_session(sessions()[0])
    wrong = fact("s1", when="since 2021").model_copy(
        update={"text": "Anna has lived in Berlin since 2021"}
    )
    made = await bank.commit(OpBatch(accepted=(Add(fact=wrong),)), source=SourceRef())
    right = Update(
        id=made.changes[0].id,
        text="Anna has lived in Berlin since 2019",
        valid=span("since 2019"),
    )
    item = (await bank.commit(OpBatch(accepted=(right,)), source=SourceRef())).changes[0].after
    assert item is not None
    _, before = wordings(bank.state, Hit(id=item.id, score=1.0, item=item), now=LATER)
    assert not before.held_in(TimeSpan(start=at("2018-01-01"), end=at("2023-01-01")))
    assert not before.held_in(TimeSpan())


async def test_events_that_stand_against_each_other_are_told_as_a_contradiction() -> None:
    async def run() -> tuple[Answer, str]:
        bank = MemoryBank(embedder=HashEmbedder(dim=256), clock=lambda: LATER)
        early = Event(
            id="evt_a", summary="Anna promised to sell the boat", said_at=at("2023-05-08")
        )
        late = Event(
            id="evt_b", summary="Anna said the boat is not for sale", said_at=at("2024-02-11")
        )
        edge = EventEdge(source="evt_b", target="evt_a", relation=Relation.CONTRASTS)
        await bank.index(GraphDelta(nodes=(early, late), edges=(edge,)))
        hits = [Hit(id=one.id, score=1.0, event=one) for one in (late, early)]
        (clash,) = clashes(hits, bank.state)
        assert (clash.earlier.id, clash.later.id, clash.replaced) == ("evt_a", "evt_b", False)

        def answer(request: ModelRequest) -> str:
            here = re.search(r"<event>\n\[(\w+)\]", request.messages[-1].content)
            if request.role is Role.EXPLORER and here is not None:
                return '{"action": "EXPAND", "next": [], "proven": []}'
            return '{"subgoals": ["the boat"], "citations": ["evt_b"], "answer": "no", "abstain": false}'

        model = FunctionModel(answer)
        agent = AsyncAgent(design=COMPASS_MEM, model=model, bank=bank, clock=lambda: LATER)
        return await agent.ask("Will Anna sell the boat?"), model.requests[-1].messages[-1].content

    answer, shown = await run()
    assert (
        "[evt_0] (said 8 May 2023) and [evt_1] (said 11 February 2024) contradict each other"
        in shown
    )
    (note,) = [note for note in answer.notes if note.startswith("Memory does not agree")]
    assert "8 May 2023" in note and "11 February 2024" in note


async def test_notes_on_changes_are_few_and_what_was_cited_comes_first() -> None:
    async def run() -> Answer:
        bank = MemoryBank(embedder=HashEmbedder(dim=256), clock=lambda: LATER)
        for n in range(6):
            made = await bank.commit(
                OpBatch(
                    accepted=(
                        Add(fact=Fact(text=f"Anna's boat number {n} is red", speaker="Anna")),
                    )
                ),
                source=SourceRef(),
            )
            change = Update(id=made.changes[0].id, text=f"Anna's boat number {n} is blue")
            await bank.commit(OpBatch(accepted=(change,)), source=SourceRef())
        model = reader(
            lambda shown: (re.findall(r"\[(mem_\w+)\] [^\n]*number 4 is blue", shown), "blue")
        )
        agent = AsyncAgent(design=MEMORY_R1, model=model, bank=bank, clock=lambda: LATER)
        return await agent.ask("What colour did Anna's boats have before?")

    answer = await run()
    notes = [note for note in answer.notes if note.startswith("This has changed")]
    assert len(notes) == 3 and "number 4" in notes[0]

"""`memory_t1`: which time a question is about, which sessions are kept for it, and what
an answer may cite.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from memagent.async_agent import AsyncAgent
from memagent.core.answers import Answer, Filter, Hit, Question, Verdict
from memagent.core.exchange import ModelRequest, Role
from memagent.core.ops import ParseStatus
from memagent.core.records import Session, Turn
from memagent.designs.base import SlotContext, load_prompt
from memagent.designs.memory_t1 import DESIGN
from memagent.designs.parts.model_answerer import (
    SESSION_ANSWER_SCHEMA,
    UNREADABLE,
    WINDOW_SCHEMA,
    SessionRetriever,
    Window,
)
from memagent.embed.static import HashEmbedder
from memagent.memory.bank import MemoryBank
from memagent.plugins import load
from memagent.replies.readers import parse_window
from memagent.testing import FunctionModel, ScriptedModel, check_design
from memagent.timex.resolve import format_span

ASKED = datetime(2024, 7, 1, 12, tzinfo=UTC)
NO_TIME = '{"from": null, "to": null}'
SAID = {
    "jan": ("2024-01-10", "Ana: I play chess with Olga on Mondays.", "Bo: My boat needs paint."),
    "feb": (
        "2024-02-12",
        "Ana: We sailed the boat to the island on 3 February 2024.",
        "Bo: It was cold.",
    ),
    "mar": (
        "2024-03-15",
        "Bo: In January 2024 I bought a blue boat called Wanda.",
        "Ana: I like its name.",
    ),
    "apr": ("2024-04-20", "Ana: My boat course starts in May 2024.", "Bo: Good luck!"),
    "may": ("2024-05-25", "Bo: The piano tuner came at last.", "Ana: I passed my sailing exam."),
}


def sessions() -> list[Session]:
    return [
        Session(
            id=name,
            at=datetime.fromisoformat(date).replace(tzinfo=UTC),
            turns=tuple(
                Turn(
                    id=f"{name}:{i}", speaker=line.partition(": ")[0], text=line.partition(": ")[2]
                )
                for i, line in enumerate(lines, 1)
            ),
        )
        for name, (date, *lines) in SAID.items()
    ]


async def remembered(model: FunctionModel) -> AsyncAgent:
    bank = MemoryBank(embedder=HashEmbedder(dim=512), clock=lambda: ASKED)
    agent = AsyncAgent(design=DESIGN, model=model, bank=bank, clock=lambda: ASKED)
    for one in sessions():
        await agent.remember(one)
    return agent


async def retrieved(
    retriever: SessionRetriever, text: str, *replies: str, **more: Any
) -> tuple[list[Hit], SlotContext]:
    async def run() -> tuple[list[Hit], SlotContext]:
        model = ScriptedModel(list(replies))
        agent = await remembered(model)
        ctx = SlotContext(model=model, bank=agent.bank, clock=lambda: ASKED)
        return await retriever(Question(text=text, asked_at=ASKED, **more), ctx), ctx

    return await run()


def sessions_of(hits: Sequence[Hit]) -> list[str | None]:
    return list(dict.fromkeys(hit.item.session_id for hit in hits if hit.item is not None))


def asked(text: str, window: str, answer: str) -> tuple[Answer, FunctionModel]:
    async def run() -> tuple[Answer, FunctionModel]:
        model = ScriptedModel({Role.PLANNER: [window], Role.ANSWERER: [answer]})
        agent = await remembered(model)
        return await agent.ask(Question(text=text, id="q")), model

    return asyncio.run(run())


# -- windows ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "span"),
    [
        ('{"from": "2024-02-01", "to": "2024-02-29"}', "February 2024"),
        ('{"start": "2024-02-03", "end": "2024-02-03"}', "3 February 2024"),
        ('Sure:\n```json\n{"from": "2023", "to": 2023}\n```', "2023"),
        ('{"from": "last May", "to": null}', "since May 2024"),
        ('{"from": null, "to": "2023-12-31"}', "before 2024"),
        (NO_TIME, None),
        ("{}", "rejected"),
        ("", "rejected"),
        ("around May, I think", "rejected"),
        ('{"from": "soon", "to": "later"}', "rejected"),
        ('{"from": "2024-05-01", "to": "2024-01-01"}', "rejected"),
        ('{"from": [1], "to": {}}', "rejected"),
        ('{"from": true, "to": 99999}', "rejected"),
        ('{"from": "2024-02-01", "to": "2024-', "rejected"),
    ],
)
def test_a_window_is_read_or_refused_with_a_reason(reply: str, span: str | None) -> None:
    parsed = parse_window(reply, asked_at=ASKED)
    if span == "rejected":
        assert parsed.values == () and parsed.status is ParseStatus.FAILED
        assert [bool(bad.detail) for bad in parsed.rejected] == [True]
    else:
        assert [format_span(one) for one in parsed.values] == (
            [span] if span else []
        ) and not parsed.rejected


def test_the_examples_in_the_prompt_are_read() -> None:
    lines = [line for line in load_prompt("window").text.splitlines() if line.startswith("{")]
    first, second = (parse_window(line, asked_at=ASKED) for line in lines if "}}" not in line)
    assert format_span(first.values[0]) == "May 2023" and second.values == ()


def window(text: str, *replies: str, **settings: Any) -> Window:
    async def run() -> Window:
        model = ScriptedModel(list(replies))
        agent = await remembered(model)
        ctx = SlotContext(model=model, bank=agent.bank, clock=lambda: ASKED)
        return await SessionRetriever(**settings).window(Question(text=text, asked_at=ASKED), ctx)

    return asyncio.run(run())


def test_the_model_s_window_wins_and_the_rules_stand_in_for_it() -> None:
    text = "What happened to the boat in February 2024?"
    found = window(text, '{"from": "2024-02-01", "to": "2024-03-31"}')
    assert (
        found.by == "model"
        and found.span is not None
        and format_span(found.span) == "February to March 2024"
    )
    for reply, refused in ((NO_TIME, 0), ("no idea", 1)):
        found = window(text, reply)
        assert (
            found.by == "rules"
            and found.span is not None
            and format_span(found.span) == "February 2024"
        )
        assert len(found.rejected) == refused
    assert window("Who is Olga?", "no idea").by == "nobody"
    assert window(text, ask_model=False).by == "rules"


async def test_the_planner_is_told_the_day_and_what_the_sessions_cover() -> None:
    _, ctx = await retrieved(SessionRetriever(), "What </question> now?", NO_TIME)
    assert isinstance(ctx.model, ScriptedModel)
    (request,) = ctx.model.requests
    shown = request.messages[-1].content
    assert "asked on Monday, 1 July 2024" in shown and shown.count("</question>") == 1
    assert "between Wednesday, 10 January 2024 and Saturday, 25 May 2024" in shown
    assert (request.role, request.schema_, request.prompt_digest) == (
        Role.PLANNER,
        WINDOW_SCHEMA,
        load_prompt("window").digest,
    )


# -- sessions --------------------------------------------------------------------------


async def test_sessions_held_then_or_telling_of_then_come_before_more_relevant_ones() -> None:
    hits, _ = await retrieved(
        SessionRetriever(outside=1, sessions=3), "What about the boat in January 2024?", NO_TIME
    )
    names = sessions_of(hits)
    assert set(names[:2]) == {"jan", "mar"}, "held in January, or telling of January"
    assert len(names) == 3 and names[2] in {"feb", "apr"}, (
        "one relevant session from outside the window"
    )
    assert [hit.why.arms["window"] for hit in hits] == sorted(
        (hit.why.arms["window"] for hit in hits), reverse=True
    )
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


async def test_without_others_kept_beside_it_the_window_is_filled_up_by_relevance_alone() -> None:
    hits, _ = await retrieved(
        SessionRetriever(outside=0, sessions=2), "Where is the boat in January 2024?", NO_TIME
    )
    assert set(sessions_of(hits)) == {"jan", "mar"}
    hits, _ = await retrieved(SessionRetriever(sessions=2), "Who plays chess with Olga?", NO_TIME)
    assert (
        sessions_of(hits)[0] == "jan"
        and len(sessions_of(hits)) == 2
        and "window" not in hits[0].why.arms
    )


async def test_a_session_gives_its_best_memories_only_and_a_filter_holds() -> None:
    hits, _ = await retrieved(SessionRetriever(per_session=1), "boat", NO_TIME)
    assert len(hits) == len(sessions_of(hits)) == len(SAID)
    hits, _ = await retrieved(
        SessionRetriever(), "boat", NO_TIME, where=Filter(speakers=frozenset({"Bo"}))
    )
    assert {hit.item.speaker for hit in hits if hit.item is not None} == {"Bo"}


async def test_an_unreadable_window_is_told_and_the_rules_go_on() -> None:
    hits, ctx = await retrieved(SessionRetriever(outside=0), "the boat in January 2024", "whenever")
    assert set(sessions_of(hits)) == {"jan", "mar"}
    (note,) = ctx.trail.notes
    assert "time window could not be read" in note and "rules" in note


async def test_an_empty_memory_asks_nothing_and_abstains() -> None:
    async def run() -> Answer:
        model = ScriptedModel([])
        agent = AsyncAgent(
            design=DESIGN, model=model, bank=MemoryBank(embedder=HashEmbedder(dim=64))
        )
        return await agent.ask("When did Ana sail?")

    answer = await run()
    assert (answer.verdict, answer.usage.calls, answer.evidence_sessions) == (
        Verdict.ABSTAINED,
        0,
        (),
    )


async def test_memories_of_no_session_come_last_and_may_be_cited() -> None:
    async def run() -> Answer:
        def reply(request: ModelRequest) -> str:
            if request.role is Role.PLANNER:
                return NO_TIME
            shown = request.messages[-1].content
            cited = re.findall(r"\[(mem_\w+)\]", shown.partition("Of no session")[2])
            return json.dumps(
                {"sessions": [], "citations": cited, "answer": "under the mat", "abstain": False}
            )

        agent = await remembered(FunctionModel(reply))
        await agent.memory.add("The boat's key lies under the mat.")
        return await agent.ask("Where is the boat's key?")

    answer = await run()
    assert answer.hits[-1].text == "The boat's key lies under the mat."
    assert (answer.verdict, [one.hit_id for one in answer.citations]) == (
        Verdict.SUPPORTED,
        [answer.hits[-1].id],
    )


# -- answers ---------------------------------------------------------------------------


def reply(**more: Any) -> str:
    return json.dumps(
        {"sessions": [], "citations": [], "answer": "Wanda", "abstain": False, **more}
    )


def test_memories_stand_under_their_sessions_with_day_and_time() -> None:
    answer, model = asked(
        "What is Bo's boat called?", NO_TIME, reply(sessions=["mar"], citations=["mar:1"])
    )
    shown = model.requests[-1].messages[-1].content
    march = shown.partition("Session [mar], Friday, 15 March 2024\n")[2]
    assert (
        march.lstrip().startswith("[mem_")
        and "time January 2024) In January 2024 I bought" in march
    )
    assert shown.index("[jan]") < shown.index("[feb]") < shown.index("[mar]")
    assert model.requests[-1].schema_ == SESSION_ANSWER_SCHEMA
    assert (answer.text, answer.verdict, answer.evidence_sessions) == (
        "Wanda",
        Verdict.SUPPORTED,
        ("mar",),
    )
    assert [one.turn_id for one in answer.citations] == ["mar:1"] and "Wanda" in answer.citations[
        0
    ].quote


def test_citations_outside_the_sessions_named_are_dropped_and_told() -> None:
    answer, _ = asked(
        "What is Bo's boat called?", NO_TIME, reply(sessions=["MAR"], citations=["jan:2", "mar:1"])
    )
    assert [one.turn_id for one in answer.citations] == ["mar:1"] and answer.evidence_sessions == (
        "mar",
    )
    assert any("outside the sessions named" in note and "jan:2" in note for note in answer.notes)


def test_a_session_named_without_a_citation_is_cited_by_its_best_memory() -> None:
    answer, _ = asked("What is Bo's blue boat called?", NO_TIME, reply(sessions="mar"))
    assert [one.turn_id for one in answer.citations] == [
        "mar:1"
    ] and answer.verdict is Verdict.SUPPORTED


def test_unknown_sessions_are_dropped_and_an_answer_without_any_is_unsupported() -> None:
    answer, _ = asked(
        "What is Bo's boat called?", NO_TIME, reply(sessions=["dec", "mar"], citations=["mar:1"])
    )
    assert answer.evidence_sessions == ("mar",) and any("dec" in note for note in answer.notes)
    for named in (["dec"], [], None, [{"x": 1}]):
        answer, _ = asked(
            "What is Bo's boat called?",
            NO_TIME,
            reply(sessions=named, citations=["mar:1", "mem_x"]),
        )
        assert (answer.verdict, answer.citations, answer.evidence_sessions) == (
            Verdict.UNSUPPORTED,
            (),
            (),
        )
        assert any("named no session" in note for note in answer.notes)


@pytest.mark.parametrize("text", ["", '{"sessions": ["mar"], "ans', '{"sessions": ["mar"]}'])
def test_an_unreadable_answer_abstains_and_says_so(text: str) -> None:
    answer, _ = asked("What is Bo's boat called?", NO_TIME, text)
    assert (answer.verdict, answer.citations, answer.evidence_sessions) == (
        Verdict.ABSTAINED,
        (),
        (),
    )
    assert UNREADABLE in answer.notes


def test_an_abstention_names_no_evidence() -> None:
    answer, _ = asked("What is Bo's boat called?", NO_TIME, reply(sessions=["mar"], abstain=True))
    assert (answer.verdict, answer.citations, answer.evidence_sessions) == (
        Verdict.ABSTAINED,
        (),
        (),
    )


def test_the_planner_s_call_counts_and_is_named_on_the_answer() -> None:
    answer, model = asked("What of the boat in May 2024?", "?", reply(sessions=["apr"]))
    assert [request.role for request in model.requests] == [Role.PLANNER, Role.ANSWERER]
    assert answer.usage.calls == 2 and len(set(answer.response_ids)) == 2
    assert answer.notes[0].startswith("the model's time window could not be read")


# -- the design ------------------------------------------------------------------------


def playing_model() -> FunctionModel:
    """Gives a window, names the last session shown and cites nothing."""

    def answer(request: ModelRequest) -> str:
        if request.role is Role.PLANNER:
            return '{"from": "2024-06-01", "to": null}'
        named = re.findall(r"^Session \[(.+?)\]", request.messages[-1].content, re.M)
        return json.dumps(
            {"sessions": named[-1:], "citations": [], "answer": "Porto", "abstain": False}
        )

    return FunctionModel(answer)


async def test_the_design_keeps_the_laws_and_is_found_by_name() -> None:
    await check_design(DESIGN, playing_model)
    assert load("designs", "memory_t1") is DESIGN
    assert sorted(DESIGN.prompt_digests) == ["answer_sessions", "window"]

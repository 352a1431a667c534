"""A statement that ends takes no other with it that was told in the same turn."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from memagent import Agent
from memagent.core.answers import AsOf, Verdict
from memagent.core.ops import Add, Delete, MemoryOp, OpBatch, OpLimits, RejectReason, Update
from memagent.core.records import Chunk, Fact, MemoryItem, TimeSpan, Trust, Turn
from memagent.state.backing import Guard
from memagent.state.clauses import clauses_of
from memagent.state.validation import validate_ops

OLD, NEW = "2024-03-04", "2024-06-02"
MOVED = "I don't live in Lisbon any more, I moved to Porto."
LISBON = "I live in Lisbon and work as a nurse."


def heard(first: str, second: str) -> Agent:
    agent = Agent(path=":memory:", design="verbatim")
    agent.remember(first, at=OLD)
    agent.remember(second, at=NEW)
    return agent


def texts(agent: Agent) -> list[str]:
    return sorted(item.text for item in agent.memory.get_all())


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        (LISBON, ["I live in Lisbon", "I … work as a nurse."]),
        (
            "Rex is allergic to chicken and lives with us in Leeds.",
            ["Rex is allergic to chicken", "Rex … lives with us in Leeds."],
        ),
        ("Hi! I work at St. Anne's in Leeds. It's great.", [None]),
        ("My sister and I live in Rome.", ["My sister and I live in Rome."]),
        ("Ich wohne in Köln und arbeite als Pfleger.", [None, "Ich … arbeite als Pfleger."]),
        ("Vivo en Lisboa y trabajo de enfermera.", ["Vivo en Lisboa", "trabajo de enfermera."]),
        ("I don't eat meat and work as a nurse.", [None]),
        ("I want to live in Rome and work as a cook.", [None]),
        ("I used to live in Rome and work as a cook.", [None]),
        ("If I live in Rome and work as a cook, I'm glad.", [None]),
        ("Do you live in Rome and work there?", []),
        ("I have a dog that is called Rex and lives in Leeds.", [None]),
    ],
)
def test_an_utterance_is_cut_only_where_each_part_says_what_it_said(
    text: str, parts: list[str | None]
) -> None:
    cut = [clause.text for clause in clauses_of(text)]
    assert len(cut) == len(parts)
    assert all(part is None or part == own for part, own in zip(parts, cut, strict=True)), cut


@pytest.mark.parametrize(
    ("first", "second", "kept", "gone"),
    [
        (LISBON, MOVED, "work as a nurse", "Lisbon"),
        ("I work as a nurse and live in Lisbon.", MOVED, "I work as a nurse", "Lisbon"),
        ("I'm a nurse, and I live in Lisbon with my dog Rex.", MOVED, "I'm a nurse", "Lisbon"),
        (
            "Rex is allergic to chicken and we live in Leeds.",
            "We don't live in Leeds any more, we've moved to York.",
            "Rex is allergic to chicken",
            "Leeds",
        ),
        (
            "I work at a bank in Graz. My brother Jan plays the cello.",
            "I no longer work at the bank, I started a new job at a school.",
            "My brother Jan plays the cello.",
            "Graz",
        ),
        (
            "I live in Lisbon. It is a lovely city. I have two cats.",
            "I've moved to Porto last week.",
            "I have two cats.",
            "Lisbon",
        ),
    ],
)
def test_what_the_new_words_leave_alone_stays(
    first: str, second: str, kept: str, gone: str
) -> None:
    with heard(first, second) as agent:
        held = texts(agent)
        assert any(kept in text for text in held), held
        assert not any(gone in text for text in held if text != second), held


def test_both_sides_answer_their_own_questions() -> None:
    with heard(LISBON, MOVED) as agent:
        job = agent.ask("What is my job?")
        assert "work as a nurse" in job.text and job.verdict is Verdict.SUPPORTED
        assert job.citations[0].quote == LISBON
        assert job.citations[0].said_at == datetime(2024, 3, 4, tzinfo=UTC)
        assert agent.ask("Where do I live?").text.startswith("Porto.")
        before = agent.ask("Where did I live before?")
        assert before.text.startswith("Lisbon.") and "Porto" not in before.text
        then = agent.ask("Where do I live?", as_of="2024-04-01")
        assert "Lisbon" in then.text and "Porto" not in then.text
        past = agent.memory.as_of(AsOf(recorded=2))
        assert any("Lisbon" in item.text for item in past.get_all())


def test_undo_export_and_erasure_take_both(tmp_path: Path) -> None:
    with heard(LISBON, MOVED) as agent:
        held = texts(agent)
        agent.memory.export(tmp_path / "all.jsonl")
        with Agent(path=":memory:", design="verbatim") as other:
            other.memory.import_(tmp_path / "all.jsonl")
            assert texts(other) == held
            assert other.snapshot().digest == agent.snapshot().digest
            assert other.ask("What is my job?").text == agent.ask("What is my job?").text
        agent.memory.undo()
        assert texts(agent) == [LISBON]
    with heard(LISBON, MOVED) as agent:
        agent.memory.erase_session(agent.memory.sessions()[0].id)
        assert not any("nurse" in text for text in texts(agent))
        assert agent.ask("What is my job?").verdict is not Verdict.SUPPORTED


# -- what the rule lets through, and what it does not ------------------------------------

ITEM = MemoryItem(
    id="mem_a",
    text=LISBON,
    speaker="Ana",
    source_turn_ids=("D1:1",),
    valid=TimeSpan(start=datetime(2020, 1, 1, tzinfo=UTC)),
    trust=Trust.USER,
    tags=("home",),
    expires_at=datetime(2030, 1, 1, tzinfo=UTC),
)
TOLD = {
    "D1:1": Turn(id="D1:1", speaker="Ana", text=LISBON),
    "D1:2": Turn(id="D1:2", speaker="Ben", text=LISBON),
}
CHUNK = Chunk(
    id="s2#0",
    session_id="s2",
    index=0,
    count=1,
    turns=(
        Turn(id="D2:1", speaker="Ana", text=MOVED),
        Turn(id="D2:2", speaker="Ben", text="I … work as a nurse."),
    ),
)
CHANGE = Update(id="mem_a", text=MOVED, source_turn_ids=("D2:1",))


def part(text: str = "I … work as a nurse.", *turns: str, **more: Any) -> Add:
    return Add(fact=Fact(text=text, source_turn_ids=turns or ("D1:1",), **more))


def judge(*ops: MemoryOp, item: MemoryItem = ITEM, **more: Any) -> OpBatch:
    settings: dict[str, Any] = {"limits": OpLimits(), "chunk": CHUNK, "told": TOLD.get} | more
    return validate_ops(ops, visible={item.id: item}, **settings)


def test_a_kept_statement_has_all_it_claims_from_its_turn_and_item() -> None:
    claims: dict[str, Any] = {"speaker": "Ben", "subject": "Ben", "trust": Trust.SYSTEM}
    batch = judge(CHANGE, part(said_at=datetime(2029, 1, 1, tzinfo=UTC), **claims))
    kept = batch.accepted[1]
    assert isinstance(kept, Add) and not batch.rejected
    assert (kept.fact.speaker, kept.fact.subject, kept.fact.said_at) == ("Ana", None, None)
    assert (kept.fact.trust, kept.fact.kind) == (Trust.USER, "passage")
    assert (kept.fact.expires_at, kept.tags) == (ITEM.expires_at, ("home",))
    lower = judge(CHANGE, part(), item=ITEM.model_copy(update={"trust": Trust.TOOL})).accepted[1]
    assert isinstance(lower, Add) and lower.fact.trust is Trust.TOOL
    guarded = judge(CHANGE, part(), guard=Guard())
    assert kept.fact.text in [op.fact.text for op in guarded.accepted if isinstance(op, Add)]


@pytest.mark.parametrize(
    "ops",
    [
        (part(),),
        (part(), CHANGE),
        (Delete(id="mem_a", source_turn_ids=("D2:1",)), part()),
        (CHANGE, part("work as a nurse.")),
        (CHANGE, part("I … work as a nur")),
        (CHANGE, part("I work as a nurse.")),
        (CHANGE, part("I … work as a thief.")),
        (CHANGE, part("I … work as a nurse. I … work as a nurse.")),
        (CHANGE, part("I … work as a nurse.", "D1:2")),
        (CHANGE, part("I … work as a nurse.", "D1:1", "D1:2")),
        (CHANGE, part("I … work as a nurse.", "D1:1", "D2:1")),
    ],
)
def test_nothing_else_rests_on_a_turn_of_old(ops: tuple[MemoryOp, ...]) -> None:
    batch = judge(*ops)
    refused = [entry.reason for entry in batch.rejected if isinstance(entry.op, Add)]
    assert refused == [RejectReason.FOREIGN_TURN]
    assert not any(isinstance(op, Add) for op in batch.accepted)


def test_words_that_were_edited_by_hand_are_nobodys_statement() -> None:
    edited = ITEM.model_copy(
        update={"text": "Ana works as a cook and lives in Lisbon.", "version": 2}
    )
    for text in ("Ana works as a cook", "I … work as a nurse."):
        batch = judge(CHANGE, part(text), item=edited)
        assert [entry.reason for entry in batch.rejected] == [RejectReason.FOREIGN_TURN]


def test_a_refused_update_keeps_nothing_and_a_statement_is_kept_once() -> None:
    sealed = ITEM.model_copy(update={"trust": Trust.SYSTEM})
    reasons = [entry.reason for entry in judge(CHANGE, part(), item=sealed).rejected]
    assert reasons == [RejectReason.LOW_TRUST, RejectReason.FOREIGN_TURN]
    twice = judge(CHANGE, part(), part())
    assert [entry.reason for entry in twice.rejected] == [RejectReason.DUPLICATE_TEXT]
    unknown = judge(CHANGE, part(), told=None)
    assert [entry.reason for entry in unknown.rejected] == [RejectReason.FOREIGN_TURN]

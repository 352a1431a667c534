"""`check_design`: the three laws of memory designs, checked on a small conversation.

The laws are determinism, isolation and auditability.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from memagent.async_agent import AsyncAgent
from memagent.core.answers import Question
from memagent.core.records import Session, Turn
from memagent.core.reports import IngestReport
from memagent.core.snapshot import EMPTY, Commit
from memagent.designs.base import MemoryDesign
from memagent.embed.static import HashEmbedder
from memagent.memory.bank import MemoryBank
from memagent.protocols import ChatModel

_SAID = (
    (
        "2024-03-04T18:00:00",
        ("Ana", "I moved to Lisbon yesterday, and I love the light here."),
        ("Bo", "Congratulations! Is the flat nice?"),
    ),
    (
        "2024-03-20T18:00:00",
        ("Ana", "My dog Rex is allergic to chicken, the vet told me last Friday."),
        ("Bo", "Poor Rex."),
    ),
    (
        "2024-06-02T18:00:00",
        ("Ana", "I don't live in Lisbon any more, I moved to Porto last week."),
        ("Bo", "That was quick!"),
    ),
)


def small_conversation() -> list[Session]:
    """Return three dated sessions of two people with one changed fact."""
    return [
        Session(
            id=f"session_{n}",
            at=datetime.fromisoformat(date).replace(tzinfo=UTC),
            turns=tuple(
                Turn(id=f"D{n}:{i}", speaker=speaker, text=text)
                for i, (speaker, text) in enumerate(said, 1)
            ),
        )
        for n, (date, *said) in enumerate(_SAID, 1)
    ]


async def check_design(design: MemoryDesign, make_model: Callable[[], ChatModel]) -> None:
    """Play the conversation twice with equal models from `make_model` and check the laws.

    Raises `AssertionError` in plain words.
    """
    first, reports = await _play(design, make_model())
    second, _ = await _play(design, make_model())
    digest = first.snapshot().digest
    assert digest == second.snapshot().digest, (
        f"{design.name}: the same conversation with the same model must end in one digest"
    )

    again = [await first.remember(session) for session in small_conversation()]
    assert all(report.skipped for report in again), (
        f"{design.name}: remembering a session twice must change nothing"
    )
    assert first.snapshot().digest == digest, (
        f"{design.name}: remembering a session twice must change nothing"
    )
    failures = [chunk.failure for report in reports for chunk in report.chunks if chunk.failure]
    assert not failures, f"{design.name}: chunks failed: {failures}"

    await _check_audit(design, first, reports)
    await _check_isolation(design, first, make_model())
    question = Question(text="Where does Ana live now?", asked_at=datetime(2024, 7, 1, tzinfo=UTC))
    answer = await first.with_model(make_model()).ask(question)
    shown = {hit.id for hit in answer.hits}
    assert all(citation.hit_id in shown for citation in answer.citations), (
        f"{design.name}: only hits that were shown may be cited"
    )
    assert answer.abstained or answer.text.strip(), (
        f"{design.name}: an answer must have text or abstain"
    )
    assert first.snapshot().digest == digest, f"{design.name}: asking must not change the memory"


async def _play(design: MemoryDesign, model: ChatModel) -> tuple[AsyncAgent, list[IngestReport]]:
    agent = AsyncAgent(
        design=design, model=model, bank=MemoryBank(embedder=HashEmbedder(dim=64))
    ).at(EMPTY)
    return agent, [
        await agent.remember(session, on_error="keep") for session in small_conversation()
    ]


async def _check_audit(
    design: MemoryDesign, agent: AsyncAgent, reports: list[IngestReport]
) -> None:
    turns = {turn.id for session in small_conversation() for turn in session.turns}
    commits = [row.entry async for row in agent.bank.rows() if isinstance(row.entry, Commit)]
    ops = {applied.op_id for commit in commits for applied in commit.ops}
    for item in agent.bank.state.items.values():
        assert item.source_turn_ids, f"{design.name}: item {item.id} names no source turn"
        assert set(item.source_turn_ids) <= turns, (
            f"{design.name}: item {item.id} names turns that do not exist"
        )
        assert item.op_id in ops, f"{design.name}: item {item.id} was made by no op of the log"
    chunks = [chunk for report in reports for chunk in report.chunks]
    reported = sum(len(chunk.applied) + len(chunk.rejected) for chunk in chunks)
    logged = sum(len(commit.ops) + len(commit.rejected) for commit in commits)
    assert reported == logged, (
        f"{design.name}: reports tell of {reported} ops, the log holds {logged}"
    )


async def _check_isolation(design: MemoryDesign, agent: AsyncAgent, model: ChatModel) -> None:
    before = agent.snapshot()
    fork = agent.at(before).with_model(model)
    await fork.memory.add("something only the fork knows")
    assert agent.snapshot().digest == before.digest, (
        f"{design.name}: a write to a fork must not reach the memory it came from"
    )
    assert fork.snapshot().digest != before.digest, (
        f"{design.name}: a write to a fork must change the fork"
    )

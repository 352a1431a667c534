"""Threads: sessions that grow, chunks that stay, histories that are sent again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from memagent.core.errors import InputError
from memagent.core.records import Session, Trust, Turn
from memagent.embed.static import HashEmbedder
from memagent.memory import threads
from memagent.memory.bank import MemoryBank
from memagent.memory.incoming import split_session
from memagent.memory.threads import (
    Spoken,
    add_to_thread,
    continued,
    is_reply,
    match_history,
    reply_of,
    store_message,
    thread_turns,
)

MONDAY = datetime(2024, 3, 4, 9, 0, tzinfo=UTC)


def bank() -> MemoryBank:
    return MemoryBank(embedder=HashEmbedder())


def turns(*texts: str, session: str = "s") -> tuple[Turn, ...]:
    return tuple(
        Turn(id=f"{session}:{number}", speaker="Ana", text=text)
        for number, text in enumerate(texts, 1)
    )


async def test_a_session_of_a_day_grows_and_the_next_day_begins_another() -> None:
    log = bank()
    first = await add_to_thread(log, "t", [Spoken("I live in Porto.")], at=MONDAY)
    await add_to_thread(log, "t", [reply_of("Nice.")], at=MONDAY + timedelta(minutes=1))
    next_day = MONDAY + timedelta(days=1)
    last = await add_to_thread(log, "t", [Spoken("It rains there.")], at=next_day)
    assert (first.session.id, last.session.id) == ("t@2024-03-04", "t@2024-03-05")
    assert [turn.id for turn in thread_turns(log.state, "t")] == [
        "t@2024-03-04:1",
        "t@2024-03-04:2",
        "t@2024-03-05:1",
    ]
    monday = log.state.sessions["t@2024-03-04"]
    assert monday.grown_at == (1,) and monday.thread == "t"
    assert [turn.recalled for turn in monday.turns] == [False, True]
    assert monday.date_of(monday.turns[1]) == MONDAY + timedelta(minutes=1)
    assert log.state.turn("t@2024-03-04:2") == monday.turns[1]


async def test_chunks_of_earlier_parts_stay_as_they_were() -> None:
    log = bank()
    texts = [f"Fact number {n}." for n in range(9)]
    await add_to_thread(log, "t", [Spoken(text) for text in texts], at=MONDAY)
    before = split_session(log.state.sessions["t@2024-03-04"], chunk_turns=8)
    await add_to_thread(log, "t", [reply_of("I see."), Spoken("One more.")], at=MONDAY)
    after = split_session(log.state.sessions["t@2024-03-04"], chunk_turns=8)
    assert after[: len(before)] == before and len(before) == 2
    assert [(chunk.index, chunk.count) for chunk in after] == [(0, 2), (1, 2), (2, 3)]
    assert [turn.text for turn in after[-1].turns] == ["One more."]


async def test_the_same_session_with_more_turns_stores_only_those() -> None:
    log = bank()
    assert await log.store_session(Session(id="s", at=MONDAY, turns=turns("one")))
    longer = Session(id="s", at=MONDAY, turns=turns("one", "two"))
    assert await log.store_session(longer)
    assert not await log.store_session(longer)
    rows = [row.entry.kind async for row in log.rows()]
    assert rows == ["session", "turns"]
    with pytest.raises(InputError, match="other content"):
        await log.store_session(Session(id="s", at=MONDAY, turns=turns("one", "other")))
    assert not await log.store_session(Session(id="s", at=MONDAY, turns=turns("one")))


async def test_a_fork_and_a_snapshot_know_the_threads() -> None:
    log = bank()
    await add_to_thread(log, "t", [Spoken("one")], at=MONDAY)
    snapshot, fork = log.snapshot(), log.fork()
    await add_to_thread(fork, "t", [Spoken("two")], at=MONDAY)
    assert len(thread_turns(log.state, "t")) == 1
    assert [turn.text for turn in thread_turns(fork.state, "t")] == ["one", "two"]
    restored = MemoryBank.restore(snapshot, embedder=HashEmbedder())
    assert [turn.text for turn in thread_turns(restored.state, "t")] == ["one"]


async def test_an_unanswered_message_is_stored_once() -> None:
    log = bank()
    for _ in range(2):
        await store_message(log, "t", Spoken("Are you there?"), at=MONDAY)
    assert len(thread_turns(log.state, "t")) == 1
    await add_to_thread(log, "t", [reply_of("Yes.")], at=MONDAY)
    await store_message(log, "t", Spoken("Are you there?"), at=MONDAY)
    assert len(thread_turns(log.state, "t")) == 3


async def test_a_foreign_session_keeps_its_id() -> None:
    log = bank()
    await log.store_session(Session(id="t@2024-03-04", turns=turns("mine")))
    end = await add_to_thread(log, "t", [Spoken("theirs")], at=MONDAY)
    assert end.session.id == "t@2024-03-04~2"


@pytest.mark.parametrize(
    ("thread", "text", "words"),
    [("t", " ", "empty"), ("t", "x" * 200_001, "200,001"), ("x" * 257, "hi", "256 characters")],
)
async def test_what_cannot_be_stored_is_refused(thread: str, text: str, words: str) -> None:
    log = bank()
    with pytest.raises(InputError, match=words):
        await add_to_thread(log, thread, [Spoken("fine"), Spoken(text)], at=MONDAY)
    assert not log.state.seq


# -- clients that send the whole history -----------------------------------------------


async def _say(log: MemoryBank, history: list[Spoken], reply: str) -> tuple[str, int]:
    """Do what the chat endpoint does with a history; return the thread and what was read."""
    match = match_history(log.state, history)
    known = [said._replace(recalled=True) for said in history[match.stored : match.known]]
    rest = history[max(match.stored, match.known) :]
    await add_to_thread(log, match.thread, [*known, *rest, reply_of(reply)], at=MONDAY)
    return match.thread, sum(not said.recalled for said in rest)


async def test_a_history_sent_again_continues_its_thread() -> None:
    log = bank()
    history = [Spoken("Hi"), reply_of("Hello!"), Spoken("I moved to Porto.")]
    thread, read = await _say(log, history[:1], "Hello!")
    assert read == 1
    again, read = await _say(log, history, "How is it?")
    assert (again, read) == (thread, 1)
    more = [*history, reply_of("How  is it?"), Spoken("Rainy.")]
    last, read = await _say(log, more, "I see.")
    assert (last, read) == (thread, 1), "white space does not part a conversation"
    assert [turn.text for turn in thread_turns(log.state, thread)] == [
        "Hi",
        "Hello!",
        "I moved to Porto.",
        "How is it?",
        "Rainy.",
        "I see.",
    ]


async def test_a_conversation_that_departs_is_another_thread_and_is_read_once() -> None:
    log = bank()
    first, _ = await _say(log, [Spoken("Hi"), reply_of("Hello!"), Spoken("I like tea.")], "Fine.")
    other, read = await _say(
        log,
        [Spoken("Hi"), reply_of("Hello!"), Spoken("I like tea."), reply_of("Oh?"), Spoken("Yes.")],
        "?",
    )
    assert other != first and read == 1
    told = [turn for turn in thread_turns(log.state, other) if not turn.recalled]
    assert [turn.text for turn in told] == ["Yes."]
    fresh, read = await _say(log, [Spoken("Hi")], "Hello!")
    assert fresh not in (first, other) and read == 1


async def test_a_named_thread_takes_a_whole_history_or_its_end() -> None:
    log = bank()
    said = [Spoken("one"), reply_of("1"), Spoken("two"), reply_of("2")]
    await add_to_thread(log, "t", said, at=MONDAY)
    assert continued(log.state, "t", [*said, Spoken("three")]).stored == 4
    assert continued(log.state, "t", [said[-1], Spoken("three")]).stored == 1
    assert continued(log.state, "t", [Spoken("three")]).stored == 0
    assert continued(log.state, "new", [Spoken("a"), reply_of("b"), Spoken("c")]).stored == 0
    assert reply_of("").text == "-" and reply_of("x").trust is Trust.ASSISTANT


# -- long histories --------------------------------------------------------------------


def by_all_ends(turns: Sequence[Turn], history: Sequence[Spoken]) -> int:
    """Where a history goes on, by a comparison at every place."""
    stored = [(turn.text, is_reply(turn)) for turn in turns]
    sent = [(message.text, is_reply(message)) for message in history]
    for end in range(len(sent) - 1, 0, -1):
        size = min(end, len(stored))
        if stored[len(stored) - size :] == sent[end - size : end]:
            return end
    return len(sent) - 1


@pytest.mark.parametrize("seed", range(40))
async def test_a_history_goes_on_where_a_comparison_at_every_place_says(seed: int) -> None:
    dice = random.Random(seed)
    log = bank()
    stored = [Spoken(dice.choice("ab")) for _ in range(dice.randrange(1, 12))]
    await add_to_thread(log, "t", stored, at=MONDAY)
    for _ in range(50):
        history = [Spoken(dice.choice("ab")) for _ in range(dice.randrange(1, 16))]
        if dice.random() < 0.6:
            history = [*stored[dice.randrange(len(stored)) :], *history]
        found = continued(log.state, "t", history)
        assert found.stored == by_all_ends(thread_turns(log.state, "t"), history)


async def test_a_history_of_equal_messages_is_compared_in_one_pass() -> None:
    log = bank()
    await add_to_thread(log, "t", [Spoken("go on")] * 900 + [Spoken("stop")], at=MONDAY)
    calls, before = 0, threads._plain

    def counted(text: str) -> str:
        nonlocal calls
        calls += 1
        return before(text)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "_plain", counted)
        assert continued(log.state, "t", [Spoken("go on")] * 900).stored == 899
    assert calls <= 2 * 901

"""A group answers the same questions by construction, no session gets a zero for lack
of questions, and failures leave the whole group.
"""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections import Counter

import pytest
import rollout_kit as kit
from hypothesis import given, strategies as st
from places import KITS_PATH

from environments import EnvironmentFault, Probe, play, truncate
from environments.play.answer_cache import (
    AnswerCache,
    AnswerKey,
    context_digest,
    question_digest,
    with_answer_cache,
)
from environments.play.group_scoring import score_group
from environments.records import ProbeScore
from environments.rewards.questions import (
    after_credit,
    episode_questions,
    questions_for,
    session_credits,
    terminal_credit,
    terminal_probes,
)
from memagent.core.answers import Answer, Hit, Question, Relevance
from memagent.core.errors import ModelUnavailable
from memagent.core.exchange import ModelRequest, Role, Usage
from memagent.core.records import MemoryItem
from memagent.core.snapshot import EMPTY

WORLD = kit.episode(5, turns=4)
KEY = ("manager", "world", 3)


def ids(probes: tuple[Probe, ...]) -> list[str]:
    return [probe.id for probe in probes]


# -- drawing ---------------------------------------------------------------------------


def test_a_draw_depends_on_the_group_and_the_questions_alone() -> None:
    first = questions_for(KEY, WORLD, 3, own=2, rehearsal=3)
    shuffled = list(WORLD.probes)
    random.Random(1).shuffle(shuffled)
    other = WORLD.model_copy(update={"probes": tuple(shuffled)})
    again = questions_for(list(KEY), other, 3, own=2, rehearsal=3)
    assert set(ids(first.own)) == set(ids(again.own))
    assert set(ids(first.rehearsal)) == set(ids(again.rehearsal))
    assert (len(first.own), len(first.due), len(first.rehearsal)) == (2, 2, 3)
    draws = {
        tuple(ids(questions_for((*KEY, n), WORLD, 3, own=2, rehearsal=3).after)) for n in range(20)
    }
    assert len(draws) > 5, "another group draws other questions"


def test_a_draw_is_the_same_in_another_process() -> None:
    here = ids(questions_for(KEY, WORLD, 3, own=2).after)
    code = (
        "import rollout_kit as kit; from environments.rewards.questions import questions_for; "
        f"print([p.id for p in questions_for({KEY!r}, kit.episode(5, turns=4), 3, own=2).after])"
    )
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": KITS_PATH},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == str(here)


def test_more_questions_in_the_pool_keep_the_old_order() -> None:
    few = set(ids(questions_for(KEY, WORLD, 2, own=2).own))
    assert few < set(ids(questions_for(KEY, WORLD, 2, own=3).own))


def test_own_due_and_rehearsal_questions() -> None:
    last = WORLD.sessions[-1]
    both = Probe(id="both", question="?", evidence_turn_ids=("world1:0", "world3:0"))
    early = Probe(
        id="early", question="?", evidence_turn_ids=("world0:0",), after_session="world_s0"
    )
    absent = Probe(id="absent", question="?", unanswerable=True)
    world = WORLD.model_copy(update={"probes": (both, early, absent)})
    one, three, end = (questions_for(KEY, world, place) for place in (1, 3, 4))
    assert (ids(one.own), ids(one.due)) == (["both"], []), (
        "half of its evidence has not been told yet"
    )
    assert (ids(three.own), ids(three.due)) == (["both"], ["both"])
    assert ids(three.rehearsal) == [], "what was asked long ago may have another answer now"
    assert (ids(end.own), ids(end.rehearsal), end.session_id) == ([], ["both"], last.id)
    assert ids(questions_for(KEY, world, 0).due) == ["early"]
    with pytest.raises(EnvironmentFault, match="sessions 0 to 4, not 5"):
        questions_for(KEY, world, 5)


def test_every_session_with_questions_is_drawn_from() -> None:
    drawn = episode_questions(KEY, WORLD, own=1)
    assert [len(one.own) for one in drawn.values()] == [1] * 5
    assert len(terminal_probes(WORLD, drawn)) == 5
    counts = Counter(
        probe.evidence_turn_ids[0].partition(":")[0] for probe in terminal_probes(WORLD, drawn)
    )
    assert set(counts.values()) == {1}


# -- credit ----------------------------------------------------------------------------


def test_a_session_without_questions_is_masked_and_never_zero() -> None:
    world = WORLD.model_copy(update={"probes": WORLD.probes[:8]})  # sessions 0 and 1 only
    drawn = episode_questions(KEY, world, own=None, rehearsal=2)
    right = [ProbeScore(probe_id=probe.id, f1=1.0) for probe in world.probes]
    wrong = [ProbeScore(probe_id=probe.id, f1=0.0) for probe in world.probes]
    credits = session_credits(drawn, terminal=right, after=dict.fromkeys(drawn, wrong))
    assert [(one.terminal, one.after) for one in credits.values()] == [
        (1.0, 0.0),
        (1.0, 0.0),
        (None, None),
        (None, None),
        (None, None),
    ]


def test_the_two_credits_by_hand() -> None:
    drawn = questions_for(KEY, WORLD, 2, own=None, rehearsal=2)
    worth = dict(zip(ids(drawn.own), (1.0, 0.5, 0.0, 0.5), strict=True)) | dict.fromkeys(
        ids(drawn.rehearsal), 1.0
    )
    scores = [ProbeScore(probe_id=name, f1=value) for name, value in worth.items()]
    assert terminal_credit(drawn, scores) == 0.5  # (1 + 0.5 + 0 + 0.5) / 4
    assert after_credit(drawn, scores) == pytest.approx(4 / 6)  # and two rehearsed ones right
    failed = [one.model_copy(update={"failure": "down"}) for one in scores]
    assert terminal_credit(drawn, failed) is None
    only_rehearsal = [one for one in scores if one.probe_id in ids(drawn.rehearsal)]
    assert after_credit(drawn, only_rehearsal) is None
    assert after_credit(drawn, failed[:1] + scores[1:]) == pytest.approx(3 / 5)


# -- scoring a group -------------------------------------------------------------------


async def test_every_member_is_asked_the_same_and_equal_contexts_cost_one_call() -> None:
    async with kit.open_r2() as agent:
        full = (await play(agent.at(EMPTY), WORLD, ask=False)).end
        cache = AnswerCache()
        asker = kit.model()
        answering = with_answer_cache(agent.with_model(asker), cache, fingerprint="kit")
        scored = await score_group(answering, WORLD, [full, full, EMPTY], WORLD.probes)
        assert not scored.excluded
        assert [[one.probe_id for one in member] for member in scored.members] == [
            ids(WORLD.probes)
        ] * 3
        plain = [[(one.answer, one.f1, one.cited) for one in member] for member in scored.members]
        assert plain[0] == plain[1] != plain[2]
        assert all(one.abstained and one.f1 == 0.0 for one in scored.members[2])
        # 20 questions ask for 8 things: a call for each, none where memory is
        # empty, none the second time
        assert len(asker.requests) == len(kit.THINGS) == 8
        assert cache.stats.misses == 16
        await score_group(answering, WORLD, [full], WORLD.probes)
        assert len(asker.requests) == 8
        assert (cache.stats.misses, cache.stats.hits) == (16, 4 * 20 - 16)
        alone = await score_group(agent, WORLD, [full], WORLD.probes)
        assert [(one.answer, one.cited, one.retrieved) for one in alone.members[0]] == [
            (one.answer, one.cited, one.retrieved) for one in scored.members[0]
        ]


async def test_a_failing_question_leaves_the_whole_group_and_is_not_remembered() -> None:
    down = True
    asked: Counter[str] = Counter()

    def moody(request: ModelRequest) -> str:
        question = request.messages[1].content
        if request.role is Role.ANSWERER:
            asked[question] += 1
            if down and "room 00" in question and "the boat kept" in question:
                raise ModelUnavailable("the server is down")
        return kit.reply(request)

    async def run() -> None:
        nonlocal down
        async with kit.open_r2(moody) as agent:
            played = await play(agent.at(EMPTY), WORLD, ask=False)
            memories = [
                played.traces[0].after,
                played.end,
            ]  # only the first shows the boat in room 00
            cache = AnswerCache()
            answering = with_answer_cache(agent, cache, fingerprint="kit")
            boat = [probe for probe in WORLD.probes if "boat" in probe.question]
            scored = await score_group(answering, WORLD, memories, WORLD.probes, attempts=3)
            assert set(scored.excluded) == {probe.id for probe in boat}
            assert "the server is down" in scored.excluded[boat[0].id]
            kept = [probe.id for probe in WORLD.probes if probe not in boat]
            assert [[one.probe_id for one in member] for member in scored.members] == [kept, kept]
            assert cache.stats.failures >= 3
            assert (
                max(
                    count
                    for text, count in asked.items()
                    if "room 00" in text and "boat kept" in text
                )
                >= 3
            )
            down = False
            healed = await score_group(answering, WORLD, memories, boat)
            assert not healed.excluded
            assert healed.members[0][0].f1 == 1.0
            with pytest.raises(EnvironmentFault, match="has no probe stranger"):
                await score_group(answering, WORLD, memories, [Probe(id="stranger", question="?")])
            nobody = await score_group(answering, WORLD, memories, [])
            assert nobody.members == ((), ())

    await run()


async def test_an_unreadable_reply_is_an_answer_that_abstains_and_says_so() -> None:
    def mumbling(request: ModelRequest) -> str:
        return "{}" if request.role is Role.ANSWERER else kit.reply(request)

    async with kit.open_r2(mumbling) as agent:
        played = await play(agent.at(EMPTY), truncate(WORLD, 1), ask=False)
        scored = await score_group(agent, WORLD, [played.end], WORLD.probes[:1])
        assert scored.members[0][0].unreadable and scored.members[0][0].abstained


# -- the cache -------------------------------------------------------------------------


def key(name: str) -> AnswerKey:
    return AnswerKey(name, "context", "answerer")


async def test_the_cache_is_bounded_and_drops_what_was_used_longest_ago() -> None:
    async def run() -> None:
        cache = AnswerCache(capacity=2)
        calls: list[str] = []

        async def ask(name: str) -> Answer:
            async def call() -> Answer:
                calls.append(name)
                return Answer(text=name, usage=Usage(calls=1))

            return await cache.answer(key(name), call)

        for name in ("a", "b", "a", "c", "a", "b"):
            assert (await ask(name)).text == name
        assert calls == ["a", "b", "c", "b"]
        stats = cache.stats
        assert (stats.size, stats.hits, stats.misses, stats.dropped) == (2, 2, 4, 2)
        assert stats.hit_rate == pytest.approx(1 / 3)
        assert (await ask("b")).usage == Usage(), "a repeated answer costs nothing"
        with pytest.raises(EnvironmentFault, match="at least 1"):
            AnswerCache(capacity=0)

    await run()


async def test_callers_wait_for_a_call_under_way_and_survive_its_cancellation() -> None:
    async def run() -> None:
        cache = AnswerCache()
        started, gate = asyncio.Event(), asyncio.Event()
        calls = 0

        async def call() -> Answer:
            nonlocal calls
            calls += 1
            started.set()
            await gate.wait()
            return Answer(text="yes")

        first = asyncio.create_task(cache.answer(key("q"), call))
        await started.wait()
        others = [asyncio.create_task(cache.answer(key("q"), call)) for _ in range(3)]
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        gate.set()
        assert [(await one).text for one in others] == ["yes"] * 3
        assert calls == 2

        async def broken() -> Answer:
            await asyncio.sleep(0)
            raise ModelUnavailable("down")

        results = await asyncio.gather(
            *(cache.answer(key("r"), broken) for _ in range(3)), return_exceptions=True
        )
        assert [type(one) for one in results] == [ModelUnavailable] * 3
        assert cache.stats.size == 1
        assert cache.stats.failures == 1

    await run()


@given(st.floats(0, 1), st.integers(1, 9), st.text(min_size=1, max_size=20))
def test_keys_see_what_is_said_and_not_how_it_scored(score: float, k: int, text: str) -> None:
    item = MemoryItem(id="mem_1", text="Ana keeps the boat")
    shown = Hit(id="mem_1", score=0.5, item=item)
    other = shown.model_copy(
        update={"score": score, "why": Relevance(arms={"dense": score}, ranks={"dense": k})}
    )
    assert context_digest([shown]) == context_digest([other])
    assert context_digest([shown]) != context_digest([shown, shown]) != context_digest([])
    reworded = shown.model_copy(update={"item": item.model_copy(update={"text": item.text + text})})
    assert context_digest([shown]) != context_digest([reworded])
    assert question_digest(Question(text="q" + text, k=k, id="1")) == question_digest(
        Question(text="q" + text)
    )
    assert question_digest(Question(text="q" + text)) != question_digest(Question(text="q"))


async def test_an_answerer_by_rules_is_refused() -> None:
    async with kit.open_verbatim() as agent:
        with pytest.raises(EnvironmentFault, match="answers by rules"):
            with_answer_cache(agent, AnswerCache(), fingerprint="kit")

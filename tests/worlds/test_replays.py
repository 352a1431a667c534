"""A replay repeats its session to the last byte, many at once leave their anchor alone,
and failures stay with whom they happen to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
import rollout_kit as kit

from environments import (
    EnvironmentFault,
    LoCoMo,
    SessionTrace,
    check_environment,
    play,
    replay_session,
)
from environments.play.snapshots import snapshot_from_json, snapshot_to_json, trace_digest
from memagent.async_agent import AsyncAgent
from memagent.core.errors import ModelUnavailable
from memagent.core.exchange import ModelRequest, Role
from memagent.core.snapshot import EMPTY

DESIGNS = {"memory_r2": kit.open_r2, "verbatim": kit.open_verbatim}
Opened = Callable[[], AbstractAsyncContextManager[AsyncAgent]]


@pytest.mark.parametrize("opened", DESIGNS.values(), ids=DESIGNS.keys())
async def test_every_anchor_of_every_episode_replays_bit_for_bit(opened: Opened) -> None:
    kinds = set[str]()
    for world in (
        kit.episode(5),
        kit.episode(3, turns=11, name="long"),
        kit.episode(6, turns=1, name="short"),
    ):
        async with opened() as agent:
            played = await play(agent.at(EMPTY), world, ask=False)
            assert played.failure is None
            for place, trace in enumerate(played.traces):
                kinds.update(kind for kind, count in trace.report.op_counts.items() if count)
                told = snapshot_to_json(trace.before)
                again = await replay_session(agent, world, session=place, anchor=trace.before)
                assert trace_digest(again) == trace_digest(trace)
                assert again.report.chunks == trace.report.chunks
                read = await replay_session(
                    agent, world, session=place, anchor=snapshot_from_json(told)
                )
                assert trace_digest(read) == trace_digest(trace)
                assert snapshot_to_json(trace.before) == told
        async with (
            opened() as stranger
        ):  # another process, another store: only the texts are shared
            anchor = snapshot_from_json(snapshot_to_json(played.traces[-1].before))
            far = await replay_session(
                stranger, world, session=len(world.sessions) - 1, anchor=anchor
            )
            assert trace_digest(far) == trace_digest(played.traces[-1])
    assert "ADD" in kinds
    assert opened is kit.open_verbatim or "UPDATE" in kinds


async def test_the_digest_of_a_trace_sees_every_difference() -> None:
    async def run() -> None:
        world = kit.episode(3)

        def other(request: ModelRequest) -> str:
            text = kit.reply(request)
            return text.replace("keep the", "keep  the") if request.role is Role.EXTRACTOR else text

        async with kit.open_r2() as agent:
            played = await play(agent.at(EMPTY), world, ask=False)
            anchor = played.traces[2].before
            changed = await replay_session(
                agent.with_model(kit.model(other)), world, session=2, anchor=anchor
            )
            assert trace_digest(changed) != trace_digest(played.traces[2])
            assert trace_digest(played.traces[1]) != trace_digest(played.traces[2])

    await run()


@pytest.mark.parametrize("opened", DESIGNS.values(), ids=DESIGNS.keys())
async def test_64_concurrent_replays_leave_their_anchor_untouched(opened: Opened) -> None:
    async def run() -> None:
        world = kit.episode(4)
        async with opened() as agent:
            played = await play(agent.at(EMPTY), world, ask=False)
            anchor = played.traces[2].before
            told = snapshot_to_json(anchor)

            async def one(number: int) -> SessionTrace:
                fork = agent
                if number % 2:  # half of them decide otherwise, so that a leak would show

                    def less(request: ModelRequest) -> str:
                        return (
                            '{"facts": []}'
                            if request.role is Role.EXTRACTOR
                            else kit.reply(request)
                        )

                    fork = agent.with_model(kit.model(less))
                return await replay_session(fork, world, session=2, anchor=anchor)

            traces = await asyncio.gather(*(one(number) for number in range(64)))
            assert snapshot_to_json(anchor) == told
            assert {trace.before.digest for trace in traces} == {anchor.digest}
            assert {trace_digest(trace) for trace in traces[::2]} == {
                trace_digest(played.traces[2])
            }
            if opened is kit.open_r2:
                assert {trace.after.digest for trace in traces[1::2]} == {anchor.digest}
            last = await replay_session(agent, world, session=3, anchor=played.traces[3].before)
            assert trace_digest(last) == trace_digest(played.traces[3])

    await run()


async def test_64_concurrent_rollouts_fail_one_by_one() -> None:
    async def run() -> None:
        world = kit.episode(4)
        async with kit.open_r2() as agent:
            alone = await play(agent.at(EMPTY), world)

            def rollout(number: int) -> AsyncAgent:
                async def answer(request: ModelRequest) -> str:
                    await asyncio.sleep(0)
                    failing = number % 4 and request.step.session_id == f"world_s{number % 4}"
                    if failing and number % 8 < 4:
                        raise ModelUnavailable(f"model {number} is down")
                    if failing:
                        raise ZeroDivisionError(f"model {number} has a bug")
                    return kit.reply(request)

                return agent.at(EMPTY).with_model(_Plain(answer))

            every = await asyncio.gather(*(play(rollout(number), world) for number in range(64)))
        for number, one in enumerate(every):
            if number % 4 == 0:
                assert one.failure is None
                assert one.end.digest == alone.end.digest
                assert [answer.answer is not None for answer in one.answers] == [True] * len(
                    world.probes
                )
            else:
                assert one.failure is not None
                assert f"model {number} " in one.failure
                assert len(one.traces) == number % 4 + 1, (
                    "the failed session is on record, with its turns stored"
                )
                assert one.traces[-1].report.failed_chunks
                assert [trace.after.digest for trace in one.traces[:-1]] == [
                    trace.after.digest for trace in alone.traces[: number % 4]
                ]

    await run()


class _Plain:
    """A model from an async function of the request."""

    def __init__(self, answer) -> None:
        self._answer = answer

    async def complete(self, request: ModelRequest):
        text = await self._answer(request)
        return await kit.model(lambda _: text).complete(request)


async def test_a_replay_that_fails_leaves_its_anchor_and_says_so() -> None:
    world = kit.episode(3)

    def broken(request: ModelRequest) -> str:
        raise ModelUnavailable("down")

    async with kit.open_r2() as agent:
        played = await play(agent.at(EMPTY), world, ask=False)
        anchor = played.traces[1].before
        told = snapshot_to_json(anchor)
        trace = await replay_session(
            agent.with_model(kit.model(broken)), world, session=1, anchor=anchor
        )
        assert "down" in (trace.report.failed_chunks[0].failure or "")
        assert trace.after.digest == anchor.digest
        assert snapshot_to_json(anchor) == told
        with pytest.raises(EnvironmentFault, match="heard session"):
            await replay_session(agent, world, session=1, anchor=trace.after)


def test_the_checker_proves_json_and_replays(locomo_dir) -> None:
    check_environment(LoCoMo(locomo_dir), episodes=2, sessions=2)

"""Why local reruns: where sessions add up, the sign of the global advantage is hardly
better than chance, the local one is right.

Sixteen sessions, each stored or skipped with probability 0.5, each worth its own
amount, which may be a harm. A rollout's advantage mixes in what the fifteen other
sessions did; reruns of one session from one memory differ in that session alone. All is
read off recorded trajectories of the real agent: who stored what is in the memories,
and nowhere else.
"""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass
from math import erf, sqrt

import pytest
import rollout_kit as kit

from environments import Episode, Trajectory, play, replay_session
from memagent.async_agent import AsyncAgent
from memagent.core.exchange import ModelRequest, ModelResponse, Role, Usage
from memagent.core.snapshot import EMPTY, MemorySnapshot

SESSIONS, ROLLOUTS, RERUNS = 16, 16, 4
WORLD: Episode = kit.episode(SESSIONS, turns=1)


class CoinPolicy:
    """Stores a session's fact or skips it, by a coin of its own."""

    def __init__(self, seed: str) -> None:
        self._coin = random.Random(seed)
        self._calls = 0
        self._seed = seed

    async def complete(self, request: ModelRequest) -> ModelResponse:
        self._calls += 1
        text = json.dumps({"ops": [{"op": "ADD", "fact": 0}]})
        if request.role is Role.EXTRACTOR:
            turn = request.messages[1].content.partition("<dialogue>\n[")[2].partition("\n")[0]
            turn_id, _, said = turn.partition("] ")
            facts = (
                [{"text": said, "source": turn_id}]  # a fact that the turn does not say is refused
                if self._coin.random() < 0.5
                else []
            )
            text = json.dumps({"facts": facts})
        return ModelResponse(id=f"res_{self._seed}_{self._calls}", text=text, usage=Usage(calls=1))


@dataclass
class Agreement:
    """How often the sign of an advantage was that of the true effect."""

    right: int = 0
    all: int = 0

    def count(self, advantage: float, effect: float) -> None:
        self.right += advantage * effect > 0
        self.all += 1

    @property
    def share(self) -> float:
        return self.right / self.all


def worths(group: int) -> list[float]:
    """What storing each session is worth, even on both sides of zero."""
    return [random.Random(f"worth {group} {place}").uniform(-1, 1) for place in range(SESSIONS)]


def stored(memory: MemorySnapshot) -> set[str]:
    return {item.session_id or "" for item in memory.items.values() if item.active}


def reward(memory: MemorySnapshot, worth: list[float]) -> float:
    kept = stored(memory)
    return sum(
        amount for session, amount in zip(WORLD.sessions, worth, strict=True) if session.id in kept
    )


def advantages(rewards: list[float]) -> list[float]:
    mean = sum(rewards) / len(rewards)
    return [one - mean for one in rewards]


def effect(memory: MemorySnapshot, place: int, worth: list[float]) -> float:
    """What the session's action is worth against the other one."""
    return worth[place] if WORLD.sessions[place].id in stored(memory) else -worth[place]


async def measure(groups: int, *, reruns: int) -> tuple[Agreement, Agreement, int]:
    """Global and local agreement over some groups, each with `reruns` local groups, and
    how many local groups all did the same.
    """
    whole, local, idle = Agreement(), Agreement(), 0
    async with kit.open_r2() as agent:

        def policy(*name: object) -> AsyncAgent:
            return agent.with_model(CoinPolicy(" ".join(map(str, name))))

        for group in range(groups):
            worth = worths(group)
            plays = (
                play(policy("global", group, n).at(EMPTY), WORLD, ask=False)
                for n in range(ROLLOUTS)
            )
            rollouts: list[Trajectory] = list(await asyncio.gather(*plays))
            assert [one.failure for one in rollouts if one.failure] == []
            for rollout, advantage in zip(
                rollouts, advantages([reward(one.end, worth) for one in rollouts]), strict=True
            ):
                for place in range(SESSIONS):
                    whole.count(advantage, effect(rollout.end, place, worth))
            draw = random.Random(f"anchors {group}")
            for _ in range(reruns):
                number, place = draw.randrange(ROLLOUTS), draw.randrange(SESSIONS)
                anchor = rollouts[number].traces[place]
                again = (
                    replay_session(
                        policy("local", group, number, place, m),
                        WORLD,
                        session=place,
                        anchor=anchor.before,
                    )
                    for m in range(RERUNS)
                )
                traces = [
                    anchor,
                    *await asyncio.gather(*again),
                ]  # the anchor's own sample is a free member
                assert {trace.before.digest for trace in traces} == {anchor.before.digest}
                found = advantages([reward(trace.after, worth) for trace in traces])
                if max(map(abs, found)) < 1e-12:
                    idle += 1
                    continue
                for trace, advantage in zip(traces, found, strict=True):
                    local.count(advantage, effect(trace.after, place, worth))
    return whole, local, idle


def expected(worth: list[float], rollouts: int) -> float:
    """Closed form of the global agreement, by the normal law.

    Given the action of session s, worth w, in one of n rollouts, the advantage has mean
    (1 - 1/n) |w| / 2 in the direction of the effect, and the variance of the other
    sessions and of the other rollouts' mean around it.
    """
    n, total = rollouts, sum(one * one for one in worth) / 4
    shares: list[float] = []
    for one in worth:
        mean = (1 - 1 / n) * abs(one) / 2
        variance = (1 - 1 / n) ** 2 * (total - one * one / 4) + (n - 1) / n**2 * total
        shares.append(0.5 * (1 + erf(mean / sqrt(2 * variance))))
    return sum(shares) / len(shares)


def test_the_closed_form_gives_585_thousandths() -> None:
    mean = sum(expected(worths(group), ROLLOUTS) for group in range(2_000)) / 2_000
    assert mean == pytest.approx(0.585, abs=0.003)


def test_the_closed_form_agrees_with_coins() -> None:
    coin = random.Random(7)
    whole = Agreement()
    for group in range(400):
        worth = worths(group)
        taken = [[coin.random() < 0.5 for _ in worth] for _ in range(ROLLOUTS)]
        sums = [
            sum(amount for amount, taking in zip(worth, one, strict=True) if taking)
            for one in taken
        ]
        for one, advantage in zip(taken, advantages(sums), strict=True):
            for taking, amount in zip(one, worth, strict=True):
                whole.count(advantage, amount if taking else -amount)
    assert whole.share == pytest.approx(
        sum(expected(worths(group), ROLLOUTS) for group in range(400)) / 400, abs=0.005
    )


async def test_global_advantages_are_near_chance_and_local_ones_right() -> None:
    whole, local, idle = await measure(3, reruns=12)
    assert whole.all == 3 * ROLLOUTS * SESSIONS
    assert 0.55 <= whole.share <= 0.63, whole
    assert local.share >= 0.99, local
    assert local.all == (3 * 12 - idle) * (RERUNS + 1)
    assert idle <= 9, "about one group in sixteen does all the same"


@pytest.mark.full
@pytest.mark.timeout(1800)
async def test_the_full_figures() -> None:
    groups = 30
    whole, local, _ = await measure(groups, reruns=40)
    closed = sum(expected(worths(group), ROLLOUTS) for group in range(groups)) / groups
    assert whole.share == pytest.approx(closed, abs=0.02)
    assert 0.55 <= whole.share <= 0.63, whole
    assert local.share == 1.0, local

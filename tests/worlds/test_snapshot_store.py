"""Snapshots live exactly as long as somebody holds them, whatever the order of holding
and letting go.
"""

from __future__ import annotations

import gc
import weakref
from collections import Counter

import pytest
import rollout_kit as kit
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from environments import EnvironmentFault, play
from environments.play.snapshots import (
    Hold,
    Place,
    SnapshotStore,
    estimated_bytes,
    snapshot_from_json,
    snapshot_to_json,
)
from memagent.core.errors import SnapshotMismatch
from memagent.core.records import MemoryItem, Session, Turn
from memagent.core.snapshot import EMPTY, MemorySnapshot

PLACES = [
    Place(episode, session, version)
    for episode in ("a", "b")
    for session in (0, 1)
    for version in (0, 1)
]


def snapshot(number: int) -> MemorySnapshot:
    item = MemoryItem(id=f"mem_{number}", text="x" * 100)
    return MemorySnapshot(digest=f"d{number}", items={item.id: item})


class Counting(RuleBasedStateMachine):
    """The store beside a plain count of holds."""

    holds = Bundle("holds")

    def __init__(self) -> None:
        super().__init__()
        self.store = SnapshotStore()
        self.counts: Counter[tuple[Place, str]] = Counter()
        self.peak = self.dropped = 0

    @rule(target=holds, number=st.integers(0, 3), place=st.sampled_from(PLACES))
    def hold(self, number: int, place: Place) -> Hold:
        held = self.store.hold(snapshot(number), place)
        self.counts[place, f"d{number}"] += 1
        self.peak = max(self.peak, len(self.counts))
        return held

    @rule(held=consumes(holds), twice=st.booleans())
    def release(self, held: Hold, twice: bool) -> None:
        key = (held.place, held.snapshot.digest)
        held.release()
        if twice:
            held.release()
        assert held.released
        self.counts[key] -= 1
        if not self.counts[key]:
            del self.counts[key]
            self.dropped += 1

    @rule(held=consumes(holds))
    def leave_a_block(self, held: Hold) -> None:
        with pytest.raises(ZeroDivisionError), held:
            raise ZeroDivisionError
        key = (held.place, held.snapshot.digest)
        self.counts[key] -= 1
        if not self.counts[key]:
            del self.counts[key]
            self.dropped += 1

    @invariant()
    def counts_agree(self) -> None:
        stats = self.store.stats
        assert (stats.live, stats.peak, stats.collected) == (
            len(self.counts),
            self.peak,
            self.dropped,
        )
        assert stats.holders == self.counts.total()
        for place in PLACES:
            here = {digest for (where, digest) in self.counts if where == place}
            assert {one.digest for one in self.store.at(place)} == here
        for number in range(4):
            digest = f"d{number}"
            places = [where for (where, one) in self.counts if one == digest]
            assert (digest in self.store) == bool(places)
            for place in places:
                assert self.store.get(digest, place).digest == digest
                assert self.store.holders(digest, place) == self.counts[place, digest]
            if not places:
                with pytest.raises(EnvironmentFault, match="no snapshot"):
                    self.store.get(digest)


TestCounting = Counting.TestCase


def test_the_last_holder_lets_the_memory_go() -> None:
    store, item = SnapshotStore(), MemoryItem(id="m", text="x")
    with store.hold(MemorySnapshot(digest="d", items={"m": item}), PLACES[0]) as first:
        second = store.hold(MemorySnapshot(digest="d", items={"m": item}), PLACES[0])
        assert second.place == PLACES[0]
        assert store.stats.live == 1
    assert store.get("d").items["m"] is item
    assert second.snapshot is first.snapshot, "an equal one there already is kept"
    second.release()
    assert (store.stats.live, store.stats.peak, store.stats.estimated_bytes) == (0, 1, 0)


async def test_what_is_released_is_freed() -> None:
    store, world = SnapshotStore(), kit.episode(3)
    async with kit.open_verbatim() as agent:
        played = await play(agent.at(EMPTY), world, ask=False)
        holds = [
            store.hold(one.after, Place(world.id, n + 1, 0)) for n, one in enumerate(played.traces)
        ]
        item = next(iter(played.end.items.values()))
        gone = weakref.ref(played.traces[0])
        assert [len(store.at(Place(world.id, n, 0))) for n in range(5)] == [0, 1, 1, 1, 0]
        del played, item
        for hold in holds:
            hold.release()
        del holds, hold
    gc.collect()
    assert gone() is None
    assert len(store) == 0


def test_equal_memories_that_heard_different_sessions_are_told_apart() -> None:
    session = Session(id="s", turns=(Turn(id="t", speaker="Ana", text="Hi"),))
    heard = MemorySnapshot(digest=EMPTY.digest, sessions={"s": session}, done={"s": frozenset({0})})
    store = SnapshotStore()
    before, after = store.hold(EMPTY, Place("e", 0, 0)), store.hold(heard, Place("e", 1, 0))
    assert store.get(EMPTY.digest, Place("e", 1, 0)).sessions
    with pytest.raises(EnvironmentFault, match=r"heard different sessions; name the place"):
        store.get(EMPTY.digest)
    after.release()
    assert not store.get(EMPTY.digest).sessions
    before.release()


async def test_what_snapshots_share_counts_once() -> None:
    async with kit.open_verbatim() as agent:
        played = await play(agent.at(EMPTY), kit.episode(8), ask=False)
        every = [one.after for one in played.traces]
        alone = estimated_bytes([played.end])
        assert alone > 8 * 3 * 200
        assert (
            estimated_bytes(every) < 1.2 * alone < sum(estimated_bytes([one]) for one in every) / 3
        )


# -- JSON ------------------------------------------------------------------------------


async def test_a_snapshot_survives_json_and_continues() -> None:
    async with kit.open_r2() as agent:
        played = await play(agent.at(EMPTY), kit.episode(4), ask=False)
        text = snapshot_to_json(played.end)
        back = snapshot_from_json(text)
        assert back.digest == played.end.digest
        assert any(back.archive.values()), "older versions come along"
        assert snapshot_to_json(back) == text == snapshot_to_json(agent.at(back).snapshot())
        assert agent.at(back).snapshot().digest == played.end.digest


@pytest.mark.parametrize(
    ("old", "new"),
    [("the boat in", "the goat in"), ("room 01", "room 07"), ('"version":1', '"version":2')],
)
async def test_an_altered_text_is_not_played_from(old: str, new: str) -> None:
    async with kit.open_verbatim() as agent:
        played = await play(agent.at(EMPTY), kit.episode(1), ask=False)
        text = snapshot_to_json(played.end)
        broken = text.replace(old, new)
        assert broken != text
        with pytest.raises(SnapshotMismatch):
            agent.at(snapshot_from_json(broken))


def test_a_text_that_is_no_snapshot_is_refused_in_words() -> None:
    with pytest.raises(EnvironmentFault, match="this is no snapshot: digest: Field required"):
        snapshot_from_json('{"items": []}')
    with pytest.raises(EnvironmentFault, match="this is no snapshot"):
        snapshot_from_json("nonsense")
    later = snapshot_to_json(EMPTY).replace("snapshot/1", "snapshot/9")
    with pytest.raises(EnvironmentFault, match="format 'memagent-snapshot/9' cannot be read"):
        snapshot_from_json(later)

"""During rollouts the garbage collector runs seldom, and afterwards as before."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from memagent.core.long_work import rare_collections


@pytest.fixture
def nothing_frozen() -> Iterator[None]:
    """The state of a common process; the tests' own process has frozen what it collected."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.usefixtures("nothing_frozen")
def test_thresholds_come_back_and_blocks_nest() -> None:
    before = gc.get_threshold()
    with rare_collections(new_objects=50_000):
        assert gc.get_threshold()[0] == 50_000
        assert gc.get_freeze_count() > 0
        with rare_collections(new_objects=10_000):
            assert gc.get_threshold()[0] == 50_000
        assert gc.get_threshold()[0] == 50_000
    assert gc.get_threshold() == before
    with pytest.raises(ZeroDivisionError), rare_collections():
        raise ZeroDivisionError
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("nothing_frozen")
def test_what_the_process_froze_itself_stays_frozen() -> None:
    before: list[int] = []
    gc.freeze()
    kept = [[number] for number in range(1_000)]
    with rare_collections(new_objects=50_000):
        assert gc.get_threshold()[0] == 50_000
    # Frozen objects are those that the collector does not list.
    watched = {id(one) for one in gc.get_objects()}
    assert id(before) not in watched
    assert all(id(one) in watched for one in kept)


def test_few_collections_are_made_inside() -> None:
    runs: list[int] = []

    def watch(phase: str, info: dict[str, int]) -> None:
        if phase == "stop":
            runs.append(info["generation"])

    gc.callbacks.append(watch)
    try:
        with rare_collections():
            kept = [[number] for number in range(50_000)]
            inside = len(runs)
    finally:
        gc.callbacks.remove(watch)
    assert len(kept) == 50_000
    assert inside == 0

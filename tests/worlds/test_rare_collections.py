"""During rollouts the garbage collector runs seldom, and afterwards as before."""

from __future__ import annotations

import gc

import pytest

from memagent.core.long_work import rare_collections


def test_thresholds_come_back_and_blocks_nest() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    with rare_collections(new_objects=50_000):
        assert gc.get_threshold()[0] == 50_000
        assert gc.get_freeze_count() > frozen
        with rare_collections(new_objects=10_000):
            assert gc.get_threshold()[0] == 50_000
        assert gc.get_threshold()[0] == 50_000
    assert gc.get_threshold() == before
    with pytest.raises(ZeroDivisionError), rare_collections():
        raise ZeroDivisionError
    assert gc.get_threshold() == before


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

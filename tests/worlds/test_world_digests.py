"""Generated worlds never change: 20 seeds of each level keep their recorded digests.

A digest covers every turn, every question and the whole truth of an episode. A changed
digest means that results of earlier runs no longer compare. After an intended change,
record anew: `python tests/worlds/test_world_digests.py`.

Fields that came after the recording are left out where they have their default, so that
a new field does not count as a new world.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict

import pytest
from places import TESTS

from environments.datasets.synthetic import LEVELS, PARTS, Level, synthetic

RECORDED = TESTS / "data" / "world_digests.json"
SEEDS = range(20)
LATER: dict[str, object] = {"moments": (), "number": 0}
"""Fields of `ProbeTruth` that are younger than the recorded digests, with their defaults."""


def _without_later(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return one record of the truth without later fields that hold their default."""
    return {name: value for name, value in pairs if name not in LATER or value != LATER[name]}


def digest(level: Level, seed: int) -> str:
    """Return the digest of one short episode; the split follows from the seed."""
    env = synthetic(level, seed=seed, sessions=5)
    episode = env.episode(PARTS[seed % len(PARTS)], seed)
    truth = json.dumps(
        asdict(env.truth(episode), dict_factory=_without_later), default=str, sort_keys=True
    )
    return hashlib.sha256(f"{episode.model_dump_json()}\n{truth}".encode()).hexdigest()


def digests(level: Level) -> list[str]:
    """Return the digests of a level by seed."""
    return [digest(level, seed) for seed in SEEDS]


@pytest.mark.parametrize("level", LEVELS)
def test_episodes_equal_the_recorded_ones_byte_for_byte(level: Level) -> None:
    assert digests(level) == json.loads(RECORDED.read_text(encoding="utf-8"))[level]


if __name__ == "__main__":
    RECORDED.parent.mkdir(exist_ok=True)
    RECORDED.write_text(
        json.dumps({level: digests(level) for level in LEVELS}, indent=1) + "\n", encoding="utf-8"
    )

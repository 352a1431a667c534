"""An environment of one's own: things are put down in rooms, moved, and asked for.

Records come from `memagent.extend`, the base and the episode from `environments`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random

from environments.base import Environment, Split
from environments.records import Episode, Probe
from memagent.extend import Session, Turn

ROOMS = ("kitchen", "hall", "attic", "cellar")
THINGS = ("hammer", "ladder", "lantern", "rope")
SPLITS = ("train", "validation", "test")


class Inventory(Environment):
    """Episodes of `sessions` days; every question has one answer, the last room told."""

    name = "inventory"

    def __init__(self, *, seed: int = 0, sessions: int = 4, episodes: int = 20) -> None:
        super().__init__()
        self.seed, self.days, self.count = seed, sessions, episodes

    def episodes(self, split: Split = "all") -> Iterator[Episode]:
        """Return the episodes of a split."""
        for part in SPLITS if split == "all" else (split,):
            for index in range(self.count):
                yield self._episode(part, index)

    def _episode(self, part: str, index: int) -> Episode:
        rng, name = Random(f"{self.seed}/{part}/{index}"), f"inventory-{self.seed}-{part}-{index}"
        last: dict[str, tuple[str, str]] = {}
        sessions: list[Session] = []
        for day in range(self.days):
            thing, room = rng.choice(THINGS), rng.choice(ROOMS)
            turn = Turn(id=f"{name}:{day}", speaker="Ana", text=f"I put the {thing} in the {room}.")
            last[thing] = room, turn.id
            at = datetime(2025, 1, 1, tzinfo=UTC) + timedelta(days=day)
            sessions.append(Session(id=f"{name}/s{day}", at=at, turns=(turn,)))
        probes = tuple(
            Probe(
                id=f"{name}:q{thing}",
                question=f"Where is the {thing}?",
                answers=(room, f"I put the {thing} in the {room}"),
                evidence_turn_ids=(turn_id,),
            )
            for thing, (room, turn_id) in last.items()
        )
        return Episode(id=name, sessions=tuple(sessions), probes=probes)

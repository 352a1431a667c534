"""`tiny_shop`: buy the offer that fits a wish (after WebShop, arXiv 2207.01206).

Offers show their colour. The material of a brand shows only on what was bought, and
stays the same over a stream, while every thing is new: who remembers purchases knows
it. The reward is the share of the two wishes that the purchase meets.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from environments.acting.planned import PlannedTask
from environments.acting.task import Observation, TaskSet
from memagent.core.records import MemoryItem
from memagent.core.trials import Trial

BRANDS: Final = ("Norda", "Velt", "Ombra", "Karst", "Lumo", "Tarn")
MATERIALS: Final = ("wool", "linen", "felt")
COLOURS: Final = ("red", "blue")


class ShopTask(PlannedTask[tuple[bool, int]]):
    """One wish; a state is whether the shop was searched, and how many steps were taken."""

    def __init__(
        self, thing: str, wish: tuple[str, str], offers: Mapping[str, tuple[str, str]]
    ) -> None:
        self.thing, self.wish, self.offers = thing, wish, offers
        actions = [f"search {thing}", *(f"buy {brand} {thing}" for brand in offers)]
        super().__init__(f"buy a {wish[0]} {thing} of {wish[1]}", actions, (False, 0))

    def moved(self, state: tuple[bool, int], action: str) -> tuple[tuple[bool, int], Observation]:
        """Return the state after an action; a purchase ends the task."""
        searched, steps = state
        if action.startswith("search"):
            shown = ", ".join(f"{brand} in {colour}" for brand, (colour, _) in self.offers.items())
            return (True, steps + 1), Observation(text=f"Offers: {shown}.")
        if not searched:
            return (False, steps + 1), Observation(text="Search first.", done=steps >= 5)
        colour, material = self.offers[action.split()[1]]
        met = (colour == self.wish[0]) + (material == self.wish[1])
        text = f"You bought it. It is {colour}, of {material}."
        return state, Observation(text=text, reward=met / 2, done=True, success=met == 2)


def tiny_shop(seed: int, count: int) -> list[ShopTask]:
    """Return wishes in one shop; equal seeds give equal tasks."""
    rng = Random(f"tiny_shop {seed}")
    materials = dict(zip(rng.sample(BRANDS, len(BRANDS)), (*MATERIALS, *MATERIALS), strict=True))
    tasks: list[ShopTask] = []
    for number in range(count):
        wish = rng.choice(COLOURS), MATERIALS[number % len(MATERIALS)]
        colours: dict[str, str] = {}
        for material in MATERIALS:
            pair = [brand for brand in BRANDS if materials[brand] == material]
            rng.shuffle(pair)
            colours |= dict(zip(pair, COLOURS, strict=True))
        offers = {brand: (colours[brand], materials[brand]) for brand in BRANDS}
        tasks.append(ShopTask(f"coat{seed}x{number}", wish, offers))
    return tasks


class ShopPlayer:
    """Searches, then buys a brand in the right colour whose material cases do not refute."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = Random(f"shop player {seed}")

    async def act(self, task: ShopTask, memories: Sequence[MemoryItem], trial: Trial) -> str | None:
        """Return the next action."""
        if not trial.steps:
            return f"search {task.thing}"
        shown = trial.steps[-1].observation
        fitting = [brand for brand in BRANDS if f"{brand} in {task.wish[0]}" in shown]
        bought = [(brand, "succeeded" in case.tags) for case in memories
                  if case.text.split("\n")[0].endswith(f" of {task.wish[1]}")
                  for brand in BRANDS if f"buy {brand} " in case.text]  # fmt: skip
        good = [brand for brand in fitting if (brand, True) in bought]
        open_ = [brand for brand in fitting if (brand, False) not in bought]
        choice = self.rng.choice(good or open_ or fitting or list(BRANDS))
        return f"buy {choice} {task.thing}"


TASKS: Final = TaskSet(stream=tiny_shop, player=ShopPlayer)

"""The sets of tasks that chains are made of: procedures, a shop, a house, a lab.

A chain is some tasks over new things that share something hidden, and what is hidden
changes once:

    procedures   which two moves, in which order, do a job
    tiny_shop    which brands are of the material that is wished
    tiny_house   where things of one kind are kept
    hidden_rule  what lights each of two lamps; one test a lamp, then its rule is claimed

Cases are read by their *deed*, that part of what was done which tells about the hidden.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from environments.acting.hidden_rule import COLOURS, LAMPS, Lab, RuleTask
from environments.acting.play import CasePlayer
from environments.acting.procedures import MOVES, VERBS, ProcedureTask
from environments.acting.task import ActingTask
from environments.acting.tiny_house import HOMES, KINDS, HousePlayer, HouseTask
from environments.acting.tiny_shop import (
    BRANDS,
    COLOURS as SHOP_COLOURS,
    MATERIALS,
    ShopPlayer,
    ShopTask,
)
from memagent.core.records import MemoryItem
from memagent.core.trials import SUCCEEDED, Trial

CHOICES: Final = 3
"""Moves that a procedure is made of; it takes two of them, in order."""
LAB: Final = Lab(unit="lamp", units=2, tests=COLOURS, rules=COLOURS, answer=LAMPS.answer)


@dataclass(frozen=True, kw_only=True)
class ChainSet:
    """Tasks of one sort, and how cases of them are read and played."""

    drawn: Callable[[random.Random, str, int], list[ActingTask]]
    """Takes draws, the chain's seed and the number of tasks."""
    deed: Callable[[str], list[str]]
    """Takes the text of a case and returns what it tells about the hidden."""
    player: Callable[[], Any]
    """Returns a player that does again what a case says has worked; it draws from its `rng`."""
    forgets: bool = False
    """Whether cases are hidden from a player that shall try something else."""

    def tried(self, cases: Sequence[MemoryItem]) -> list[MemoryItem]:
        """Return cases as a player sees them that shall try something else."""
        return [] if self.forgets else [case.model_copy(update={"tags": ()}) for case in cases]


# -- procedures ------------------------------------------------------------------------


def _procedures(draws: random.Random, seed: str, tasks: int) -> list[ActingTask]:
    verb, first = draws.choice(VERBS), tuple(draws.sample(MOVES[:CHOICES], 2))
    second = first
    while second == first:
        second = tuple(draws.sample(MOVES[:CHOICES], 2))
    change = changed_at(draws, tasks)
    return [
        ProcedureTask(
            verb, f"thing{seed}x{place}", first if place < change else second, MOVES[:CHOICES]
        )
        for place in range(tasks)
    ]


def changed_at(draws: random.Random, tasks: int) -> int:
    """Return the place of the first task after the change, near the middle."""
    return tasks // 2 + draws.choice((-1, 0, 1))


def _first_words(text: str) -> list[str]:
    return [line.split()[0] for line in text.split("\n")[1:]]


# -- the shop --------------------------------------------------------------------------


def _shop(draws: random.Random, seed: str, tasks: int) -> list[ActingTask]:
    """Wishes of one material; the brands that sell it are others after the change."""
    brands = draws.sample(BRANDS, len(BRANDS))
    wished, others = draws.choice(MATERIALS), list(MATERIALS)
    others.remove(wished)
    first = dict(zip(brands, (wished, wished, *others, *others), strict=True))
    second = dict(zip(brands, (*others, wished, wished, *others), strict=True))
    change, made = changed_at(draws, tasks), list[ActingTask]()
    for place in range(tasks):
        sold, colours = first if place < change else second, dict[str, str]()
        for material in MATERIALS:
            pair = [brand for brand in BRANDS if sold[brand] == material]
            draws.shuffle(pair)
            colours |= dict(zip(pair, SHOP_COLOURS, strict=True))
        offers = {brand: (colours[brand], sold[brand]) for brand in BRANDS}
        wish = draws.choice(SHOP_COLOURS), wished
        made.append(ShopTask(f"coat{seed}x{place}", wish, offers))
    return made


def _bought(text: str) -> list[str]:
    return [line.split()[1] for line in text.split("\n")[1:] if line.startswith("buy ")]


# -- the house -------------------------------------------------------------------------


def _house(draws: random.Random, seed: str, tasks: int) -> list[ActingTask]:
    """Things of one kind, whose home is another after the change."""
    kind, (first, second) = draws.choice(KINDS), draws.sample(HOMES, 2)
    change, made = changed_at(draws, tasks), list[ActingTask]()
    for place in range(tasks):
        home = first if place < change else second
        target = draws.choice([other for other in HOMES if other != home])
        made.append(HouseTask(f"{kind}{seed}x{place}", home, target))
    return made


def _found_at(text: str) -> list[str]:
    """Return the place where the thing was taken, in a list; empty where it never was."""
    at = ""
    for line in text.split("\n")[1:]:
        if line.startswith("take "):
            return [at]
        at = line.removeprefix("go to ") if line.startswith("go to ") else at
    return []


# -- the lab ---------------------------------------------------------------------------


def _lab(draws: random.Random, seed: str, tasks: int) -> list[ActingTask]:
    """Labs whose lamps follow the same rules until these change; a lamp may be tested once."""
    first, second = draws.choices(LAB.rules, k=LAB.units), list[str]()
    while not second or any(map(str.__eq__, first, second)):
        second = draws.choices(LAB.rules, k=LAB.units)
    change, made = changed_at(draws, tasks), list[ActingTask]()
    for place in range(tasks):
        task = RuleTask(f"lab{seed}x{place}", LAB, first if place < change else second)
        task.limit = LAB.units
        made.append(task)
    return made


def _claims(text: str) -> list[str]:
    lines = text.split("\n")[1:]
    return [line.removeprefix("claim ") for line in lines if line.startswith("claim ")]


@dataclass
class LabPlayer:
    """Claims again what worked; else tests each lamp once and claims a rule that is left.

    The last claim of a case that failed is taken for wrong, those before it for right.
    """

    rng: random.Random = field(default_factory=random.Random)
    planned: Sequence[str] = ()

    async def act(self, task: RuleTask, memories: Sequence[MemoryItem], trial: Trial) -> str | None:
        """Return the next action."""
        steps = trial.steps
        if not steps:
            worked = (_claims(case.text) for case in memories if SUCCEEDED in case.tags)
            self.planned = next(worked, ())
        tests = sum(step.action.startswith("test ") for step in steps)
        lamp = len(steps) - tests
        if self.planned:
            return f"claim {self.planned[lamp]}" if lamp < len(self.planned) else None
        if tests < task.limit:
            return f"test {self.rng.choice(self._left(task, memories, trial, tests))}"
        return f"claim {self.rng.choice(self._left(task, memories, trial, lamp))}"

    def _left(
        self, task: RuleTask, memories: Sequence[MemoryItem], trial: Trial, lamp: int
    ) -> list[str]:
        """Return the rules of a lamp that tests and failed cases leave; all where none is."""
        said = "\n".join(step.observation for step in trial.steps)
        facts = re.findall(rf"{task.lab.unit} {lamp}: (.+?) = (\w+)", said)
        fitting = [
            rule
            for rule in task.lab.rules
            if all(task.lab.answer(rule, test) == told for test, told in facts)
        ]
        failed = [_claims(case.text) for case in memories if SUCCEEDED not in case.tags]
        right = {claims[lamp] for claims in failed if len(claims) > lamp + 1}
        wrong = {claims[lamp] for claims in failed if len(claims) == lamp + 1}
        known = [rule for rule in fitting if rule in right - wrong]
        return known or [rule for rule in fitting if rule not in wrong] or fitting


# -- all of them -----------------------------------------------------------------------

SETS: Final[Mapping[str, ChainSet]] = MappingProxyType(
    {
        "procedures": ChainSet(
            drawn=_procedures, deed=_first_words, player=lambda: CasePlayer(length=2)
        ),
        "tiny_shop": ChainSet(drawn=_shop, deed=_bought, player=ShopPlayer),
        "tiny_house": ChainSet(drawn=_house, deed=_found_at, player=HousePlayer, forgets=True),
        "hidden_rule": ChainSet(drawn=_lab, deed=_claims, player=LabPlayer),
    }
)
"""The sets by their names."""
_BEGINS: Final = {"buy": "tiny_shop", "put": "tiny_house", "find": "hidden_rule"}


def set_of(text: str) -> ChainSet:
    """Return the set of a task or a case, by its first word."""
    return SETS[_BEGINS.get(text.split()[0], "procedures")]


def sort_of(text: str) -> str:
    """Return what tasks that may be solved alike share: the verb of a task or a case."""
    return text.split()[0]


def number_of(text: str) -> int:
    """Return the place in its chain of the task in the first line of a text."""
    return int(re.findall(r"x(\d+)\b", text.partition("\n")[0])[-1])

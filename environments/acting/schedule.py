"""`schedule`: plan jobs under what was told over sessions (after TCP, arXiv 2505.19927).

Two people talk of three jobs. The six kinds of constraints are those of the paper: how
long a job takes, what must be over or begun before it, days off between two jobs, a rest
after days on end, weekdays without work, and days away. Later sessions correct earlier
ones, so a plan needs all of them. The solver is exact. A plan that holds but takes longer
than the shortest earns half.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Final

from environments.acting.planned import PlannedTask
from environments.acting.task import Observation, TaskSet
from memagent.core.records import MemoryItem
from memagent.core.trials import Trial
from memagent.core.workspace import workspace_of

JOBS: Final[tuple[str, ...]] = ("paint", "wire", "tile")
PEOPLE: Final = ("Ana", "Ben")
LISTEN: Final = "listen"
SESSIONS: Final = 5
HORIZON: Final = 40
SAID: Final = {
    "who": "{} is done by {}",
    "takes": "{} takes {} days of work",
    "after": "{} begins once {} is over",
    "beside": "{} begins a day or more after {} has begun",
    "gap": "{} wants {} days off between two jobs",
    "row": "{} rests a day after {} days on end on one job",
    "off": "{} never works on weekday {}",
    "away": "{} is away on day {}",
}
"""How a fact is told: its kind, whom it is about, its value."""
Facts = Mapping[tuple[str, str], str]


def read(text: str) -> Facts:
    """Return the facts that a text tells; what is told last holds."""
    return {
        (kind, about): value
        for kind, said in SAID.items()
        for about, value in re.findall(said.replace("{}", r"(\w+)"), text)
    }


def works(facts: Facts, who: str, day: int) -> bool:
    """Tell whether a person works on a day; a week has seven days, the first is 0."""
    return facts.get(("away", who)) != str(day) and facts.get(("off", who)) != str(day % 7)


def over(facts: Facts, job: str, begin: int) -> int:
    """Return the day after the last one of a job that begins on a day."""
    who = facts.get(("who", job), "")
    left, row, day = int(facts.get(("takes", job), "1")), 0, begin
    while left:
        worked = works(facts, who, day) and row < int(facts.get(("row", who), "99"))
        row = row + 1 if worked else 0
        left, day = left - worked, day + 1
    return day


def faults(facts: Facts, plan: Mapping[str, int]) -> Iterator[str]:
    """Yield what a plan (job to first day) breaks, in words."""
    for job, begin in plan.items():
        who = facts.get(("who", job), "")
        if not works(facts, who, begin):
            yield f"{who} does not work on day {begin}"
        for other, start in plan.items():
            ended = over(facts, other, start)
            if facts.get(("after", job)) == other and begin < ended:
                yield f"{job} begins before {other} is over"
            if facts.get(("beside", job)) == other and begin <= start:
                yield f"{job} does not begin after {other}"
            same = (start, other) < (begin, job) and facts.get(("who", other)) == who
            if same and begin < ended + int(facts.get(("gap", who), "0")):
                yield f"{who} cannot do {other} and then {job}"


def length(facts: Facts, plan: Mapping[str, int]) -> int:
    """Return the day on which the last job of a plan is over."""
    return max(over(facts, job, begin) for job, begin in plan.items())


def solve(facts: Facts) -> dict[str, int]:
    """Return a shortest plan, exactly: the first one in order of start times."""
    best: list[dict[str, int]] = []

    def extend(plan: dict[str, int], left: Sequence[str]) -> None:
        if not left:
            best[:] = [plan]
            return
        for day in range(HORIZON):
            bigger = {**plan, left[0]: day}
            if best and length(facts, bigger) >= length(facts, best[0]):
                return
            if not any(faults(facts, bigger)):
                extend(bigger, left[1:])

    extend({}, JOBS)
    return best[0]


Plan = tuple[int, tuple[tuple[str, int], ...]]


class ScheduleTask(PlannedTask[Plan]):
    """One plan to make; a state is the sessions heard and the jobs placed, with first days."""

    def __init__(self, name: str, told: Sequence[str]) -> None:
        self.name, self.told, self.facts = name, tuple(told), read(" ".join(told))
        self.best = solve(self.facts)
        text = (
            f"listen to {len(told)} sessions, then make the shortest plan for {name} "
            f"({', '.join(JOBS)}). Day 0 is weekday 0 of seven. Begin with: {LISTEN}"
        )
        days = (f"begin {job} on day {day}" for job in JOBS for day in range(HORIZON))
        super().__init__(text, (LISTEN, *days), (0, ()))

    def moved(self, state: Plan, action: str) -> tuple[Plan, Observation]:
        """Return the state after a session, or with one job more; the last job ends the task."""
        heard, placed = state
        if action == LISTEN:
            text = self.told[heard] if heard < len(self.told) else "All is said."
            return (heard + 1, placed), Observation(text=text)
        words = action.split()
        plan = {**dict(placed), words[1]: int(words[4])}
        after = heard, tuple(plan.items())
        if len(plan) < len(JOBS):
            return after, Observation(text=f"{len(JOBS) - len(plan)} jobs are left.")
        broken = next(faults(self.facts, plan), None)
        if broken is not None:
            return after, Observation(text=f"The plan fails: {broken}.", done=True, success=False)
        shortest = length(self.facts, plan) == length(self.facts, self.best)
        return after, Observation(
            text="The plan holds." if shortest else "The plan holds, but it could be shorter.",
            reward=1.0 if shortest else 0.5,
            done=True,
            success=shortest,
        )

    def solution(self) -> tuple[str, ...]:
        """Return the actions of a shortest plan, after all sessions."""
        placed = (f"begin {job} on day {day}" for job, day in self.best.items())
        return (*[LISTEN] * len(self.told), *placed)


def drawn(rng: Random) -> dict[tuple[str, str], str]:
    """Return facts of all kinds about the jobs and the people."""
    facts: dict[tuple[str, str], str] = {}
    for place, job in enumerate(JOBS):
        facts |= {("who", job): rng.choice(PEOPLE), ("takes", job): str(rng.randint(1, 5))}
        if place:
            facts[("after", "beside")[place - 1], job] = rng.choice(JOBS[:place])
    for who in PEOPLE:
        facts |= {("gap", who): str(rng.randint(0, 2)), ("row", who): str(rng.randint(2, 3))}
        facts |= {("off", who): str(rng.randrange(7)), ("away", who): str(rng.randrange(5))}
    return facts


def schedules(seed: int, count: int, *, revisions: int = 4) -> list[ScheduleTask]:
    """Return plans to make; equal seeds give equal tasks."""
    rng = Random(f"schedule {seed}")
    tasks: list[ScheduleTask] = []
    for number in range(count):
        first, second = drawn(rng), drawn(rng)
        changed = rng.sample([key for key in first if first[key] != second[key]], revisions)
        order = [*rng.sample(list(first.items()), len(first)), *((k, second[k]) for k in changed)]
        told = [SAID[kind].format(about, value) for (kind, about), value in order]
        share = -(-len(told) // SESSIONS)
        sessions = [". ".join(told[at : at + share]) for at in range(0, len(told), share)]
        tasks.append(ScheduleTask(f"house{seed}x{number}", sessions))
    return tasks


class SchedulePlayer:
    """Listens to all sessions, then plans exactly by what its workspace still shows."""

    async def act(
        self,
        task: ScheduleTask,
        memories: Sequence[MemoryItem],  # noqa: ARG002 - interface
        trial: Trial,
    ) -> str | None:
        """Return the next session, or the next job of the plan."""
        place = len(trial.steps) - len(task.told)
        if place < 0:
            return LISTEN
        plan = solve(read(workspace_of(trial).prompt))
        return f"begin {JOBS[place]} on day {plan[JOBS[place]]}"


TASKS: Final = TaskSet(stream=schedules, player=lambda _: SchedulePlayer())

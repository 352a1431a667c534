"""`schedule`: plan jobs under constraints that were agreed in a talk (after arXiv 2505.19927).

Each job has a length, a person who does one job at a time, and perhaps jobs that come
first. The solver is exact: depth-first over start times with a bound. A plan that keeps
all constraints but takes longer than the shortest earns half.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from environments.acting.planned import PlannedTask
from environments.acting.task import Observation, TaskSet
from memagent.core.records import MemoryItem
from memagent.core.trials import Trial

JOBS: Final = ("paint", "wire", "tile", "pipe")
PEOPLE: Final = ("Ana", "Ben")


@dataclass(frozen=True, slots=True)
class Job:
    """A job: its length in days, who does it, and the jobs that must be over before it."""

    days: int
    who: str
    after: tuple[str, ...] = ()


def faults(jobs: Mapping[str, Job], plan: Mapping[str, int]) -> Iterator[str]:
    """Yield what a plan (job to first day) breaks, in words."""
    for name, begin in plan.items():
        job = jobs[name]
        for other in job.after:
            if other in plan and begin < plan[other] + jobs[other].days:
                yield f"{name} begins before {other} is over"
        for other, start in plan.items():
            same = other < name and jobs[other].who == job.who
            if same and begin < start + jobs[other].days and start < begin + job.days:
                yield f"{job.who} cannot do {other} and {name} at once"


def length(jobs: Mapping[str, Job], plan: Mapping[str, int]) -> int:
    """Return the day on which the last job of a plan is over."""
    return max(begin + jobs[name].days for name, begin in plan.items())


def solve(jobs: Mapping[str, Job]) -> dict[str, int]:
    """Return a shortest plan, exactly: the first one in order of start times."""
    horizon = sum(job.days for job in jobs.values())
    best: list[dict[str, int]] = []

    def extend(plan: dict[str, int], left: Sequence[str]) -> None:
        if not left:
            best[:] = [plan]
            return
        for day in range(horizon):
            bigger = {**plan, left[0]: day}
            if best and length(jobs, bigger) >= length(jobs, best[0]):
                return
            if not any(faults(jobs, bigger)):
                extend(bigger, left[1:])

    extend({}, list(jobs))
    return best[0]


class ScheduleTask(PlannedTask[tuple[tuple[str, int], ...]]):
    """One plan to make; a state is the jobs placed so far, with their first days."""

    def __init__(self, name: str, jobs: Mapping[str, Job]) -> None:
        self.name, self.jobs = name, jobs
        self.best = solve(jobs)
        super().__init__()

    @property
    def text(self) -> str:
        """The task, as a player reads it."""
        said: list[str] = []
        for name, job in self.jobs.items():
            first = "".join(f" Only once the {other} is over." for other in job.after)
            said.append(f"{job.who}: I do the {name}, it takes me {job.days} days.{first}")
        return f"make the shortest plan for {self.name}. {' '.join(said)}"

    @property
    def actions(self) -> tuple[str, ...]:
        """All actions that are possible."""
        horizon = sum(job.days for job in self.jobs.values())
        return tuple(f"begin {name} on day {day}" for name in self.jobs for day in range(horizon))

    def start(self) -> tuple[tuple[str, int], ...]:
        """Return the empty plan."""
        return ()

    def moved(
        self, state: tuple[tuple[str, int], ...], action: str
    ) -> tuple[tuple[tuple[str, int], ...], Observation]:
        """Return the plan with one job more; the last job ends the task."""
        words = action.split()
        plan = {**dict(state), words[1]: int(words[4])}
        after = tuple(plan.items())
        if len(plan) < len(self.jobs):
            return after, Observation(text=f"{len(self.jobs) - len(plan)} jobs are left.")
        broken = next(faults(self.jobs, plan), None)
        if broken is not None:
            return after, Observation(text=f"The plan fails: {broken}.", done=True, success=False)
        shortest = length(self.jobs, plan) == length(self.jobs, self.best)
        text = "The plan holds." if shortest else "The plan holds, but it could be shorter."
        reward = 1.0 if shortest else 0.5
        return after, Observation(text=text, reward=reward, done=True, success=shortest)

    def solution(self) -> tuple[str, ...]:
        """Return the actions of a shortest plan."""
        return tuple(f"begin {name} on day {day}" for name, day in self.best.items())


def schedules(seed: int, count: int) -> list[ScheduleTask]:
    """Return plans to make; equal seeds give equal tasks."""
    rng = Random(f"schedule {seed}")
    tasks: list[ScheduleTask] = []
    for number in range(count):
        jobs: dict[str, Job] = {}
        for name in JOBS:
            after = tuple(other for other in jobs if rng.random() < 0.4)
            jobs[name] = Job(rng.randint(1, 4), rng.choice(PEOPLE), after)
        tasks.append(ScheduleTask(f"house{seed}x{number}", jobs))
    return tasks


class OneByOnePlayer:
    """Places jobs one after the other: always a plan that holds, seldom a shortest one."""

    async def act(
        self,
        task: ScheduleTask,
        memories: Sequence[MemoryItem],  # noqa: ARG002 - interface
        trial: Trial,
    ) -> str | None:
        """Return the next job, on the day on which the one before it is over."""
        names = list(task.jobs)
        name = names[len(trial.steps)]
        day = sum(task.jobs[other].days for other in names[: len(trial.steps)])
        return f"begin {name} on day {day}"


TASKS: Final = TaskSet(stream=schedules, player=lambda _: OneByOnePlayer())

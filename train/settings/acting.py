"""The world of a run whose tasks are acted in: the set of tasks and the agent.

`[environment] kind` then names a set of tasks (`memagent.tasks`), not an environment of
episodes. Each split is a stream of its own seed, so no task is in two of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from environments.acting.task import ActingTask, TaskSet
from environments.records import Episode
from memagent.async_agent import AsyncAgent
from memagent.build import open_store
from memagent.core.errors import ConfigError
from memagent.core.exchange import ModelRequest, ModelResponse
from memagent.core.records import Scope, Session, Turn
from memagent.designs.base import MemoryDesign
from memagent.plugins import available, load
from train.settings.parts import RunSettings

SPLITS: Final = ("train", "validation", "test", "demonstrations")
"""Streams of tasks, in the order of their seeds."""
MEANINGLESS: Final = frozenset(
    """credit credit_unit local_probability reruns local_weight anchor_in_group balance
    anchor_selector sessions questions rehearsal compression unreadable rejected evidence
    worth temporal answer_members answer_questions allocation selectors hinter
    group_source roles""".split()
)
"""Settings of `[trainer]` that speak of sessions and questions, which tasks do not have."""
_SYNTHETIC: Final = (
    *("turns", "facts", "overwrite", "interference", "distractors", "friends", "only"),
    *("probes", "asks", "options", "path"),
)


class _SilentModel:
    """The model of an agent that speaks through its policy only."""

    async def complete(self, request: ModelRequest) -> ModelResponse:  # noqa: ARG002 - interface
        raise ConfigError("a training agent speaks through its policy only")


def task_set(kind: str) -> TaskSet | None:
    """Return the set of tasks that a kind names; None for an environment of episodes.

    Raises `ConfigError` for a path that leads nowhere.
    """
    if kind in available("environments"):
        return None
    if kind in available("tasks"):
        loaded = load("tasks", kind)
    else:
        loaded = load("environments", kind) if ":" in kind else None
    return loaded if isinstance(loaded, TaskSet) else None


def is_acted_in(kind: str) -> bool:
    """Tell whether a kind names a set of tasks."""
    try:
        return task_set(kind) is not None
    except ConfigError:
        return False


@dataclass(kw_only=True)
class ActingWorld:
    """A set of tasks with the agent that acts in them."""

    settings: RunSettings
    tasks: TaskSet
    agent: AsyncAgent

    @classmethod
    def of(cls, settings: RunSettings) -> Self:
        """Open the set of tasks of the settings. Raises `ConfigError`."""
        tasks = task_set(settings.environment.kind)
        if tasks is None:
            raise ConfigError(f"environment.kind: {settings.environment.kind} is no set of tasks")
        store = open_store(path=":memory:", embedder=settings.agent.embedder)
        agent = store.agent(
            Scope(user_id="train"),
            model=_SilentModel(),
            design=design_of(settings),
            keep_unreadable=True,
        )
        return cls(settings=settings, tasks=tasks, agent=agent)

    def stream(self, split: str, count: int, *, skip: int = 0) -> dict[str, ActingTask]:
        """Return the first tasks of a split after `skip`, by name."""
        part = self.settings.environment
        seed = len(SPLITS) * part.seed + SPLITS.index(split)
        stream = self.tasks.stream(seed, skip + count)[skip:]
        name = part.kind.rpartition(":")[2].lower()
        return {f"{name}-{split}-{skip + place}": task for place, task in enumerate(stream)}

    def episodes(self, split: str, count: int, *, skip: int = 0) -> list[Episode]:
        """Return the episodes that stand for tasks in the trainer's data."""
        return task_episodes(self.stream(split, count, skip=skip))


def design_of(settings: RunSettings) -> MemoryDesign:
    """Return the run's design, with the budget of words that the run gives it.

    Raises `ConfigError` for a design that has no such budget.
    """
    part = settings.agent
    design = load("designs", part.design)
    if not isinstance(design, MemoryDesign):
        raise ConfigError(f"agent.design: {part.design} is no design")
    if part.workspace_words is None:
        return design
    compactor: Any = design.compactor
    if getattr(compactor, "budget", None) is None:
        raise ConfigError(f"agent.workspace_words: {part.design} keeps no budget of words")
    return replace(design, compactor=replace(compactor, budget=part.workspace_words))


def task_episodes(tasks: Mapping[str, ActingTask]) -> list[Episode]:
    """Return an episode that stands for each task in the trainer's data, in their order."""
    return [
        Episode(
            id=name,
            sessions=(
                Session(id=name, turns=(Turn(id=f"{name}:0", speaker="task", text=task.text),)),
            ),
        )
        for name, task in tasks.items()
    ]


def acting_faults(settings: RunSettings) -> Iterator[str]:
    """Describe what is wrong with settings for tasks that are acted in."""
    env, agent, tasks = settings.environment, settings.agent, task_set(settings.environment.kind)
    assert tasks is not None
    design = design_of(settings)
    for name in _SYNTHETIC:
        if getattr(env, name):
            yield f"environment.{name}: {env.kind} is a set of tasks and has no such setting"
    if agent.acting == "player" and design.compactor is None:
        yield (
            f"agent.acting: the player of the set acts, and {agent.design} edits no workspace, "
            'so the policy would never speak; say acting = "policy", or take design = "mem_act"'
        )
    if settings.validation.measure not in ("success", "reward"):
        yield 'validation.measure: tasks that are acted in have "success" and "reward"'
    if settings.model.size == "decisions" and settings.model.path is None:
        yield "model.size: the decision policy remembers conversations only; choose another size"
    if settings.trainer.get("control") == "shuffled_advantage":
        yield 'trainer.control: tasks that are acted in have the control "random_reward" alone'
    yield from _estimator(settings.trainer.get("estimator", "zscore"))
    for name in sorted(MEANINGLESS & _named(settings)):
        yield f"trainer.{name}: means nothing in tasks that are acted in; leave it out"
    warms = settings.warmup is not None or settings.model.path is None
    unshown = tasks.editor is None and agent.design != "mem_act"
    if warms and design.compactor is not None and unshown:
        yield (
            f"warmup: nothing demonstrates the edits of {agent.design} in {env.kind}; give "
            "model.path and leave the warm-up out"
        )


def _estimator(name: str) -> Iterator[str]:
    """Describe what an estimator needs that tasks do not have."""
    found = load("techniques", name)
    if getattr(found, "needs_parts", False):
        yield (
            f"trainer.estimator: {name} weighs parts of a reward, and that of a task has none; "
            'take "zscore"'
        )
    if getattr(found, "needs_teacher", False):
        yield (
            f"trainer.estimator: {name} needs a teacher that is shown hints, and tasks have "
            'none; take "zscore"'
        )


def _named(settings: RunSettings) -> set[str]:
    """Return the names of the trainer's settings that a run changes."""
    staged = {"roles"} if any(stage.roles for stage in settings.stage) else set[str]()
    return set(settings.trainer) | staged

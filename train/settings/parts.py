"""The settings of a training run, as records: one part for each table of its file.

`train.settings.run` reads and checks them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field

from environments.acting.task import ActingTask, TaskSet
from environments.records import Episode
from memagent.async_agent import AsyncAgent
from memagent.build import open_store
from memagent.core.errors import ConfigError
from memagent.core.exchange import ModelRequest, ModelResponse
from memagent.core.records import Scope, Session, Turn
from memagent.designs.base import MemoryDesign
from memagent.plugins import available, load
from train.settings.former import current


class Part(BaseModel):
    """Base of the parts: frozen, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class LoRASettings(Part):
    """Low-rank adapters instead of all weights."""

    r: Annotated[int, Field(ge=1)] = 16
    """Rank."""
    alpha: int = 32
    """Scale, by the rank."""
    targets: str | tuple[str, ...] = "all-linear"
    """Layers that are adapted, as PEFT names them."""
    per_role: bool | Literal["calls"] = False
    """One adapter for the memory manager and one for the answer agent, instead of one for
    both; with `calls` the manager's two calls have one each as well.
    """


class ModelPart(Part):
    """The model that is trained."""

    path: str | None = None
    """Folder or hub id; None makes a small model from scratch."""
    size: Literal["decisions", "200k", "500k", "1m", "4m", "30m", "60m"] = "500k"
    """Parameters of a model from scratch, about; `decisions` is the policy of
    `memagent.designs.learned_policy:DESIGN`, which writes no text.
    """
    context_tokens: Annotated[int, Field(ge=64)] = 1_024
    """Longest prompt with its reply, of a model from scratch; also where demonstrations
    are cut.
    """
    lora: LoRASettings | None = None
    """Train adapters and leave the weights alone."""


class EnvironmentPart(Part):
    """The environment of the policy. Fields besides `kind` go to it."""

    kind: Annotated[str, Field(min_length=1)] = "synthetic"
    """Generated conversations, LoCoMo, or another environment: a name of
    memagent.environments (`needle`, `sort` ...), a set of tasks that are acted in
    (`tiny_shop` ...), or a path `package.module:attribute`.
    """
    options: dict[str, Any] = Field(default_factory=dict[str, Any])
    """Other environments: their own arguments, as in docs/environments.md."""
    level: Annotated[str, Field(min_length=1)] = "tiny"
    """Synthetic: tiny, standard, rich, or the folder of your own; see docs/worlds.md."""
    path: str | None = None
    """LoCoMo: the user's own copy."""
    split_by: Literal["memory_r1", "memory_r2"] | None = None
    """LoCoMo: whose split by conversation; memory_r2 when left out."""
    seed: int = 0
    """Of the generated conversations."""
    episodes: Annotated[int, Field(ge=1)] = 200
    """Training episodes; synthetic ones are made as needed."""
    turns: int | None = None
    """Synthetic: turns a session at least; this and the next eight as in
    docs/environments.md, the level's own when left out.
    """
    facts: float | None = None
    """Synthetic: true things told in a session, on average."""
    overwrite: float | None = None
    """Synthetic: share of them that revise something."""
    interference: float | None = None
    """Synthetic: repetitions and revisions of old facts in later sessions."""
    distractors: float | None = None
    """Synthetic: tellings per fact that change nothing."""
    friends: int | None = None
    """Synthetic: people a speaker tells of at most."""
    only: tuple[str, ...] | None = None
    """Synthetic: names of the relations to use; all of the level's when left out."""
    probes: int | None = None
    """Synthetic: questions an episode at most."""
    asks: tuple[str, ...] = ()
    """Only questions of these kinds: now, who, count ... of a synthetic world, categories
    1 to 5 of LoCoMo; all when empty.
    """


class AgentPart(Part):
    """The agent that is played."""

    design: str = "memory_r2_brief"
    """The memory design; a name of memagent.designs."""
    embedder: str = "static"
    """Embedder that search uses."""
    listening: Literal["policy", "oracle"] = "policy"
    """Takes down facts: the policy, or the oracle of a synthetic world, so that only the
    use of facts is learned and judged.
    """
    answering: Literal["reader", "facts", "policy"] = "reader"
    """Answers when memories are scored: the rule-based reader of notes of a synthetic world,
    the one of statements in any words (`facts`), or the policy itself, greedily.
    """
    reader: str | None = None
    """Frozen model that answers instead of the policy when memories are scored: litellm's
    name, such as `hosted_vllm/Qwen/Qwen2.5-7B-Instruct`, or `hf:` and a folder or hub id.
    """
    acting: Literal["policy", "player"] = "policy"
    """Acts in tasks: the policy, or the scripted player of the set, so that the policy's
    edits of the workspace alone are learned and judged.
    """
    workspace_words: Annotated[int, Field(ge=1)] | None = None
    """Tasks: words of the workspace above which the design edits it; the design's own when
    left out.
    """


class WarmUpPart(Part):
    """Demonstrations before any comparison."""

    episodes: Annotated[int, Field(ge=1)] = 100
    """Episodes of a synthetic world, or tasks, that an oracle plays."""
    sessions: Annotated[int, Field(ge=1)] = 8
    """Sessions of each."""
    answers: bool = False
    """Demonstrate answers too when no answerer is trained; when one is, they always are."""
    noise: Annotated[float, Field(ge=0, le=1)] = 0.15
    """Share of replies spoiled on the way, so that demonstrations also repair a memory
    that has gone wrong.
    """
    guess: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of the memory manager's ops that are demonstrated at random, so that training
    is left to find out when each op is right.
    """
    guess_answers: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of answers that are demonstrated from any memory shown, so that training is
    left to find out which memory to believe.
    """
    epochs: Annotated[float, Field(gt=0)] = 3.0
    """Passes over the demonstrations."""
    learning_rate: Annotated[float, Field(gt=0)] = 1e-3
    """Highest; it follows a cosine."""
    optimizer: Literal["adamw", "muon"] = "adamw"
    """Muon learns a model from scratch in far fewer steps; AdamW is for weights that have
    learned already.
    """
    batch_rows: Annotated[int, Field(ge=1)] = 32
    """Demonstrations a step."""


class ValidationPart(Part):
    """The search for the best checkpoint."""

    every: Annotated[int, Field(ge=1)] = 10
    """Optimizer steps."""
    episodes: Annotated[int, Field(ge=1)] = 8
    """Episodes played each time, greedily."""
    sessions: Annotated[int, Field(ge=1)] | None = None
    """Sessions of these episodes; those of the stage when left out."""
    measure: Literal[
        "f1", "f1_memory_r2", "exact", "reward", "overwritten", "facts", "facts_as_of", "success"
    ] = "f1"
    """Figure that makes a checkpoint the best; see `train.run.plans`."""
    test_episodes: Annotated[int, Field(ge=0)] = 16
    """Held-out episodes played at the end with every stage's best; 0 for none."""
    test_last: bool = False
    """Whether the last model of each stage is kept and tested beside its best."""
    test_split: Literal["test", "validation"] = "test"
    """Source of held-out episodes: `test` has names and surface forms of its own in
    synthetic worlds, `validation` those of training, and then the episodes after those
    of validation are taken.
    """
    test_sessions: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Lengths of the test in sessions, besides those of the stages."""


class Gate(Part):
    """Conditions under which a stage ends before its steps are used up; all must hold."""

    f1: float | None = None
    """At least this mean F1."""
    lost: float | None = None
    """At most this share of gold evidence that no note cites (M-Fail)."""

    def passed(self, figures: dict[str, float]) -> bool:
        """Tell whether figures of a validation pass; a gate without conditions never does."""
        if self.f1 is None and self.lost is None:
            return False
        return (self.f1 is None or figures.get("f1", 0.0) >= self.f1) and (
            self.lost is None or figures.get("lost", 1.0) <= self.lost
        )


class Stage(Part):
    """One stage of the curriculum."""

    sessions: Annotated[int, Field(ge=1)] = 8
    """Sessions of an episode."""
    steps: Annotated[int, Field(ge=1)] = 100
    """Optimizer steps at most."""
    tokens: Annotated[int, Field(ge=1)] | None = None
    """Generated tokens at most, for comparisons at equal cost."""
    gate: Gate = Gate()
    """Conditions on validation under which the stage ends early."""
    patience: Annotated[int, Field(ge=1)] | None = None
    """Validations without a new best after which the stage ends."""
    roles: (
        Literal["manager", "extractor", "decider", "answerer", "both", "readers", "all"] | None
    ) = None
    """Roles trained in this stage, for alternating, as in `[trainer]`; None for the
    trainer's own setting.
    """


class RunSettings(Part):
    """One run."""

    seed: int = 0
    """Of weights, draws and sampling."""
    model: ModelPart = ModelPart()
    environment: EnvironmentPart = EnvironmentPart()
    agent: AgentPart = AgentPart()
    warmup: WarmUpPart | None = None
    trainer: dict[str, Any] = Field(default_factory=dict[str, Any])
    stage: Annotated[tuple[Stage, ...], Field(min_length=1)] = (Stage(),)
    validation: ValidationPart = ValidationPart()
    folder: str = "runs/logo"
    """Folder of all that the run leaves."""

    def trainer_of(self, stage: Stage) -> dict[str, Any]:
        """Return the values of `[trainer]` as a stage changes them."""
        return current(self.trainer) | ({"roles": stage.roles} if stage.roles else {})


# The world of a run whose tasks are acted in: the set of tasks and the agent.
#
# `[environment] kind` then names a set of tasks (`memagent.tasks`), not an environment of
# episodes. Each split is a stream of its own seed, so no task is in two of them.

SPLITS: Final = ("train", "validation", "test", "demonstrations")
"""Streams of tasks, in the order of their seeds."""
MEANINGLESS: Final = frozenset(
    """credit credit_unit forks local_probability reruns local_weight anchor_in_group balance
    anchor_selector sessions questions rehearsal compression unreadable rejected evidence
    worth measure temporal answer_members answer_questions allocation selectors hinter
    group_source roles""".split()
)
"""Settings of `[trainer]` that speak of sessions and questions, which tasks do not have."""
_SYNTHETIC: Final = (
    *("turns", "facts", "overwrite", "interference", "distractors", "friends", "only"),
    *("probes", "asks", "options", "path"),
)


class SilentModel:
    """The model of an agent that speaks through its policy only."""

    async def complete(self, request: ModelRequest) -> ModelResponse:  # noqa: ARG002 - interface
        """Refuse to answer."""
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
            model=SilentModel(),
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

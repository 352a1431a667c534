"""A training run as one TOML file.

Unknown keys are errors; every error names the field.

    [model]        the trained model: a folder, a hub id, or the size of a new one
    [environment]  the environment that it lives in
    [agent]        the design that is played, and its embedder
    [warmup]       demonstrations before any comparison; leave out for none
    [trainer]      any field of `LoGoGRPOConfig`
    [[stage]]      the curriculum: stages of longer and longer dialogues, in order
    [validation]   how often, on how many episodes

Each stage begins from the best checkpoint of the one before, and every stage's best is
kept: on other data the model of an early stage is often the better one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from memagent.core.errors import ConfigError
from memagent.plugins import load
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
    per_role: bool = False
    """One adapter for the memory manager and one for the answer agent, instead of one for
    both.
    """


class ModelPart(Part):
    """The model that is trained."""

    path: str | None = None
    """Folder or hub id; None makes a small model from scratch."""
    size: Literal["decisions", "200k", "500k", "1m", "4m", "30m", "60m"] = "500k"
    """Parameters of a model from scratch, about; `decisions` is the policy of
    `memagent.designs.learned:POLICY`, which writes no text.
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
    memagent.environments (`needle`, `sort` ...) or a path `package.module:attribute`.
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
    """Synthetic: only questions of these kinds (now, who, count ...); all when empty."""


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


class WarmUpPart(Part):
    """Demonstrations before any comparison."""

    episodes: Annotated[int, Field(ge=1)] = 100
    """Episodes that an oracle plays; the world must be synthetic."""
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
    measure: Literal["f1", "exact", "reward", "overwritten", "facts", "facts_as_of"] = "f1"
    """Figure that makes a checkpoint the best; see `train.run.evaluation`."""
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
    roles: Literal["manager", "answerer", "both", "readers", "all"] | None = None
    """Roles trained in this stage, for alternating: manager, answerer or both; None for
    the trainer's own setting.
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


def load_run(path: Path) -> RunSettings:
    """Read the settings from a TOML file.

    Raises `ConfigError` naming the field and what is wrong.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"training settings {path} cannot be read: {error.strerror or error}"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"training settings {path} are not valid TOML: {error}") from error
    return checked_run(values, source=str(path))


def claim(settings: RunSettings, *, resume: bool) -> None:
    """Take the run's folder and write its settings there.

    Raises `ConfigError` when it holds a run that `resume` does not fit.
    """
    check_folder(settings, resume=resume)
    folder = Path(settings.folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "settings.json").write_text(settings.model_dump_json(indent=1), encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"folder: {folder} cannot be written: {error.strerror or error}"
        ) from error


def check_folder(settings: RunSettings, *, resume: bool) -> None:
    """Check that the run's folder is free or, with `resume`, holds this very run.

    Raises `ConfigError` otherwise.
    """
    folder = Path(settings.folder)
    note = folder / "settings.json"
    if not note.is_file():
        return
    if not resume:
        raise ConfigError(
            f"{folder} holds a run already; say --resume to go on with it, or choose another folder"
        )
    if note.read_text(encoding="utf-8") != settings.model_dump_json(indent=1):
        raise ConfigError(f"{folder} holds a run with other settings; its own are in {note}")


def checked_run(values: dict[str, Any], *, source: str = "training settings") -> RunSettings:
    """Return the settings from plain values.

    Raises `ConfigError` naming the field and what is wrong.
    """
    try:
        settings = RunSettings.model_validate(values)
    except ValidationError as error:
        problems = "; ".join(
            _problem(each)
            for each in error.errors()
            if each["type"] != "too_short" or not each["input"]
        )
        raise ConfigError(f"{source}: {problems}") from error
    for problem in _contradictions(settings):
        raise ConfigError(f"{source}: {problem}")
    load("designs", settings.agent.design)
    return settings


def _problem(error: Any) -> str:
    """Describe one of pydantic's errors with its field and, for a typing error, a hint."""
    loc = error["loc"]
    name = ".".join(map(str, loc))
    if error["type"] != "extra_forbidden":
        return f"{name}: {error['msg'][0].lower()}{error['msg'][1:]}; it is {error['input']!r}"
    close = get_close_matches(str(loc[-1]), _fields_at(loc[:-1]), n=1)
    return f"{name}: there is no such setting{f'; did you mean {close[0]}?' if close else ''}"


def _fields_at(loc: Sequence[Any]) -> list[str]:
    """Return the names of the settings of the part that a location leads to."""
    parts: dict[str, type[BaseModel]] = {
        "model": ModelPart,
        "lora": LoRASettings,
        "environment": EnvironmentPart,
        "agent": AgentPart,
        "warmup": WarmUpPart,
        "stage": Stage,
        "gate": Gate,
        "validation": ValidationPart,
    }
    names = [step for step in loc if isinstance(step, str)]
    return list((parts[names[-1]] if names else RunSettings).model_fields)


def _contradictions(settings: RunSettings) -> Iterator[str]:
    """Describe what is wrong with settings that are right one by one."""
    env, model = settings.environment, settings.model
    if env.kind not in ("synthetic", "locomo"):
        yield from _other_environment(env)
    elif env.options:
        yield f"environment.options: {env.kind} has fields of its own and takes none"
    if env.kind != "synthetic" and settings.agent.listening == "oracle":
        yield 'agent.listening: the oracle knows synthetic worlds only; say listening = "policy"'
    if env.kind == "locomo":
        yield from _locomo(settings)
    if env.kind != "synthetic" and settings.agent.answering != "policy":
        yield 'agent.answering: the readers know synthetic worlds only; say answering = "policy"'
    path = model.path
    if (
        path is not None
        and not Path(path).is_dir()
        and (path[:1] in ("/", ".", "~") or path.count("/") != 1)
    ):
        yield f"model.path: there is no folder {path}; a hub id has the form owner/name"


def _locomo(settings: RunSettings) -> Iterator[str]:
    """Describe what is wrong with settings for LoCoMo."""
    env, model = settings.environment, settings.model
    if not env.path:
        yield "environment.path: LoCoMo is not shipped; give the path of your own copy"
    elif not Path(env.path).exists():
        yield f"environment.path: there is nothing at {env.path}"
    if settings.warmup is not None:
        yield "warmup: demonstrations come from synthetic worlds only; leave the table out"
    if model.path is None:
        yield (
            "model.path: a model from scratch knows the words of a synthetic world only; "
            "name a folder or a hub id"
        )


def _other_environment(env: EnvironmentPart) -> Iterator[str]:
    """Describe what is wrong with the part of an environment that is opened by name."""
    try:
        load("environments", env.kind)
    except ConfigError as error:
        yield f"environment.kind: {error}"
    for name in ("turns", "facts", "overwrite", "interference", "distractors", "friends", "only"):
        if getattr(env, name) is not None:
            yield f"environment.{name}: of synthetic only; {env.kind} takes [environment.options]"
    for name in ("probes", "asks"):
        if getattr(env, name):
            yield f"environment.{name}: of synthetic only; {env.kind} takes [environment.options]"

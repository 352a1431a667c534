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

import json
import tomllib
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from memagent.core.errors import ConfigError
from memagent.core.exchange import Role
from memagent.plugins import load
from train.settings.former import current
from train.settings.options import ROLE_SETS
from train.settings.parts import (
    AgentPart,
    EnvironmentPart,
    Gate,
    LoRASettings,
    ModelPart,
    RunSettings,
    Stage,
    ValidationPart,
    WarmUpPart,
    acting_faults,
    is_acted_in,
)

MAY_CHANGE = ("trainer.micro_batch_tokens", "trainer.batch_width", "trainer.report_to")
"""Settings that a run may go on with other values of, besides the steps of its stages: a
smaller batch after a full GPU, say.
"""


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
    own = json.loads(note.read_text(encoding="utf-8"))
    if _fixed(own) != _fixed(settings.model_dump(mode="json")):
        free = ", ".join((*MAY_CHANGE, "stage.steps"))
        raise ConfigError(
            f"{folder} holds a run with other settings; its own are in {note}; "
            f"only {free} may change"
        )


def _fixed(values: dict[str, Any]) -> dict[str, Any]:
    """Return the plain values of settings without those that may change."""
    trainer = {
        name: value
        for name, value in current(values["trainer"]).items()
        if f"trainer.{name}" not in MAY_CHANGE
    }
    stages = [{**stage, "steps": None} for stage in values["stage"]]
    return {**values, "trainer": trainer, "stage": stages}


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
    env = settings.environment
    yield from _model(settings.model)
    if is_acted_in(env.kind):
        yield from acting_faults(settings)
        return
    if env.kind not in ("synthetic", "locomo"):
        yield from _other_environment(env)
    elif env.options:
        yield f"environment.options: {env.kind} has fields of its own and takes none"
    if env.kind != "synthetic" and settings.agent.listening == "oracle":
        yield 'agent.listening: the oracle knows synthetic worlds only; say listening = "policy"'
    estimator = settings.trainer.get("estimator", "zscore")
    chosen = env.options.get(getattr(load("environments", env.kind), "skills_by", ""))
    if getattr(load("techniques", estimator), "needs_skills", False) and not chosen:
        yield (
            f"trainer.estimator: {estimator} needs tasks in which the policy chooses what it "
            f"follows, as in chains of tasks with options.selects; {env.kind} has none here"
        )
    if env.kind == "locomo":
        yield from _locomo(settings)
    if settings.agent.reader and (
        settings.agent.answering != "policy" or trains_answerer(settings)
    ):
        yield (
            "agent.reader: it answers in the place of a policy that is not trained to answer; "
            'say answering = "policy" and roles = "manager", or leave it out'
        )
    if env.kind != "synthetic" and settings.agent.answering != "policy":
        yield 'agent.answering: the readers know synthetic worlds only; say answering = "policy"'


def trains_answerer(settings: RunSettings) -> bool:
    """Tell whether the policy learns to answer, in the run or in one of its stages."""
    names = {settings.trainer.get("roles", "manager"), *(stage.roles for stage in settings.stage)}
    return any(Role.ANSWERER in ROLE_SETS.get(name or "", frozenset()) for name in names)


def _model(model: ModelPart) -> Iterator[str]:
    """Describe what is wrong with the part of the model."""
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

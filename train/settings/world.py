"""The world of a run: the environment, its episodes, and the agent that lives in it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import signature
from itertools import islice
from pathlib import Path
from typing import Any, Self, cast

from environments.acting.play import OraclePlayer, play_task
from environments.base import Environment
from environments.datasets.locomo import LoCoMo
from environments.datasets.synthetic import Synthetic, synthetic
from environments.demonstrations.ideal import demonstrations
from environments.play.rollout import play
from environments.records import Episode
from environments.views import select_asks, select_probes, truncate
from environments.worlds.truth import Truth
from memagent.async_agent import AsyncAgent
from memagent.build import open_store
from memagent.core.errors import ConfigError
from memagent.core.exchange import ModelRequest, ModelResponse, Role
from memagent.core.records import Scope
from memagent.core.snapshot import EMPTY
from memagent.plugins import load
from train.settings.options import ANSWER_ROLES, MANAGER_ROLES, options_of
from train.settings.parts import ActingWorld, SilentModel, is_acted_in
from train.settings.run import EnvironmentPart, RunSettings


@dataclass(kw_only=True)
class TrainingWorld:
    """An environment with the agent that lives in it."""

    settings: RunSettings
    env: Environment
    agent: AsyncAgent
    sessions: int
    """Sessions of an episode; longer ones are cut."""
    truths: dict[str, Truth] = field(default_factory=dict[str, Truth], repr=False)
    """The world behind the episodes given so far, by their ids: making a world again costs
    as much as its episode.
    """

    @classmethod
    def of(cls, settings: RunSettings, *, sessions: int) -> Self:
        """Open the environment of the settings at a number of sessions.

        Raises `ConfigError`, `EnvironmentFault`.
        """
        env = open_environment(settings.environment, sessions=sessions)
        store = open_store(path=":memory:", embedder=settings.agent.embedder)
        agent = store.agent(
            Scope(user_id="train"),
            model=SilentModel(),
            design=settings.agent.design,
            keep_unreadable=True,
        )
        return cls(settings=settings, env=env, agent=agent, sessions=sessions)

    def episodes(self, split: str, count: int, *, skip: int = 0) -> list[Episode]:
        """Return the first episodes of a split after `skip`.

        They have the questions that the settings ask, and no more sessions than the
        task.
        """
        asks, episodes = self.settings.environment.asks, list[Episode]()
        for episode in islice(self.env.episodes(split), skip, skip + count):  # type: ignore[arg-type]
            if asks and isinstance(self.env, Synthetic):
                episode = select_asks(episode, self.truth(self.env, episode), asks)
            elif asks:
                episode = select_probes(episode, lambda probe: probe.category in asks)
            episodes.append(truncate(episode, self.sessions))
        return episodes

    def truth(self, env: Synthetic, episode: Episode) -> Truth:
        """Return the world behind an episode."""
        if episode.id not in self.truths:
            self.truths[episode.id] = env.truth(episode)
        return self.truths[episode.id]


def open_environment(part: EnvironmentPart, *, sessions: int) -> Environment:
    """Open the environment of the settings at a number of sessions.

    Raises `ConfigError`, `EnvironmentFault`.
    """
    if part.kind == "locomo":
        split_by = part.split_by or "memory_r2"
        spoken = LoCoMo(part.path or "", split_by=split_by)
        if next(spoken.episodes("train"), None) is None:
            raise ConfigError(
                f"{part.path} holds no conversation to train on by split_by = {split_by!r}; "
                "give the whole data set"
            )
        return spoken
    if part.kind == "synthetic":
        return synthetic(
            part.level,
            sessions=sessions,
            seed=part.seed,
            episodes=part.episodes,
            turns=part.turns,
            facts=part.facts,
            overwrite=part.overwrite,
            interference=part.interference,
            distractors=part.distractors,
            friends=part.friends,
            only=part.only,
            probes=part.probes,
        )
    return _named_environment(part, sessions)


def _named_environment(part: EnvironmentPart, sessions: int) -> Environment:
    """Open any environment with what it takes of the settings, and its own options."""
    make = cast("Callable[..., Environment]", load("environments", part.kind))
    takes = signature(make).parameters.values()
    names = {parameter.name for parameter in takes}
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes):
        names |= {"level", "seed", "episodes"}
    shared = {
        "level": part.level,
        "seed": part.seed,
        "episodes": part.episodes,
        "sessions": sessions,
    } | ({"path": part.path} if part.path else {})
    values = {name: value for name, value in shared.items() if name in names} | part.options
    try:
        return make(**values)
    except TypeError as error:
        raise ConfigError(f"environment.options: {error}") from None


# A preview of a run: its work and its disk, estimated before it begins.
#
# A few episodes are played without a policy to count the calls. Figures are estimates.
# Generation rounds are the model calls that must follow one another, so they do not grow
# with rollouts or reruns; rows are what an update learns from. Disk counts weights of 4
# bytes and, for a checkpoint, the optimizer's two moments.

_COUNTED = 16
"""Sessions that calls are counted in, at least one episode."""
_SIZES = {"k": 1e3, "m": 1e6}


def preview(settings: RunSettings) -> dict[str, Any]:
    """Return the run as plain values: its stages, and its disk in MB.

    The disk is None where the model's size is not known. Raises the errors that the run
    itself would raise.
    """
    lengths = sorted({stage.sessions for stage in settings.stage})
    heard = {sessions: asyncio.run(_heard(settings, sessions)) for sessions in lengths}
    stages = [
        _stage(settings, number, *heard[stage.sessions])
        for number, stage in enumerate(settings.stage)
    ]
    weights = _weights_mb(settings)
    disk = None
    if weights is not None:
        trained = 0.05 * weights if settings.model.lora else weights
        saved = 2 * 3 * trained + trained  # two checkpoints and the best
        disk = round(weights + trained + sum(saved for _ in stages) + 1)
    return {"folder": settings.folder, "stages": stages, "weights_mb": weights, "disk_mb": disk}


_STAGE_TEXT = """\
stage {stage}: {sessions} sessions, {steps} steps; trains {roles}, credit by {credit}
  a step plays {episodes} episodes: {rollouts} whole rollouts and about {reruns} local reruns,
  about {rounds} generation rounds and {rows} rows
  its episodes ask {questions} questions, answered by {reader}"""


def lines_of(plan: dict[str, Any]) -> list[str]:
    """Return the preview for people, an entry a stage."""
    disk = (
        "unknown, the model is not on this machine"
        if plan["disk_mb"] is None
        else f"about {plan['disk_mb']:,} MB"
    )
    return [
        *(_STAGE_TEXT.format(**stage) for stage in plan["stages"]),
        f"disk: {disk}, in {plan['folder']}",
        "nothing was trained",
    ]


def _stage(
    settings: RunSettings, number: int, length: int, calls: float, asked: int
) -> dict[str, Any]:
    """Return the work of a stage; an episode has `length` sessions and makes `calls`."""
    stage = settings.stage[number]
    args = options_of(settings.trainer_of(stage))
    sessions = min(length, args.sessions or length)
    calls *= sessions / length
    n = args.num_generations or 1
    episodes = args.batch_episodes
    acted = is_acted_in(settings.environment.kind)
    local = 0.0 if acted else args.local_probability * bool(args.weight_of_local)
    reruns = episodes * sessions * local * args.reruns
    rows = 0.0
    if args.trained_roles & MANAGER_ROLES:
        rows += episodes * n * calls + reruns * calls / sessions
    if ANSWER_ROLES & args.trained_roles:
        rows += episodes * args.answer_questions * args.answer_members
    return {
        "stage": number,
        "sessions": sessions,
        "steps": stage.steps,
        "roles": "policy" if acted else args.roles,
        "credit": "segment" if acted else " + ".join(args.global_credit),
        "episodes": episodes,
        "rollouts": episodes * n,
        "reruns": round(reruns),
        "rounds": round(calls),
        "rows": round(rows),
        "questions": asked,
        "reader": settings.agent.reader or f"the {settings.agent.answering}",
    }


@dataclass(kw_only=True)
class _CountingModel:
    """Finds no facts and counts the chunks that it hears and the decisions it is asked for."""

    chunks: int = 0
    decisions: int = 0

    async def complete(self, request: ModelRequest) -> ModelResponse:
        self.chunks += request.role is Role.EXTRACTOR
        self.decisions += request.role is Role.MANAGER
        return ModelResponse(id=f"res_{self.chunks}/{self.decisions}", text='{"facts": []}')


async def _heard(settings: RunSettings, sessions: int) -> tuple[int, float, int]:
    """Return the sessions of an episode, the manager's model calls in it, and all questions.

    The calls are those of the oracle of a synthetic world, or twice the calls that hear
    a chunk.
    """
    if is_acted_in(settings.environment.kind):
        return 1, await _acted(ActingWorld.of(settings)), 0
    world = TrainingWorld.of(settings, sessions=sessions)
    if counted := getattr(world.env, "calls", None):
        return sessions, counted(sessions), 0
    decides = settings.model.size == "decisions"
    known = settings.environment.episodes if settings.environment.kind == "locomo" else 1
    episodes = world.episodes("train", known)
    episode, length = episodes[0], len(episodes[0].sessions)
    asked = sum(len(each.probes) for each in episodes) * settings.environment.episodes // known
    if isinstance(world.env, Synthetic) and not decides:
        indexes = range(max(1, _COUNTED // world.sessions))
        shown = await demonstrations(world.env, world.agent, indexes=indexes, roles=MANAGER_ROLES)
        return length, len(shown) / len(indexes), asked
    model = _CountingModel()
    await play(world.agent.with_model(model).at(EMPTY), episode, ask=False)
    return length, float(model.decisions) if decides else 2.0 * model.chunks, asked


async def _acted(world: ActingWorld) -> float:
    """Return the model calls of the solution of one task."""
    (task,) = world.stream("train", 1).values()
    model = _CountingModel()
    agent = world.agent.with_model(model).at(EMPTY)
    trial = await play_task(task, OraclePlayer(), agent=agent)
    acted = len(trial.steps) if world.settings.agent.acting == "policy" else 0
    return float(model.decisions + acted)


def _weights_mb(settings: RunSettings) -> float | None:
    """Return the size of the model's weights; None for a model that is not on this machine."""
    part = settings.model
    if part.path is None:
        if part.size == "decisions":
            return 0.1
        return round(float(part.size[:-1]) * _SIZES[part.size[-1]] * 4 / 1e6, 1)
    files = (
        [*Path(part.path).glob("*.safetensors"), *Path(part.path).glob("*.bin")]
        if Path(part.path).is_dir()
        else []
    )
    return round(sum(file.stat().st_size for file in files) / 1e6, 1) if files else None

"""A preview of a run: its work and its disk, estimated before it begins.

A few episodes are played without a policy to count the calls. Figures are estimates.
Generation rounds are the model calls that must follow one another, so they do not grow
with rollouts or reruns; rows are what an update learns from. Disk counts weights of 4
bytes and, for a checkpoint, the optimizer's two moments.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from environments.acting.play import OraclePlayer, play_task
from environments.datasets.synthetic import Synthetic
from environments.demonstrations.ideal import demonstrations
from environments.play.rollout import play
from memagent.core.exchange import ModelRequest, ModelResponse, Role
from memagent.core.snapshot import EMPTY
from train.settings.acting import ActingWorld, is_acted_in
from train.settings.options import ANSWER_ROLES, MANAGER_ROLES, options_of
from train.settings.run import RunSettings
from train.settings.world import TrainingWorld

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

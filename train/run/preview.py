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

from environments.datasets.synthetic import Synthetic
from environments.demonstrations.ideal import demonstrations
from environments.play.rollout import play
from environments.records import Episode
from memagent.core.exchange import ModelRequest, ModelResponse, Role
from memagent.core.snapshot import EMPTY
from train.rollouts.comparisons import MANAGER_ROLES
from train.run.settings import RunSettings
from train.run.stages import stage_config, stage_folder
from train.run.task import TrainingTask

EPISODES = 8
"""Episodes that calls are counted in."""
_SIZES = {"k": 1e3, "m": 1e6}


def preview(settings: RunSettings) -> dict[str, Any]:
    """Return the run as plain values: its stages, and its disk in MB.

    The disk is None where the model's size is not known. Raises the errors that the run
    itself would raise.
    """
    stages = [_stage(settings, number) for number in range(len(settings.stage))]
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
  about {rounds} generation rounds and {rows} rows"""


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


def _stage(settings: RunSettings, number: int) -> dict[str, Any]:
    stage = settings.stage[number]
    args = stage_config(settings, stage, stage_folder(settings, number))
    task = TrainingTask.of(settings, sessions=stage.sessions)
    episode = task.episodes("train", 1)[0]
    sessions = min(len(episode.sessions), args.sessions or len(episode.sessions))
    calls = asyncio.run(_calls(task, episode)) * sessions / len(episode.sessions)
    n = args.num_generations or 1
    episodes = args.per_device_train_batch_size * (args.steps_per_generation or 1) // n
    reruns = (
        episodes * sessions * args.local_probability * args.reruns if args.local_weight else 0.0
    )
    rows = 0.0
    if args.trained_roles & MANAGER_ROLES:
        rows += episodes * n * calls + reruns * calls / sessions
    if Role.ANSWERER in args.trained_roles:
        rows += episodes * args.answer_questions * args.answer_members
    return {
        "stage": number,
        "sessions": sessions,
        "steps": stage.steps,
        "roles": args.roles,
        "credit": args.credit,
        "episodes": episodes,
        "rollouts": episodes * n,
        "reruns": round(reruns),
        "rounds": round(calls),
        "rows": round(rows),
    }


@dataclass(kw_only=True)
class _CountingModel:
    """Finds no facts and counts the chunks that it hears."""

    chunks: int = 0

    async def complete(self, request: ModelRequest) -> ModelResponse:
        self.chunks += request.role is Role.EXTRACTOR
        return ModelResponse(id=f"res_{self.chunks}", text='{"facts": []}')


async def _calls(task: TrainingTask, episode: Episode) -> float:
    """Return the manager's model calls in an episode.

    They are those of the oracle of a synthetic world, or twice the calls that hear a
    chunk.
    """
    if isinstance(task.env, Synthetic):
        shown = await demonstrations(
            task.env, task.agent, indexes=range(EPISODES), roles=MANAGER_ROLES
        )
        return len(shown) / EPISODES
    model = _CountingModel()
    await play(task.agent.with_model(model).at(EMPTY), episode, ask=False)
    return 2.0 * model.chunks


def _weights_mb(settings: RunSettings) -> float | None:
    """Return the size of the model's weights; None for a model that is not on this machine."""
    part = settings.model
    if part.path is None:
        return round(float(part.size[:-1]) * _SIZES[part.size[-1]] * 4 / 1e6, 1)
    files = (
        [*Path(part.path).glob("*.safetensors"), *Path(part.path).glob("*.bin")]
        if Path(part.path).is_dir()
        else []
    )
    return round(sum(file.stat().st_size for file in files) / 1e6, 1) if files else None

"""What a run would do and take, said before it begins: a few episodes are played
without a policy to count the calls.

Figures are estimates. Generation rounds are the model calls that must follow one
another, so they do not grow with rollouts or reruns; rows are what an update learns
from. Disk counts weights of 4 bytes and, for a checkpoint, the optimizer's two moments.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from environments.datasets.synthetic import Synthetic
from environments.demonstrations.ideal import demonstrations
from environments.play.rollout import play
from environments.records import Episode
from memagent.core.exchange import ModelRequest, Role
from memagent.core.snapshot import EMPTY
from memagent.testing import FunctionModel
from train.rollouts.comparisons import MANAGER_ROLES
from train.run.runs import Place, stage_config
from train.run.settings import RunSettings

EPISODES = 8
"""Episodes that calls are counted in."""
_SIZES = {"k": 1e3, "m": 1e6}


def preview(settings: RunSettings) -> dict[str, Any]:
    """The run as plain values: its stages, and disk in MB where the model's size is known.

    Raises what the run itself would raise.
    """
    stages = [_stage(settings, number) for number in range(len(settings.stage))]
    weights = _weights_mb(settings)
    disk = None
    if weights is not None:
        kept = 0.05 * weights if settings.model.lora else weights
        saved = 2 * 3 * kept + kept  # two checkpoints and the best
        disk = round(weights + kept + sum(saved for _ in stages) + 1)
    return {"folder": settings.folder, "stages": stages, "weights_mb": weights, "disk_mb": disk}


def told(found: dict[str, Any]) -> list[str]:
    """The preview for people, a line a stage."""
    lines = [
        f"stage {one['stage']}: {one['sessions']} sessions, {one['steps']} steps; trains {one['roles']}, credit by {one['credit']}\n"
        f"  a step plays {one['episodes']} episodes: {one['rollouts']} whole rollouts and about {one['reruns']} local reruns,\n"
        f"  about {one['rounds']} generation rounds and {one['rows']} rows"
        for one in found["stages"]
    ]
    disk = (
        "unknown, the model is not on this machine"
        if found["disk_mb"] is None
        else f"about {found['disk_mb']:,} MB"
    )
    return [*lines, f"disk: {disk}, in {found['folder']}", "nothing was trained"]


def _stage(settings: RunSettings, number: int) -> dict[str, Any]:
    stage = settings.stage[number]
    args = stage_config(settings, stage, Path(settings.folder) / f"stage{number}")
    place = Place.of(settings, sessions=stage.sessions)
    episode = place.episodes("train", 1)[0]
    sessions = min(len(episode.sessions), args.sessions or len(episode.sessions))
    calls = asyncio.run(_calls(place, episode)) * sessions / len(episode.sessions)
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


async def _calls(place: Place, episode: Episode) -> float:
    """The manager's model calls in an episode: as its oracle makes them, or twice the
    calls that hear a chunk.
    """
    if isinstance(place.env, Synthetic):
        shown = await demonstrations(
            place.env, place.agent, indexes=range(EPISODES), roles=MANAGER_ROLES
        )
        return len(shown) / EPISODES
    heard = 0

    def reply(request: ModelRequest) -> str:
        nonlocal heard
        heard += request.role is Role.EXTRACTOR
        return '{"facts": []}'

    await play(place.agent.with_model(FunctionModel(reply)).at(EMPTY), episode, ask=False)
    return 2.0 * heard


def _weights_mb(settings: RunSettings) -> float | None:
    """Of the model's weights; None for one that is not on this machine."""
    part = settings.model
    if part.path is None:
        return round(float(part.size[:-1]) * _SIZES[part.size[-1]] * 4 / 1e6, 1)
    files = (
        [*Path(part.path).glob("*.safetensors"), *Path(part.path).glob("*.bin")]
        if Path(part.path).is_dir()
        else []
    )
    return round(sum(file.stat().st_size for file in files) / 1e6, 1) if files else None

"""Batches of a training step: the episodes it plays, and the rows that they become."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from accelerate import Accelerator

from memagent.core.exchange import Role
from train.credit.rows import RowBatch, RowNotes, build_rows, padded_count, rows_of
from train.ranks import gathered, on_main
from train.report.traces import step_record
from train.rollouts.experience import Step
from train.run.config import LoGoGRPOConfig


def episodes_of_step(
    number: int, *, args: LoGoGRPOConfig, accelerator: Accelerator, episodes: int, share: int
) -> list[int]:
    """Return the places of the `share` episodes that this process plays in a step.

    The main process chooses those of all. Raises `TrainFault` for too few episodes.
    """
    micro = args.micro_batches * args.num_iterations
    places = on_main(
        lambda: args.plugins.episode_sampler.choose(
            number // max(1, micro // args.gradient_accumulation_steps),
            seed=args.seed,
            episodes=episodes,
            size=share * accelerator.num_processes,
        )
    )
    return places[share * accelerator.process_index :][:share]


def show_rewards(step: Step, places: Mapping[str, int], args: LoGoGRPOConfig) -> None:
    """Show the episode sampler what the episodes of a step earned on all processes.

    `places` gives the place of each episode by its id.
    """
    own: dict[int, list[float]] = {}
    for group in step.groups:
        place = places.get(group.key.episode_id.partition("/")[2])
        if place is not None:
            own.setdefault(place, []).extend(group.rewards_G)
    together: dict[int, list[float]] = {}
    for part in gathered(own):
        for place, rewards in part.items():
            together.setdefault(place, []).extend(rewards)
    args.plugins.episode_sampler.see(together)


def batch_of_step(
    step: Step,
    *,
    args: LoGoGRPOConfig,
    accelerator: Accelerator,
    adapters: Mapping[Role, int],
    pad_id: int,
) -> RowBatch:
    """Return the step's rows, as many on every process, scaled so that all count alike.

    `adapters` gives the place of each role's adapter.
    """
    rows = rows_of(
        step.traces,
        step.credit.advantages,
        adapters={key: adapters.get(role, 0) for key, role in step.roles.items()},
        notes=RowNotes(marks=step.marks, offsets=step.credit.offsets, replayed=step.replayed),
        skip_zero=args.skip_zero_rows,
    )
    mine = torch.tensor([len(rows), step.rows], device=accelerator.device)
    gathered: Any = accelerator.gather(mine)
    everyone = gathered.view(-1, 2).tolist()
    size = padded_count(max(count for count, _ in everyone), multiple=args.micro_batches)
    total = sum(counted for _, counted in everyone)
    share = size * len(everyone) / max(1, total)
    return build_rows(rows, size=size, pad_id=pad_id, counted=step.rows, share=share)


def update_figures(
    step: Step, batch: RowBatch, *, generation_s: float, began: float, packed: float
) -> dict[str, float]:
    """Return the figures of a step with those of its rows and its seconds.

    `began` and `packed` are readings of `perf_counter` before the step was gathered and
    when its rows had been built.
    """
    return dict(step.metrics) | {
        "rows/real": float(batch.rows),
        "rows/counted": float(batch.counted),
        "rows/padded": float(batch.prompt_ids.size(0)),
        "time/generation": generation_s,
        "time/agent": step.seconds["rollout"] + step.seconds["score"] - generation_s,
        "time/credit": step.seconds["credit"],
        "time/logps": perf_counter() - packed,
        "time/experience": packed - began,
    }


def trace_step(folder: Path, step: Step, *, number: int, figures: Mapping[str, float]) -> None:
    """Append a line about the step to `steps.jsonl` in the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    record = step_record(step, number=number, figures=figures)
    with (folder / "steps.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, ensure_ascii=False) + "\n")

"""Updates: the objectives of a run in TRL's loss, and around its optimizer steps.

Batches of a training step: the episodes it plays, and the rows that they become.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from accelerate import Accelerator
from transformers import TrainerCallback
from trl.models.utils import unwrap_model_for_generation

from memagent.core.exchange import Role, Sampling
from train.credit.objectives import LossView, Objectives, Update
from train.credit.rows import RowBatch, RowNotes, build_rows, padded_count, rows_of
from train.ranks import gathered, on_main
from train.report.report import step_record
from train.rollouts.experience import Step
from train.run.config import LoGoGRPOConfig
from train.sampling.batcher import Engine
from train.sampling.constrained import schema_masks
from train.sampling.generation import TransformersEngine
from train.sampling.policy import PolicyModel
from train.sampling.vllm_engine import open_vllm


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


class AdmittedUpdates(TrainerCallback):
    """Drops an optimizer step that an objective refused, by taking the gradients away.

    Neither weights nor the optimizer's state change then, by a bit.
    """

    def __init__(self, objectives: Objectives) -> None:
        self.objectives = objectives
        self.admitted = True

    def look(self, update: Update) -> dict[str, float]:
        """Ask the objectives about an update and return their figures.

        Call it after the last backward pass of the update and before gradients are cut.
        """
        self.admitted = self.objectives.admits(update)
        return self.objectives.figures()

    def on_pre_optimizer_step(
        self,
        args: Any,  # noqa: ARG002 - interface
        state: Any,  # noqa: ARG002 - interface
        control: Any,  # noqa: ARG002 - interface
        **kwargs: Any,
    ) -> None:
        """Remove the gradients of a refused update, after backward and before the optimizer."""
        if not self.admitted:
            kwargs["model"].zero_grad(set_to_none=True)


class LossReader:
    """Catches what TRL's loss reads of the rows, and shows it to the objectives.

    TRL reads log-probabilities and entropies first and then takes advantages from its
    inputs and bounds from the trainer, so both can still change in between.
    """

    def __init__(self, objectives: Objectives, *, temperature: float, by_row: bool) -> None:
        """Read for the objectives; `by_row` tells whether the loss has one ratio a row."""
        self.objectives = objectives
        self._temperature = temperature
        self._by_row = by_row
        self._inputs: dict[str, Any] | None = None
        self._logits: Callable[[int], torch.Tensor] | None = None
        self.view: LossView | None = None
        """The rows of the loss that was computed last."""

    @contextmanager
    def loss_of(self, inputs: dict[str, Any]) -> Generator[None]:
        """Show the objectives the rows that are read inside; `inputs` are the loss's own."""
        self._inputs, self.view = inputs, None
        try:
            yield
        finally:
            self._inputs = self._logits = None

    @contextmanager
    def logits_of(self, model: Any) -> Generator[None]:
        """Keep the logits that the model computes inside, if an objective needs them."""
        if not self.objectives.needs_logits:
            yield
            return

        causal = model.get_base_model() if hasattr(model, "peft_config") else model
        head = causal.get_output_embeddings()

        def keep(_module: Any, _inputs: Any, output: Any) -> None:
            # TRL projects in tiles and gives no logits away: one position more than tokens.
            self._logits = lambda tokens: head(output.last_hidden_state[:, :-1][:, -tokens:])

        handle = causal.base_model.register_forward_hook(keep)
        try:
            yield
        finally:
            handle.remove()

    def read(self, logps: torch.Tensor, entropies: torch.Tensor) -> dict[str, Any]:
        """Take in what was read, weigh the advantages, and return settings of the loss.

        They replace the trainer's attributes of their names. Where tokens of a row differ
        in advantage and the ratio is one a row, it becomes GSPO's token form (arXiv
        2507.18071): the row's ratio without gradient times exp(logp - logp without
        gradient). Its value is the row's ratio, and each token has its own gradient;
        with one ratio for all only the mean advantage of a row would act. Outside of
        `loss_of` nothing happens and {} is returned.
        """
        if self._inputs is None:
            return {}
        self.view = self.view_of(dict(self._inputs), logps, entropies)
        advantages = self.objectives.changed_advantages(self.view)
        if advantages is not None:
            self._inputs["advantages"] = advantages
        bounds = self.objectives.bounds(self.view)
        changed: dict[str, Any] = (
            {} if bounds is None else {"epsilon_low": bounds[0], "epsilon_high": bounds[1]}
        )
        if self._by_row and self._inputs["advantages"].dim() == 2:
            mask, own = self.view.mask, logps.detach()
            moved = ((own - self.view.old_logps) * mask).sum(1, keepdim=True)
            moved = moved / mask.sum(1, keepdim=True).clamp(min=1)
            self._inputs["old_per_token_logps"] = own - moved
            changed["importance_sampling_level"] = "token"
        return changed

    def view_of(
        self, inputs: Mapping[str, Any], logps: torch.Tensor, entropies: torch.Tensor
    ) -> LossView:
        """Return rows as the objectives see them."""
        logits = self._logits and self._logits(logps.shape[1]) / self._temperature
        mask = inputs["completion_mask"]
        return LossView(logps=logps, entropies=entropies, mask=mask, inputs=inputs, logits=logits)


# The policy of a trainer: its own model in this process, or vLLM with its weights.


def policy_of(trainer: Any) -> PolicyModel:
    """Return the policy over this process's model, or over vLLM."""
    args = trainer.args
    context_tokens = getattr(trainer.model.config, "max_position_embeddings", None)
    return PolicyModel(
        _engine_of(trainer, context_tokens),
        trainer.processing_class,
        sampling=Sampling(
            temperature=args.temperature, top_p=args.top_p, max_tokens=args.max_completion_length
        ),
        context_tokens=context_tokens,
        width=args.batch_width,
        seed=args.seed,
        adapters=trainer.adapters,
        constrained=args.constrained,
    )


def _engine_of(trainer: Any, context_tokens: int | None) -> Engine:
    tokenizer: Any = trainer.processing_class
    if trainer.args.use_vllm:
        return open_vllm(trainer, eos_ids=[tokenizer.eos_token_id], context_tokens=context_tokens)
    return TransformersEngine(
        trainer.model,
        eos_ids=[tokenizer.eos_token_id],
        pad_id=tokenizer.pad_token_id,
        unwrapped=partial(_unwrapped, trainer),
        autocast=trainer.accelerator.autocast,
        masks=schema_masks(tokenizer) if trainer.args.constrained else None,
    )


def _unwrapped(trainer: Any) -> AbstractContextManager[Any]:
    """Return the bare model for sampling.

    Its gradient checkpointing is off, since it would switch the cache off.
    """
    if not hasattr(trainer, "model_wrapped"):
        return nullcontext(trainer.model)
    return unwrap_model_for_generation(
        trainer.model_wrapped,
        trainer.accelerator,
        gradient_checkpointing_kwargs=trainer.args.gradient_checkpointing_kwargs,
    )

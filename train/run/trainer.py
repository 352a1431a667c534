"""LoGo-GRPO as a TRL trainer: `GRPOTrainer` with one method replaced.

The only file that meets TRL's trainer.

`_generate_and_score_completions` is where TRL turns dataset rows into rows to learn
from. A dataset row here stands for an *episode* repeated n times; which ones a step
plays is a function of seed and step. We play them with the real agent and give back as
many (prompt, completion, advantage) rows as there were model calls. Optimizer, PEFT,
distributed training, checkpoints and logs stay TRL's. What is *not* changed: the loss
(unless `echo_weight` adds to it), the clip, the KL.

Besides, `_get_per_token_logps_and_entropies` lets every row be read by the adapter that
spoke it, when roles have adapters of their own.

Shapes: B rows, P prompt, C completion.
"""

# TRL's trainer is typed loosely: its processing class may be one of five things and its model none.
# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false, reportArgumentType=false, reportOptionalSubscript=false

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from datasets import Dataset
from trl.models.utils import disable_gradient_checkpointing, unwrap_model_for_generation
from trl.trainer.grpo_trainer import GRPOTrainer

from environments.records import Episode
from memagent.core.exchange import Role, Sampling
from train.credit.rows import RowBatch, build_rows, padded_count, rows_of
from train.errors import TrainFault
from train.rollouts.experience import Experience, Step
from train.run.config import LoGoGRPOConfig
from train.sampling.adapters import reading
from train.sampling.checkpoints import STATE_FILE
from train.sampling.generation import Engine, TransformersEngine
from train.sampling.policy import PolicyModel
from train.sync import run_sync
from train.techniques.echo import echo_loss
from train.techniques.gradient_gate import GateCallback, GradientGate, output_norm


class LoGoGRPOTrainer(GRPOTrainer):
    """Trains the policy of a real agent from shared memory snapshots.

    `experience` makes the step's source from the policy: `lambda policy:
    Experience(...)`. `adapters` names the LoRA adapter of each role of a PEFT model; by
    default all roles share the parameters.
    """

    _tag_names = ["memagent", "logo-grpo"]

    def __init__(
        self,
        model: Any,
        *,
        args: LoGoGRPOConfig,
        episodes: Sequence[Episode],
        experience: Callable[[PolicyModel], Experience],
        processing_class: Any = None,
        adapters: Mapping[Role, str] | None = None,
        context_tokens: int | None = None,
        **options: Any,
    ) -> None:
        """`options` go to `GRPOTrainer` (callbacks, optimizers, peft_config).

        Raises `TrainFault` without episodes.
        """
        if not episodes:
            raise TrainFault("there is no episode to train on")
        self._episodes = list(episodes)
        rows = [
            {"prompt": [{"role": "user", "content": episode.id}], "episode": place}
            for place, episode in enumerate(self._episodes)
        ]
        by_vllm, args.use_vllm = (
            args.use_vllm,
            False,
        )  # TRL would set vLLM up for calls that are not made
        beta = args.beta
        if hasattr(model, "peft_config"):
            # TRL would copy an adapter "default" as the reference; ours is the model
            # without adapters
            args.beta = 0.0
        super().__init__(
            model=model,
            reward_funcs=_no_reward,
            args=args,
            train_dataset=Dataset.from_list(rows),
            processing_class=processing_class,
            **options,
        )
        args.use_vllm, args.beta, self.beta = by_vllm, beta, beta
        self.args: LoGoGRPOConfig
        self._adapter_names = sorted(set((adapters or {}).values()))
        self.adapters = dict(adapters or {})
        """The adapter of each role; empty when all share the parameters."""
        tokenizer: Any = self.processing_class
        context_tokens = context_tokens or getattr(
            self.model.config, "max_position_embeddings", None
        )
        self.policy = PolicyModel(
            self._engine(context_tokens),
            tokenizer,
            sampling=Sampling(
                temperature=args.temperature,
                top_p=args.top_p,
                max_tokens=args.max_completion_length,
            ),
            context_tokens=context_tokens,
            width=args.batch_width,
            seed=args.seed,
            adapters=adapters,
            constrained=args.constrained,
        )
        self.experience = experience(self.policy)
        self.last_step: Step | None = None
        """What the present update learns from; for callbacks and reports."""
        self._gathered_at = -1
        self._gate = (
            GateCallback(GradientGate(k=args.gradient_gate)) if args.gradient_gate else None
        )
        if self._gate is not None:
            self.add_callback(self._gate)
        self._seen: tuple[torch.Tensor, torch.Tensor] | None = (
            None  # log-probabilities and entropies of this loss
        )

    @property
    def fresh_step(self) -> bool:
        """Right after an optimizer step: whether it was the first to learn from `last_step`."""
        return self.state.global_step == self._gathered_at + 1

    @property
    def _updates(self) -> int:
        """Optimizer steps that learn from one generation batch."""
        micro = (self.args.steps_per_generation or 1) * self.num_iterations
        return max(1, micro // self.args.gradient_accumulation_steps)

    # -- the one override --------------------------------------------------------------

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        began = perf_counter()
        accelerator = self.accelerator
        share = len(inputs) // (self.num_generations or 1)
        places = episodes_of_batch(
            self.state.global_step // self._updates,
            seed=self.args.seed,
            episodes=len(self._episodes),
            size=share * accelerator.num_processes,
        )
        mine = places[share * accelerator.process_index :][:share]
        episodes = [self._episodes[place] for place in mine]
        self.policy.version = self.state.global_step
        generated_s = self.policy.generation_s
        step = run_sync(self.experience.gather(episodes, step=self.state.global_step))
        self.last_step = step
        self._gathered_at = self.state.global_step
        batch = self._rows(step)
        packed = perf_counter()
        output = self._with_logps(batch)
        self._report(
            step,
            batch,
            generation_s=self.policy.generation_s - generated_s,
            began=began,
            packed=packed,
        )
        return output

    def _rows(self, step: Step) -> RowBatch:
        """The step's rows, as many on every process, scaled so that all of them count alike."""
        args = self.args
        places = {role: self._adapter_names.index(name) for role, name in self.adapters.items()}
        adapters = {key: places.get(role, 0) for key, role in step.roles.items()}
        rows = rows_of(
            step.traces,
            step.credit.advantages,
            adapters=adapters,
            echo=step.echo,
            skip_zero=args.skip_zero_rows,
        )
        mine = torch.tensor([len(rows), step.rows], device=self.accelerator.device)
        everyone = self.accelerator.gather(mine).view(-1, 2).tolist()
        size = padded_count(
            max(count for count, _ in everyone), multiple=args.steps_per_generation or 1
        )
        total = sum(counted for _, counted in everyone)
        share = size * len(everyone) / max(1, total)
        return build_rows(
            rows,
            size=size,
            pad_id=self.processing_class.pad_token_id,
            counted=step.rows,
            share=share,
        )

    def _with_logps(self, batch: RowBatch) -> dict[str, Any]:
        """What TRL's loss takes: the rows on the device, with the log-probabilities
        that it needs from before the update.
        """
        device = self.accelerator.device
        output: dict[str, Any] = {
            "prompt_ids": batch.prompt_ids.to(device),
            "prompt_mask": batch.prompt_mask.to(device),
            "completion_ids": batch.completion_ids.to(device),
            "completion_mask": batch.completion_mask.to(device),
            "advantages": batch.advantages.to(device),
        }
        tokens = torch.tensor(batch.tokens, device=device, dtype=torch.float32)
        output["num_items_in_batch"] = self.accelerator.gather(tokens).sum()
        if self.args.echo_weight:
            output["echo"] = batch.echo.to(device)
        if len(self._adapter_names) > 1:
            output["adapters"] = batch.adapters.to(device)
        ids = torch.cat([output["prompt_ids"], output["completion_ids"]], dim=1)
        mask = torch.cat([output["prompt_mask"], output["completion_mask"]], dim=1)
        keep = output["completion_ids"].size(1)
        every = (self.args.steps_per_generation or 1) * self.num_iterations
        chunk = max(1, ids.size(0) // (self.args.steps_per_generation or 1))
        kwargs = self.args.gradient_checkpointing_kwargs
        with (
            torch.no_grad(),
            disable_gradient_checkpointing(self.model, kwargs),
            self._reading(output.get("adapters")),
        ):
            if self.args.gradient_accumulation_steps % every:
                output["old_per_token_logps"] = self._get_per_token_logps_and_entropies(
                    self.model, ids, mask, keep, batch_size=chunk
                )[0]
            if self.beta != 0.0:
                output["ref_per_token_logps"] = self._reference_logps(ids, mask, keep, chunk)
        return output

    def _reference_logps(
        self, ids: torch.Tensor, mask: torch.Tensor, keep: int, chunk: int
    ) -> torch.Tensor:
        """(B, C) log-probabilities of the reference: a copy of the model, or the model
        without its adapters.
        """
        if self.ref_model is not None:
            return self._get_per_token_logps_and_entropies(
                self.ref_model, ids, mask, keep, batch_size=chunk
            )[0]
        model = self.accelerator.unwrap_model(self.model)
        with model.disable_adapter(), self._reading(None):
            return self._get_per_token_logps_and_entropies(
                self.model, ids, mask, keep, batch_size=chunk
            )[0]

    # -- adapters ----------------------------------------------------------------------

    _row_adapters: torch.Tensor | None = None

    def _reading(self, adapters: torch.Tensor | None) -> AbstractContextManager[Any]:
        """While open, rows are read by these adapters (B,)."""
        return _Held(self, adapters)

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        with self._reading(inputs.get("adapters")):
            loss = super()._compute_loss(model, inputs)
        if self._seen is not None:
            (logps, entropies), self._seen = self._seen, None
            repeated = echo_loss(logps, entropies, inputs["completion_mask"], inputs["echo"])
            self._metrics["train"]["echo_loss"].append(float(repeated.detach()))
            loss = (
                loss + self.args.echo_weight * repeated / self.current_gradient_accumulation_steps
            )
        return loss

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        """One micro-batch, as TRL does it; the gradient gate is shown what an optimizer
        step is about to apply.
        """
        in_batch = self._step % ((self.args.steps_per_generation or 1) * self.num_iterations)
        loss = super().training_step(model, inputs, num_items_in_batch)
        if self._gate is not None and self.accelerator.sync_gradients:
            self._gate.norm = output_norm(self.accelerator.unwrap_model(model))
            self._gate.first_use = in_batch < (self.args.steps_per_generation or 1)
            self._metrics["train"]["gate/norm"].append(self._gate.norm)
            self._metrics["train"]["gate/refused"].append(float(self._gate.gate.refused))
        return loss

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Any, attention_mask: Any, logits_to_keep: int, **options: Any
    ) -> Any:
        whole = super()._get_per_token_logps_and_entropies
        adapters = self._row_adapters
        if adapters is None or model is self.ref_model:
            found = whole(model, input_ids, attention_mask, logits_to_keep, **options)
        else:
            found = reading(
                self.accelerator.unwrap_model(model),
                self._adapter_names,
                adapters,
                lambda rows: whole(
                    model, input_ids[rows], attention_mask[rows], logits_to_keep, **options
                ),
            )
        if self.args.echo_weight and found[1] is not None and torch.is_grad_enabled():
            self._seen = found[0], found[1]
        return found

    def _send_telemetry(self) -> None:
        """Nothing is sent to anybody; TRL would report that a run began."""

    # -- accounts ----------------------------------------------------------------------

    def _engine(self, context_tokens: int | None) -> Engine:
        """What samples: this process's model, or vLLM."""
        tokenizer: Any = self.processing_class
        if self.args.use_vllm:
            from train.sampling.vllm_engine import open_vllm

            return open_vllm(self, eos_ids=[tokenizer.eos_token_id], context_tokens=context_tokens)
        return TransformersEngine(
            self.model,
            eos_ids=[tokenizer.eos_token_id],
            pad_id=tokenizer.pad_token_id,
            unwrapped=self._unwrapped,
            autocast=self.accelerator.autocast,
            masks=_masks(tokenizer) if self.args.constrained else None,
        )

    def _unwrapped(self) -> AbstractContextManager[Any]:
        """The bare model for sampling, with its gradient checkpointing off (it would
        switch the cache off).
        """
        if not hasattr(self, "model_wrapped"):
            return nullcontext(self.model)
        return unwrap_model_for_generation(
            self.model_wrapped,
            self.accelerator,
            gather_deepspeed3_params=self.args.ds3_gather_for_generation,
        )

    def _report(
        self, step: Step, batch: RowBatch, *, generation_s: float, began: float, packed: float
    ) -> None:
        ended = perf_counter()
        figures = dict(step.metrics) | {
            "rows/real": float(batch.rows),
            "rows/counted": float(batch.counted),
            "rows/padded": float(batch.prompt_ids.size(0)),
            "time/generation": generation_s,
            "time/agent": step.seconds["rollout"] + step.seconds["score"] - generation_s,
            "time/credit": step.seconds["credit"],
            "time/logps": ended - packed,
            "time/experience": packed - began,
        }
        for name, value in figures.items():
            self._metrics["train"][name].append(value)
        self.state.num_input_tokens_seen += int(step.metrics.get("tokens/completion", 0))
        if self.args.trace and self.accelerator.is_main_process:
            from train.report.traces import step_record

            path = Path(self.args.output_dir or ".") / "steps.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                record = step_record(step, number=self.state.global_step, figures=figures)
                file.write(json.dumps(record, ensure_ascii=False) + "\n")

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
        if self.accelerator.is_main_process and folder.is_dir():
            self._save_experience(folder)

    def _save_experience(self, folder: Path) -> None:
        """What the checkpoint keeps of the experience, written last and at once: a
        checkpoint that has it is complete.
        """
        collector = self.experience.collector
        state: dict[str, Any] = {
            "spread": collector.spread.state(),
            "history": collector.history.state(),
        }
        if self._gate is not None:
            state["gate"] = self._gate.gate.state()
        fresh = folder / f"{STATE_FILE}.part"
        fresh.write_text(json.dumps(state), encoding="utf-8")
        fresh.replace(folder / STATE_FILE)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        path = Path(resume_from_checkpoint) / STATE_FILE
        if not path.is_file():
            raise TrainFault(
                f"{path.parent} has no {STATE_FILE}: it was not saved to its end, go on from an earlier one"
            )
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        state = json.loads(path.read_text(encoding="utf-8"))
        self.experience.collector.spread.load(state["spread"])
        self.experience.collector.history.load(state["history"])
        if self._gate is not None and "gate" in state:
            self._gate.gate.load(state["gate"])


def episodes_of_batch(batch: int, *, seed: int, episodes: int, size: int) -> list[int]:
    """Places of the episodes that generation batch number `batch` plays: each pass over
    all of them is shuffled anew.

    A function of its arguments alone; TRL's sampler shuffles every pass after a resume
    as it did the first. What is left at the end of a pass and fills no batch is not
    played in it. Raises `TrainFault` when a batch is larger than all episodes.
    """
    if size > episodes:
        raise TrainFault(
            f"a step plays {size} episodes, and there are {episodes}; give at least as many as a step plays"
        )
    passed, within = divmod(batch, episodes // size)
    order = list(range(episodes))
    random.Random(f"{seed}/episodes/{passed}").shuffle(order)
    return order[within * size : (within + 1) * size]


class _Held:
    """Keeps which adapters read the rows for the time of a forward pass."""

    def __init__(self, trainer: LoGoGRPOTrainer, adapters: torch.Tensor | None) -> None:
        self._trainer, self._adapters = trainer, adapters

    def __enter__(self) -> None:
        self._before = self._trainer._row_adapters
        self._trainer._row_adapters = self._adapters

    def __exit__(self, *_: object) -> None:
        self._trainer._row_adapters = self._before


def _no_reward(**_: Any) -> list[float]:
    """TRL insists on a reward function; rewards here come from playing, so this one is never asked."""
    raise TrainFault("rewards come from the experience; this placeholder must not be called")


def _masks(tokenizer: Any) -> Any:
    from train.sampling.constrained import schema_masks

    return schema_masks(tokenizer)

"""LoGo-GRPO as a TRL trainer: `GRPOTrainer` with one method replaced.

The only file that meets TRL's trainer.

`_generate_and_score_completions` is where TRL turns dataset rows into rows to learn
from. A dataset row here stands for an *episode* repeated n times; the episodes of a
step are a function of seed and step. We play them with the real agent and give back as
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

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from datasets import Dataset
from trl.models.utils import disable_gradient_checkpointing, unwrap_model_for_generation
from trl.trainer.grpo_trainer import GRPOTrainer

from environments.records import Episode
from memagent.core.exchange import Role, Sampling
from train.credit.rows import RowBatch
from train.errors import TrainFault
from train.rollouts.experience import Experience, Step
from train.run.batches import batch_of_step, episodes_of_batch, trace_step
from train.run.config import LoGoGRPOConfig
from train.sampling.adapters import reading
from train.sampling.checkpoints import load_state, save_state
from train.sampling.constrained import schema_masks
from train.sampling.generation import Engine, TransformersEngine
from train.sampling.policy import PolicyModel
from train.sampling.vllm_engine import open_vllm
from train.sync import run_sync
from train.techniques.echo import echo_loss
from train.techniques.gradient_gate import GateCallback, GradientGate


class LoGoGRPOTrainer(GRPOTrainer):
    """Trains the policy of a real agent from shared memory snapshots.

    `experience` makes the step's source from the policy: `lambda policy:
    Experience(...)`. `adapters` names the LoRA adapter of each role of a PEFT model; by
    default all roles share the parameters.
    """

    _tag_names = ["memagent", "logo-grpo"]
    _row_adapters: torch.Tensor | None = None
    """Adapters (B,) that read the rows of the present forward pass."""

    def __init__(
        self,
        model: Any,
        *,
        args: LoGoGRPOConfig,
        episodes: Sequence[Episode],
        experience: Callable[[PolicyModel], Experience],
        processing_class: Any = None,
        adapters: Mapping[Role, str] | None = None,
        **options: Any,
    ) -> None:
        """Set TRL's trainer up; `options` go to it (callbacks, optimizers, peft_config).

        Raises `TrainFault` without episodes.
        """
        if not episodes:
            raise TrainFault("there is no episode to train on")
        self._episodes = list(episodes)
        rows = [
            {"prompt": [{"role": "user", "content": episode.id}], "episode": place}
            for place, episode in enumerate(self._episodes)
        ]
        # TRL would set vLLM up for calls that are not made, and copy an adapter "default" as
        # the reference; ours is the model without adapters.
        hidden: dict[str, Any] = {"use_vllm": False}
        if hasattr(model, "peft_config"):
            hidden["beta"] = 0.0
        with _changed(args, hidden):
            super().__init__(
                model=model,
                reward_funcs=_no_reward,
                args=args,
                train_dataset=Dataset.from_list(rows),
                processing_class=processing_class,
                **options,
            )
        self.args: LoGoGRPOConfig
        self.beta = args.beta
        self.adapters = dict(adapters or {})
        """The adapter of each role; empty when all share the parameters."""
        self._adapter_names = sorted(set(self.adapters.values()))
        self.policy = _policy_of(self)
        self.experience = experience(self.policy)
        self.last_step: Step | None = None
        """The step that the present update learns from; for callbacks and reports."""
        self._gate: GateCallback | None = None
        if args.gradient_gate:
            self._gate = GateCallback(GradientGate(k=args.gradient_gate))
            self.add_callback(self._gate)
        self._seen: tuple[torch.Tensor, torch.Tensor] | None = None
        """Log-probabilities and entropies (B, C) of the present loss, for the echo."""

    # -- the one override --------------------------------------------------------------

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        began = perf_counter()
        number = self.state.global_step
        self.policy.version = number
        generated_s = self.policy.generation_s
        episodes = self._episodes_of_step(len(inputs) // (self.num_generations or 1))
        step = run_sync(self.experience.gather(episodes, step=number))
        self.last_step = step
        batch = batch_of_step(
            step,
            args=self.args,
            accelerator=self.accelerator,
            adapters={role: self._adapter_names.index(at) for role, at in self.adapters.items()},
            pad_id=self.processing_class.pad_token_id,
        )
        packed = perf_counter()
        output = self._with_logps(batch)
        generation_s = self.policy.generation_s - generated_s
        self._report(step, batch, generation_s=generation_s, began=began, packed=packed)
        return output

    def _episodes_of_step(self, share: int) -> list[Episode]:
        """Return the episodes that this process plays, `share` of those of all processes."""
        micro = (self.args.steps_per_generation or 1) * self.num_iterations
        places = episodes_of_batch(
            self.state.global_step // max(1, micro // self.args.gradient_accumulation_steps),
            seed=self.args.seed,
            episodes=len(self._episodes),
            size=share * self.accelerator.num_processes,
        )
        mine = places[share * self.accelerator.process_index :][:share]
        return [self._episodes[place] for place in mine]

    def _with_logps(self, batch: RowBatch) -> dict[str, Any]:
        """Return the input of TRL's loss.

        It is the rows on the device, with the log-probabilities from before the update.
        """
        device = self.accelerator.device
        names = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "advantages")
        output: dict[str, Any] = {name: getattr(batch, name).to(device) for name in names}
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
        with (
            torch.no_grad(),
            disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs),
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
        """Return (B, C) log-probabilities of the reference.

        It is a copy of the model, or the model without its adapters.
        """
        whole = self._get_per_token_logps_and_entropies
        if self.ref_model is not None:
            return whole(self.ref_model, ids, mask, keep, batch_size=chunk)[0]
        bare = self.accelerator.unwrap_model(self.model)
        with bare.disable_adapter(), self._reading(None):
            return whole(self.model, ids, mask, keep, batch_size=chunk)[0]

    # -- loss --------------------------------------------------------------------------

    @contextmanager
    def _reading(self, adapters: torch.Tensor | None) -> Generator[None]:
        """Let rows be read by these adapters (B,) while the context is open."""
        before, self._row_adapters = self._row_adapters, adapters
        try:
            yield
        finally:
            self._row_adapters = before

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
        """Train on one micro-batch as TRL does.

        The gradient gate is shown the gradients that an optimizer step is about to
        apply.
        """
        per_pass = self.args.steps_per_generation or 1
        in_batch = self._step % (per_pass * self.num_iterations)
        loss = super().training_step(model, inputs, num_items_in_batch)
        if self._gate is not None and self.accelerator.sync_gradients:
            self._gate.look(self.accelerator.unwrap_model(model), first_use=in_batch < per_pass)
            self._metrics["train"]["gate/norm"].append(self._gate.norm)
            self._metrics["train"]["gate/refused"].append(float(self._gate.gate.refused))
        return loss

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Any, attention_mask: Any, logits_to_keep: int, **options: Any
    ) -> Any:
        whole = super()._get_per_token_logps_and_entropies
        adapters = self._row_adapters
        if adapters is None or model is self.ref_model:
            output = whole(model, input_ids, attention_mask, logits_to_keep, **options)
        else:
            output = reading(
                self.accelerator.unwrap_model(model),
                self._adapter_names,
                adapters,
                lambda rows: whole(
                    model, input_ids[rows], attention_mask[rows], logits_to_keep, **options
                ),
            )
        if self.args.echo_weight and output[1] is not None and torch.is_grad_enabled():
            self._seen = output[0], output[1]
        return output

    # -- log and checkpoints -----------------------------------------------------------

    def _report(
        self, step: Step, batch: RowBatch, *, generation_s: float, began: float, packed: float
    ) -> None:
        figures = dict(step.metrics) | {
            "rows/real": float(batch.rows),
            "rows/counted": float(batch.counted),
            "rows/padded": float(batch.prompt_ids.size(0)),
            "time/generation": generation_s,
            "time/agent": step.seconds["rollout"] + step.seconds["score"] - generation_s,
            "time/credit": step.seconds["credit"],
            "time/logps": perf_counter() - packed,
            "time/experience": packed - began,
        }
        for name, value in figures.items():
            self._metrics["train"][name].append(value)
        self.state.num_input_tokens_seen += int(step.metrics.get("tokens/completion", 0))
        if self.args.trace and self.accelerator.is_main_process:
            folder = Path(self.args.output_dir or ".")
            trace_step(folder, step, number=self.state.global_step, figures=figures)

    def _send_telemetry(self) -> None:
        """Send nothing; TRL would report that a run began."""

    def _stateful(self) -> dict[str, Any]:
        """Return the parts of the experience that a checkpoint keeps, by name."""
        collector = self.experience.collector
        parts: dict[str, Any] = {"spread": collector.spread, "history": collector.history}
        return parts if self._gate is None else parts | {"gate": self._gate.gate}

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
        if self.accelerator.is_main_process and folder.is_dir():
            self._save_experience(folder)

    def _save_experience(self, folder: Path) -> None:
        """Write the state of the experience last: a checkpoint that has it is complete."""
        save_state(folder, self._stateful())

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        state = load_state(Path(resume_from_checkpoint))
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        for name, part in self._stateful().items():
            if name in state:
                part.load(state[name])


def _policy_of(trainer: LoGoGRPOTrainer) -> PolicyModel:
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


def _engine_of(trainer: LoGoGRPOTrainer, context_tokens: int | None) -> Engine:
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


def _unwrapped(trainer: LoGoGRPOTrainer) -> AbstractContextManager[Any]:
    """Return the bare model for sampling.

    Its gradient checkpointing is off, since it would switch the cache off.
    """
    if not hasattr(trainer, "model_wrapped"):
        return nullcontext(trainer.model)
    return unwrap_model_for_generation(
        trainer.model_wrapped,
        trainer.accelerator,
        gather_deepspeed3_params=trainer.args.ds3_gather_for_generation,
    )


@contextmanager
def _changed(args: Any, values: Mapping[str, Any]) -> Generator[None]:
    """Let some fields have other values while the context is open."""
    before = {name: getattr(args, name) for name in values}
    for name, value in values.items():
        setattr(args, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(args, name, value)


def _no_reward(**_: Any) -> list[float]:
    """Refuse to be called.

    TRL insists on a reward function; rewards here come from playing.
    """
    raise TrainFault("rewards come from the experience; this placeholder must not be called")

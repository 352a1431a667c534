"""LoGo-GRPO as a TRL trainer: `GRPOTrainer` whose rows come from playing.

The only file that meets TRL's trainer. It overrides eight of its methods:

    _generate_and_score_completions   replaced: rows come from the experience
    compute_loss                      replaced in training: micro-batches by tokens
    _compute_loss                     TRL's, with the objectives of the run around it
    _get_per_token_logps_and_entropies   TRL's; objectives see what it read
    training_step                     TRL's, then gradients are averaged and admitted
    _save_checkpoint, _load_from_checkpoint   TRL's, and the state of the experience
    _send_telemetry                   replaced: nothing is sent

`_generate_and_score_completions` is where TRL turns dataset rows into rows to learn
from. A dataset row here stands for an *episode* repeated n times; the episodes of a
step are a function of seed and step. We play them with the real agent and give back as
many (prompt, completion, advantage) rows as there were model calls. Optimizer, PEFT,
checkpoints and logs stay TRL's. What is *not* changed: the loss of a row (unless an
objective of the run changes it), the clip, the KL. Settings of TRL that this leaves
without effect are refused (`train.run.config`).

`compute_loss` cuts a slice of rows into micro-batches of one adapter within a
budget of tokens. The adapter stays active through the backward pass, since gradient
checkpointing runs the forward pass again there. Processes run different numbers of
micro-batches, so gradients are averaged once before an optimizer step and never by
hooks.

Shapes: B rows, P prompt, C completion.
"""

# TRL's trainer is typed loosely: its processing class may be one of five things and its model none.
# pyright: reportAttributeAccessIssue=false, reportOptionalMemberAccess=false, reportArgumentType=false, reportOptionalSubscript=false

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from datasets import Dataset
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.grpo_trainer import GRPOTrainer

from environments.records import Episode
from memagent.core.exchange import Role
from train.credit.objectives import MARK, Update
from train.credit.rows import MicroBatch, RowBatch, loss_of_slice, merged, micro_batches
from train.errors import TrainFault
from train.ranks import Alone, average_gradients, gathered
from train.rollouts.experience import Step, StepSource, joined_figures
from train.run.config import LoGoGRPOConfig, check_share
from train.run.updates import (
    AdmittedUpdates,
    LossReader,
    batch_of_step,
    episodes_of_step,
    policy_of,
    show_rewards,
    trace_step,
    update_figures,
)
from train.sampling.checkpoints import load_state, save_state
from train.sampling.policy import PolicyModel
from train.sampling.row_reader import RowReader, StepReader
from train.sync import run_sync

_OF_THE_LOSS = ("epsilon_low", "epsilon_high", "importance_sampling_level")
"""Attributes that techniques may change while one loss is computed."""


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
        experience: Callable[[PolicyModel], StepSource],
        processing_class: Any = None,
        adapters: Mapping[Role, str] | None = None,
        **options: Any,
    ) -> None:
        """Set TRL's trainer up; `options` go to it (callbacks, optimizers, peft_config).

        Raises `ConfigError` with fewer episodes than a step plays.
        """
        check_share(args, len(episodes))
        self._episodes = list(episodes)
        self._places = {episode.id: place for place, episode in enumerate(self._episodes)}
        with _changed(args, _hidden(model)):
            super().__init__(
                model=model,
                reward_funcs=_no_reward,
                args=args,
                train_dataset=_rows_of(self._episodes),
                processing_class=processing_class,
                **options,
            )
        self.args: LoGoGRPOConfig
        # TRL's loss multiplies by the ratio of trainer and sampler where it thinks of vLLM.
        self.use_vllm, self.beta = args.corrects_sampler, args.beta
        self.adapters = dict(adapters or {})
        """The adapter of each role; empty when all share the parameters."""
        self._adapter_names = sorted(set(self.adapters.values()))
        self._reader = RowReader(
            read=self._get_per_token_logps_and_entropies,
            model=self.accelerator.unwrap_model(self.model),
            start=self.ref_model,
            adapters=self._adapter_names,
            tokens=args.micro_batch_tokens,
        )
        device, pad_id = self.accelerator.device, self.processing_class.pad_token_id
        self._step_reader = StepReader(self._reader, self.adapters, device=device, pad_id=pad_id)
        self.policy = policy_of(self)
        self.policy.hook = args.plugins.sampler_hook
        self.experience: StepSource = experience(self.policy)
        self.experience.collector.read_entropies = self._step_reader.entropies_of
        self.experience.read_logps = self._step_reader.logps_of
        self.last_step: Step | None = None
        """The step that the present update learns from; for callbacks and reports."""
        self.last_tokens = 0
        """Tokens that all processes generated in that step."""
        self._objectives = args.plugins.objectives
        self._objectives.bind(processing_class)
        self._loss_reader = LossReader(
            self._objectives,
            temperature=self.temperature,
            by_row=self.importance_sampling_level == "sequence",
        )
        self._updates = AdmittedUpdates(self._objectives)
        self.add_callback(self._updates)

    # -- rows --------------------------------------------------------------------------

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        began = perf_counter()
        number = self.state.global_step
        self.policy.version = number
        self.policy.sync()
        generated_s = self.policy.generation_s
        places = episodes_of_step(
            number,
            args=self.args,
            accelerator=self.accelerator,
            episodes=len(self._episodes),
            share=len(inputs) // (self.num_generations or 1),
        )
        episodes = [self._episodes[place] for place in places]
        step = run_sync(self.experience.gather(episodes, step=number))
        self.last_step = step
        show_rewards(step, self._places, self.args)
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

    def _with_logps(self, batch: RowBatch) -> dict[str, Any]:
        """Return the input of TRL's loss.

        It is the rows on the device, with the log-probabilities from before the update.
        """
        device = self.accelerator.device
        output = self._step_reader.inputs_of(batch)
        tokens = torch.tensor(batch.tokens, device=device, dtype=torch.float32)
        output["num_items_in_batch"] = self.accelerator.gather(tokens).sum()
        for name, marks in batch.marks.items():
            output[MARK + name] = marks.to(device)
        every = self.args.micro_batches * self.num_iterations
        several = self.use_vllm or self.args.gradient_accumulation_steps % every
        options = self.args.gradient_checkpointing_kwargs
        with torch.no_grad(), disable_gradient_checkpointing(self.model, options):
            if several or bool(batch.replayed.any()):
                figures = self._step_reader.compare(output, batch, self.args)
                _note(self, joined_figures(gathered(figures)))
            if self.beta != 0.0:
                output["ref_per_token_logps"] = self._reader.reference(output)
        return output

    # -- loss --------------------------------------------------------------------------

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Return the loss of a slice after the backward passes of all but its last part.

        The caller makes the last one.
        """
        if not self.model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        bare = self.accelerator.unwrap_model(model)
        if self._objectives.looks_ahead:
            seen = self._step_reader.read(inputs)
            self._objectives.prepare(self._loss_reader.view_of(inputs, *seen))

        def loss_of(part: MicroBatch) -> tuple[torch.Tensor, dict[str, list[float]]]:
            noted: dict[str, list[float]] = defaultdict(list)
            alone = {"_metrics": {"train": noted}, "accelerator": Alone(self.accelerator)}
            with _changed(self, alone):
                return self._part_loss(bare, part), noted

        loss, figures = loss_of_slice(
            micro_batches(inputs, tokens=self.args.micro_batch_tokens),
            loss_of,
            backward=self.accelerator.backward,
            device=self.accelerator.device,
        )
        for name, value in merged([each for rank in gathered(figures) for each in rank]).items():
            self._metrics["train"][name].append(self.entropy_coef if "coef" in name else value)
        return loss

    def _part_loss(self, bare: Any, part: MicroBatch) -> torch.Tensor:
        """Return a micro-batch's part of the slice's loss, read by the rows' adapter.

        TRL means the loss over rows and the entropy over tokens, so each has its share.
        """
        if len(self._adapter_names) > 1:
            bare.set_adapter(self._adapter_names[part.adapter])
        coefficient = self.entropy_coef * part.token_share / part.row_share
        with _changed(self, {"entropy_coef": coefficient}):
            return self._compute_loss(bare, part.inputs) * part.row_share

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        own, reader = dict(inputs), self._loss_reader
        kept = {name: getattr(self, name) for name in _OF_THE_LOSS}
        with _changed(self, kept), reader.logits_of(model), reader.loss_of(own):
            loss = super()._compute_loss(model, own)
            assert reader.view is not None
            for name, term in self._objectives.terms(reader.view).items():
                self._metrics["train"][name].append(float(term.detach()))
                loss = loss + term / self.current_gradient_accumulation_steps
        return loss

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        """Train on one slice as TRL does, and average gradients before an optimizer step.

        Objectives are shown the gradients that the step is about to apply.
        """
        per_pass = self.args.micro_batches
        in_batch = self._step % (per_pass * self.num_iterations)
        with self._reader.adapter_kept():
            loss = super().training_step(model, inputs, num_items_in_batch)
        if self.accelerator.sync_gradients:
            average_gradients(self.accelerator.unwrap_model(model))
        if self._objectives and self.accelerator.sync_gradients:
            bare = self.accelerator.unwrap_model(model)
            update = Update(model=bare, first_use=in_batch < per_pass)
            _note(self, self._updates.look(update))
        return loss

    def _get_per_token_logps_and_entropies(self, *values: Any, **options: Any) -> Any:
        output = super()._get_per_token_logps_and_entropies(*values, **options)
        for name, value in self._loss_reader.read(output[0], output[1]).items():
            setattr(self, name, value)
        return output

    # -- log and checkpoints -----------------------------------------------------------

    def _report(
        self, step: Step, batch: RowBatch, *, generation_s: float, began: float, packed: float
    ) -> None:
        figures = update_figures(step, batch, generation_s=generation_s, began=began, packed=packed)
        figures = joined_figures(gathered(figures))
        _note(self, figures)
        self.last_tokens = int(figures.get("tokens/completion", 0))
        self.state.num_input_tokens_seen += self.last_tokens
        if self.args.trace and self.accelerator.is_main_process:
            folder = Path(self.args.output_dir or ".")
            trace_step(folder, step, number=self.state.global_step, figures=figures)

    def _send_telemetry(self) -> None:
        """Send nothing; TRL would report that a run began."""

    def _stateful(self) -> dict[str, Any]:
        """Return the parts of the experience that a checkpoint keeps, by name."""
        collector = self.experience.collector
        parts: dict[str, Any] = {"spread": collector.spread, "history": collector.history}
        return parts | self.args.plugins.stateful()

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
        states = gathered({name: part.state() for name, part in self._stateful().items()})
        if self.accelerator.is_main_process and folder.is_dir():
            self._save_experience(folder, states)

    def _save_experience(self, folder: Path, states: Sequence[Mapping[str, Any]]) -> None:
        """Write the state of the experience last: a checkpoint that has it is complete."""
        save_state(folder, states)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        state = load_state(Path(resume_from_checkpoint), process=self.accelerator.process_index)
        loaded = self.model if model is None else model
        trained = [each for each in loaded.parameters() if each.requires_grad]
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        for each in trained:  # PEFT freezes adapters that are not active when it loads them
            each.requires_grad_(True)
        for name, part in self._stateful().items():
            if name in state:
                part.load(state[name])


def _hidden(model: Any) -> dict[str, Any]:
    """Return the settings that TRL must not see while it sets itself up.

    It would set vLLM up for calls that are not made, and copy an adapter "default" as the
    reference; ours is the model without adapters.
    """
    return {"use_vllm": False} | ({"beta": 0.0} if hasattr(model, "peft_config") else {})


def _note(trainer: LoGoGRPOTrainer, figures: Mapping[str, float]) -> None:
    """Add figures to those of the next log."""
    for name, value in figures.items():
        trainer._metrics["train"][name].append(value)  # noqa: SLF001 - TRL's own


def _rows_of(episodes: Sequence[Episode]) -> Dataset:
    """Return the rows that stand for episodes in TRL's data loader."""
    return Dataset.from_list(
        [
            {"prompt": [{"role": "user", "content": episode.id}], "episode": place}
            for place, episode in enumerate(episodes)
        ]
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

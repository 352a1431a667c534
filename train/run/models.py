"""The model that training begins with: loaded or made, and warmed up."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import torch
from accelerate import PartialState
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from environments.demonstrations.ideal import Demonstration, lines_of
from environments.worlds.language.lexicon import tiny_vocabulary
from memagent.core.exchange import Role
from train.errors import TrainFault
from train.ranks import on_main
from train.run.task import demonstrate, demonstrate_acting
from train.run.validation import LogFile, quiet
from train.sampling.decisions import (
    byte_tokenizer,
    first_decisions,
    register_decisions,
    save_model,
    small_model,
    word_tokenizer,
    words_of,
)
from train.settings.parts import ActingWorld, is_acted_in
from train.settings.run import RunSettings
from train.settings.world import open_environment

# Warm start: supervised fine-tuning on demonstrations, through TRL's `SFTTrainer`.
#
# A policy too weak to earn varied rewards learns nothing from comparing them. Only the
# replies are learned, not the prompts. A model from scratch has to find out how to copy a
# name before anything else pays. Two things bring that forward by a thousand steps: the
# first pass goes through the roles one at a time, those who listen first, and Muon
# (momentum made orthogonal; Jordan et al. 2024) moves the hidden matrices.

# TRL's trainer is typed loosely.
# pyright: reportArgumentType=false


@dataclass(frozen=True, kw_only=True)
class WarmUpPlan:
    """Length, speed and order of the warm start."""

    epochs: float = 3.0
    learning_rate: float = 1e-3
    optimizer: Literal["adamw", "muon"] = "adamw"
    """Muon is for models from scratch; vectors and embeddings stay with AdamW at
    `learning_rate`.
    """
    matrix_learning_rate: float = 0.02
    """Of the hidden matrices under Muon."""
    batch_rows: int = 32
    max_tokens: int = 1_024
    """Longer demonstrations are cut at the end."""
    by_role: bool = True
    """Whether the first pass goes through the roles one at a time; not for weights that
    have learned already, which would forget.
    """
    seed: int = 0


_ORDER = (Role.EXTRACTOR, Role.MANAGER, Role.ANSWERER)
_BUCKET = 16
"""Batches among which rows of like length are put together."""


class Passes(torch.utils.data.Sampler[int]):
    """Rows in batches of like length, the batches in random order, anew each pass.

    With `ordered` the first pass takes rows as they stand.
    """

    def __init__(
        self, lengths: Sequence[int], *, batch_rows: int, seed: int, ordered: bool = True
    ) -> None:
        self._lengths, self._rows, self._seed, self._passed = lengths, batch_rows, seed, 0
        self._ordered = ordered

    def __len__(self) -> int:
        return len(self._lengths)

    def __iter__(self) -> Iterator[int]:
        rng = random.Random(f"{self._seed}/{self._passed}")
        order = list(range(len(self._lengths)))
        if self._passed or not self._ordered:
            rng.shuffle(order)
        self._passed += 1
        for start in range(0, len(order), self._rows * _BUCKET):
            bucket = sorted(
                order[start : start + self._rows * _BUCKET], key=lambda row: self._lengths[row]
            )
            batches = [bucket[at : at + self._rows] for at in range(0, len(bucket), self._rows)]
            rng.shuffle(batches)
            for batch in batches:
                yield from batch


class Paired(torch.optim.Optimizer):
    """Two optimizers of different parameters as one."""

    def __init__(self, *parts: torch.optim.Optimizer) -> None:
        super().__init__(
            [group for part in parts for group in part.param_groups], {}
        )  # the very groups of the parts
        self.parts = parts

    def step(self, closure: Any = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Take one step of both; refuse a closure."""
        if closure is not None:
            raise TrainFault("optimizers in a pair take no closure")
        for part in self.parts:
            part.step()

    def state_dict(self) -> dict[str, Any]:
        """Return the states of both."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the states of both back."""
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self.param_groups = [group for part in self.parts for group in part.param_groups]


def optimizer_of(model: Any, plan: WarmUpPlan) -> torch.optim.Optimizer | None:
    """Return Muon, with AdamW for all but hidden matrices; None for the trainer's own."""
    if plan.optimizer == "adamw":
        return None
    learned = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
    hidden = {
        name
        for name, parameter in learned
        if parameter.ndim == 2 and "embed" not in name and "lm_head" not in name
    }
    return Paired(
        torch.optim.Muon(
            [parameter for name, parameter in learned if name in hidden],
            lr=plan.matrix_learning_rate,
            weight_decay=0.0,
        ),
        torch.optim.AdamW(
            [parameter for name, parameter in learned if name not in hidden],
            lr=plan.learning_rate,
            betas=(0.9, 0.98),
            weight_decay=0.0,
        ),
    )


class WarmUpTrainer(SFTTrainer):
    """`SFTTrainer` that goes through its data in `Passes` and sends no telemetry."""

    by_role = True

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        rows: Any = train_dataset if train_dataset is not None else self.train_dataset
        lengths = [len(ids) for ids in rows["input_ids"]]
        return Passes(
            lengths,
            batch_rows=self.args.per_device_train_batch_size,
            seed=self.args.seed,
            ordered=self.by_role,
        )

    def _send_telemetry(self) -> None:
        """Send nothing."""


class _LastStep(TrainerCallback):
    """Logs the last step too: a start shorter than the steps between logs has figures."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Ask for a log when no step follows."""
        control.should_log = control.should_log or state.global_step >= state.max_steps


def warm_up(
    model: Any,
    tokenizer: Any,
    demonstrations: Sequence[Demonstration],
    *,
    folder: Path,
    plan: WarmUpPlan = WarmUpPlan(),
    peft_config: Any = None,
) -> dict[str, float]:
    """Fine-tune the model in place and save it to `folder`.

    Return the last loss and token accuracy. Raises `TrainFault` without data.
    """
    if not demonstrations:
        raise TrainFault("there are no demonstrations to learn from")
    marked = marks_replies(tokenizer)
    args = SFTConfig(
        output_dir=str(folder / "run"),
        num_train_epochs=plan.epochs,
        learning_rate=plan.learning_rate,
        lr_scheduler_type="cosine",
        adam_beta2=0.98,
        warmup_steps=0.05,
        per_device_train_batch_size=max(1, plan.batch_rows // PartialState().num_processes),
        max_length=plan.max_tokens,
        assistant_only_loss=marked,
        completion_only_loss=not marked,
        seed=plan.seed,
        report_to=[],
        logging_steps=10,
        save_strategy="no",
        dataset_num_proc=None,
        gradient_checkpointing=False,
        bf16=bf16_works(),
        disable_tqdm=True,
        dataloader_pin_memory=bf16_works(),
    )
    shown = sorted(demonstrations, key=_turn)
    trainer = WarmUpTrainer(
        model,
        args=args,
        train_dataset=Dataset.from_list([_example(each, marked=marked) for each in shown]),
        processing_class=tokenizer,
        peft_config=peft_config,
        optimizers=(optimizer_of(model, plan), None),
    )
    trainer.by_role = plan.by_role
    trainer.add_callback(_LastStep())
    Path(args.output_dir).mkdir(parents=True, exist_ok=True)
    trainer.add_callback(LogFile(path=Path(args.output_dir) / "log.jsonl"))
    quiet(trainer)
    trainer.train()
    figures = _figures(trainer.state.log_history, len(demonstrations))
    bare = trainer.accelerator.unwrap_model(trainer.model)
    on_main(lambda: save_model(bare, tokenizer, folder, note={"warm_up": figures}))
    return figures


def _figures(history: Sequence[Mapping[str, float]], demonstrations: int) -> dict[str, float]:
    """Return means of the last three logged steps, beside the number of demonstrations."""
    last = [entry for entry in history if "loss" in entry][-3:]
    count = max(1, len(last))
    return {
        "loss": sum(entry["loss"] for entry in last) / count,
        "accuracy": sum(one.get("mean_token_accuracy", 0.0) for one in last) / count,
        "demonstrations": float(demonstrations),
    }


def _turn(demonstration: Demonstration) -> int:
    """Return the place of the demonstration's role in the first pass."""
    role = demonstration.role
    return _ORDER.index(role) if role in _ORDER else len(_ORDER)


def marks_replies(tokenizer: Any) -> bool:
    """Tell whether the chat template marks what the assistant says, as TRL's masks need.

    Templates of most hub models do not. Their demonstrations are given as a prompt and
    its completion, cut where the reply of the policy begins.
    """
    return "generation" in re.findall(r"{%-?\s*(\w+)", tokenizer.chat_template or "")


def _example(demonstration: Demonstration, *, marked: bool) -> dict[str, Any]:
    """Return a demonstration as a row of TRL's dataset."""
    chat = demonstration.chat()
    if marked:
        return chat
    *prompt, reply = chat["messages"]
    return {"prompt": prompt, "completion": [reply]}


def bf16_works() -> bool:
    """Tell whether there is a GPU that computes in bf16."""
    return torch.cuda.is_available() and torch.cuda.is_bf16_supported()


_READ_EPISODES = 50
"""Episodes whose words a model from scratch knows."""
Say = Callable[[str], None]
"""Takes a line of progress."""


def first_model(settings: RunSettings, folder: Path, *, say: Say = print) -> None:
    """Make the model and tokenizer that training begins with in `folder/init`.

    Nothing is done when they are there. Processes that train together warm up together.
    """
    init = folder / "init"
    if on_main((init / "config.json").is_file):
        return
    if settings.model.size == "decisions" and settings.model.path is None:
        episodes = settings.warmup.episodes if settings.warmup is not None else 0
        model, tokenizer = first_decisions(episodes, seed=settings.seed)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        say(f"decision policy with {parameters:,} parameters, {episodes} labelled dialogues")
        on_main(lambda: save_model(model, tokenizer, init, note={"max_tokens": 1}))
        return
    shown = asyncio.run(_shown(settings)) if settings.warmup or settings.model.path is None else []
    if settings.model.path is not None:
        model, tokenizer = _load(settings.model.path, warmed_up=settings.warmup is not None)
    else:
        model, tokenizer = new_model(settings, shown)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    say(f"model with {parameters:,} parameters and {len(tokenizer):,} tokens")
    if settings.warmup is None:
        on_main(lambda: save_model(model, tokenizer, init))
    else:
        say(f"warm start on {len(shown):,} demonstrations")
        figures = warm_up(model, tokenizer, shown, folder=init, plan=_warmup_plan(settings))
        say(f"warm start: loss {figures['loss']:.3f}, token accuracy {figures['accuracy']:.3f}")


def new_model(
    settings: RunSettings, shown: Sequence[Demonstration] | None = None
) -> tuple[Any, Any]:
    """Return a (model, tokenizer) with random weights for the language of the settings' world.

    `shown` are demonstrations; they are played when not given.
    """
    if shown is None:
        shown = asyncio.run(_shown(settings))
    tokenizer = _own_tokenizer(settings, shown)
    part = settings.model
    model = small_model(
        tokenizer, size=part.size, context_tokens=part.context_tokens, seed=settings.seed
    )
    return model, tokenizer


async def _shown(settings: RunSettings) -> list[Demonstration]:
    """Play the demonstrations of the settings' world."""
    acted = is_acted_in(settings.environment.kind)
    return await (demonstrate_acting(settings) if acted else demonstrate(settings))


def _load(source: str, *, warmed_up: bool) -> tuple[Any, Any]:
    """Return the model in its own precision, or in fp32 when all its weights learn."""
    register_decisions()
    model = AutoModelForCausalLM.from_pretrained(
        source, dtype=torch.float32 if warmed_up else "auto"
    )
    return model, AutoTokenizer.from_pretrained(source)


def _warmup_plan(settings: RunSettings) -> WarmUpPlan:
    part = settings.warmup
    assert part is not None
    return WarmUpPlan(
        epochs=part.epochs,
        learning_rate=part.learning_rate,
        optimizer=part.optimizer,
        batch_rows=part.batch_rows,
        max_tokens=settings.model.context_tokens,
        by_role=settings.model.path is None,
        seed=settings.seed,
    )


def _own_tokenizer(settings: RunSettings, shown: Sequence[Demonstration]) -> Any:
    if is_acted_in(settings.environment.kind):  # tasks to come have other names and numbers
        tasks = ActingWorld.of(settings).stream("train", _READ_EPISODES).values()
        read = [line for task in tasks for line in (task.text, *task.actions)]
        return byte_tokenizer([*lines_of(shown), *read], size=8_000)
    lines = [*lines_of(shown), *_told(settings)]
    if settings.environment.level == "tiny":
        return word_tokenizer([*tiny_vocabulary(), *words_of(lines), *map(str, range(32))])
    return byte_tokenizer(lines, size=8_000)


def _told(settings: RunSettings) -> list[str]:
    """Return turns, questions and answers of an environment other than the synthetic world.

    The demonstrations do not have its words.
    """
    if settings.environment.kind == "synthetic":
        return []
    env = open_environment(settings.environment, sessions=settings.stage[0].sessions)
    return [
        line
        for episode in islice(env.episodes("train"), _READ_EPISODES)
        for line in (
            *(turn.text for turn in episode.turns),
            *(text for probe in episode.probes for text in (probe.question, *probe.answers)),
        )
    ]

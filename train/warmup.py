"""Warm start: supervised fine-tuning on demonstrations, through TRL's `SFTTrainer`.

A policy too weak to earn varied rewards learns nothing from comparing them. Only the replies are learned, not the prompts.
"""

# TRL's trainer is typed loosely.
# pyright: reportArgumentType=false

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset
from trl.trainer.sft_config import SFTConfig
from trl.trainer.sft_trainer import SFTTrainer

from environments.demonstrations import Demonstration
from train.errors import TrainFault
from train.logs import quiet
from train.small_models import save_model


@dataclass(frozen=True, kw_only=True)
class WarmUpPlan:
    """How long and how fast."""

    epochs: float = 3.0
    learning_rate: float = 1e-3
    batch_rows: int = 32
    max_tokens: int = 1_024
    """Longer demonstrations are cut at the end."""
    seed: int = 0


class WarmUpTrainer(SFTTrainer):
    """`SFTTrainer` that tells nobody that it runs."""

    def _send_telemetry(self) -> None:
        """Nothing is sent."""


def warm_up(
    model: Any,
    tokenizer: Any,
    demonstrations: Sequence[Demonstration],
    *,
    folder: Path,
    plan: WarmUpPlan = WarmUpPlan(),
    peft_config: Any = None,
) -> dict[str, float]:
    """Fine-tune the model in place, save it to `folder`, and give the last loss and token accuracy. Raises `TrainFault` without data."""
    if not demonstrations:
        raise TrainFault("there are no demonstrations to learn from")
    args = SFTConfig(
        output_dir=str(folder / "run"),
        num_train_epochs=plan.epochs,
        learning_rate=plan.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=0.05,
        per_device_train_batch_size=plan.batch_rows,
        max_length=plan.max_tokens,
        assistant_only_loss=True,
        seed=plan.seed,
        report_to=[],
        logging_steps=10,
        save_strategy="no",
        dataset_num_proc=None,
        gradient_checkpointing=False,
        bf16=_bf16(),
        disable_tqdm=True,
        dataloader_pin_memory=_bf16(),
    )
    trainer = WarmUpTrainer(
        model,
        args=args,
        train_dataset=Dataset.from_list([one.chat() for one in demonstrations]),
        processing_class=tokenizer,
        peft_config=peft_config,
    )
    quiet(trainer)
    trainer.train()
    last = [entry for entry in trainer.state.log_history if "loss" in entry][-3:]
    figures = {
        "loss": sum(entry["loss"] for entry in last) / max(1, len(last)),
        "accuracy": sum(entry.get("mean_token_accuracy", 0.0) for entry in last) / max(1, len(last)),
        "demonstrations": float(len(demonstrations)),
    }
    save_model(trainer.model, tokenizer, folder, note={"warm_up": figures})
    return figures


def _bf16() -> bool:
    import torch

    return torch.cuda.is_available() and torch.cuda.is_bf16_supported()

"""Weights that learn are in fp32, and a run that its data cannot feed stops before it begins."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from places import ROOT
from training_kit import (
    GivenSteps,
    random_step,
    saved_model,
    settings,
    small_episode,
    tiny_tokenizer,
    trainer_of,
)

from memagent.core.errors import ConfigError
from train.run.config import check_share
from train.run.stages import _config_of
from train.sampling.checkpoints import load_for_training
from train.settings.run import LoRASettings


def _in_bf16(folder: Path) -> Path:
    """A saved model whose files are in bf16, as those of most hub models."""
    model = saved_model(folder / "first", tiny_tokenizer())
    model.to(torch.bfloat16).save_pretrained(folder / "bf16")
    tiny_tokenizer().save_pretrained(folder / "bf16")
    return folder / "bf16"


def _moved(folder: Path, model: Any, tokenizer: Any) -> float:
    """Share of the weights that an AdamW step of 2e-6 changes."""
    before = torch.cat([each.detach().flatten().clone() for each in model.parameters()])
    step = random_step(tokenizer, rows=12, seed=1)
    args = settings(folder / "run", learning_rate=2e-6, lr_scheduler_type="constant")
    trainer_of(model, tokenizer, args, GivenSteps([step])).train()
    after = torch.cat([each.detach().flatten() for each in model.parameters()])
    return float((after != before).float().mean())


def test_all_weights_are_trained_in_fp32_whatever_the_files_hold(tmp_path: Path) -> None:
    """In bf16 a step of 2e-6 is lost in most of them."""
    from transformers import AutoModelForCausalLM

    source = _in_bf16(tmp_path)
    kept = AutoModelForCausalLM.from_pretrained(source, dtype="auto")
    kept.config._name_or_path = str(source)
    assert kept.dtype == torch.bfloat16
    model, tokenizer, _ = load_for_training(source, source)
    assert {each.dtype for each in model.parameters()} == {torch.float32}
    lost = _moved(tmp_path / "bf16", kept, tokenizer)
    moved = _moved(tmp_path / "fp32", model, tokenizer)
    assert lost < 0.2 < 0.8 < moved


def test_adapters_learn_in_fp32_over_a_base_as_its_files_are(tmp_path: Path) -> None:
    source = _in_bf16(tmp_path)
    lora = LoRASettings(r=2, alpha=4, targets=("q_proj",), per_role=True)
    model, _, _ = load_for_training(source, source, lora=lora)
    dtypes = {each.requires_grad: each.dtype for each in model.parameters()}
    assert dtypes == {True: torch.float32, False: torch.bfloat16}


def test_a_step_that_plays_more_episodes_than_there_are_is_refused_at_the_start(
    tmp_path: Path,
) -> None:
    tokenizer = tiny_tokenizer()
    model = saved_model(tmp_path / "model", tokenizer)
    args = settings(tmp_path / "run", per_device_train_batch_size=2)
    with pytest.raises(ConfigError, match=r"plays 4 episodes .*and there are 3"):
        trainer_of(
            model,
            tokenizer,
            args,
            GivenSteps([]),
            episodes=[small_episode(place) for place in range(3)],
        )


def test_the_shipped_settings_have_episodes_for_the_processes_they_name(tmp_path: Path) -> None:
    """LoCoMo's split has two conversations to train on, whatever `episodes` says."""
    text = (ROOT / "examples/training/qwen7b_locomo.toml").read_text(encoding="utf-8")
    launch = next(line for line in text.splitlines() if "accelerate launch" in line)
    file = next(word for word in launch.split() if word.endswith(".yaml"))
    processes = yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))["num_processes"]
    trainer = tomllib.loads(text)["trainer"] | {
        "output_dir": str(tmp_path),
        "bf16": False,
        "use_cpu": True,
    }
    args = _config_of(trainer)
    check_share(args, 2, processes=processes)
    with pytest.raises(ConfigError, match="plays 4 episodes"):
        check_share(args, 2, processes=4)

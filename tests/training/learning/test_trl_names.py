"""What is used of TRL: each of its settings does something here or is refused in words, and
the names that our trainer overrides, reads and calls are there.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
from training_kit import settings
from transformers import TrainingArguments
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

import train
from memagent.core.errors import ConfigError
from train.run.trainer import LoGoGRPOTrainer

SOURCE = "\n".join(
    path.read_text(encoding="utf-8") for path in Path(train.__file__).parent.rglob("*.py")
)
_TRAINING = {each.name for each in fields(TrainingArguments)}
FIELDS = {each.name: each for each in fields(GRPOConfig) if each.name not in _TRAINING}
SET_UP = {
    "router_aux_loss_coef": "of the model's own loss",
    "disable_dropout": "in the model",
    "cast_lm_head_to_fp32": "in the model",
    "generation_batch_size": "another name of steps_per_generation",
    "epsilon": "bound of the clip, set by TRL's constructor",
    "epsilon_high": "bound of the clip, set by TRL's constructor",
    "vllm_importance_sampling_cap": "former name of vllm_importance_sampling_clip_max",
    "sync_ref_model": "TRL adds the callback",
    "ref_model_mixup_alpha": "of that callback",
    "ref_model_sync_steps": "of that callback",
}
"""Settings that TRL's constructor has used up when it returns."""
_DIFFERENT = {"scale_rewards": "batch", "multi_objective_aggregation": "normalize_then_sum"}


def _other(name: str) -> Any:
    """A value that a setting does not have by default."""
    default = FIELDS[name].default
    if name in _DIFFERENT:
        return _DIFFERENT[name]
    if isinstance(default, bool):
        return not default
    if isinstance(default, int | float):
        return default + 1
    return {"some": 1} if default is None or default is MISSING else f"{default}-other"


def _acts(name: str) -> bool:
    """Whether our code or the loss that we call reads the setting."""
    loss = inspect.getsource(GRPOTrainer._compute_loss)
    loss += inspect.getsource(GRPOTrainer._get_per_token_logps_and_entropies)
    return bool(re.search(rf"(args|options|self)\.{name}\b", SOURCE + loss))


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_each_setting_of_trl_does_something_or_is_refused(name: str, tmp_path: Path) -> None:
    if name in SET_UP or _acts(name):
        return
    with pytest.raises(ConfigError, match=rf"{name} must be left out, it has no effect here"):
        settings(tmp_path, **{name: _other(name)})


def test_what_trl_s_constructor_uses_up_is_known_to_it() -> None:
    text = inspect.getsource(GRPOTrainer.__init__) + inspect.getsource(GRPOConfig.__post_init__)
    unknown = [name for name in SET_UP if name not in FIELDS or name not in text]
    assert unknown in ([], ["ref_model_mixup_alpha", "ref_model_sync_steps"])


def test_the_methods_that_are_overridden_are_trl_s() -> None:
    document = inspect.getmodule(LoGoGRPOTrainer).__doc__ or ""  # type: ignore[union-attr]
    block = document.partition("It overrides eight of its methods:")[2].partition("`_generate")[0]
    overridden = set(re.findall(r"\b(_?[a-z]+_[a-z_]+)\b(?=[ ,])", block)) & set(dir(GRPOTrainer))
    own = {
        name
        for name in vars(LoGoGRPOTrainer)
        if callable(getattr(LoGoGRPOTrainer, name)) and hasattr(GRPOTrainer, name)
    } - {"__init__"}
    assert overridden == own


@pytest.mark.parametrize(
    ("method", "names"),
    [
        ("_generate_and_score_completions", ("self", "inputs")),
        ("compute_loss", ("self", "model", "inputs", "return_outputs", "num_items_in_batch")),
        ("_compute_loss", ("self", "model", "inputs")),
        ("training_step", ("self", "model", "inputs", "num_items_in_batch")),
        ("_save_checkpoint", ("self", "model", "trial")),
        ("_load_from_checkpoint", ("self", "resume_from_checkpoint", "model")),
    ],
)
def test_trl_calls_them_as_we_take_it(method: str, names: tuple[str, ...]) -> None:
    taken = tuple(inspect.signature(getattr(GRPOTrainer, method)).parameters)
    assert taken[: len(names)] == names


def test_the_loss_reads_the_rows_that_we_make() -> None:
    """These keys are what `_generate_and_score_completions` hands to TRL's loss."""
    loss = inspect.getsource(GRPOTrainer._compute_loss)
    for key in (
        "prompt_ids",
        "prompt_mask",
        "completion_ids",
        "completion_mask",
        "advantages",
        "old_per_token_logps",
        "ref_per_token_logps",
        "importance_sampling_ratio",
    ):
        assert f'"{key}"' in loss, key
    for attribute in (
        "_metrics",
        "_step",
        "temperature",
        "entropy_coef",
        "current_gradient_accumulation_steps",
    ):
        assert f"self.{attribute}" in inspect.getsource(GRPOTrainer), attribute

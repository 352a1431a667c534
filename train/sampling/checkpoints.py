"""Checkpoints: saved models become policies for apps, or models to train on."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from memagent.core.errors import ConfigError
from memagent.core.exchange import Role, Sampling
from train.errors import TrainFault
from train.sampling.constrained import schema_masks
from train.sampling.generation import TransformersEngine
from train.sampling.policy import PolicyModel
from train.settings.options import ANSWER_ROLES

NOTE = "memagent.json"
"""File in which a folder describes itself: adapters of roles, decoding, figures."""
STATE_FILE = "experience.json"
"""File in which a checkpoint keeps the state of the experience beside TRL's own; written
last, so its presence means complete.
"""
ANSWERING = Sampling(temperature=0.0, max_tokens=256)
"""Decoding of a loaded policy: as it is evaluated."""


def load_policy(path: str, **options: Any) -> PolicyModel:
    """Load the policy in a folder or behind a hub id.

    It is greedy unless `sampling` says otherwise, and held to JSON Schemas if training
    was or `constrained` says so. `options` are those of `PolicyModel`. Raises
    `ConfigError` when it cannot be loaded.
    """
    from transformers import AutoTokenizer

    from train.sampling.decisions import register_decisions

    register_decisions()
    folder = Path(path)
    note = _note_of(folder)
    try:
        with _quiet(folder.is_dir()):
            tokenizer = AutoTokenizer.from_pretrained(path)
            model = _model_of(path, note, "cuda" if torch.cuda.is_available() else "cpu")
    except (OSError, ValueError) as error:
        raise ConfigError(f"no model can be loaded from {path!r}: {error}") from error
    constrained = bool(options.get("constrained", note.get("constrained", False)))
    settings: dict[str, Any] = {
        "name": folder.name or path,
        "sampling": ANSWERING.model_copy(
            update={"max_tokens": note.get("max_tokens") or ANSWERING.max_tokens}
        ),
        "context_tokens": getattr(model.config, "max_position_embeddings", None),
        "adapters": {Role(role): name for role, name in note.get("adapters", {}).items()},
        "constrained": constrained,
    }
    engine = _engine_of(model, tokenizer, constrained=constrained)
    return PolicyModel(engine, tokenizer, **(settings | options))


def _note_of(folder: Path) -> dict[str, Any]:
    """Return the folder's description of itself; {} without one."""
    if not (folder / NOTE).is_file():
        return {}
    return json.loads((folder / NOTE).read_text(encoding="utf-8"))


@contextmanager
def _quiet(silent: bool) -> Generator[None]:
    """Hide progress bars when nothing is fetched, since an app's output is its own."""
    from transformers.utils import logging

    bars = logging.is_progress_bar_enabled()
    if silent:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        if bars:
            logging.enable_progress_bar()


def _model_of(path: str, note: Mapping[str, Any], device: str) -> Any:
    """Load the model with the adapters that its folder names or holds."""
    from transformers import AutoModelForCausalLM

    folder = Path(path)
    model: Any = AutoModelForCausalLM.from_pretrained(note.get("base", path), dtype="auto")
    model = model.to(device)
    names = sorted(set(note.get("adapters", {}).values()))
    if names:
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, str(folder / names[0]), adapter_name=names[0])
        for name in names[1:]:
            model.load_adapter(str(folder / name), adapter_name=name)
    elif (folder / "adapter_config.json").is_file():
        from peft import PeftModel

        model = PeftModel.from_pretrained(model, path)
    return model.eval()


def _engine_of(model: Any, tokenizer: Any, *, constrained: bool) -> TransformersEngine:
    eos = model.generation_config.eos_token_id if model.generation_config is not None else None
    eos_ids = [eos] if isinstance(eos, int) else list(eos or [])
    pad_id = tokenizer.pad_token_id
    return TransformersEngine(
        model,
        eos_ids=sorted({*eos_ids, tokenizer.eos_token_id}),
        pad_id=tokenizer.eos_token_id if pad_id is None else pad_id,
        masks=schema_masks(tokenizer) if constrained else None,
    )


def last_checkpoint(folder: Path) -> Path | None:
    """Return the latest complete `checkpoint-N` in a folder; None without any.

    A checkpoint that was cut off while it was saved does not count.
    """
    complete = [path for path in folder.glob("checkpoint-*") if (path / STATE_FILE).is_file()]
    return max(complete, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def save_state(folder: Path, processes: Sequence[Mapping[str, Any]]) -> None:
    """Write the states of each process, by name of the part, at once."""
    fresh = folder / f"{STATE_FILE}.part"
    fresh.write_text(json.dumps({"processes": processes}), encoding="utf-8")
    fresh.replace(folder / STATE_FILE)


def load_state(folder: Path, *, process: int = 0) -> dict[str, Any]:
    """Return the states of a process that `save_state` wrote.

    A process beyond those of the run gets the states of the first. Raises `TrainFault`
    for a checkpoint that was cut off while it was saved.
    """
    path = folder / STATE_FILE
    if not path.is_file():
        raise TrainFault(
            f"{folder} has no {STATE_FILE}: it was not saved to its end, go on from an earlier one"
        )
    states = json.loads(path.read_text(encoding="utf-8"))["processes"]
    return states[process if process < len(states) else 0]


def save_adapters(model: Any, folder: Path) -> None:
    """Save each LoRA adapter where `load_policy` and `load_for_training` look for it.

    That is `folder/NAME`, or `folder` itself for the only one, as PEFT makes a folder
    for each adapter but "default".
    """
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder, selected_adapters=list(model.peft_config))


def load_for_training(
    source: Path, base: Path, *, lora: Any = None
) -> tuple[Any, Any, dict[Role, str]]:
    """Return (model, tokenizer, adapters by role) to go on training with.

    They come from `source`, a stage's best or the start, and from `base`, the start.
    With `lora` (a `LoRASettings`) the base stays as it is and adapters are trained:
    one, or those that `per_role` says; those that `source`
    holds are taken up. Without it all weights are trained, in fp32: a step of 2e-6 is
    less than bf16 can tell apart, so weights kept in bf16 would hardly move.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from train.sampling.decisions import register_decisions

    register_decisions()
    tokenizer = AutoTokenizer.from_pretrained(base)
    if lora is None:
        model: Any = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
        model.config.name_or_path = str(base)  # the reference of the KL is the start
        return model, tokenizer, {}
    from peft import LoraConfig, get_peft_model

    base_model: Any = AutoModelForCausalLM.from_pretrained(base, dtype="auto")
    base_model.config.name_or_path = str(base)
    calls = ["extractor"] if lora.per_role == "calls" else []
    names = [*calls, "manager", "answerer"] if lora.per_role else ["default"]
    targets = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
    settings = LoraConfig(
        r=lora.r, lora_alpha=lora.alpha, target_modules=targets, task_type="CAUSAL_LM"
    )
    model = get_peft_model(base_model, settings, adapter_name=names[0])
    for name in names[1:]:
        model.add_adapter(name, settings)
    for name in names:
        saved = source / ("" if name == "default" else name)
        if (saved / "adapter_config.json").is_file():
            model.load_adapter(str(saved), adapter_name=name, is_trainable=True)
        elif name in _note_of(source).get("adapters", {}).values():
            raise ConfigError(
                f"{source} says that it has an adapter {name!r}, but {saved} does not hold it"
            )
    for parameter_name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in parameter_name)
    roles = {Role.EXTRACTOR: names[0], Role.MANAGER: names[(len(names) - 1) // 2]}
    roles |= dict.fromkeys(sorted(ANSWER_ROLES), names[-1])
    return model, tokenizer, roles if lora.per_role else {}

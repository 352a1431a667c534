"""Loading what training saved: a folder (or hub id) becomes a policy that an app can use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from memagent.core.errors import ConfigError
from memagent.core.exchange import Role, Sampling
from train.sampling.generation import TransformersEngine
from train.sampling.policy import PolicyModel

NOTE = "memagent.json"
"""What a folder says of itself: roles with adapters of their own, decoding, design."""
STATE_FILE = "experience.json"
"""What a checkpoint of the trainer keeps of the experience beside TRL's own state; written
last, so its presence means complete.
"""
ANSWERING = Sampling(temperature=0.0, max_tokens=256)
"""How a loaded policy decodes: as it is evaluated."""


def load_policy(path: str, **options: Any) -> PolicyModel:
    """The policy in a folder, greedy unless `sampling` says otherwise, and held to JSON
    Schemas if training was or `constrained` says so.

    Raises `ConfigError` when it cannot be loaded.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging

    folder = Path(path)
    note: dict[str, Any] = {}
    if (folder / NOTE).is_file():
        note = json.loads((folder / NOTE).read_text(encoding="utf-8"))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    bars = logging.is_progress_bar_enabled()
    if folder.is_dir():
        logging.disable_progress_bar()  # nothing is fetched, and an app's output is its own
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
        model: Any = AutoModelForCausalLM.from_pretrained(note.get("base", path), dtype="auto")
        model = model.to(device)
        adapters: dict[str, str] = note.get("adapters", {})
        if adapters:
            from peft import PeftModel

            names = sorted(set(adapters.values()))
            model = PeftModel.from_pretrained(model, str(folder / names[0]), adapter_name=names[0])
            for name in names[1:]:
                model.load_adapter(str(folder / name), adapter_name=name)
        elif (folder / "adapter_config.json").is_file():
            from peft import PeftModel

            model = PeftModel.from_pretrained(model, path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"no model can be loaded from {path!r}: {error}") from error
    finally:
        if bars:
            logging.enable_progress_bar()
    model.eval()
    eos = model.generation_config.eos_token_id if model.generation_config is not None else None
    eos_ids = [eos] if isinstance(eos, int) else list(eos or [])
    pad_id = (
        tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    )
    masks = None
    constrained = bool(options.get("constrained", note.get("constrained", False)))
    if constrained:
        from train.sampling.constrained import schema_masks

        masks = schema_masks(tokenizer)
    engine = TransformersEngine(
        model, eos_ids=sorted({*eos_ids, tokenizer.eos_token_id}), pad_id=pad_id, masks=masks
    )
    settings: dict[str, Any] = {
        "name": folder.name or path,
        "sampling": ANSWERING.model_copy(
            update={"max_tokens": note.get("max_tokens") or ANSWERING.max_tokens}
        ),
        "context_tokens": getattr(model.config, "max_position_embeddings", None),
        "adapters": {Role(role): name for role, name in note.get("adapters", {}).items()},
        "constrained": constrained,
    }
    return PolicyModel(engine, tokenizer, **(settings | options))


def last_checkpoint(folder: Path) -> Path | None:
    """The latest complete `checkpoint-N` in a folder: one that was cut off while it was saved does not count.

    None without any.
    """
    found = [one for one in folder.glob("checkpoint-*") if (one / STATE_FILE).is_file()]
    return max(found, key=lambda one: int(one.name.rpartition("-")[2]), default=None)


def save_adapters(model: Any, folder: Path) -> None:
    """Each LoRA adapter where `load_policy` and `load_for_training` look for it:
    `folder/NAME`, the only one in `folder` itself.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(
        folder, selected_adapters=list(model.peft_config)
    )  # PEFT makes a folder for each but "default"


def _adapters_of(folder: Path) -> dict[str, str]:
    """Adapters by role, as the folder says of itself."""
    if not (folder / NOTE).is_file():
        return {}
    return json.loads((folder / NOTE).read_text(encoding="utf-8")).get("adapters", {})


def load_for_training(
    source: Path, base: Path, *, lora: Any = None
) -> tuple[Any, Any, dict[Role, str]]:
    """(model, tokenizer, adapters by role) to go on training with: from `source`, a
    stage's best or the start.

    With `lora` (a `LoRASettings`) the base stays as it is and adapters are trained:
    one, or one for the manager's roles and one for the answerer's; those that `source`
    holds are taken up.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(base)
    if lora is None:
        model: Any = AutoModelForCausalLM.from_pretrained(source, dtype="auto")
        model.config._name_or_path = str(base)  # the reference of the KL is the start
        return model, tokenizer, {}
    from peft import LoraConfig, get_peft_model

    base_model: Any = AutoModelForCausalLM.from_pretrained(base, dtype="auto")
    base_model.config._name_or_path = str(base)
    names = ("manager", "answerer") if lora.per_role else ("default",)
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
        elif name in _adapters_of(source).values():
            raise ConfigError(
                f"{source} says that it has an adapter {name!r}, but {saved} does not hold it"
            )
    for parameter_name, parameter in model.named_parameters():
        parameter.requires_grad_("lora_" in parameter_name)
    roles = {Role.EXTRACTOR: names[0], Role.MANAGER: names[0], Role.ANSWERER: names[-1]}
    return model, tokenizer, roles if lora.per_role else {}

"""A tiny model with an adapter for each role, and the gradients that its rows should give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from training_kit import saved_model, tiny_tokenizer

from memagent.core.exchange import Role
from train.rollouts.experience import Step
from train.sampling.checkpoints import load_for_training
from train.sampling.generation import kept_adapter
from train.settings.run import LoRASettings


def adapted_model(folder: Path, lora: LoRASettings) -> tuple[Any, Any, dict[Role, str]]:
    """A tiny model whose two adapters have different weights, none of them zero."""
    if not folder.exists():
        saved_model(folder, tiny_tokenizer())
    model, tokenizer, adapters = load_for_training(folder, folder, lora=lora)
    torch.manual_seed(5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_" in name:
                parameter.copy_(torch.randn_like(parameter) * 0.3)
    return model, tokenizer, adapters


def naive_gradients(
    model: Any, adapters: Mapping[Role, str], steps: Sequence[Step]
) -> dict[str, torch.Tensor]:
    """-(1/N) sum of A * mean log pi, each row alone through its adapter; no checkpointing."""
    count = sum(len(step.traces) for step in steps)
    for step in steps:
        for key, advantage in step.credit.advantages.items():
            trace = step.traces[key]
            ids = torch.tensor([[*trace.prompt_ids, *trace.completion_ids]])
            with kept_adapter(model):
                model.set_adapter(adapters[step.roles[key]])
                logps = torch.log_softmax(model(input_ids=ids).logits[0, :-1].float(), dim=-1)
                said = logps.gather(1, ids[0, 1:].unsqueeze(1)).squeeze(1)
                (-advantage * said[len(trace.prompt_ids) - 1 :].mean() / count).backward()
    return {
        name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None
    }

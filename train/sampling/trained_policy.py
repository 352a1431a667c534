"""The policy of a trainer: its own model in this process, or vLLM with its weights."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from trl.models.utils import unwrap_model_for_generation

from memagent.core.exchange import Sampling
from train.sampling.constrained import schema_masks
from train.sampling.generation import Engine, TransformersEngine
from train.sampling.policy import PolicyModel
from train.sampling.vllm_engine import open_vllm


def policy_of(trainer: Any) -> PolicyModel:
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


def _engine_of(trainer: Any, context_tokens: int | None) -> Engine:
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


def _unwrapped(trainer: Any) -> AbstractContextManager[Any]:
    """Return the bare model for sampling.

    Its gradient checkpointing is off, since it would switch the cache off.
    """
    if not hasattr(trainer, "model_wrapped"):
        return nullcontext(trainer.model)
    return unwrap_model_for_generation(
        trainer.model_wrapped,
        trainer.accelerator,
        gradient_checkpointing_kwargs=trainer.args.gradient_checkpointing_kwargs,
    )

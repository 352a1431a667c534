"""The trainer's configuration: TRL's `GRPOConfig` with this package's options.

Local groups, credit and roles are among them (`train.settings.options`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

from accelerate import PartialState
from accelerate.utils.environment import parse_flag_from_env
from trl.trainer.grpo_config import GRPOConfig

from memagent.core.errors import ConfigError
from train.run.plugins import Plugins, check_plugins, open_plugins
from train.settings.options import LoGoOptions, Rules, check_options, check_rules

_WHOLE_DISTRIBUTION = (
    "1: tokens that sampling cuts off would be trained on from another distribution than they "
    "were drawn from"
)

_NO_EFFECT = {
    "reward_weights": "rewards are named by `answers`, `facts`, `compression` and their like",
    "scale_rewards": "advantages come from `estimator`",
    "multi_objective_aggregation": "advantages come from `estimator`",
    "mask_truncated_completions": "a reply that was cut off is judged as it was read",
    "num_generations_eval": "validation plays each episode once",
    "shuffle_dataset": "`episode_sampler` chooses the episodes",
    "chat_template_kwargs": "the agent's policy fills the chat template",
    "cache_implementation": "the policy samples with a cache of its own",
    "generation_kwargs": "the policy samples by temperature alone",
    "use_transformers_continuous_batching": "the policy makes its own batches",
    "transformers_continuous_batching_config": "the policy makes its own batches",
    "pad_to_multiple_of": "rows are cut by `micro_batch_tokens`",
    "max_tool_calling_iterations": "a design says which calls it makes",
    "vllm_structured_outputs_regex": "`constrained` holds replies to their schema",
    "ds3_gather_for_generation": "DeepSpeed is not supported",
    "model_init_kwargs": "[model] says how the model is loaded",
    "trust_remote_code": "[model] says how the model is loaded",
    "log_completions": "`trace` writes samples to steps.jsonl",
    "log_completions_hub_repo": "`trace` writes samples to steps.jsonl",
    "log_unique_prompts": "`trace` writes samples to steps.jsonl",
    "num_completions_to_print": "`trace` writes samples to steps.jsonl",
    "log_multimodal": "`trace` writes samples to steps.jsonl",
}
"""TRL's settings that this trainer's overrides leave without effect, and what has it."""


@dataclass
class LoGoGRPOConfig(LoGoOptions, GRPOConfig):
    """`GRPOConfig` with the defaults of Memory-R2 (arXiv 2605.21768) and options of our own.

    How many rows the episodes of a generation batch become is only known when they have
    been played; they are cut into `steps_per_generation` micro-batches. Raises
    `ConfigError` for values that cannot work together.
    """

    def __post_init__(self) -> None:
        _check_sharding(self)
        check_options(self)
        check_rules(self, _effect_rules(self))
        super().__post_init__()
        check_rules(self, _sampling_rules(self))
        check_plugins(self.plugins, self)

    @cached_property
    def plugins(self) -> Plugins:
        """The techniques of the run, opened once; they keep their state here."""
        return open_plugins(self)

    @property
    def corrects_sampler(self) -> bool:
        """Whether rows weigh by the ratio of the trainer's probability and the sampler's."""
        differs = self.use_vllm or self.constrained or bool(self.sampler_hook)
        return differs and self.vllm_importance_sampling_correction


def check_share(args: LoGoGRPOConfig, episodes: int, *, processes: int | None = None) -> None:
    """Check that there are as many episodes as a step plays on all processes.

    `processes` is the number of those running unless it is given. Raises `ConfigError`
    naming the numbers.
    """
    share = args.batch_episodes
    processes = processes or PartialState().num_processes
    if share * processes > episodes:
        raise ConfigError(
            f"environment.episodes: a step plays {share * processes} episodes "
            f"({share} on each of {processes} processes), and there are {episodes}; start fewer "
            "processes, give more episodes, or lower per_device_train_batch_size * "
            "steps_per_generation"
        )


def _check_sharding(args: LoGoGRPOConfig) -> None:
    """Refuse DeepSpeed and FSDP, which need the same passes on every process."""
    sharding = {
        "DeepSpeed": args.deepspeed or parse_flag_from_env("ACCELERATE_USE_DEEPSPEED"),
        "FSDP": args.fsdp or parse_flag_from_env("ACCELERATE_USE_FSDP"),
    }
    for name, used in sharding.items():
        if used:
            raise ConfigError(
                f"{name} is not supported: processes play different conversations, so they make "
                "different numbers of forward passes, and split weights or gradients would "
                "wait for ever. Use one process or DDP, with [model.lora] for large models"
            )


def _effect_rules(args: LoGoGRPOConfig) -> Rules:
    """Return the rules of TRL's fields that do nothing here: they are left out."""
    defaults = {each.name: each.default for each in fields(GRPOConfig)}
    return {
        name: (
            getattr(args, name) in (defaults[name], None, "none"),
            f"left out, it has no effect here: {instead}",
        )
        for name, instead in _NO_EFFECT.items()
    }


def _sampling_rules(args: LoGoGRPOConfig) -> Rules:
    """Return the rules of TRL's own fields."""
    return {
        "top_p": (args.top_p == 1.0, _WHOLE_DISTRIBUTION),
        "top_k": (not args.top_k, _WHOLE_DISTRIBUTION.replace("1:", "0:")),
        "min_p": (not args.min_p, _WHOLE_DISTRIBUTION.replace("1:", "left out:")),
        "repetition_penalty": (args.repetition_penalty == 1.0, _WHOLE_DISTRIBUTION),
        "top_entropy_quantile": (
            args.top_entropy_quantile == 1.0,
            "1: a quantile over a whole batch does not go with micro-batches by tokens",
        ),
        "use_adaptive_entropy": (
            not args.use_adaptive_entropy,
            "false: its controller looks at a whole batch, not at micro-batches by tokens",
        ),
    }

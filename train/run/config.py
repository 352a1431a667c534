"""The trainer's configuration: TRL's `GRPOConfig` with this package's options.

Local groups, credit and roles are among them (`train.settings.options`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Protocol, TypeVar, cast, runtime_checkable

from accelerate import PartialState
from accelerate.utils.environment import parse_flag_from_env
from trl.trainer.grpo_config import GRPOConfig

from memagent.core.errors import ConfigError
from memagent.plugins import load
from train.credit.groups import Chained, Estimator, Selector, Stateful
from train.credit.objectives import Objective, Objectives
from train.rollouts.allocation import Allocator
from train.rollouts.anchors import AnchorSelector
from train.rollouts.slots import NO_HINTER, NO_SOURCE, EpisodeSampler, GroupSource, Hinter
from train.sampling.policy import SamplerHook
from train.settings.options import LoGoOptions, Rules, check_options, check_rules

# Techniques of a run: names and dotted paths become objects, one of each.
#
# A technique is found by its entry point in `memagent.techniques` or by a path
# `package.module:attribute`. A class is made with the arguments that
# `[trainer.arguments.NAME]` gives; any other object is taken as it is.

T = TypeVar("T")
_SLOTS = (
    *("estimator", "allocator", "anchor_selector", "episode_sampler", "source", "hinter"),
    "sampler_hook",
)
"""Slots of one technique each, which may keep something between steps."""


@dataclass(frozen=True, kw_only=True)
class Plugins:
    """The techniques that fill the slots of a run."""

    estimator: Estimator
    selector: Chained
    objectives: Objectives
    allocator: Allocator
    anchor_selector: AnchorSelector
    episode_sampler: EpisodeSampler
    source: GroupSource
    hinter: Hinter
    sampler_hook: SamplerHook | None

    def stateful(self) -> dict[str, Stateful]:
        """Return those that keep something between steps, by slot."""
        several = {f"selector/{number}": part for number, part in enumerate(self.selector.parts)}
        parts = {name: getattr(self, name) for name in _SLOTS}
        kept = {name: part for name, part in parts.items() if isinstance(part, Stateful)}
        return {**several, **self.objectives.stateful(), **kept}


def open_plugins(args: LoGoOptions) -> Plugins:
    """Open the techniques that options name.

    Raises `UnknownPlugin` for one that is not there, and `ConfigError` for arguments that
    it does not take or that no technique of the run takes.
    """
    opened = _Opener(args.arguments)
    plugins = Plugins(
        estimator=cast(Estimator, opened.get(args.estimator)),
        selector=Chained([opened.of(name, Selector) for name in args.selectors]),
        objectives=Objectives(
            parts={_short(name): opened.of(name, Objective) for name in args.objectives}
        ),
        allocator=cast(Allocator, opened.get(args.allocation)),
        anchor_selector=cast(AnchorSelector, opened.get(args.anchor_selector)),
        episode_sampler=opened.of(args.episode_sampler, EpisodeSampler),
        source=opened.of(args.group_source, GroupSource) if args.group_source else NO_SOURCE,
        hinter=opened.of(args.hinter, Hinter) if args.hinter else NO_HINTER,
        sampler_hook=opened.of(args.sampler_hook, SamplerHook) if args.sampler_hook else None,
    )
    opened.check_all_used()
    return plugins


@runtime_checkable
class HasChecks(Protocol):
    """A technique that does not go with all settings."""

    def check(self, args: Any, /) -> None:
        """Raise `ConfigError` for settings of the trainer that it does not go with."""
        ...


def check_plugins(plugins: Plugins, args: Any) -> None:
    """Let every technique that has a `check` look at the trainer's settings.

    Raises the `ConfigError` of the first that does not go with them.
    """
    slots = (plugins.estimator, *plugins.selector.parts, plugins.source)
    for part in (*plugins.objectives.parts.values(), *slots):
        if isinstance(part, HasChecks):
            part.check(args)


class _Opener:
    """Opens techniques and notes whose arguments were used."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._arguments = arguments
        self._used: set[str] = set()

    def get(self, name: str) -> object:
        """Return the object behind a name, made with its arguments if it is a class."""
        found, values = load("techniques", name), self._arguments.get(name, {})
        self._used.add(name)
        if not isinstance(values, dict):
            raise ConfigError(f"trainer.arguments.{name}: give a table, not {values!r}")
        if isinstance(found, type):
            try:
                return found(**values)
            except TypeError as error:
                raise ConfigError(f"trainer.arguments.{name}: {error}") from error
        if values:
            raise ConfigError(f"trainer.arguments.{name}: {name} takes no arguments")
        return found

    def of(self, name: str, kind: type[T]) -> T:
        """Return the object behind a name, of a kind."""
        found = self.get(name)
        if not isinstance(found, kind):
            raise ConfigError(f"technique {name!r} is no {kind.__name__}; it is {found!r}")
        return found

    def check_all_used(self) -> None:
        """Raise `ConfigError` for arguments of a technique that the run does not name."""
        if spare := sorted(self._arguments.keys() - self._used):
            raise ConfigError(
                f"trainer.arguments.{spare[0]}: no slot of [trainer] names that technique"
            )


def _short(name: str) -> str:
    """Return the last word of a dotted path, or the name."""
    return name.rpartition(":")[2]


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
    "use_transformers_paged": "the policy makes its own batches",
    "pad_to_multiple_of": "rows are cut by `micro_batch_tokens`",
    "max_tool_calling_iterations": "a design says which calls it makes",
    "vllm_structured_outputs_regex": "`constrained` holds replies to their schema",
    "ds3_gather_for_generation": "DeepSpeed is not supported",
    "model_init_kwargs": "[model] says how the model is loaded",
    "trust_remote_code": "[model] says how the model is loaded",
    "log_completions": "`trace` writes samples to steps.jsonl",
    "log_completions_hub_repo": "`trace` writes samples to steps.jsonl",
    "log_unique_prompts": "`trace` writes samples to steps.jsonl",
    "vespo_k_pos": "loss_type is grpo, sapo or luspo",
    "vespo_lambda_pos": "loss_type is grpo, sapo or luspo",
    "vespo_k_neg": "loss_type is grpo, sapo or luspo",
    "vespo_lambda_neg": "loss_type is grpo, sapo or luspo",
    "entropy_coef_min": "`entropy_coef` stays as it is",
    "entropy_coef_max": "`entropy_coef` stays as it is",
    "entropy_coef_delta": "`entropy_coef` stays as it is",
    "entropy_target": "`entropy_coef` stays as it is",
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
        defaults = {each.name: each.default for each in fields(GRPOConfig)}
        check_rules(
            self,
            {
                name: (
                    getattr(self, name) in (defaults[name], None, "none"),
                    f"left out, it has no effect here: {instead}",
                )
                for name, instead in _NO_EFFECT.items()
            },
        )
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

"""The trainer's configuration: TRL's `GRPOConfig` with the reference's values.

Local groups, credit and roles add fields of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from accelerate import PartialState
from accelerate.utils.environment import parse_flag_from_env
from trl.trainer.grpo_config import GRPOConfig

from memagent.core.errors import ConfigError
from memagent.core.exchange import Role
from train.rollouts.comparisons import MANAGER_ROLES

ROLE_SETS = {
    "manager": MANAGER_ROLES,
    "answerer": frozenset({Role.ANSWERER}),
    "both": MANAGER_ROLES | {Role.ANSWERER},
}
"""Roles by the name under which they are trained."""
_WHOLE_DISTRIBUTION = (
    "1: tokens that sampling cuts off would be trained on from another distribution than they "
    "were drawn from"
)
CONTROLS = ("", "random_reward", "shuffled_advantage")
"""Replacements of the credit, to see what a run does without it."""


@dataclass
class LoGoGRPOConfig(GRPOConfig):
    """`GRPOConfig` with the defaults of Memory-R2 (arXiv 2605.21768) and fields of its own.

    `num_generations` is the size of the global group. A generation batch holds
    `per_device_train_batch_size * steps_per_generation / num_generations` episodes on
    each device; how many rows they become is only known when they have been played, and
    the rows are cut into `steps_per_generation` micro-batches. Raises `ConfigError` for
    values that cannot work together.
    """

    # What TRL has, with other defaults.
    learning_rate: float = field(default=2e-6, metadata={"help": "Constant by default."})
    lr_scheduler_type: str = field(default="constant", metadata={"help": "Learning-rate schedule."})
    num_generations: int | None = field(
        default=16, metadata={"help": "Whole rollouts an episode (n)."}
    )
    per_device_train_batch_size: int = field(default=1, metadata={"help": "See the class."})
    steps_per_generation: int | None = field(
        default=16, metadata={"help": "Micro-batches of a generation batch."}
    )
    gradient_accumulation_steps: int = field(
        default=16, metadata={"help": "Micro-batches of an optimizer step."}
    )
    num_iterations: int = field(default=2, metadata={"help": "Passes over a generation batch."})
    loss_type: str = field(
        default="grpo",
        metadata={"help": "Mean over rows of the mean over tokens; luspo: of the sum over tokens."},
    )
    importance_sampling_level: str = field(
        default="sequence",
        metadata={"help": "One length-normalised ratio a row; 'token' for one a token."},
    )
    scale_rewards: str | bool = field(
        default="none", metadata={"help": "Unused: advantages come from the credit."}
    )
    epsilon: float = field(
        default=0.02, metadata={"help": "Clip of the ratio; 0.2 never bites on a mean log-ratio."}
    )
    delta: float | None = field(
        default=3.0, metadata={"help": "Upper bound of the unclipped ratio."}
    )
    beta: float = field(default=0.001, metadata={"help": "Weight of the KL to the reference."})
    entropy_coef: float = field(default=0.001, metadata={"help": "Weight of the entropy bonus."})
    max_completion_length: int | None = field(
        default=512, metadata={"help": "Most tokens of one reply."}
    )
    vllm_importance_sampling_mode: str = field(
        default="token_truncate",
        metadata={
            "help": "Bound of the ratio of trainer and sampler, with vLLM or `constrained`: by "
            "token or sequence, cut or dropped."
        },
    )
    remove_unused_columns: bool | None = field(
        default=False, metadata={"help": "Rows name their episode."}
    )

    # What local groups, credit and roles add.
    roles: str = field(
        default="manager", metadata={"help": "Who is trained: manager, answerer or both."}
    )
    credit: str = field(
        default="session",
        metadata={"help": "Global credit by 'session', or 'terminal': one for the whole rollout."},
    )
    local_probability: float = field(
        default=0.5,
        metadata={
            "help": "Chance that a session is rerun, if it can be asked about; 0 for plain GRPO."
        },
    )
    reruns: int = field(default=4, metadata={"help": "Local reruns a chosen session (m)."})
    local_weight: float = field(default=1.0, metadata={"help": "Weight of local advantages."})
    anchor_in_group: bool = field(
        default=True, metadata={"help": "Whether the anchor's own run joins its local group."}
    )
    balance: str = field(
        default="rows", metadata={"help": "'rows', or 'branches': each branch's mean weighs alike."}
    )
    estimator: str = field(
        default="zscore",
        metadata={
            "help": "Advantage estimator: a name of memagent.techniques, or a path "
            "`package.module:attribute`; zscore divides by the unbiased standard deviation, "
            "`train.credit.advantages:population_zscore` by the population's."
        },
    )
    flat_tolerance: float = field(
        default=0.01,
        metadata={
            "help": "Rewards of a group that differ by this at most count as alike; a token more "
            "or less of memory is such a difference."
        },
    )
    anchor_selector: str = field(
        default="uniform",
        metadata={"help": "Which sessions are rerun: a name of memagent.techniques."},
    )
    sessions: int | None = field(default=None, metadata={"help": "Sessions heard; all by default."})
    questions: int | None = field(
        default=None, metadata={"help": "Questions a session; all by default."}
    )
    rehearsal: int = field(
        default=8, metadata={"help": "Earlier questions asked after a local rerun."}
    )
    compression: float = field(
        default=0.3, metadata={"help": "Weight of the memory's excess length."}
    )
    unreadable: float = field(
        default=0.1, metadata={"help": "Weight of the share of unreadable replies."}
    )
    rejected: float = field(default=0.0, metadata={"help": "Weight of the share of refused ops."})
    evidence: float = field(
        default=0.0,
        metadata={"help": "Weight of right answers resting on evidence in memory (FAPO)."},
    )
    worth: float = field(
        default=1.0,
        metadata={"help": "Weight of an answer's own worth when the answerer is trained."},
    )
    temporal: float = field(
        default=0.0, metadata={"help": "Weight of answering from the right sessions (Memory-T1)."}
    )
    answer_members: int = field(
        default=8, metadata={"help": "Answers a question when the answerer is trained."}
    )
    answer_questions: int = field(
        default=4, metadata={"help": "Questions an episode when the answerer is trained."}
    )
    allocation: str = field(
        default="even",
        metadata={
            "help": "How reruns and answers are spread over groups: even, dars, knapsack or vade."
        },
    )
    dynamic_sampling: bool = field(
        default=False,
        metadata={"help": "Replace local and answer groups whose rewards are all alike."},
    )
    keep_members: int = field(
        default=0,
        metadata={
            "help": "Learn from this many members a group, those that vary most (D3S); 0 for all."
        },
    )
    echo_weight: float = field(
        default=0.0,
        metadata={
            "help": "Weight of repeating part of a reply of a group that succeeded alike (EchoRL)."
        },
    )
    gradient_gate: float = field(
        default=0.0,
        metadata={
            "help": "Refuse to reuse a batch beyond this many MADs of usual gradients (DGG); "
            "0 for off."
        },
    )
    control: str = field(
        default="",
        metadata={
            "help": "Sanity control: random_reward or shuffled_advantage; nothing is learned then."
        },
    )
    skip_zero_rows: bool = field(
        default=False,
        metadata={
            "help": "Leave rows without advantage out of the batch; they still count in the mean."
        },
    )
    batch_width: int = field(
        default=64, metadata={"help": "Most rows of one generation batch of the sampler."}
    )
    micro_batch_tokens: int = field(
        default=8_192,
        metadata={
            "help": "Most tokens of one forward and backward pass, padding counted; longer "
            "conversations make more passes, not larger ones."
        },
    )
    constrained: bool = field(
        default=False, metadata={"help": "Hold replies to their JSON Schema."}
    )
    trace: bool = field(
        default=True,
        metadata={"help": "Write steps.jsonl: groups, rewards, samples of every step."},
    )

    def __post_init__(self) -> None:
        _check_sharding(self)
        super().__post_init__()
        for name, (holds, rule) in (_own_rules(self) | _batch_rules(self)).items():
            if not holds:
                raise ConfigError(f"{name} must be {rule}; it is {getattr(self, name)!r}")
        every = (self.steps_per_generation or 1) * self.num_iterations
        steps = every // self.gradient_accumulation_steps
        if self.save_strategy == "steps" and self.save_steps >= 1 and self.save_steps % steps:
            raise ConfigError(
                f"save_steps must be a multiple of {steps}, the optimizer steps of one generation "
                "batch, so that a run can go on from a checkpoint exactly; "
                f"it is {self.save_steps}"
            )

    @property
    def corrects_sampler(self) -> bool:
        """Whether rows weigh by the ratio of the trainer's probability and the sampler's."""
        differs = self.use_vllm or self.constrained
        return differs and self.vllm_importance_sampling_correction

    @property
    def trained_roles(self) -> frozenset[Role]:
        """The roles behind `roles`."""
        return ROLE_SETS[self.roles]


def check_share(args: LoGoGRPOConfig, episodes: int, *, processes: int | None = None) -> None:
    """Check that there are as many episodes as a step plays on all processes.

    `processes` is the number of those running unless it is given. Raises `ConfigError`
    naming the numbers.
    """
    share = (args.per_device_train_batch_size * (args.steps_per_generation or 1)) // (
        args.num_generations or 1
    )
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


Rules = dict[str, tuple[bool, str]]
"""By field whether it holds, and the rule in words."""


def _own_rules(args: LoGoGRPOConfig) -> Rules:
    """Return the rules of single fields."""
    return {
        "roles": (args.roles in ROLE_SETS, f"one of {', '.join(ROLE_SETS)}"),
        "credit": (args.credit in ("terminal", "session"), "'terminal' or 'session'"),
        "balance": (args.balance in ("rows", "branches"), "'rows' or 'branches'"),
        "local_probability": (0 <= args.local_probability <= 1, "between 0 and 1"),
        "local_weight": (args.local_weight >= 0, "at least 0; 0 makes no local runs"),
        "reruns": (args.reruns >= 1, "at least 1; set local_probability = 0 for none"),
        "control": (args.control in CONTROLS, "'', 'random_reward' or 'shuffled_advantage'"),
        "keep_members": (
            args.keep_members >= 0 and args.keep_members != 1,
            "0 for all, or at least 2",
        ),
        "echo_weight": (args.echo_weight >= 0, "at least 0"),
        "top_p": (args.top_p == 1.0, _WHOLE_DISTRIBUTION),
        "top_k": (not args.top_k, _WHOLE_DISTRIBUTION.replace("1:", "0:")),
        "min_p": (not args.min_p, _WHOLE_DISTRIBUTION.replace("1:", "left out:")),
        "repetition_penalty": (args.repetition_penalty == 1.0, _WHOLE_DISTRIBUTION),
        "flat_tolerance": (args.flat_tolerance >= 0, "at least 0"),
        "micro_batch_tokens": (args.micro_batch_tokens >= 1, "at least 1"),
        "top_entropy_quantile": (
            args.top_entropy_quantile == 1.0,
            "1: a quantile over a whole batch does not go with micro-batches by tokens",
        ),
        "use_adaptive_entropy": (
            not args.use_adaptive_entropy,
            "false: its controller looks at a whole batch, not at micro-batches by tokens",
        ),
        "importance_sampling_level": (
            args.loss_type != "luspo" or args.importance_sampling_level == "sequence",
            "'sequence' with loss_type = 'luspo'",
        ),
        "loss_type": (
            args.loss_type in ("grpo", "sapo", "luspo"),
            "one that means over rows: grpo, sapo or luspo",
        ),
    }


def _batch_rules(args: LoGoGRPOConfig) -> Rules:
    """Return the rules by which a generation batch is cut into slices and steps."""
    n = args.num_generations or 1
    rows = args.per_device_train_batch_size * (args.steps_per_generation or 1)
    every = (args.steps_per_generation or 1) * args.num_iterations
    every_pass = (args.steps_per_generation or 1) % args.gradient_accumulation_steps
    return {
        "gradient_gate": (
            args.gradient_gate == 0
            or (args.gradient_gate > 0 and args.num_iterations > 1 and not every_pass),
            (
                "0, or above 0 with num_iterations above 1 and gradient_accumulation_steps "
                "a divisor of steps_per_generation"
            ),
        ),
        "steps_per_generation": (
            rows % n == 0,
            (
                f"such that per_device_train_batch_size * steps_per_generation ({rows}) is a "
                f"multiple of num_generations ({n})"
            ),
        ),
        "gradient_accumulation_steps": (
            every % args.gradient_accumulation_steps == 0,
            (
                f"a divisor of steps_per_generation * num_iterations ({every}), so that "
                "rollouts begin with an optimizer step"
            ),
        ),
    }

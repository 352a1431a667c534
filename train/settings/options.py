"""The settings of `[trainer]` that this package adds to TRL's, or gives other defaults.

They are plain values: no learning library is loaded to read and check them. The
trainer's configuration (`train.run.config.LoGoGRPOConfig`) is these and TRL's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, get_args

from environments.rewards.terms import Measure
from memagent.core.errors import ConfigError
from memagent.core.exchange import Role

MANAGER_ROLES = frozenset({Role.EXTRACTOR, Role.MANAGER, Role.INDEXER})
"""Roles that speak while a session is remembered."""
ANSWER_ROLES = frozenset({Role.PLANNER, Role.EXPLORER, Role.ANSWERER})
"""Roles that speak while a question is answered; a design may have the last one only."""
ROLE_SETS = {
    "manager": MANAGER_ROLES,
    "extractor": frozenset({Role.EXTRACTOR}),
    "decider": frozenset({Role.MANAGER}),
    "answerer": frozenset({Role.ANSWERER}),
    "both": MANAGER_ROLES | {Role.ANSWERER},
    "readers": ANSWER_ROLES,
    "all": MANAGER_ROLES | ANSWER_ROLES,
}
"""Roles by the name under which they are trained."""
CONTROLS = ("", "random_reward", "shuffled_advantage")
"""Replacements of the credit, to see what a run does without it."""
CREDITS = frozenset({"terminal", "session", "asof", "gain"})
"""Credits of whole rollouts."""
Rules = dict[str, tuple[bool, str]]
"""By field whether it holds, and the rule in words."""


@dataclass
class LoGoOptions:
    """Settings of a LoGo-GRPO stage, with the values of Memory-R2 (arXiv 2605.21768).

    `num_generations` is the size of the global group. A generation batch holds
    `per_device_train_batch_size * steps_per_generation / num_generations` episodes on
    each device.
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

    # What TRL has, with TRL's defaults: a run's file often names them.
    temperature: float = field(default=1.0, metadata={"help": "Of sampling."})
    max_grad_norm: float = field(default=1.0, metadata={"help": "Gradients are cut to it."})
    gradient_checkpointing: bool = field(
        default=True, metadata={"help": "Less memory for more time; right with adapters too."}
    )
    bf16: bool | None = field(
        default=None, metadata={"help": "Mixed precision; where the machine has it by default."}
    )
    save_strategy: str = field(default="steps", metadata={"help": "When a checkpoint is written."})
    save_steps: float = field(
        default=500, metadata={"help": "Optimizer steps between two checkpoints."}
    )

    # What local groups, credit and roles add.
    trainer_class: str = field(
        default="train.run.trainer:LoGoGRPOTrainer",
        metadata={"help": "Path of the trainer; another one inherits from this."},
    )
    roles: str = field(
        default="manager",
        metadata={
            "help": "Who is trained: manager (with extractor and indexer), answerer or both; "
            "extractor or decider trains one of the manager's two calls alone; readers trains "
            "planner and explorer beside the answerer, all trains everybody."
        },
    )
    credit: str | dict[str, float] = field(
        default="session",
        metadata={
            "help": "Global credit by 'session' at the end; 'terminal': one for the whole rollout; "
            "'asof': right after the session; 'gain': that less the score before it. A table "
            "mixes them by weights, `{gain = 1, terminal = .3}`; `local` in it is local_weight."
        },
    )
    asked_share: float = field(
        default=1.0,
        metadata={
            "help": "Chance that asof and gain ask after a session, and the share of its rollouts, "
            "at least two, that are asked; below 1 where a model answers."
        },
    )
    answers: float = field(
        default=1.0,
        metadata={"help": "Weight of the answers from memory; 0 asks nothing while training."},
    )
    measure: str = field(
        default="f1",
        metadata={"help": "Worth of an answer: f1, f1_memory_r2, bleu1, or exact as in Memory-R1."},
    )
    facts: float = field(
        default=0.0,
        metadata={
            "help": "Weight of the share of a generated world's facts that the memory holds right: "
            "the measure of the same name. With asof and gain it is `facts_as_of`."
        },
    )
    credit_unit: str = field(
        default="session",
        metadata={
            "help": "What is credited by itself: a 'session', a 'chunk' of it by the questions "
            "about its turns, or a 'call': a chunk, but no credit for the manager where the "
            "extractor left their evidence out."
        },
    )
    local_probability: float = field(
        default=0.5,
        metadata={
            "help": "Chance that a session is rerun, if it can be asked about; 0 for plain GRPO."
        },
    )
    reruns: int = field(default=4, metadata={"help": "Local reruns a chosen session (m)."})
    forks: bool = field(
        default=False,
        metadata={
            "help": "Reruns repeat the anchor's run up to its call of the highest entropy after a "
            "recall and say the rest anew (ARPO, AEPO); with estimator = 'tree_calls' their "
            "rewards credit that call."
        },
    )
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
        metadata={"help": "How reruns and answers are spread over groups; see Techniques below."},
    )
    selectors: list[str] = field(
        default_factory=list[str],
        metadata={
            "help": "What is learned from, one selector after the other; see Techniques below."
        },
    )
    objectives: list[str] = field(
        default_factory=list[str],
        metadata={"help": "What changes the loss; see Techniques below."},
    )
    episode_sampler: str = field(
        default="shuffled", metadata={"help": "Which episodes a step plays."}
    )
    group_source: str = field(
        default="", metadata={"help": "Rows of earlier steps to learn from once more."}
    )
    hinter: str = field(
        default="", metadata={"help": "Hints that the policy is given while it plays."}
    )
    sampler_hook: str = field(
        default="",
        metadata={"help": "What changes the sampling of single calls; rows are corrected for it."},
    )
    arguments: dict[str, Any] = field(
        default_factory=dict[str, Any],
        metadata={
            "help": "Arguments of techniques by name: `[trainer.arguments.NAME]`, a table each."
        },
    )
    control: str = field(
        default="",
        metadata={
            "help": "Sanity control: random_reward or shuffled_advantage. Updates go on without "
            "the reward's meaning, so the policy wanders with their noise."
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

    @property
    def trained_roles(self) -> frozenset[Role]:
        """The roles behind `roles`."""
        return ROLE_SETS[self.roles]

    @property
    def global_credit(self) -> dict[str, float]:
        """The weights of the credits of whole rollouts by name."""
        mixed = {self.credit: 1.0} if isinstance(self.credit, str) else self.credit
        return {name: weight for name, weight in mixed.items() if name != "local"}

    @property
    def weight_of_local(self) -> float:
        """The weight of local advantages."""
        mixed = {} if isinstance(self.credit, str) else self.credit
        return mixed.get("local", self.local_weight)

    @property
    def batch_episodes(self) -> int:
        """Episodes of a generation batch on each device."""
        rows = self.per_device_train_batch_size * self.micro_batches
        return rows // (self.num_generations or 1)

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a generation batch."""
        return self.steps_per_generation or self.gradient_accumulation_steps


def option_names() -> frozenset[str]:
    """Return the names of the options."""
    return frozenset(one.name for one in fields(LoGoOptions))


def options_of(values: Mapping[str, Any]) -> LoGoOptions:
    """Return the options among the values of `[trainer]`, checked.

    Other values are TRL's own; `train.run.config` knows them. Raises `ConfigError`
    naming the field and its rule.
    """
    known = option_names()
    options = LoGoOptions(**{name: value for name, value in values.items() if name in known})
    check_options(options)
    return options


def check_options(options: LoGoOptions) -> None:
    """Check that values can work together.

    Raises `ConfigError` naming the field and its rule.
    """
    check_rules(options, _own_rules(options) | _batch_rules(options))
    every = options.micro_batches * options.num_iterations
    steps = every // options.gradient_accumulation_steps
    if options.save_strategy == "steps" and options.save_steps >= 1 and options.save_steps % steps:
        raise ConfigError(
            f"save_steps must be a multiple of {steps}, the optimizer steps of one generation "
            "batch, so that a run can go on from a checkpoint exactly; "
            f"it is {options.save_steps}"
        )


def check_rules(options: LoGoOptions, rules: Rules) -> None:
    """Raise `ConfigError` for the first rule that does not hold."""
    for name, (holds, rule) in rules.items():
        if not holds:
            raise ConfigError(f"{name} must be {rule}; it is {getattr(options, name)!r}")


def _own_rules(args: LoGoOptions) -> Rules:
    """Return the rules of single fields."""
    return {
        "roles": (args.roles in ROLE_SETS, f"one of {', '.join(ROLE_SETS)}"),
        "credit": (
            set(args.global_credit) <= CREDITS
            and sum(args.global_credit.values()) > 0
            and min(*args.global_credit.values(), args.weight_of_local) >= 0,
            "terminal, session, asof or gain, or a table of their weights, which may name local",
        ),
        "asked_share": (0 < args.asked_share <= 1, "above 0 and at most 1"),
        "answers": (args.answers > 0 or args.facts > 0, "above 0 unless facts is"),
        "facts": (args.facts >= 0, "at least 0"),
        "measure": (args.measure in get_args(Measure), f"one of {', '.join(get_args(Measure))}"),
        "credit_unit": (
            args.credit_unit in ("session", "chunk", "call"),
            "'session', 'chunk' or 'call'",
        ),
        "balance": (args.balance in ("rows", "branches"), "'rows' or 'branches'"),
        "local_probability": (0 <= args.local_probability <= 1, "between 0 and 1"),
        "local_weight": (args.local_weight >= 0, "at least 0; 0 makes no local runs"),
        "reruns": (args.reruns >= 1, "at least 1; set local_probability = 0 for none"),
        "forks": (
            not args.forks
            or (
                args.estimator == "tree_calls"
                and args.credit_unit == "session"
                and min(args.local_probability, args.weight_of_local) > 0
                and bool(args.trained_roles & {Role.MANAGER, Role.INDEXER})
            ),
            (
                "false unless estimator = 'tree_calls', credit_unit = 'session', sessions are "
                "rerun and the manager is trained: else what is said after a fork shares its "
                "credit, or nothing is forked"
            ),
        ),
        "control": (args.control in CONTROLS, "'', 'random_reward' or 'shuffled_advantage'"),
        "flat_tolerance": (args.flat_tolerance >= 0, "at least 0"),
        "micro_batch_tokens": (args.micro_batch_tokens >= 1, "at least 1"),
        "importance_sampling_level": (
            args.loss_type != "luspo" or args.importance_sampling_level == "sequence",
            "'sequence' with loss_type = 'luspo'",
        ),
        "loss_type": (
            args.loss_type in ("grpo", "sapo", "luspo"),
            "one that means over rows: grpo, sapo or luspo",
        ),
    }


def _batch_rules(args: LoGoOptions) -> Rules:
    """Return the rules by which a generation batch is cut into slices and steps."""
    n = args.num_generations or 1
    rows = args.per_device_train_batch_size * args.micro_batches
    every = args.micro_batches * args.num_iterations
    return {
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

"""How one step is graded: what is asked, who answers, and what a memory earns.

Rewards of a session: *global*, what its questions earn on the memory that each rollout
ended with (`credit="session"`) or what all questions earn there (`credit="terminal"`,
plain GRPO); *local*, what its questions and a rehearsal of earlier ones earn right
after it. The answering agent that scores is fixed for a whole step and answers
greedily.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from environments.play.rollout import MemoryAgent
from environments.records import Episode, ProbeScore
from environments.rewards.scoring import Scoring
from environments.rewards.terms import Term, Weighted, memory_r2_reward, outcome_of
from memagent.core.exchange import Role, Sampling
from memagent.core.snapshot import MemorySnapshot
from train.credit.advantages import Balance, CreditGroup, Estimator, group_zscore
from train.rollouts.collect import Collector
from train.sampling.policy import Call, PolicyModel
from train.techniques.dynamic_sampling import is_flat

MANAGER_ROLES = frozenset({Role.EXTRACTOR, Role.MANAGER})
"""Who speaks while a session is remembered."""
GREEDY = Sampling(temperature=0.0, max_tokens=64)
"""How the answering agent that scores decodes."""
EpisodeTerms = Callable[[Episode], Sequence[tuple[Term, float]]]
"""Terms of a reward, with their weights, that know the episode."""


@dataclass(frozen=True, kw_only=True)
class CreditPlan:
    """What is asked and how it becomes credit."""

    credit: Literal["terminal", "session"] = "session"
    reward: Weighted = field(default_factory=memory_r2_reward)
    questions: int | None = None
    """Questions a session, drawn alike for the whole group; None for all."""
    rehearsal: int = 4
    """Earlier questions asked after a local rerun."""
    local_weight: float = 1.0
    estimator: Estimator = group_zscore
    balance: Balance = "rows"
    anchor_in_group: bool = True
    """Whether the anchor's own run is a member of its local group."""
    roles: frozenset[Role] = MANAGER_ROLES
    """Roles that are trained."""
    answer_members: int = 8
    """Answers a question when the answerer is trained."""
    answer_questions: int = 4
    """Questions an episode when the answerer is trained."""
    episode_terms: EpisodeTerms | None = None
    """Further terms of the reward that depend on the episode."""
    keep: int = 0
    """Members a group to learn from, those that vary most; 0 for all."""
    dynamic_sampling: bool = False
    """Whether other sessions and questions are run in the place of those whose groups
    turned out flat.
    """
    echo: bool = False
    """Whether part of a reply of a flat group of successes is repeated."""
    control: Literal["", "random_reward", "shuffled_advantage"] = ""
    """What takes the place of the credit, to see what a run does without it."""


@dataclass(kw_only=True)
class Made:
    """Groups with the calls of their members; refills stand in for flat groups."""

    groups: list[CreditGroup] = field(default_factory=list[CreditGroup])
    refills: list[CreditGroup] = field(default_factory=list[CreditGroup])
    calls: list[Call] = field(default_factory=list[Call])

    @property
    def flat(self) -> bool:
        """Whether no group has anything to teach."""
        return all(is_flat(group) for group in self.groups)

    def add(self, other: Made, *, refill: bool = False) -> None:
        """Take in what another part made."""
        (self.refills if refill else self.groups).extend(other.groups)
        self.refills += other.refills
        self.calls += other.calls


@dataclass(frozen=True, kw_only=True)
class Grading:
    """What the groups of one step share."""

    collector: Collector
    plan: CreditPlan
    answering: MemoryAgent | None
    """Who answers when memories are scored; None for the policy itself, greedily."""
    scoring: Scoring
    parts: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """Parts of every reward given so far, by branch and name."""

    @property
    def policy(self) -> PolicyModel:
        """Who is trained."""
        return self.collector.policy

    def answerer(self, key: str) -> MemoryAgent:
        """Who answers when memories are scored."""
        if self.answering is not None:
            return self.answering
        return self.collector.agent.with_model(self.policy.bound(key, sampling=GREEDY))

    def drawn(self, rewards_G: Sequence[float | None], key: str) -> list[float | None]:
        """The rewards, or, in the control, draws in [0, 1] in their place."""
        if self.plan.control != "random_reward":
            return list(rewards_G)
        draws = random.Random(f"{self.collector.plan.seed}/{key}/random_reward")
        return [None if reward is None else draws.random() for reward in rewards_G]

    def reward(
        self,
        episode: Episode,
        memory: MemorySnapshot,
        scores: Sequence[ProbeScore],
        reports: Sequence[Any],
        branch: str,
    ) -> float | None:
        """What a memory earned by these scores and reports, its parts noted; None where
        nothing says.
        """
        weighted, more = self.plan.reward, self.plan.episode_terms
        if more is not None:
            weighted = Weighted(*weighted.terms, *more(episode))
        reward = weighted(outcome_of(episode, memory, scores=scores, reports=reports))
        for name, amount in reward.parts.items():
            if amount is not None:
                self.parts.setdefault(f"{branch}/{name}", []).append(amount)
        return reward.total

"""Comparisons: graded runs that began alike, before they are split by role.

A comparison becomes one credit group for each trained role, so the roles of a run share
its reward.

Shapes: G runs of a comparison.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from memagent.core.exchange import Role
from train.credit.groups import Branch, CreditGroup, GroupKey, Member, is_flat
from train.rollouts.lineage import ChunkRun
from train.sampling.policy import Call
from train.settings.options import ANSWER_ROLES, MANAGER_ROLES


@dataclass(frozen=True, kw_only=True)
class GradedRun:
    """One run with its calls and its reward."""

    calls: tuple[Call, ...]
    start: str | None = None
    """Digest of the snapshot that it began from; None for a whole rollout."""
    reward: float | None = None
    """None for a run that failed or could not be scored."""
    parts: Mapping[str, float] = field(default_factory=dict[str, float])
    """Amounts of the reward's terms by name."""
    weights: Mapping[str, float] = field(default_factory=dict[str, float])
    """Weights of these terms in the reward."""
    chunks: tuple[ChunkRun, ...] = ()
    """Its parts by chunk, where they have credit of their own."""
    by_call: bool = False
    """Whether a manager's call that was not handed the evidence has no credit."""

    def part(self, role: Role, chunk: int | None) -> tuple[float | None, tuple[Call, ...]]:
        """Return the reward and the calls of a chunk; None for what lies in no chunk."""
        if chunk is None:
            inside = {call.response.id for part in self.chunks for call in part.calls}
            return self.reward, tuple(c for c in self.calls if c.response.id not in inside)
        if chunk >= len(self.chunks):
            return None, ()
        part = self.chunks[chunk]
        masked = self.by_call and role is Role.MANAGER and not part.handed
        return None if masked else part.reward, part.calls


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Runs of one episode that began alike and answered the same questions."""

    branch: Branch
    episode_key: str
    """Step and episode; `RolloutGroup.key`."""
    version: int
    """Version of the policy that spoke."""
    runs: tuple[GradedRun, ...]
    session: int | None = None
    start: str | None = None
    question_id: str | None = None
    name: str | None = None
    """Name in the history of successes; None for whole rollouts, which have none."""
    refill: bool = False
    """Whether it was run in the place of a flat one."""

    @property
    def rewards_G(self) -> list[float]:
        """Rewards of the runs that were scored, in their order."""
        return [run.reward for run in self.runs if run.reward is not None]

    def groups(self, roles: Collection[Role]) -> list[CreditGroup]:
        """Return a group for each trained role, or for each of its chunks.

        Roles other than the answerer that said nothing have none.
        """
        manager = self.branch != "answer"
        chunks = max((len(run.chunks) for run in self.runs), default=0)
        groups = [
            self._group(role, chunk)
            for role in sorted(MANAGER_ROLES if manager else ANSWER_ROLES)
            for chunk in (None, *range(chunks))
            if role in roles
        ]
        return [
            group
            for group in groups
            if group.key.role is Role.ANSWERER or any(m.response_ids for m in group.members)
        ]

    def teaches(self, roles: Collection[Role], *, tolerance: float = 0.0) -> bool:
        """Tell whether any trained role has a group with different rewards."""
        return not all(is_flat(group, tolerance=tolerance) for group in self.groups(roles))

    def _group(self, role: Role, chunk: int | None) -> CreditGroup:
        members: list[Member] = []
        for run in self.runs:
            reward, calls = run.part(role, chunk)
            members.append(
                Member(
                    reward=reward,
                    response_ids=tuple(call.response.id for call in calls if call.role is role),
                    start=run.start,
                    version=self.version,
                    parts=run.parts,
                    weights=run.weights,
                )
            )
        key = GroupKey(
            branch=self.branch,
            role=role,
            episode_id=self.episode_key,
            session=self.session,
            start=self.start,
            question_id=self.question_id,
            chunk=chunk,
        )
        return CreditGroup(key=key, members=tuple(members))

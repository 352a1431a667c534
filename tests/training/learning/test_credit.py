"""Credit is pure: groups to advantages, by hand."""

from __future__ import annotations

import random

import pytest
import torch

from memagent.core.exchange import Role
from train.credit.advantages import (
    group_mean,
    group_zscore,
    leave_one_out,
    logo_advantages,
    population_zscore,
)
from train.credit.groups import CreditGroup, GroupKey, Member
from train.errors import TrainFault
from train.rollouts.anchors import SessionSpread, by_variance, draw_anchors

ROLE = Role.MANAGER


def _global(rewards: list[float | None], *, session: int = 0, prefix: str = "g") -> CreditGroup:
    members = tuple(
        Member(reward=reward, response_ids=(f"{prefix}{place}",))
        for place, reward in enumerate(rewards)
    )
    return CreditGroup(
        key=GroupKey(branch="global", role=ROLE, episode_id="e", session=session), members=members
    )


def _local(
    rewards: list[float | None],
    ids: list[str],
    *,
    start: str = "d",
    starts: list[str] | None = None,
) -> CreditGroup:
    members = tuple(
        Member(reward=reward, response_ids=(name,), start=at)
        for reward, name, at in zip(rewards, ids, starts or [start] * len(ids), strict=True)
    )
    key = GroupKey(branch="local", role=ROLE, episode_id="e", session=0, start=start)
    return CreditGroup(key=key, members=members)


def test_a_small_mixed_batch_gives_the_advantages_computed_by_hand() -> None:
    # Global rewards 1, 0: mean 1/2, unbiased std sqrt(1/2), so +0.7071, -0.7071. Local
    # rewards 0, 0, 1, the anchor g0 last: mean 1/3, unbiased variance (1/9 + 1/9 + 4/9)/2 =
    # 1/3, so -0.57735, -0.57735, 1.15470.
    credit = logo_advantages(
        [_global([1.0, 0.0]), _local([0.0, 0.0, 1.0], ["l0", "l1", "g0"])], weights={"local": 0.5}
    )
    assert credit.advantages == pytest.approx(
        {"g0": 0.707107 + 0.5 * 1.154701, "g1": -0.707107, "l0": -0.288675, "l1": -0.288675},
        abs=1e-5,
    )
    assert dict(credit.groups) == {"global": 1, "local": 1}
    assert dict(credit.flat) == {"global": 0, "local": 0}


def test_groups_without_variance_give_zero_and_are_counted() -> None:
    credit = logo_advantages(
        [_global([0.1 + 0.2, 0.1 + 0.2, 0.1 + 0.2]), _global([1.0, 0.0], session=1, prefix="h")]
    )
    assert [credit.advantages[f"g{place}"] for place in range(3)] == [0.0, 0.0, 0.0]
    assert credit.flat["global"] == 1
    assert credit.groups["global"] == 2


def test_a_member_without_a_reward_is_left_out_and_the_others_are_compared() -> None:
    credit = logo_advantages([_global([1.0, None, 0.0])])
    assert credit.advantages.keys() == {"g0", "g2"}
    assert credit.unscored == 1


def test_estimators_by_hand() -> None:
    # 2, 4, 9: mean 5, deviations -3, -1, 4, unbiased variance 26/2, population's 26/3.
    assert group_zscore([2.0, 4.0, 9.0]) == pytest.approx(
        [-3 / 13**0.5, -1 / 13**0.5, 4 / 13**0.5], abs=1e-5
    )
    assert population_zscore([2.0, 4.0, 9.0]) == pytest.approx(
        [-3 / (26 / 3) ** 0.5, -1 / (26 / 3) ** 0.5, 4 / (26 / 3) ** 0.5], abs=1e-5
    )
    assert group_zscore([0.0, 1.0]) == pytest.approx([-(0.5**0.5), 0.5**0.5], abs=1e-5)
    assert group_zscore([3.0]) == population_zscore([3.0]) == [0.0]
    assert group_mean([0.0, 1.0, 2.0]) == [-1.0, 0.0, 1.0]
    assert leave_one_out([0.0, 1.0, 2.0]) == [-1.5, 0.0, 1.5]
    assert leave_one_out([3.0]) == [0.0]


@pytest.mark.parametrize("rewards", [[0.0, 1.0, 0.25], [0.2, 0.9, 0.4, 0.1, 0.6]])
def test_the_default_is_trls_advantage(rewards: list[float]) -> None:
    """TRL's standard deviation is torch's, which divides by G - 1."""
    earned = torch.tensor(rewards, dtype=torch.float64)
    theirs = (earned - earned.mean()) / (earned.std() + 1e-6)
    assert group_zscore(rewards) == pytest.approx(theirs.tolist(), abs=1e-9)


def test_a_difference_within_the_tolerance_is_none() -> None:
    """One token of memory, .002 of reward, earns no standardised advantage."""
    near = _global([0.500, 0.502, 0.500, 0.500])
    assert max(logo_advantages([near]).advantages.values()) == pytest.approx(1.5, abs=0.01)
    credit = logo_advantages([near], tolerance=0.01)
    assert set(credit.advantages.values()) == {0.0}
    assert dict(credit.flat) == {"global": 1}
    far = logo_advantages([_global([0.5, 0.52, 0.5, 0.5])], tolerance=0.01)
    assert far.flat["global"] == 0 and max(far.advantages.values()) > 1.0


def test_balance_by_branches_makes_each_branch_weigh_alike() -> None:
    groups = [_global([1.0, 0.0]), _local([0.0, 1.0, 0.0, 1.0], ["a", "b", "c", "d"])]
    credit = logo_advantages(groups, balance="branches")
    rows = len(credit.advantages)
    shares = {name: credit.advantages[name] / rows for name in credit.advantages}
    # The mean over rows is mean(global) + mean(local): each global row counts its
    # advantage sqrt(1/2) by 1/2, each local row sqrt(3)/2 by 1/4.
    assert shares["g0"] == pytest.approx(0.5**0.5 / 2, abs=1e-5)
    assert shares["b"] == pytest.approx(3**0.5 / 2 / 4, abs=1e-5)


def test_members_of_a_local_group_must_share_their_start() -> None:
    with pytest.raises(TrainFault, match="began from another memory"):
        logo_advantages([_local([0.0, 1.0], ["a", "b"], starts=["d", "other"])])


def test_policy_versions_do_not_mix_in_a_group() -> None:
    key = GroupKey(branch="global", role=ROLE, episode_id="e", session=0)
    members = (
        Member(reward=1.0, response_ids=("a",), version=1),
        Member(reward=0.0, response_ids=("b",), version=2),
    )
    with pytest.raises(TrainFault, match="mixes policy versions"):
        logo_advantages([CreditGroup(key=key, members=members)])


def test_a_response_is_credited_once_a_branch() -> None:
    with pytest.raises(TrainFault, match="stands in two global groups"):
        logo_advantages([_global([1.0, 0.0]), _global([0.0, 1.0], session=1)])


def test_anchors_depend_on_seed_step_and_episode_alone() -> None:
    def drawn(step: int, probability: float = 0.5) -> dict[int, int]:
        draws = random.Random(f"7/{step}/e")
        return draw_anchors(draws, sessions=400, members=8, probability=probability)

    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)
    assert drawn(3, probability=0.0) == {}
    assert 150 < len(drawn(3)) < 250
    assert set(drawn(3).values()) == set(range(8))
    # A session that is an anchor at a lower probability stays one at a higher, with the
    # same member.
    assert drawn(3, probability=0.2).items() <= drawn(3).items()


def test_anchors_can_follow_the_variance_of_earlier_steps() -> None:
    spread = SessionSpread()
    for _ in range(5):
        spread.see(0, [0.0, 1.0])
        spread.see(1, [0.5, 0.5])
    chances = by_variance(2, 0.5, spread)
    assert chances[0] > chances[1] >= 0.125
    again = SessionSpread()
    again.load(spread.state())
    assert again.variance == spread.variance

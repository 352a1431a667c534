"""Advantages from a tree of runs (TreePS-RAG).

The worth of a step is its gain in the mean reward of the runs that follow it.

    V(node) = mean reward of the leaves below it
    A(step) = V(node after the step) - V(node before it)

The advantages along a path add up to R(leaf) - V(root). LoGo's local group is the tree
of depth one: the shared snapshot is the root, each rerun a leaf, so `tree_estimator`
gives a group what `step_advantages` gives that tree. Not changed: nothing is divided by
the spread.

Shapes: G members of a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from train.errors import TrainFault


@dataclass(frozen=True, kw_only=True)
class TreeNode:
    """A state that runs passed through.

    A leaf has a reward and no children, any other node children and no reward.
    """

    name: str
    children: tuple[TreeNode, ...] = ()
    reward: float | None = None

    def leaf_rewards(self) -> list[float]:
        """Return the rewards of the leaves below, from left to right.

        Raises `TrainFault` for a leaf without one or a reward on the way.
        """
        if (self.reward is None) != bool(self.children):
            raise TrainFault(f"node {self.name!r} of a tree must have either children or a reward")
        if self.reward is not None:
            return [self.reward]
        return [reward for child in self.children for reward in child.leaf_rewards()]


def step_advantages(root: TreeNode) -> dict[str, float]:
    """Return V(n) - V(parent) by the name of every node but the root.

    Raises `TrainFault` for a malformed tree or a name used twice.
    """
    advantages: dict[str, float] = {}
    _walk(root, fmean(root.leaf_rewards()), advantages)
    return advantages


def tree_estimator(rewards_G: Sequence[float]) -> list[float]:
    """Return r - V(root): the advantages of the group as a tree of depth one."""
    leaves = tuple(
        TreeNode(name=str(place), reward=reward) for place, reward in enumerate(rewards_G)
    )
    return list(step_advantages(TreeNode(name="root", children=leaves)).values())


def _walk(node: TreeNode, value: float, advantages: dict[str, float]) -> None:
    for child in node.children:
        if child.name in advantages:
            raise TrainFault(f"two nodes of a tree are called {child.name!r}")
        own = fmean(child.leaf_rewards())
        advantages[child.name] = own - value
        _walk(child, own, advantages)

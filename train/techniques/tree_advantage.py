"""Advantages from a tree of runs (TreePS-RAG): a step is worth what it adds to the mean
reward of what can follow it.

    V(node) = mean reward of the leaves below it        A(step) = V(node after the step) - V(node before it)

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
    """A state that runs passed through: a leaf has a reward and no children, any other
    node children and no reward.
    """

    name: str
    children: tuple[TreeNode, ...] = ()
    reward: float | None = None

    def leaf_rewards(self) -> list[float]:
        """Rewards of the leaves below, from left to right.

        Raises `TrainFault` for a leaf without one or a reward on the way.
        """
        if (self.reward is None) != bool(self.children):
            raise TrainFault(f"node {self.name!r} of a tree must have either children or a reward")
        if self.reward is not None:
            return [self.reward]
        return [reward for child in self.children for reward in child.leaf_rewards()]


def step_advantages(root: TreeNode) -> dict[str, float]:
    """V(n) - V(parent) by the name of every node but the root.

    Raises `TrainFault` for a malformed tree or a name used twice.
    """
    found: dict[str, float] = {}
    _walk(root, fmean(root.leaf_rewards()), found)
    return found


def tree_estimator(rewards_G: Sequence[float]) -> list[float]:
    """The group as a tree of depth one: r - V(root)."""
    leaves = tuple(
        TreeNode(name=str(place), reward=reward) for place, reward in enumerate(rewards_G)
    )
    return list(step_advantages(TreeNode(name="root", children=leaves)).values())


def _walk(node: TreeNode, value: float, found: dict[str, float]) -> None:
    for child in node.children:
        if child.name in found:
            raise TrainFault(f"two nodes of a tree are called {child.name!r}")
        own = fmean(child.leaf_rewards())
        found[child.name] = own - value
        _walk(child, own, found)

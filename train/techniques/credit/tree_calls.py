"""Each call has its own advantage where runs share a beginning (TreePS-RAG, deeper).

    A(call) = V(prompt, reply) - V(prompt)         V(node) = mean reward of the runs through it

Runs from one memory fork inside the session: those whose calls agree so far share a
node. Along a run the advantages add up to its reward less that of its first prompt. A
prompt that one run alone reached gives 0: what it is worth was decided before. With one
call a run this is `tree`. Nothing is divided by the spread.

Shapes: G members of a group, C tokens of a reply.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean

from memagent.core.exchange import TokenTrace
from train.credit.groups import ScoredGroup, TokenValues

Node = tuple[tuple[int, ...], ...]
"""Prompts and replies by turns, from the first prompt on."""


def tree_calls(group: ScoredGroup) -> list[TokenValues]:
    """Return for each member the advantages (C,) of its replies, by response id."""
    traces = group.traces
    paths = [_path(member.response_ids, traces) for member in group.members]
    rewards: defaultdict[Node, list[float]] = defaultdict(list)
    for path, reward in zip(paths, group, strict=True):
        for _, node in path:
            rewards[node[:-1]].append(reward)
            rewards[node].append(reward)
    worth = {node: fmean(some) for node, some in rewards.items()}
    return [
        {key: (worth[node] - worth[node[:-1]],) * len(node[-1]) for key, node in path}
        for path in paths
    ]


def _path(response_ids: Sequence[str], traces: Mapping[str, TokenTrace]) -> list[tuple[str, Node]]:
    """Return a member's responses with the node that each reached."""
    path: list[tuple[str, Node]] = []
    node: Node = ()
    for key in response_ids:
        trace = traces.get(key)
        if trace is not None:
            node = (*node, tuple(trace.prompt_ids), tuple(trace.completion_ids))
            path.append((key, node))
    return path

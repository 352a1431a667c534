"""The rows of a step as traces of verifiers, for whoever trains on these elsewhere.

A trace is a graph of messages. Here it holds the calls of all runs of one episode: each
call is a branch, a node with the prompt and one with the reply, and calls with the same
prompt (rollouts of one episode, reruns from one memory) share its node. A reply's node
carries the sampler's ids and log-probabilities and an advantage for each token. The
surprise: our advantages are those of the rows, before a batch's padding is scaled away,
and nothing in verifiers changes them. Neither verifiers nor a learning library is needed
to write them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from train.rollouts.experience import Step

Decode = Callable[[Sequence[int]], str]
"""Gives the text of token ids."""


def verifiers_traces(step: Step, *, name: str, decode: Decode) -> list[dict[str, Any]]:
    """Return a trace for each episode of a step, as values that JSON can hold.

    `name` makes their ids unique over the steps of a run; `decode` gives the texts of
    the messages. Rows of earlier steps, which are learned from once more, have a trace of
    their own.
    """
    episodes: dict[str, dict[str, None]] = {}
    rewards: dict[str, dict[str, list[float]]] = {}
    for group in step.groups:
        earned = rewards.setdefault(group.key.episode_id, {})
        earned.setdefault(group.key.branch, []).extend(group.rewards_G)
        said = episodes.setdefault(group.key.episode_id, {})
        said.update(dict.fromkeys(key for member in group.members for key in member.response_ids))
    episodes["replayed"] = dict.fromkeys(sorted(step.replayed))
    return [
        _trace(
            step,
            [key for key in responses if key in step.credit.advantages and key in step.traces],
            id=f"{name}/{episode}",
            task={"type": "Episode", "data": {"name": episode}},
            agent={"config": {}, "name": "memagent"},
            decode=decode,
            rewards={
                branch: {"score": fmean(amounts), "weight": 1.0}
                for branch, amounts in rewards.get(episode, {}).items()
                if amounts
            },
        )
        for episode, responses in episodes.items()
        if responses
    ]


def write_traces(folder: Path, step: Step, *, name: str, decode: Decode) -> None:
    """Add the traces of a step to `traces.jsonl` in the folder.

    A line is an episode of verifiers with one trace, as its own reader takes it.
    """
    with (folder / "traces.jsonl").open("a", encoding="utf-8") as file:
        for trace in verifiers_traces(step, name=name, decode=decode):
            line = {"id": trace["id"], "task": trace["task"], "ok": True, "traces": [trace]}
            file.write(json.dumps(line) + "\n")


def _trace(
    step: Step, responses: Sequence[str], *, decode: Decode, **fields: Any
) -> dict[str, Any]:
    """Return the trace of some responses; `fields` are those that are not about them."""
    nodes: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    prompts: dict[tuple[int, ...], int] = {}
    for key in responses:
        said, whole = step.traces[key], step.credit.advantages[key]
        offsets = step.credit.offsets.get(key) or (0.0,) * len(said.completion_ids)
        if said.prompt_ids not in prompts:
            prompts[said.prompt_ids] = len(nodes)
            nodes.append(_node("user", said.prompt_ids, decode, mask=False))
        calls.append({"node": len(nodes), "model": step.roles[key].value})
        nodes.append(
            _node("assistant", said.completion_ids, decode, mask=True)
            | {"parent": prompts[said.prompt_ids], "sampled": True}
            | {
                "logprobs": list(said.logprobs),
                "advantages": [whole + offset for offset in offsets],
            }
        )
    return {
        **fields,
        "version": 1,
        "nodes": nodes,
        "calls": calls,
        "info": {
            "responses": {
                str(call["node"]): key for call, key in zip(calls, responses, strict=True)
            }
        },
    }


def _node(role: str, ids: Sequence[int], decode: Decode, *, mask: bool) -> dict[str, Any]:
    message = {"role": role, "content": decode(ids)}
    return {"message": message, "token_ids": list(ids), "mask": [mask] * len(ids)}

"""The line of `steps.jsonl` for a step: figures, rewards of groups, anchors, sampled replies.

When a run goes on from a checkpoint, `keep_lines` takes out what came after it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memagent.pages.run_folders import lines_of_file

if TYPE_CHECKING:
    from train.rollouts.experience import Step  # which needs torch; reading a run's files does not

SAMPLES = 4
"""Replies kept of a step."""


def step_record(step: Step, *, number: int, figures: Mapping[str, float]) -> dict[str, Any]:
    """Return the step as plain JSON values."""
    calls = {
        call.response.id: call
        for group in step.rollouts
        for run in (*group.rollouts, *(one for local in group.locals for one in local.reruns))
        for call in run.calls
    }
    shown = [key for key in step.credit.advantages if key in calls]
    spaced = shown[:: max(1, len(shown) // SAMPLES)][:SAMPLES]
    return {
        "step": number,
        "figures": {name: round(value, 6) for name, value in figures.items()},
        "groups": [
            {
                "branch": group.key.branch,
                "role": group.key.role.value,
                "episode": group.key.episode_id,
                "session": group.key.session,
                "question": group.key.question_id,
                "rewards": [
                    None if one.reward is None else round(one.reward, 6) for one in group.members
                ],
            }
            for group in step.groups
        ],
        "anchors": _anchors(step),
        "samples": [
            {
                "role": calls[key].role.value,
                "session": calls[key].step.session_id,
                "advantage": round(step.credit.advantages[key], 6),
                "text": calls[key].response.text[:2_000],
            }
            for key in spaced
        ],
    }


def _anchors(step: Step) -> list[list[float]]:
    """Return [global, local] advantages of the anchors of local groups.

    An anchor is the run of a session that was compared in both ways.
    """
    by_branch = step.credit.by_branch
    everywhere, here = by_branch.get("global", {}), by_branch.get("local", {})
    firsts = [
        member.response_ids[0]
        for group in step.groups
        if group.key.branch == "local"
        for member in group.members
        if member.response_ids
    ]
    return [
        [round(everywhere[key], 4), round(here[key], 4)]
        for key in firsts
        if key in everywhere and key in here
    ]


def keep_lines(path: Path, keeps: Callable[[dict[str, Any]], bool]) -> None:
    """Rewrite a file of lines with those that `keeps` accepts."""
    if path.is_file():
        lines = [line for line in lines_of_file(path) if keeps(line)]
        fresh = path.with_suffix(".fresh")
        fresh.write_text(
            "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8"
        )
        fresh.replace(path)

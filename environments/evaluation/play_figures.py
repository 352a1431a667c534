"""Figures of how an episode was played, the same for evaluation and training.

Each is a pair of what is counted and what it is divided by, so that episodes can be
summed and resampled as well as averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Final

from environments.records import ProbeScore, Score
from environments.rewards.metrics import Part, ratio
from environments.worlds.readers.world_reader import overwritten
from environments.worlds.truth import Truth

_NOTHING: Part = (0.0, 0.0)


def marked(score: Score, truth: Truth) -> Score:
    """Return the score with the questions marked that ask for a value which replaced another."""
    changed = overwritten(truth)
    probes = (
        one.model_copy(update={"overwritten": True}) if one.probe_id in changed else one
        for one in score.probes
    )
    return score.model_copy(update={"probes": tuple(probes)})


def overwritten_part(one: ProbeScore) -> Part:
    """(right to the word, asks for a value that replaced another)."""
    return (one.exact, 1.0) if one.overwritten and one.exact is not None else _NOTHING


def _share_of(kind: str) -> Callable[[Score], Part]:
    return lambda score: (float(score.ops.get(kind, 0)), float(sum(score.ops.values())))


def _unreadable(score: Score) -> Part:
    answers = [one for one in score.probes if one.usage.calls]
    unread = score.unread + sum(one.unreadable for one in answers)
    return float(unread), float(score.replies + len(answers))


OP_SHARES: Final[Mapping[str, Callable[[Score], Part]]] = {
    kind.lower(): _share_of(kind) for kind in ("ADD", "UPDATE", "DELETE", "NOOP", "REJECTED")
}
"""Share of each kind of op, and of refused facts and ops, among all of these."""
PLAY_FIGURES: Final[Mapping[str, Callable[[Score], Part]]] = {
    "memory_share": lambda score: (float(score.memory_tokens), float(score.dialogue_tokens)),
    **OP_SHARES,
    "unreadable": _unreadable,
}
"""What each figure takes from an episode: memory over dialogue, the op mix, a model's
replies of which nothing could be read.
"""


def episode_figures(score: Score) -> dict[str, float]:
    """Return every figure of one episode that has something to divide by, by name.

    Op shares without ops are 0.
    """
    found: dict[str, float] = {}
    f1 = [one.f1 for one in score.probes if one.f1 is not None]
    if f1:
        found["f1"] = fmean(f1)
        found["exact"] = fmean(one.exact for one in score.probes if one.exact is not None)
    if score.reward is not None:
        found["reward"] = score.reward
    ratios = {
        "overwritten": ratio(overwritten_part(one) for one in score.probes),
        "lost": ratio((float(one.lost), float(len(one.evidence))) for one in score.probes),
        **{name: ratio([part(score)]) for name, part in PLAY_FIGURES.items()},
    }
    found |= {name: value for name, value in ratios.items() if value is not None}
    found |= {name: found.get(name, 0.0) for name in OP_SHARES}
    found["failed"] = float(score.failure is not None)
    return found

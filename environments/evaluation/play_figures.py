"""Figures of how an episode was played, the same for evaluation and training.

Each is a pair of what is counted and what it is divided by, so that episodes can be
summed and resampled as well as averaged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Final

from environments.evaluation.fact_figures import FACTS, right_facts
from environments.records import ProbeScore, Score
from environments.rewards.metrics import Part, ratio
from environments.worlds.readers.world_reader import overwritten
from environments.worlds.truth import Truth
from memagent.core.snapshot import MemorySnapshot

_NOTHING: Part = (0.0, 0.0)


def marked(score: Score, truth: Truth, memory: MemorySnapshot | None = None) -> Score:
    """Return the score with what only the truth knows.

    The questions are marked that ask for a value which replaced another, and the facts
    that `memory`, if given, holds right at the end are counted.
    """
    changed = overwritten(truth)
    probes = (
        probe.model_copy(update={"overwritten": True}) if probe.probe_id in changed else probe
        for probe in score.probes
    )
    facts = right_facts(memory, truth) if memory is not None else {}
    return score.model_copy(update={"probes": tuple(probes), "facts": facts})


def overwritten_part(score: ProbeScore) -> Part:
    """(right to the word, asks for a value that replaced another)."""
    return (score.exact, 1.0) if score.overwritten and score.exact is not None else _NOTHING


def _share_of(kind: str) -> Callable[[Score], Part]:
    return lambda score: (float(score.ops.get(kind, 0)), float(sum(score.ops.values())))


def _facts(name: str) -> Callable[[Score], Part]:
    def part(score: Score) -> Part:
        right, counted = score.facts.get(name, (0, 0))
        return float(right), float(counted)

    return part


def _unreadable(score: Score) -> Part:
    answers = [probe for probe in score.probes if probe.usage.calls]
    unread = score.unread + sum(probe.unreadable for probe in answers)
    return float(unread), float(score.replies + len(answers))


OP_SHARES: Final[Mapping[str, Callable[[Score], Part]]] = {
    kind.lower(): _share_of(kind) for kind in ("ADD", "UPDATE", "DELETE", "NOOP", "REJECTED")
}
"""Share of each kind of op, and of refused facts and ops, among all of these."""
FACT_FIGURES: Final[Mapping[str, Callable[[Score], Part]]] = {
    f"facts_{name}": _facts(name) for name in FACTS
}
"""Share of the facts of a generated world that memory holds right at the end."""
PLAY_FIGURES: Final[Mapping[str, Callable[[Score], Part]]] = {
    "memory_share": lambda score: (float(score.memory_tokens), float(score.dialogue_tokens)),
    **OP_SHARES,
    **FACT_FIGURES,
    "unreadable": _unreadable,
}
"""The parts of an episode that figures are made of: memory over dialogue, the op mix, a model's
replies of which nothing could be read.
"""


def episode_figures(score: Score) -> dict[str, float]:
    """Return every figure of one episode that has something to divide by, by name.

    Op shares without ops are 0.
    """
    figures: dict[str, float] = {}
    for name in ("f1", "f1_memory_r2", "exact"):
        values = [getattr(probe, name) for probe in score.probes]
        if measured := [value for value in values if value is not None]:
            figures[name] = fmean(measured)
    if score.reward is not None:
        figures["reward"] = score.reward
    ratios = {
        "overwritten": ratio(overwritten_part(probe) for probe in score.probes),
        "lost": ratio((float(probe.lost), float(len(probe.evidence))) for probe in score.probes),
        **{name: ratio([part(score)]) for name, part in PLAY_FIGURES.items()},
    }
    figures |= {name: value for name, value in ratios.items() if value is not None}
    figures |= {name: figures.get(name, 0.0) for name in OP_SHARES}
    figures["failed"] = float(score.failure is not None)
    return figures

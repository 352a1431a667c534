"""Credit by segments of a trial whose prompt was edited (DCPO of MemAct, arXiv 2510.12635).

An edit of the workspace breaks the prefix of everything after it, so a trial is cut at
the edits that held. Each segment has the advantage of its trial and weighs the same,
however many responses it holds. One response stays one row, with the sampler's own
tokens: its share of its segment's tokens goes into its advantage, and the mean is over
segments. The surprise: that is the gradient of one row a segment, without a prompt that
is tokenised again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from memagent.core.exchange import ModelResponse
from memagent.core.trials import Trial
from memagent.core.workspace import credit_segments
from train.errors import TrainFault

T = TypeVar("T")


def segmented(trial: Trial, generated: Sequence[Sequence[T]]) -> list[tuple[T, ...]]:
    """Cut what was generated in a trial at the edits that held; empty segments are left out.

    `generated` has an entry for each step: what chose the action, then what edited the
    workspace after it. A player that gave up has one entry more. Raises `TrainFault` for
    another number of entries, and for two edits after one step.
    """
    if len(generated) - len(trial.steps) not in (0, 1):
        raise TrainFault(
            f"trial {trial.id} has {len(trial.steps)} steps, and what was generated is told "
            f"for {len(generated)}"
        )
    held = {edit.at for edit in trial.edits if not edit.refused}
    if len(credit_segments(trial)) != len(held) + 1:
        raise TrainFault(f"trial {trial.id} has two edits after one step")
    segments: list[list[T]] = [[]]
    for number, parts in enumerate(generated, start=1):
        segments[-1] += parts
        if number in held:
            segments.append([])
    return [tuple(segment) for segment in segments if segment]


def segment_shares(segments: Sequence[Sequence[ModelResponse]]) -> Mapping[str, float]:
    """Return the share of its segment's tokens that each response has, by response id.

    Raises `TrainFault` for a response without tokens, or in two segments.
    """
    shares: dict[str, float] = {}
    for segment in segments:
        tokens = {response.id: _length(response) for response in segment}
        if twice := tokens.keys() & shares.keys():
            raise TrainFault(f"response {min(twice)!r} stands in two segments")
        shares |= {key: count / sum(tokens.values()) for key, count in tokens.items()}
    return shares


def _length(response: ModelResponse) -> int:
    if response.tokens is None or not response.tokens.completion_ids:
        raise TrainFault(f"response {response.id!r} has no tokens; was it the policy's?")
    return len(response.tokens.completion_ids)

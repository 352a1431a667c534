"""The trials of a memory, with the root of their hashes.

Trials are one persistent map by id. A trial that has ended leads to a session with the
trial's id (`Trial.session`); the fold stores it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rpds import HashTrieMap

from memagent.core.snapshot import add_hash, sub_hash, trial_hash
from memagent.core.trials import Trial


def trials_after(
    trials: HashTrieMap[str, Trial], root: int, changes: Iterable[tuple[str, Trial | None]]
) -> tuple[HashTrieMap[str, Trial], int]:
    """Return the trials and their root after assignments; None takes a trial out."""
    for trial_id, after in changes:
        old = trials.get(trial_id)
        if old is not None:
            root = sub_hash(root, trial_hash(old))
        if after is None:
            trials = trials.discard(trial_id)
        else:
            trials = trials.insert(trial_id, after)
            root = add_hash(root, trial_hash(after))
    return trials, root


def untaught(trials: Mapping[str, Trial]) -> Iterator[Trial]:
    """Yield the trials that ended and whose lesson nobody has taken or refused."""
    return (trial for trial in trials.values() if trial.outcome and not trial.taught)


def failures(trials: Mapping[str, Trial]) -> list[Trial]:
    """Return the trials that failed, oldest first, ties by id."""
    failed = (trial for trial in trials.values() if trial.outcome and not trial.outcome.good)
    return sorted(failed, key=lambda trial: (trial.at.timestamp() if trial.at else 0.0, trial.id))

"""The trials of a memory as a value, with the root of their hashes.

Trials are few and read as a whole, so one persistent map by id is enough. A trial that
has ended leads to a session with the trial's id (`Trial.session`); the fold stores it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rpds import HashTrieMap

from memagent.core.snapshot import add_hash, sub_hash, trial_hash
from memagent.core.trials import Trial


@dataclass(frozen=True, slots=True)
class Experience:
    """Everything a memory knows of trials at one journal sequence."""

    trials: HashTrieMap[str, Trial] = HashTrieMap()
    """Open and ended trials by id."""
    root: int = 0
    """The multiset hash of the trials."""

    def with_trials(self, changes: Iterable[tuple[str, Trial | None]]) -> Experience:
        """Return the experience after assignments; None takes a trial out."""
        trials, root = self.trials, self.root
        for trial_id, after in changes:
            old = trials.get(trial_id)
            if old is not None:
                root = sub_hash(root, trial_hash(old))
            if after is None:
                trials = trials.discard(trial_id)
            else:
                trials = trials.insert(trial_id, after)
                root = add_hash(root, trial_hash(after))
        return Experience(trials, root)

    def untaught(self) -> Iterator[Trial]:
        """Yield the trials that ended and whose lesson nobody has taken or refused."""
        return (trial for trial in self.trials.values() if trial.outcome and not trial.taught)


NO_EXPERIENCE = Experience()

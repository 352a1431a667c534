"""Anchors: the sessions that are rerun locally, and the memories that reruns start from.

They are drawn before the rollout begins. Selectors see statistics of earlier steps
only: choosing by the outcome of a rollout would bias the comparison that the rerun is
for.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Protocol

from environments.play.rollout import MemoryAgent
from environments.records import Episode
from memagent.core.exchange import Role
from train.credit.groups import EntropyReader, TokenValues
from train.errors import TrainFault
from train.sampling.policy import Call


@dataclass(kw_only=True)
class SessionSpread:
    """Running reward variance of local groups by the place of the session."""

    decay: float = 0.9
    variance: dict[int, float] = field(default_factory=dict[int, float])

    def see(self, session: int, rewards_G: Sequence[float]) -> None:
        """Take in the rewards of one group; nothing changes with fewer than two."""
        if len(rewards_G) < 2:
            return
        mean = sum(rewards_G) / len(rewards_G)
        fresh = sum((reward - mean) ** 2 for reward in rewards_G) / len(rewards_G)
        known = self.variance.get(session)
        self.variance[session] = (
            fresh if known is None else self.decay * known + (1 - self.decay) * fresh
        )

    def state(self) -> dict[str, float]:
        """Return the variances as plain values."""
        return {str(session): value for session, value in self.variance.items()}

    def load(self, state: Mapping[str, float]) -> None:
        """Take over the values that `state` gave."""
        self.variance = {int(session): value for session, value in state.items()}


class AnchorSelector(Protocol):
    """Gives each session its probability as an anchor."""

    def __call__(
        self, sessions: int, probability: float, spread: SessionSpread, /
    ) -> Sequence[float]:
        """Return (S,) probabilities whose mean is about `probability`."""
        ...


def uniform(sessions: int, probability: float, _spread: SessionSpread, /) -> list[float]:
    """Give every session the same probability."""
    return [probability] * sessions


def by_variance(sessions: int, probability: float, spread: SessionSpread, /) -> list[float]:
    """Prefer sessions whose local rewards varied most in earlier steps.

    No session comes less than a quarter as often as uniformly. Sessions not yet seen
    count as the most varied one. Ours; the mean stays at `probability` up to the cap at
    1.
    """
    if not spread.variance:
        return uniform(sessions, probability, spread)
    most = max(spread.variance.values()) or 1.0
    weights = [spread.variance.get(session, most) ** 0.5 for session in range(sessions)]
    mean = sum(weights) / sessions or 1.0
    return [min(1.0, probability * (0.25 + 0.75 * weight / mean)) for weight in weights]


def draw_anchors(
    draws: random.Random,
    *,
    sessions: int,
    members: int,
    probability: float,
    selector: AnchorSelector = uniform,
    spread: SessionSpread | None = None,
) -> dict[int, int]:
    """Map the place of each session that is rerun to the member whose memory it starts from.

    Return {} when nothing is to be rerun. Raises `TrainFault` for a probability outside
    [0, 1].
    """
    if not 0.0 <= probability <= 1.0:
        raise TrainFault(f"the probability of a local group is between 0 and 1, not {probability}")
    chances = selector(sessions, probability, spread or SessionSpread())
    drawn = [(draws.random(), draws.randrange(members)) for _ in range(sessions)]
    return {
        place: member for place, (chance, member) in enumerate(drawn) if chance < chances[place]
    }


# Forks: reruns that begin as the anchor's run did and part from it at one call.
#
# What memory shows is where a policy has a choice to make (ARPO, arXiv 2507.19849; AEPO,
# 2510.14545: branch after a tool call whose next tokens have a high entropy). A fork is
# given the anchor's replies up to its call of the highest entropy after a recall and says
# the rest anew. The papers branch while a run goes on, by the rise of the entropy over
# its beginning; here the whole session is known first. So the anchor's own reply is not
# quite a fresh draw (what it led to was less uncertain); `anchor_in_group = false` leaves
# it out.


def fork_at(calls: Sequence[Call], read: EntropyReader | None) -> int:
    """Return the place of the call to fork at: the most uncertain one after a recall.

    That is the one whose tokens have the highest mean entropy. Where nobody reads
    entropies, what the tokens cost in nats (`-log pi`) stands for them: its mean over
    draws is the entropy. The extractor speaks before memory is searched, so its calls are
    left out unless there are no others. 0 without calls.
    """
    traces = {call.response.id: call.response.tokens for call in calls if call.response.tokens}
    told: TokenValues = (
        {key: [-logp for logp in each.logprobs] for key, each in traces.items()}
        if read is None or not traces
        else read(traces, {call.response.id: call.role for call in calls})
    )

    def doubt(place: int) -> tuple[bool, float]:
        values = told.get(calls[place].response.id) or [0.0]
        return calls[place].role is not Role.EXTRACTOR, fmean(values)

    return max(range(len(calls)), key=doubt, default=0)


# Questions about a memory right after a session.
#
# An episode's own questions mostly come at its end: about half of its sessions hold no
# fact that one of them still asks for, and those that were overwritten never do. A world
# that knows what held after each session can ask about that instead (`AskedAfter`). Then
# a rerun is credited for what its own session taught, whatever became of it later.


@dataclass(frozen=True, kw_only=True)
class QuestionedEpisode:
    """An episode up to a session, with questions about what held right after it."""

    episode: Episode
    """Its sessions up to that one, and the questions."""
    answering: MemoryAgent | None = None
    """Agent that can answer these questions; None for the one that answers the others."""


AskedAfter = Callable[[Episode, int], QuestionedEpisode]
"""Gives an episode as it was asked after the session of that place (from 0)."""


def as_played(episode: Episode, _place: int) -> QuestionedEpisode:
    """Ask an episode's own questions: all that an environment without a truth has."""
    return QuestionedEpisode(episode=episode)

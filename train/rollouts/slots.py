"""Slots of a step's experience: which episodes, which earlier rows, which hints.

Each is a class whose settings are keyword arguments. `state` and `load` carry what it
remembers into checkpoints; the bases here remember nothing and change nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from environments.records import Episode
from memagent.core.exchange import ModelRequest, ModelResponse, Role, TokenTrace
from memagent.protocols import ChatModel
from train.credit.groups import CreditGroup, Stateless
from train.errors import TrainFault
from train.settings.options import MANAGER_ROLES


class EpisodeSampler(Stateless):
    """Chooses the episodes of a generation batch: each pass over all is shuffled anew.

    Episodes at the end of a pass that fill no batch are not played in it.
    """

    def choose(self, batch: int, *, seed: int, episodes: int, size: int) -> list[int]:
        """Return the places of the `size` episodes that batch number `batch` plays.

        The main process chooses for all. The result depends on the arguments and the
        state alone. Raises `TrainFault` when a batch is larger than all episodes.
        """
        if size > episodes:
            raise TrainFault(
                f"a step plays {size} episodes, and there are {episodes}; "
                "give at least as many as a step plays"
            )
        passed, within = divmod(batch, episodes // size)
        order = list(range(episodes))
        random.Random(f"{seed}/episodes/{passed}").shuffle(order)
        return order[within * size : (within + 1) * size]

    def see(self, rewards: Mapping[int, Sequence[float]], /) -> None:
        """Take in the rewards that a batch earned on all processes, by the episode's place."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Responses with their advantages, tokens and roles, by response id."""

    advantages: Mapping[str, float] = field(default_factory=dict[str, float])
    traces: Mapping[str, TokenTrace] = field(default_factory=dict[str, TokenTrace])
    """With the log-probabilities of the policy that said them."""
    roles: Mapping[str, Role] = field(default_factory=dict[str, Role])


class GroupSource(Stateless):
    """Gives rows of earlier steps to learn from once more; as it stands, none."""

    def draw(self, fresh: Replay, groups: Sequence[CreditGroup], draws: random.Random, /) -> Replay:
        """Take in a step's rows and groups and return earlier rows to add to them."""
        del fresh, groups, draws
        return Replay()


NO_SOURCE = GroupSource()


class Hinter(Stateless):
    """Tells the policy part of what is right while it plays; as it stands, `always` a share."""

    def __init__(self, *, always: float = 0.0) -> None:
        self.always = always

    def share(self, name: str, draws: random.Random, /) -> float:
        """Return the share, in [0, 1], of a session's hints that all its runs are given.

        `name` is that of the session's kind; `draws` depend on the session and the step.
        """
        del name, draws
        return self.always

    def see(self, name: str, rewards_G: Sequence[float], /) -> None:
        """Take in the rewards of the runs of a session of that kind."""


NO_HINTER = Hinter()


# Hints: part of what is right, shown to the policy while it plays.
#
# All runs of a session are given the same hints, so a comparison stays fair. A hint stands
# at the end of the prompt and is part of the row that is learned from; evaluation and an
# app never see one. A teacher is the policy with all hints: its prompts are noted, and what
# is played stays without them.

Hints = Callable[[Episode, int], Sequence[str]]
"""Gives the right notes of the session of that place (from 0)."""


def no_hints(_episode: Episode, _place: int) -> list[str]:
    """Know nothing, as environments without a truth do."""
    return []


@dataclass(kw_only=True)
class HintedModel:
    """A model whose manager is shown a share of each session's right notes."""

    model: ChatModel
    episode: Episode
    hinter: Hinter
    hints: Hints
    draws: Callable[[int], random.Random]
    """Gives the draws that all runs of a session of that place share."""
    kind: Callable[[int], str]
    """Gives the name of the kind of the session of that place."""
    _shown: dict[str, list[str]] = field(default_factory=dict[str, list[str]])

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer the request, with hints behind the last message if there are any."""
        return await self.model.complete(self.hinted(request) or request)

    def hinted(self, request: ModelRequest) -> ModelRequest | None:
        """Return the request with its session's hints; None where there are none."""
        hints = self._hints_of(request.step.session_id or "")
        if request.role not in MANAGER_ROLES or not hints:
            return None
        *before, last = request.messages
        content = "\n".join([last.content, "hints", *hints])
        messages = (*before, last.model_copy(update={"content": content}))
        return request.model_copy(update={"messages": messages})

    def _hints_of(self, session_id: str) -> list[str]:
        if session_id not in self._shown:
            places = [s.id for s in self.episode.sessions]
            place = places.index(session_id) if session_id in places else -1
            self._shown[session_id] = self._drawn(place) if place >= 0 else []
        return self._shown[session_id]

    def _drawn(self, place: int) -> list[str]:
        notes = list(self.hints(self.episode, place))
        share = self.hinter.share(self.kind(place), self.draws(place))
        return notes[: round(share * len(notes))]


@dataclass(kw_only=True)
class TaughtModel:
    """A model that plays as it would; the prompts of its teacher are noted."""

    model: ChatModel
    teacher: HintedModel
    note: Callable[[str, ModelRequest], None]
    """Takes the id of a response and the request that the teacher would have had."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer the request, and note it with all hints if there are any."""
        response = await self.model.complete(request)
        hinted = self.teacher.hinted(request)
        if hinted is not None:
            self.note(response.id, hinted)
        return response

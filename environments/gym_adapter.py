"""Worlds as Gymnasium environments: the action is a reply, the observation its prompt.

Behind it the real agent of a design remembers an episode. Wherever it would ask a model
(by default for the memory operations of a chunk) it waits: its prompt is the
observation, the next action is what the model says. So actions are read, checked and
applied to a real bank by the very code that serves users; a reply that cannot be read
is asked for once more, and an operation that names an unknown memory is refused. What
the calls in other roles would say is said by an oracle that knows the world. After the
last session a fixed reader answers the episode's questions from that memory; the reward
of the last step is what it earned, all others are 0.

    import gymnasium
    from environments.gym_adapter import register

    register()
    env = gymnasium.make("memagent/Synthetic-tiny-v0")

The surprise: an action is not the reply to a turn but to a call. A session without
anything to decide shows nothing.
"""

from __future__ import annotations

import asyncio
import string
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Final, TypedDict, TypeVar, Unpack, cast

from environments.datasets.synthetic import LEVELS, Part, Synthetic
from environments.demonstrations.oracle import OracleModel
from environments.errors import EnvironmentFault
from environments.play.rollout import answer_probes, play
from environments.records import Episode
from environments.rewards.scoring import Scoring
from environments.rewards.terms import Reward, Weighted, memory_r2_reward, outcome_of
from environments.tasks.generated import Generated
from environments.tasks.label_learning import LabelLearning
from environments.worlds.readers.notes import NoteLanguage
from environments.worlds.readers.world_reader import WorldReader
from memagent.build import open_store
from memagent.core.errors import MissingExtra
from memagent.core.exchange import ModelRequest, ModelResponse, Role
from memagent.core.records import Scope, content_id
from memagent.core.snapshot import EMPTY
from memagent.plugins import load
from memagent.protocols import ChatModel

try:
    import gymnasium
    from gymnasium.spaces import Text
except ModuleNotFoundError as error:
    raise MissingExtra("gym", needed_for="playing through Gymnasium", cause=str(error)) from error

T = TypeVar("T")

WORLDS: Final[Mapping[str, str]] = {
    "Synthetic": "synthetic",
    "FactConsolidation": "fact_consolidation",
    "Needle": "needle",
    "OrderRecall": "order_recall",
    "Rewrite": "rewrite",
    "TaskStream": "task_stream",
    "TemporalQA": "temporal_qa",
    "WholeStory": "whole_story",
}
"""The environments that can be registered, by their names in ids:
`memagent/Rewrite-tiny-v0`.
"""
CHARACTERS: Final = "".join(
    sorted(set(string.printable) | set("’‘“”–—…éèêëáàâäãåçíìîïñóòôöõøúùûüæœßÉÖÜÄÅØ"))
)
"""The characters of observations; any other is shown as `?`."""


class GymOptions(TypedDict, total=False):
    """Options of `MemoryGym`."""

    split: Part
    """`train` by default."""
    episodes: int
    """`reset` draws from the first ones of the split; 1,000 by default."""
    design: str
    """`memory_r2` by default."""
    roles: frozenset[Role]
    """The roles that actions speak for; the manager by default."""
    reward: Weighted | None
    """Memory-R2's when None."""
    embedder: str
    """`static` by default."""
    observation_chars: int
    """Longest observation; 100,000 by default."""
    action_chars: int
    """Longest action; 8,000 by default."""


def _text_space(characters: int) -> Text:
    return Text(max_length=characters, min_length=0, charset=CHARACTERS)


class MemoryGym(gymnasium.Env[str, str]):
    """One world as a Gymnasium environment of texts."""

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(
        self,
        world: Synthetic | Generated,
        **options: Unpack[GymOptions],
    ) -> None:
        """Open a world with the options of `GymOptions`.

        Raises `EnvironmentFault` for a world without notes to read (`label_learning`)
        or without a role to act in.
        """
        roles = options.get("roles", frozenset((Role.MANAGER,)))
        if isinstance(world, LabelLearning):
            raise EnvironmentFault(
                "label_learning has no notes for the reader; play it with an agent instead"
            )
        if not roles & {Role.EXTRACTOR, Role.MANAGER}:
            raise EnvironmentFault(
                "roles must hold extractor or manager: the calls in which a memory is made"
            )
        self.observation_space = _text_space(options.get("observation_chars", 100_000))
        self.action_space = _text_space(options.get("action_chars", 8_000))
        self._world, self._episodes = world, options.get("episodes", 1_000)
        self._split: Part = options.get("split", "train")
        self._roles, self._design = roles, options.get("design", "memory_r2")
        self._reward = options.get("reward") or memory_r2_reward()
        self._store = open_store(path=":memory:", embedder=options.get("embedder", "static"))
        self._loop = asyncio.new_event_loop()
        # A notebook's own loop stays out of it.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="memory-gym")
        self._desk: _Desk | None = None
        self._playing: asyncio.Task[tuple[float, dict[str, Any]]] | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[str, dict[str, Any]]:
        """Begin an episode drawn by the seed, or the one that `options={"episode": 3}` names."""
        super().reset(seed=seed)
        drawn = int(self.np_random.integers(self._episodes))
        index = int((options or {}).get("episode", drawn))
        episode = self._world.episode(self._split, index)
        return self._within(self._begin(episode))

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Reply to the call that the last observation showed.

        Raises `EnvironmentFault` when there is none.
        """
        if self._desk is None or self._playing is None:
            raise EnvironmentFault("reset the environment first: no episode is under way")
        desk, playing = self._desk, self._playing
        observation, info = self._within(self._reply(desk, playing, action))
        if not playing.done():
            return observation, 0.0, False, False, info
        reward, info = playing.result()
        self._desk = self._playing = None
        return "", reward, True, False, info

    def close(self) -> None:
        """Give up what is under way and free everything; harmless when repeated."""
        if not self._loop.is_closed():
            self._within(self._give_up())
            self._thread.shutdown()
            self._loop.close()
            self._store.close()

    def _within(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.submit(self._loop.run_until_complete, work).result()

    async def _begin(self, episode: Episode) -> tuple[str, dict[str, Any]]:
        await self._give_up()
        truth = self._world.truth(episode)
        oracle = OracleModel(truth, episode.sessions, self._world.lexicon(self._split))
        self._desk = _Desk(self._roles, oracle)
        self._playing = asyncio.get_running_loop().create_task(self._play(episode, self._desk))
        return await self._next(self._desk, self._playing)

    async def _reply(
        self, desk: _Desk, playing: asyncio.Task[tuple[float, dict[str, Any]]], action: str
    ) -> tuple[str, dict[str, Any]]:
        desk.reply(action)
        return await self._next(desk, playing)

    async def _next(
        self, desk: _Desk, playing: asyncio.Task[tuple[float, dict[str, Any]]]
    ) -> tuple[str, dict[str, Any]]:
        """Return the next call as it is shown; an empty text when the episode is over."""
        called = asyncio.create_task(desk.called.wait())
        await asyncio.wait((called, playing), return_when=asyncio.FIRST_COMPLETED)
        called.cancel()
        request = desk.request
        if request is None:
            return "", {}
        text = "\n\n".join(message.content for message in request.messages)
        space = cast(Text, self.observation_space)
        observation = "".join(sign if sign in space.character_set else "?" for sign in text)[
            : space.max_length
        ]
        return observation, {
            "role": request.role.value,
            "session": request.step.session_id or "",
            "calls": desk.replies,
        }

    async def _play(self, episode: Episode, desk: _Desk) -> tuple[float, dict[str, Any]]:
        """Play the whole episode; return its reward and the parts of it."""
        agent = self._store.agent(
            Scope(user_id="gym"), model=desk, design=self._design, keep_unreadable=True
        ).at(EMPTY)
        trajectory = await play(agent, episode, ask=False)
        if trajectory.failure is not None:
            raise EnvironmentFault(
                f"episode {episode.id!r} could not be played: {trajectory.failure}"
            )
        language = NoteLanguage(self._world.lexicon(self._split))
        reader = WorldReader(base=agent, language=language).knowing(self._world.truth(episode))
        answers = await answer_probes(reader, episode, trajectory)
        score = Scoring().score(episode, replace(trajectory, answers=answers))
        reports = [trace.report for trace in trajectory.traces]
        earned: Reward = self._reward(
            outcome_of(episode, trajectory.end, scores=score.probes, reports=reports)
        )
        info = {
            "episode": episode.id,
            "score": score.reward,
            "parts": dict(earned.parts),
            "memory_items": score.memory_items,
            "refused": sum(report.op_counts["REJECTED"] for report in reports),
            "calls": desk.replies,
        }
        return earned.total or 0.0, info

    async def _give_up(self) -> None:
        if self._playing is not None and not self._playing.done():
            self._playing.cancel()
            await asyncio.gather(self._playing, return_exceptions=True)
        self._desk = self._playing = None


class _Desk:
    """The model of the agent behind a `MemoryGym`: hands calls out and waits for their replies."""

    def __init__(self, roles: frozenset[Role], others: ChatModel) -> None:
        self._roles, self._others = roles, others
        self._reply: asyncio.Future[str] | None = None
        self.request: ModelRequest | None = None
        """The call that waits for a reply."""
        self.called = asyncio.Event()
        """Set while a call waits."""
        self.replies = 0

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Return the next action for a call in one of the roles.

        Any other call goes to the model of the other roles.
        """
        if request.role not in self._roles:
            return await self._others.complete(request)
        self._reply = asyncio.get_running_loop().create_future()
        self.request = request
        self.called.set()
        text = await self._reply
        return ModelResponse(id=content_id("res", str(self.replies), text), text=text, model="gym")

    def reply(self, text: str) -> None:
        """Answer the call that waits; without one nothing happens."""
        if self._reply is None or self._reply.done():
            return
        self.request = None
        self.called.clear()
        self.replies += 1
        self._reply.set_result(text)


def make(
    world: str = "synthetic",
    *,
    level: str = "tiny",
    knobs: Mapping[str, Any] | None = None,
    **gym: Any,
) -> MemoryGym:
    """Open a world by the name of its entry point as a Gymnasium environment.

    `knobs` are the world's arguments, `gym` those of `MemoryGym`.
    """
    opened = cast("Any", load("environments", world))(level=level, **(knobs or {}))
    return MemoryGym(opened, **gym)


def register() -> None:
    """Register `gymnasium.make("memagent/Synthetic-tiny-v0")` and its like.

    Harmless when repeated.
    """
    for name, world in WORLDS.items():
        for level in LEVELS:
            name_of_it = f"memagent/{name}-{level}-v0"
            if name_of_it not in gymnasium.registry:
                gymnasium.register(  # pyright: ignore[reportUnknownMemberType]
                    name_of_it,
                    entry_point="environments.gym_adapter:make",
                    kwargs={"world": world, "level": level},
                )

"""The task of a run: the environment, the agent that plays it, and who helps and answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

from environments.base import Environment
from environments.datasets.locomo import LoCoMo
from environments.datasets.synthetic import Synthetic, synthetic
from environments.demonstrations.ideal import Demonstration, OracleModel, demonstrations
from environments.play.rollout import MemoryAgent
from environments.records import Episode
from environments.views import select_asks, truncate
from environments.worlds.readers.notes import NoteLanguage
from environments.worlds.readers.world_reader import WorldReader
from environments.worlds.truth import Truth
from memagent.async_agent import AsyncAgent
from memagent.build import open_store
from memagent.core.errors import ConfigError
from memagent.core.exchange import ModelRequest, ModelResponse, Role
from memagent.core.records import Scope
from memagent.llm.wrappers import RoutedModel
from memagent.protocols import ChatModel
from train.ranks import joined, shared
from train.rollouts.collect import EpisodeModel, policy_only
from train.rollouts.questions import AskedAfter, QuestionedEpisode, as_played
from train.run.config import ROLE_SETS
from train.run.evaluation import Evaluation, evaluate_policy
from train.run.settings import RunSettings
from train.sampling.policy import PolicyModel
from train.sync import run_sync

_ASKED = 512
"""Sessions whose questions are kept, over all episodes."""
_FIRST_DEMONSTRATION = 10_000
"""Index of the first demonstrated episode, far beyond those of training."""


class _SilentModel:
    """The model of an agent that speaks through its policy only."""

    async def complete(self, request: ModelRequest) -> ModelResponse:  # noqa: ARG002 - interface
        raise ConfigError("a training agent speaks through its policy only")


@dataclass(kw_only=True)
class TrainingTask:
    """An environment with the agent that plays it."""

    settings: RunSettings
    env: Environment
    agent: AsyncAgent
    sessions: int
    """Sessions of an episode; longer ones are cut."""
    truths: dict[str, Truth] = field(default_factory=dict[str, Truth], repr=False)
    """The world behind the episodes given so far, by their ids: making a world again costs
    as much as its episode.
    """

    @classmethod
    def of(cls, settings: RunSettings, *, sessions: int) -> TrainingTask:
        """Open the environment of the settings at a number of sessions.

        Raises `ConfigError`, `EnvironmentFault`.
        """
        part = settings.environment
        if part.kind == "locomo":
            env: Environment = LoCoMo(part.path or "", split_by=part.split_by or "memory_r2")
        else:
            env = synthetic(
                part.level,
                sessions=sessions,
                seed=part.seed,
                episodes=part.episodes,
                turns=part.turns,
                facts=part.facts,
                overwrite=part.overwrite,
                interference=part.interference,
                distractors=part.distractors,
                friends=part.friends,
                only=part.only,
                probes=part.probes,
            )
        store = open_store(path=":memory:", embedder=settings.agent.embedder)
        agent = store.agent(
            Scope(user_id="train"),
            model=_SilentModel(),
            design=settings.agent.design,
            keep_unreadable=True,
        )
        return cls(settings=settings, env=env, agent=agent, sessions=sessions)

    def episodes(self, split: str, count: int, *, skip: int = 0) -> list[Episode]:
        """Return the first episodes of a split after `skip`.

        They have the questions that the settings ask, and no more sessions than the
        task.
        """
        asks, episodes = self.settings.environment.asks, list[Episode]()
        for episode in islice(self.env.episodes(split), skip, skip + count):  # type: ignore[arg-type]
            if asks and isinstance(self.env, Synthetic):
                episode = select_asks(episode, self._truth(self.env, episode), asks)
            episodes.append(truncate(episode, self.sessions))
        return episodes

    def answering(self, episodes: Sequence[Episode], *, split: str) -> MemoryAgent | None:
        """Return the agent that answers when memories are scored; None for the policy."""
        if not isinstance(self.env, Synthetic):
            return None
        env, reader = self.env, self._reader(self.env, split)
        if reader is None:
            return None
        return reader.knowing(*(self._truth(env, episode) for episode in episodes))

    def asked_after(self, *, split: str) -> AskedAfter:
        """Return the maker of questions about what held right after a session.

        A synthetic world knows it; in others an episode has its own questions only.
        """
        if not isinstance(self.env, Synthetic):
            return as_played
        env, asks = self.env, self.settings.environment.asks
        reader = self._reader(env, split)
        known: dict[tuple[str, int], QuestionedEpisode] = {}

        def asked_after(episode: Episode, place: int) -> QuestionedEpisode:
            if (episode.id, place) not in known:
                asked, truth = env.after(episode, place + 1)
                if len(known) >= _ASKED:
                    known.clear()
                known[episode.id, place] = QuestionedEpisode(
                    episode=select_asks(asked, truth, asks),
                    answering=None if reader is None else reader.knowing(truth),
                )
            return known[episode.id, place]

        return asked_after

    def episode_model(self, *, split: str) -> EpisodeModel:
        """Return the maker of an episode's model.

        The policy speaks in every role, unless the oracle of the world takes down the
        facts.
        """
        if self.settings.agent.listening == "policy" or not isinstance(self.env, Synthetic):
            return policy_only
        env, lexicon = self.env, self.env.lexicon(split)  # type: ignore[arg-type]

        def oracle_listens(episode: Episode, policy: ChatModel) -> ChatModel:
            return RoutedModel(
                {Role.EXTRACTOR: OracleModel(self._truth(env, episode), episode.sessions, lexicon)},
                default=policy,
            )

        return oracle_listens

    def evaluate(self, policy: PolicyModel, split: str, count: int, *, skip: int = 0) -> Evaluation:
        """Play the episodes of a split with the policy, helped and judged as the settings say.

        Processes that train together play a share each and all get the whole.
        """
        every = self.episodes(split, count, skip=skip)
        episodes = shared(every)
        played = run_sync(
            evaluate_policy(
                policy,
                self.agent,
                self.env,
                episodes,
                answering=self.answering(episodes, split=split),
                episode_model=self.episode_model(split=split),
            )
        )
        return Evaluation(episodes=tuple(joined(played.episodes, count=len(every))))

    def _reader(self, env: Synthetic, split: str) -> WorldReader | None:
        """Return a reader that knows no world yet; None where the policy answers."""
        if self.settings.agent.answering == "policy":
            return None
        return WorldReader(base=self.agent, language=NoteLanguage(env.lexicon(split)))  # type: ignore[arg-type]

    def _truth(self, env: Synthetic, episode: Episode) -> Truth:
        if episode.id not in self.truths:
            self.truths[episode.id] = env.truth(episode)
        return self.truths[episode.id]


async def demonstrate(settings: RunSettings) -> list[Demonstration]:
    """Play the demonstrations of the warm start; [] in an environment without an oracle.

    They show the roles that are trained or that answer, and the facts unless the oracle
    takes them down in training too.
    """
    if settings.environment.kind != "synthetic":
        return []
    part = settings.warmup
    task = TrainingTask.of(settings, sessions=part.sessions if part else settings.stage[0].sessions)
    assert isinstance(task.env, Synthetic)
    roles = (
        {Role.MANAGER} if settings.agent.listening == "oracle" else {Role.EXTRACTOR, Role.MANAGER}
    )
    shows_answers = part is not None and part.answers
    answers_itself = settings.agent.answering == "policy" or _trains_answerer(settings)
    if shows_answers or answers_itself:
        roles.add(Role.ANSWERER)
    count = part.episodes if part else 20
    return await demonstrations(
        task.env,
        task.agent,
        indexes=range(_FIRST_DEMONSTRATION, _FIRST_DEMONSTRATION + count),
        noise=part.noise if part else 0.0,
        guess=part.guess if part else 0.0,
        guess_answers=part.guess_answers if part else 0.0,
        seed=settings.seed,
        roles=frozenset(roles),
        asks=settings.environment.asks,
    )


def _trains_answerer(settings: RunSettings) -> bool:
    names = {settings.trainer.get("roles", "manager"), *(stage.roles for stage in settings.stage)}
    return any(Role.ANSWERER in ROLE_SETS.get(name or "", frozenset()) for name in names)

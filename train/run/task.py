"""The task of a run: the environment, the agent that plays it, and who helps and answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from environments.datasets.synthetic import Synthetic
from environments.demonstrations.extraction import FactNoter
from environments.demonstrations.ideal import Demonstration, OracleModel, demonstrations
from environments.play.rollout import MemoryAgent
from environments.records import Episode
from environments.views import select_asks
from environments.worlds.readers.fact_reader import FactReader
from environments.worlds.readers.notes import NoteLanguage
from environments.worlds.readers.world_reader import WorldReader
from environments.worlds.truth import Truth
from memagent.build import AgentSettings, build_model
from memagent.core.exchange import Role
from memagent.llm.wrappers import RoutedModel
from memagent.protocols import ChatModel
from train.ranks import joined, shared
from train.rollouts.collect import EpisodeModel, policy_only
from train.rollouts.hints import Hints, no_hints
from train.rollouts.questions import AskedAfter, QuestionedEpisode, as_played
from train.run.evaluation import Evaluation, evaluate_policy
from train.run.plans import TruthOf
from train.sampling.policy import PolicyModel
from train.settings.run import EnvironmentPart, RunSettings, trains_answerer
from train.settings.world import TrainingWorld
from train.sync import run_sync

_ASKED = 512
"""Sessions whose questions are kept, over all episodes."""
_FIRST_DEMONSTRATION = 10_000
"""Index of the first demonstrated episode, far beyond those of training."""


@dataclass(kw_only=True)
class TrainingTask(TrainingWorld):
    """A world with who helps, who answers and how a policy is tested."""

    def answering(self, episodes: Sequence[Episode], *, split: str) -> MemoryAgent | None:
        """Return the agent that answers when memories are scored; None for the policy."""
        env = self.env
        if isinstance(env, Synthetic) and (reader := self._reader(env, split)):
            return reader.knowing(*(self.truth(env, episode) for episode in episodes))
        return self._frozen

    @cached_property
    def _frozen(self) -> MemoryAgent | None:
        """The agent with the frozen model that the settings name; None without one."""
        if self.settings.agent.reader is None:
            return None
        named = {"model": self.settings.agent.reader, "extra": {"temperature": 0.0}}
        model = build_model(None, AgentSettings.model_validate({"model": named}))
        assert model is not None, "the settings name it"
        return self.agent.with_model(model)

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

    @property
    def truth_of(self) -> TruthOf | None:
        """The state after the last session of an episode; None where nobody knows."""
        if not isinstance(self.env, Synthetic):
            return None
        env, known = self.env, dict[tuple[str, int], Truth]()

        def truth_of(episode: Episode) -> Truth:
            key = (episode.id, len(episode.sessions))
            if key not in known:
                if len(known) >= _ASKED:
                    known.clear()
                known[key] = self.truth(env, episode).upto(key[1])
            return known[key]

        return truth_of

    def hints(self, *, split: str) -> Hints:
        """Return the maker of a session's right notes; a synthetic world knows them."""
        if not isinstance(self.env, Synthetic):
            return no_hints
        env, language = self.env, NoteLanguage(self.env.lexicon(split))  # type: ignore[arg-type]

        def hints(episode: Episode, place: int) -> list[str]:
            noter = FactNoter(self.truth(env, episode), language)
            return noter.notes_of(episode.sessions[place])

        return hints

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
                {Role.EXTRACTOR: OracleModel(self.truth(env, episode), episode.sessions, lexicon)},
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

    def _reader(self, env: Synthetic, split: str) -> WorldReader | FactReader | None:
        """Return a reader that knows no world yet; None where the policy answers."""
        if self.settings.agent.answering == "policy":
            return None
        language = NoteLanguage(env.lexicon(split))  # type: ignore[arg-type]
        if self.settings.agent.answering == "facts":
            return FactReader(base=self.agent, calendar=language.calendar)
        return WorldReader(base=self.agent, language=language)


async def demonstrate(settings: RunSettings) -> list[Demonstration]:
    """Play the demonstrations of the warm start; [] for LoCoMo, which has no oracle.

    They show the roles that are trained or that answer, and the facts unless the oracle
    takes them down in training too. Of another environment's language they show the
    synthetic world of the same level.
    """
    environment = settings.environment
    if environment.kind == "locomo":
        return []
    if environment.kind != "synthetic":
        world = EnvironmentPart(level=environment.level, seed=environment.seed)
        settings = settings.model_copy(update={"environment": world})
    part = settings.warmup
    task = TrainingTask.of(settings, sessions=part.sessions if part else settings.stage[0].sessions)
    assert isinstance(task.env, Synthetic)
    roles = (
        {Role.MANAGER} if settings.agent.listening == "oracle" else {Role.EXTRACTOR, Role.MANAGER}
    )
    shows_answers = part is not None and part.answers
    answers_itself = settings.agent.answering == "policy" or trains_answerer(settings)
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

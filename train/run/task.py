"""The task of a run: the environment, the agent that plays it, and who helps and answers."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import cast

from environments.acting.play import OraclePlayer, Player, play_task
from environments.acting.task import ActingTask
from environments.datasets.synthetic import Synthetic
from environments.demonstrations.extraction import FactNoter
from environments.demonstrations.ideal import (
    Demonstration,
    OracleModel,
    demonstration_of,
    demonstrations,
)
from environments.play.rollout import MemoryAgent
from environments.records import Episode
from environments.views import select_asks
from environments.worlds.readers.fact_reader import FactReader
from environments.worlds.readers.notes import NoteLanguage
from environments.worlds.readers.world_reader import WorldReader
from environments.worlds.truth import Truth
from memagent.build import AgentSettings, build_model
from memagent.core.exchange import ModelRequest, ModelResponse, Role
from memagent.core.snapshot import EMPTY
from memagent.core.workspace import workspace_of
from memagent.llm.wrappers import RoutedModel
from memagent.protocols import ChatModel
from train.ranks import joined, shared
from train.rollouts.acting import ActingExperience, PolicyPlayer, WatchedPlayer
from train.rollouts.anchors import AskedAfter, QuestionedEpisode, as_played
from train.rollouts.collect import Collector, EpisodeModel, policy_only
from train.rollouts.experience import Experience, StepSource
from train.rollouts.slots import Hints, no_hints
from train.run.config import LoGoGRPOConfig
from train.run.plans import (
    REPLIES,
    EpisodeFigures,
    Evaluation,
    TruthOf,
    credit_plan,
    evaluate_policy,
    greedy,
    rollout_plan,
)
from train.sampling.policy import PolicyModel
from train.settings.parts import ActingWorld, WarmUpPart
from train.settings.run import EnvironmentPart, RunSettings, trains_answerer
from train.settings.world import TrainingWorld
from train.sync import run_sync

# The task of a run whose tasks are acted in: its step source and its evaluation.

# Demonstrations of acting and of editing the workspace, for the warm start of a run.
#
# Actions are those of each task's solution. Edits are those of the set's editor; a share
# of both is drawn by chance (`guess_answers` of actions, `guess` of edits), so that
# training is left to find out what is right. What is played is right but for edits that
# are drawn, so that demonstrations also show other workspaces.


@dataclass(kw_only=True)
class _Demonstrator:
    """Replies rightly in one task, and keeps what is demonstrated of each call."""

    name: str
    world: ActingWorld
    task: ActingTask
    plan: WarmUpPart
    rng: Random
    acted: int = 0
    shown: list[Demonstration] = field(default_factory=list[Demonstration])

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Return the right reply to a request to act, or an edit to a request to edit."""
        if request.role is Role.ANSWERER:
            solution = self.task.solution()
            said = solution[self.acted] if self.acted < len(solution) else ""
            self.acted += 1
            guess = self.rng.random() < self.plan.guess_answers
            reply = self.rng.choice(self.task.actions) if guess else said
        else:
            reply = said = self._edit(request)
        self.shown.append(demonstration_of(self.name, request, reply))
        return ModelResponse(id=f"{self.name}/{len(self.shown)}", text=said)

    def _edit(self, request: ModelRequest) -> str:
        """Return the editor's edit, or one drawn by chance."""
        editor = self.world.tasks.editor
        if editor is not None and self.rng.random() >= self.plan.guess:
            return editor(request)
        places = re.findall(r"^\((\d+)\)", request.messages[-1].content, re.MULTILINE)
        return json.dumps({"folds": [self.rng.randrange(max(1, len(places)))]})


async def demonstrate_acting(settings: RunSettings) -> list[Demonstration]:
    """Play the demonstrations of the warm start."""
    world, plan = ActingWorld.of(settings), settings.warmup or WarmUpPart(episodes=20)
    shown: list[Demonstration] = []
    for name, task in world.stream("demonstrations", plan.episodes).items():
        rng = Random(f"{settings.seed}/{name}")
        model = _Demonstrator(name=name, world=world, task=task, plan=plan, rng=rng)
        player: Player = (
            PolicyPlayer(model=model) if settings.agent.acting == "policy" else OraclePlayer()
        )
        await play_task(task, player, agent=world.agent.at(EMPTY).with_model(model))
        shown += model.shown
    return shown


@dataclass(kw_only=True)
class ActingTrainingTask(ActingWorld):
    """A set of tasks with who acts and how a policy is tested."""

    def experience(
        self, args: LoGoGRPOConfig, policy: PolicyModel, episodes: Sequence[Episode]
    ) -> ActingExperience:
        """Return the source of steps that a configuration describes."""
        return ActingExperience(
            policy=policy,
            agent=self.agent,
            tasks=self.stream("train", len(episodes)),
            player=self.player,
            members=args.num_generations or 1,
            plan=credit_plan(args),
            seed=args.seed,
        )

    def player(self, model: ChatModel) -> Player:
        """Return who acts: the policy, or the scripted player of the set."""
        if self.settings.agent.acting == "policy":
            return PolicyPlayer(model=model)
        return cast("Player", self.tasks.player(self.settings.environment.seed))

    def evaluate(self, policy: PolicyModel, split: str, count: int, *, skip: int = 0) -> Evaluation:
        """Play the tasks of a split greedily.

        Processes that train together play a share each and all get the whole.
        """
        every = list(self.stream(split, count, skip=skip).items())
        with policy.faults_raised():
            played = run_sync(self._evaluated(policy, shared(every)))
        return Evaluation(episodes=tuple(joined(played, count=len(every))))

    async def _evaluated(
        self, policy: PolicyModel, tasks: Sequence[tuple[str, ActingTask]]
    ) -> Sequence[EpisodeFigures]:
        return await asyncio.gather(*(self._acted(policy, name, task) for name, task in tasks))

    async def _acted(self, policy: PolicyModel, name: str, task: ActingTask) -> EpisodeFigures:
        with policy.participant():
            view = policy.bound(f"eval/{name}", sampling=greedy(policy))
            watched = WatchedPlayer(player=self.player(view), model=view)
            trial = await watched.attempt(deepcopy(task), self.agent.at(EMPTY))
        outcome = trial.outcome
        figures = {
            "success": float(outcome is not None and outcome.good),
            "reward": outcome.reward if outcome is not None else 0.0,
            "steps": float(len(trial.steps)),
            "words": float(workspace_of(trial).words),
            "edits": float(len(trial.edits)),
            "failed": float(outcome is not None and bool(outcome.detail)),
            "rejected": float(sum(bool(edit.refused) for edit in trial.edits)),
        }
        return EpisodeFigures(
            episode_id=name,
            figures=figures,
            memory=(workspace_of(trial).prompt,),
            replies=tuple((call.role.value, call.response.text) for call in view.calls[:REPLIES]),
        )


_ASKED = 512
"""Sessions whose questions are kept, over all episodes."""
_FIRST_DEMONSTRATION = 10_000
"""Index of the first demonstrated episode, far beyond those of training."""


@dataclass(kw_only=True)
class TrainingTask(TrainingWorld):
    """A world with who helps, who answers and how a policy is tested."""

    def experience(
        self, args: LoGoGRPOConfig, policy: PolicyModel, episodes: Sequence[Episode]
    ) -> StepSource:
        """Return the source of steps that a configuration describes."""
        return Experience(
            collector=Collector(
                agent=self.agent,
                policy=policy,
                plan=rollout_plan(args),
                episode_model=self.episode_model(split="train"),
                asked_after=self.asked_after(split="train"),
                hints=self.hints(split="train"),
            ),
            plan=credit_plan(args, self.truth_of),
            answering=self.answering(episodes, split="train"),
            scoring=self.env.scoring,
        )

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

"""A whole run: model, warm start, the stages of the curriculum, validation, the best of
each stage, the test at the end.

Everything a run leaves lies in its folder:

    settings.json  versions.json  validation.jsonl  summary.json  init/  best/
    stage0/  steps.jsonl  log.jsonl  ended.json  best/  checkpoint-*/  runs/ (TensorBoard)

A run that was stopped goes on with `resume=True`: finished stages are skipped, an
unfinished one continues from its last checkpoint, and what was written after that
checkpoint is forgotten, since it will happen again.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from transformers import TrainerCallback

from environments.base import Environment
from environments.datasets.locomo import LoCoMo
from environments.datasets.synthetic import Synthetic, synthetic
from environments.demonstrations.ideal import demonstrations, lines_of
from environments.demonstrations.oracle import OracleModel
from environments.play.rollout import MemoryAgent
from environments.records import Episode
from environments.views import select_asks, truncate
from environments.worlds.language.vocabulary import tiny_vocabulary
from environments.worlds.readers.notes import NoteLanguage
from environments.worlds.readers.world_reader import WorldReader
from environments.worlds.truth import Truth
from memagent.async_agent import AsyncAgent
from memagent.build import open_store
from memagent.core.errors import ConfigError
from memagent.core.exchange import Role
from memagent.core.records import Scope
from memagent.llm.wrappers import RoutedModel
from memagent.protocols import ChatModel
from memagent.testing import FunctionModel
from train.report.traces import keep_lines, lines_of_file
from train.rollouts.collect import Collector, Helped, alone
from train.rollouts.experience import Experience
from train.run.config import ROLE_SETS, LoGoGRPOConfig
from train.run.curriculum import Stage
from train.run.evaluation import Evaluation, evaluate_policy
from train.run.logs import LogFile, StepLines, quiet, versions
from train.run.plans import credit_plan, rollout_plan
from train.run.settings import RunSettings, claim
from train.run.trainer import LoGoGRPOTrainer
from train.run.waiting import waited_for
from train.run.warmup import WarmUpPlan, bf16_works, warm_up
from train.sampling.checkpoints import save_adapters
from train.sampling.policy import PolicyModel
from train.sampling.small_models import (
    byte_tokenizer,
    save_model,
    small_model,
    word_tokenizer,
    words_of,
)

TRACKERS = frozenset({"wandb", "trackio"})
"""What `report_to` may name besides TensorBoard; each is an extra."""
Say = Callable[[str], None]
"""Takes a line of progress."""


@dataclass(kw_only=True)
class Place:
    """The environment of a run with what is played and who answers."""

    settings: RunSettings
    env: Environment
    agent: AsyncAgent
    sessions: int
    """Sessions of an episode; longer ones are cut."""
    truths: dict[str, Truth] = field(default_factory=dict[str, Truth], repr=False)
    """What is behind the episodes given so far, by their ids: making a world again costs
    as much as its episode.
    """

    @classmethod
    def of(cls, settings: RunSettings, *, sessions: int) -> Place:
        """The environment at a number of sessions.

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
            Scope(user_id="train"), model=FunctionModel(_nobody), design=settings.agent.design
        )
        return cls(settings=settings, env=env, agent=agent, sessions=sessions)

    def episodes(self, split: str, count: int, *, skip: int = 0) -> list[Episode]:
        """The first episodes of a split after some, with the questions that the settings ask."""
        asks, found = self.settings.environment.asks, list[Episode]()
        for episode in islice(self.env.episodes(split), skip, skip + count):  # type: ignore[arg-type]
            if asks and isinstance(self.env, Synthetic):
                episode = select_asks(episode, self._truth(self.env, episode), asks)
            found.append(truncate(episode, self.sessions))
        return found

    def answering(self, episodes: Sequence[Episode], *, split: str) -> MemoryAgent | None:
        """Who answers when memories are scored; None for the policy."""
        if self.settings.agent.answering == "policy" or not isinstance(self.env, Synthetic):
            return None
        reader = WorldReader(base=self.agent, language=NoteLanguage(self.env.lexicon(split)))  # type: ignore[arg-type]
        return reader.knowing(*(self._truth(self.env, episode) for episode in episodes))

    def listening(self, *, split: str) -> Helped:
        """What stands beside the policy: the oracle that takes down the facts, or nobody."""
        if self.settings.agent.listening == "policy" or not isinstance(self.env, Synthetic):
            return alone
        env, lexicon = self.env, self.env.lexicon(split)  # type: ignore[arg-type]

        def helped(episode: Episode, policy: ChatModel) -> ChatModel:
            return RoutedModel(
                {Role.EXTRACTOR: OracleModel(self._truth(env, episode), episode.sessions, lexicon)},
                default=policy,
            )

        return helped

    def evaluate(self, policy: PolicyModel, split: str, count: int, *, skip: int = 0) -> Evaluation:
        """Play the episodes of a split with the policy, helped and judged as the settings say."""
        episodes = self.episodes(split, count, skip=skip)
        return waited_for(
            evaluate_policy(
                policy,
                self.agent,
                self.env,
                episodes,
                answering=self.answering(episodes, split=split),
                helped=self.listening(split=split),
            )
        )

    def _truth(self, env: Synthetic, episode: Episode) -> Truth:
        if episode.id not in self.truths:
            self.truths[episode.id] = env.truth(episode)
        return self.truths[episode.id]


def _nobody(_: Any) -> str:
    raise ConfigError("a training agent speaks through its policy only")


# -- model and warm start --------------------------------------------------------------


def first_model(settings: RunSettings, folder: Path, *, say: Say = print) -> tuple[Any, Any]:
    """(model, tokenizer) that training begins with: loaded or made, and warmed up; kept
    in `folder/init` for next time.
    """
    from transformers import AutoModelForCausalLM, AutoTokenizer

    init = folder / "init"
    if (init / "config.json").is_file():
        return AutoModelForCausalLM.from_pretrained(
            init, dtype="auto"
        ), AutoTokenizer.from_pretrained(init)
    shown = (
        asyncio.run(_demonstrations(settings))
        if settings.warmup or settings.model.path is None
        else []
    )
    if settings.model.path is not None:
        tokenizer = AutoTokenizer.from_pretrained(settings.model.path)
        model: Any = AutoModelForCausalLM.from_pretrained(settings.model.path, dtype="auto")
    else:
        model, tokenizer = new_model(settings, shown)
    say(
        f"model with {sum(one.numel() for one in model.parameters()):,} parameters and {len(tokenizer):,} tokens"
    )
    part = settings.warmup
    if part is None:
        save_model(model, tokenizer, init)
    else:
        say(f"warm start on {len(shown):,} demonstrations")
        plan = WarmUpPlan(
            epochs=part.epochs,
            learning_rate=part.learning_rate,
            optimizer=part.optimizer,
            batch_rows=part.batch_rows,
            max_tokens=settings.model.context_tokens,
            by_role=settings.model.path is None,
            seed=settings.seed,
        )
        figures = warm_up(model, tokenizer, shown, folder=init, plan=plan)
        say(f"warm start: loss {figures['loss']:.3f}, token accuracy {figures['accuracy']:.3f}")
    model.config._name_or_path = str(init)  # where TRL finds the reference
    return model, tokenizer


def new_model(settings: RunSettings, shown: Sequence[Any] | None = None) -> tuple[Any, Any]:
    """(model, tokenizer) with random weights for the language of the settings' world;
    `shown` are demonstrations, made if not given.
    """
    tokenizer = _own_tokenizer(
        settings, asyncio.run(_demonstrations(settings)) if shown is None else shown
    )
    part = settings.model
    return small_model(
        tokenizer, size=part.size, context_tokens=part.context_tokens, seed=settings.seed
    ), tokenizer


async def _demonstrations(settings: RunSettings) -> list[Any]:
    if settings.environment.kind != "synthetic":
        return []
    part = settings.warmup
    place = Place.of(settings, sessions=part.sessions if part else settings.stage[0].sessions)
    assert isinstance(place.env, Synthetic)
    roles = (
        {Role.MANAGER} if settings.agent.listening == "oracle" else {Role.EXTRACTOR, Role.MANAGER}
    )
    told = part is not None and part.answers
    if told or settings.agent.answering == "policy" or _roles(settings) & ROLE_SETS["answerer"]:
        roles.add(Role.ANSWERER)
    return await demonstrations(
        place.env,
        place.agent,
        indexes=range(10_000, 10_000 + (part.episodes if part else 20)),
        noise=part.noise if part else 0.0,
        guess=part.guess if part else 0.0,
        guess_answers=part.guess_answers if part else 0.0,
        seed=settings.seed,
        roles=frozenset(roles),
        asks=settings.environment.asks,
    )


def _roles(settings: RunSettings) -> frozenset[Role]:
    names = {
        settings.trainer.get("roles", "manager"),
        *(stage.roles for stage in settings.stage if stage.roles),
    }
    return frozenset().union(*(ROLE_SETS.get(name, frozenset()) for name in names))


def _own_tokenizer(settings: RunSettings, shown: Sequence[Any]) -> Any:
    if settings.environment.level == "tiny":
        return word_tokenizer(
            [*tiny_vocabulary(), *words_of(lines_of(shown)), *map(str, range(32))]
        )
    return byte_tokenizer(lines_of(shown), size=8_000)


# -- stages ----------------------------------------------------------------------------


@dataclass(kw_only=True)
class Validation(TrainerCallback):
    """Plays validation episodes every few steps, keeps the best model of the stage, and
    ends the stage by gate, patience or tokens.
    """

    place: Place
    stage: Stage
    folder: Path
    say: Say
    trainer: LoGoGRPOTrainer | None = None
    best: float = float("-inf")
    waited: int = 0
    tokens: int = 0
    began: float = field(default_factory=perf_counter)

    def restore(self, step: int | None) -> None:
        """Go back to where the stage was after optimizer step `step`; None for its beginning."""
        name, records = self.folder.name, self.folder.parent / "validation.jsonl"
        reached = -1 if step is None else step
        keep_lines(self.folder / "steps.jsonl", lambda line: line["step"] < reached)
        keep_lines(self.folder / "log.jsonl", lambda line: line["step"] <= reached)
        keep_lines(records, lambda line: line["stage"] != name or line["step"] <= reached)
        self.tokens = sum(
            int(line["figures"].get("tokens/completion", 0))
            for line in lines_of_file(self.folder / "steps.jsonl")
        )
        for line in lines_of_file(records):
            if line["stage"] == name:
                value = line["figures"].get(self.place.settings.validation.measure, 0.0)
                self.waited = 0 if value > self.best else self.waited + 1
                self.best = max(self.best, value)

    def run(self) -> Evaluation:
        """One validation with the trainer's present policy."""
        assert self.trainer is not None
        return self.place.evaluate(
            self.trainer.policy, "validation", self.place.settings.validation.episodes
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Validate when it is time."""
        assert self.trainer is not None
        step = self.trainer.last_step
        if step is not None:
            self.tokens += (
                int(step.metrics.get("tokens/completion", 0)) if self.trainer.fresh_step else 0
            )
        spent = self.stage.tokens is not None and self.tokens >= self.stage.tokens
        if state.global_step % self.place.settings.validation.every == 0 or spent:
            self.validate(state, control)
        if spent:
            control.should_training_stop = True

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """The start counts as a candidate for the best."""
        if state.global_step == 0:
            self.validate(state, control)

    def validate(self, state: Any, control: Any) -> None:
        """One validation and what follows from it."""
        assert self.trainer is not None
        evaluation = self.run()
        if not self.trainer.accelerator.is_main_process:
            return
        figures = evaluation.figures
        value = figures.get(self.place.settings.validation.measure, 0.0)
        record = {
            "stage": self.folder.name,
            "step": state.global_step,
            "tokens": self.tokens,
            "seconds": perf_counter() - self.began,
            "figures": {name: round(amount, 6) for name, amount in figures.items()},
            "episodes": [dict(one.figures) for one in evaluation.episodes],
            "shown": [
                {"episode": one.episode_id, "memory": one.memory, "replies": one.replies}
                for one in evaluation.episodes[:1]
            ],
        }
        with (self.folder.parent / "validation.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        shown = "  ".join(
            f"{name} {figures[name]:.3f}"
            for name in ("f1", "overwritten", "lost", "memory_share", "update")
            if name in figures
        )
        self.say(f"{self.folder.name} step {state.global_step}: {shown}")
        if value > self.best:
            self.best, self.waited = value, 0
            save_policy(self.trainer, self.folder / "best", figures=figures)
        else:
            self.waited += 1
        patience = self.stage.patience
        if self.stage.gate.passed(figures) or (patience is not None and self.waited >= patience):
            control.should_training_stop = True


def save_policy(trainer: LoGoGRPOTrainer, folder: Path, *, figures: dict[str, float]) -> None:
    """The trainer's model as a folder that `Agent(model="hf:...")` opens."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    note: dict[str, Any] = {
        "figures": figures,
        "step": trainer.state.global_step,
        "max_tokens": trainer.args.max_completion_length,
        "constrained": trainer.args.constrained,
    }
    if hasattr(model, "peft_config"):
        save_adapters(model, folder)
        trainer.policy.tokenizer.save_pretrained(folder)
        note["base"] = model.get_base_model().config._name_or_path
        note["adapters"] = {role.value: name for role, name in trainer.adapters.items()}
        (folder / "memagent.json").write_text(json.dumps(note, indent=1), encoding="utf-8")
    else:
        save_model(model, trainer.policy.tokenizer, folder, note=note)


def train_run(settings: RunSettings, *, resume: bool = False, say: Say = print) -> dict[str, Any]:
    """The whole run; gives its summary.

    Raises `ConfigError` when the folder holds another run and `resume` is not said.
    """
    folder = Path(settings.folder)
    for number, stage in enumerate(settings.stage):
        stage_config(
            settings, stage, folder / f"stage{number}"
        )  # errors now, not after the warm start
    claim(settings, resume=resume)
    (folder / "versions.json").write_text(json.dumps(versions(), indent=1), encoding="utf-8")
    first_model(settings, folder, say=say)
    init = folder / "init"
    source = init
    summary: dict[str, Any] = {"stages": [], "settings": settings.model_dump(mode="json")}
    for number, stage in enumerate(settings.stage):
        home = folder / f"stage{number}"
        ended = home / "ended.json"
        if not ended.is_file():
            record = _train_stage(settings, stage, home, source, init, resume=resume, say=say)
            ended.write_text(json.dumps(record, indent=1), encoding="utf-8")
        summary["stages"].append(json.loads(ended.read_text(encoding="utf-8")))
        source = home / "best"
    summary["test"] = _test(settings, folder, say=say)
    chosen = max(range(len(settings.stage)), key=lambda place: summary["stages"][place]["best"])
    if (folder / "best").is_dir():
        shutil.rmtree(folder / "best")
    shutil.copytree(folder / f"stage{chosen}" / "best", folder / "best")
    (folder / "summary.json").write_text(json.dumps(summary, indent=1), encoding="utf-8")
    return summary


def _train_stage(
    settings: RunSettings,
    stage: Stage,
    home: Path,
    source: Path,
    init: Path,
    *,
    resume: bool,
    say: Say,
) -> dict[str, Any]:
    from train.sampling.checkpoints import last_checkpoint, load_for_training

    home.mkdir(parents=True, exist_ok=True)
    place = Place.of(settings, sessions=stage.sessions)
    episodes = place.episodes("train", settings.environment.episodes)
    args = stage_config(settings, stage, home)
    model, tokenizer, adapters = load_for_training(source, init, lora=settings.model.lora)
    validation = Validation(place=place, stage=stage, folder=home, say=say)
    trainer = LoGoGRPOTrainer(
        model,
        args=args,
        episodes=episodes,
        experience=lambda policy: experience_of(
            args, place, policy, place.answering(episodes, split="train")
        ),
        processing_class=tokenizer,
        adapters=adapters,
        callbacks=[
            validation,
            LogFile(path=home / "log.jsonl"),
            StepLines(say=say, name=home.name, steps=stage.steps),
        ],
    )
    quiet(trainer)
    validation.trainer = trainer
    checkpoint = last_checkpoint(home) if resume else None
    if checkpoint:
        say(f"{home.name} goes on from {checkpoint.name}")
    validation.restore(int(checkpoint.name.rpartition("-")[2]) if checkpoint else None)
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    if settings.validation.test_last and trainer.accelerator.is_main_process:
        save_policy(trainer, home / "last", figures={})
    return {
        "sessions": stage.sessions,
        "steps": trainer.state.global_step,
        "tokens": validation.tokens,
        "best": validation.best,
        "seconds": perf_counter() - validation.began,
    }


def experience_of(
    args: LoGoGRPOConfig, place: Place, policy: PolicyModel, answering: MemoryAgent | None
) -> Experience:
    """The experience that a configuration describes."""
    return Experience(
        collector=Collector(
            agent=place.agent,
            policy=policy,
            plan=rollout_plan(args),
            helped=place.listening(split="train"),
        ),
        plan=credit_plan(args),
        answering=answering,
        scoring=place.env.scoring,
    )


def stage_config(settings: RunSettings, stage: Stage, home: Path) -> LoGoGRPOConfig:
    """The trainer's configuration of a stage. Raises `ConfigError`."""
    bf16 = bf16_works()
    values = {
        "seed": settings.seed,
        "max_steps": stage.steps,
        "output_dir": str(home),
        "report_to": ["tensorboard"],
        "logging_steps": 1,
        "save_strategy": "steps",
        "save_total_limit": 2,
        "disable_tqdm": True,
        "bf16": bf16,
        "use_cpu": not torch.cuda.is_available(),
        "dataloader_pin_memory": torch.cuda.is_available(),
    } | settings.trainer
    if stage.roles:
        values["roles"] = stage.roles
    for name in _named(values["report_to"]) & TRACKERS:
        if find_spec(name) is None:
            raise ConfigError(
                f'trainer.report_to: {name} is not installed: pip install "memagent[{name}]"'
            )
    return config_of(values)


def _named(report_to: Any) -> set[str]:
    return {report_to} if isinstance(report_to, str) else set(report_to or ())


def config_of(values: dict[str, Any]) -> LoGoGRPOConfig:
    """The trainer's configuration from plain values.

    Raises `ConfigError` naming a field that does not exist.
    """
    from dataclasses import fields
    from difflib import get_close_matches

    known = [one.name for one in fields(LoGoGRPOConfig) if one.init]
    for name in values:
        if name not in known:
            close = get_close_matches(name, known, n=1)
            raise ConfigError(
                f"trainer.{name}: there is no such setting{f'; did you mean {close[0]}?' if close else ''}"
            )
    try:
        return LoGoGRPOConfig(**values)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"trainer: {error}") from error


def _test(settings: RunSettings, folder: Path, *, say: Say) -> dict[str, Any]:
    """Every stage's best, and the start, on held-out episodes of every stage's length."""
    from train.sampling.checkpoints import load_policy

    part = settings.validation
    count, split = part.test_episodes, part.test_split
    if not count:
        return {}
    found: dict[str, Any] = {}
    lengths = sorted(
        {stage.sessions for stage in settings.stage} | set(settings.validation.test_sessions)
    )
    kept = ("best", "last") if part.test_last else ("best",)
    names = [
        "init",
        *(f"stage{number}/{which}" for number in range(len(settings.stage)) for which in kept),
    ]
    for name in names:
        policy = load_policy(
            str(folder / name), constrained=bool(settings.trainer.get("constrained"))
        )
        for sessions in lengths:
            skip = part.episodes if split == "validation" else 0
            evaluation = Place.of(settings, sessions=sessions).evaluate(
                policy, split, count, skip=skip
            )
            figures = evaluation.figures
            found[f"{name}@{sessions}"] = {
                name: {
                    "mean": round(figures[name], 4),
                    "interval": [round(edge, 4) for edge in evaluation.interval(name)],
                }
                for name in figures
            }
            say(f"test {name} at {sessions} sessions: f1 {figures.get('f1', 0.0):.3f}")
    return found

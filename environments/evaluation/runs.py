"""Running an evaluation: episodes times arms, each pair once, in several processes, resumable.

A run's folder holds `config.json`, frozen at the first start, and
`questions/<arm>/<episode>.jsonl`: a line a question, then one line about the episode. A
file appears whole or not at all; a pair whose file is there and holds no failure is not
run again. A folder begun with another configuration or other data is refused, so that
one table never mixes two. The one change a folder allows is to have what was played
judged, or not, because judging plays nothing. Keys and addresses of models are handed
to the processes and written nowhere.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from itertools import islice
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Annotated, Literal

from pydantic import Field, ValidationError
from rich.console import Console

from environments.errors import EnvironmentFault
from environments.evaluation.arms import IDEAL, OwnModel, design_of, open_arm, shelf_for
from environments.evaluation.judge import JudgeConfig
from environments.evaluation.known_worlds import Answering, Worlds
from environments.evaluation.play_figures import marked
from environments.evaluation.progress import Progress
from environments.play.rollout import DEFAULT_K, play
from environments.records import Episode, ProbeScore, Score
from environments.rewards.scoring import Scoring
from environments.views import select_probes
from memagent.build import AgentSettings, build_design, build_embedder, build_model, open_store
from memagent.core.records import Record, Text, content_id
from memagent.plugins import available
from memagent.protocols import ChatModel, Embedder

FROM_SETTINGS = "settings"
"""Name of the embedder that the agent's settings describe."""
_LOOK_EVERY_S = 0.5


class EvalConfig(Record):
    """Everything that the figures of an evaluation depend on."""

    benchmark: Literal["locomo", "longmemeval", "synthetic"]
    data_digest: Text
    """SHA-256 of the data files, or of the generated episodes."""
    worlds: Worlds | None = None
    """Which worlds were generated; None for data of files."""
    arms: Annotated[tuple[Text, ...], Field(min_length=1)]
    own_models: dict[Text, OwnModel] = Field(default_factory=dict[str, OwnModel])
    """Designs and models of the arms that bring their own, by name."""
    answering: Answering = "agent"
    """Who answers questions about generated worlds."""
    embedder: Text = "static"
    """Name of the embedder; `settings` for the one that the agent's settings describe."""
    embedder_id: Text = ""
    """What the embedder calls itself: model, width and digest of the weights."""
    second_embedder: Text | None = None
    """Name of the embedder that `five_way` adds; None leaves the arm out."""
    model: Text | None = None
    """litellm's name of the model of all roles; None answers by rules."""
    weights: dict[Text, Text] = Field(default_factory=dict[str, str])
    """SHA-256 of the files of every model that is loaded from a folder, by the model's
    name.
    """
    settings_digest: Text | None = None
    """SHA-256 of the agent's settings without keys; None where there are none."""
    prompts: dict[Text, dict[Text, Text]] = Field(default_factory=dict[str, dict[str, str]])
    """SHA-256 of every prompt by design and name."""
    judge: JudgeConfig | None = None
    """Who judges the answers; None for nobody."""
    k: Annotated[int, Field(ge=1, le=1_000)] = DEFAULT_K
    """Hits shown to the answerer."""
    ks: tuple[int, ...] = (5, 10, 30)
    """Numbers of turns at which evidence recall is taken."""
    categories: tuple[Text, ...] = ()
    """Categories asked; empty for all."""
    limit: int | None = None
    """Episodes played, the first ones; None for all."""
    context_tokens: Annotated[int, Field(ge=1)] = 32_000
    """Budget of the arm `full_context`, in words and signs."""
    cover_share: float = 0.5
    """Share of a gold turn's content words that an item must hold to count as covering it."""
    bootstrap_samples: int = 1_000
    seed: int = 0
    """Seed of the bootstrap."""
    memagent: Text = Field(default_factory=lambda: version("memagent"))
    """Version that the figures are of."""


def settings_digest(settings: AgentSettings) -> str:
    """SHA-256 over settings as JSON with sorted keys, without API keys, places of
    stores and indexes: an evaluation uses none of them.
    """
    plain = settings.model_dump(mode="json", exclude={"store", "index"})
    for model in (plain["model"], *plain["roles"].values()):
        if model is not None:
            del model["api_key"]
    return hashlib.sha256(
        json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()


def prompts_of(
    arms: Iterable[str], *, model: bool, own: Mapping[str, OwnModel] | None = None
) -> dict[str, dict[str, str]]:
    """Digests of the prompts of every design at work in the arms.

    Raises `ConfigError` for a design that is not there.
    """
    asking = {*(own or ()), IDEAL}  # arms that have a model whether or not there is a common one
    designs = {(design_of(arm, model=model, own=own), model or arm in asking) for arm in arms}
    found = {
        name: build_design(name, has_model=has_model).prompt_digests
        for name, has_model in sorted(designs)
    }
    return {name: digests for name, digests in found.items() if digests}


def weights_of(models: Iterable[str]) -> dict[str, str]:
    """Digests of the models that are folders here (`hf:FOLDER`): SHA-256 over their
    files' names and contents, 64 hex digits.

    Names of hubs and providers have none. Raises `EnvironmentFault` for a folder that
    is not there.
    """
    found: dict[str, str] = {}
    for model in models:
        kind, _, place = model.partition(":")
        folder = Path(place)
        if kind != "hf" or not place:
            continue
        if folder.is_dir():
            found[model] = _folder_digest(folder)
        elif (
            place[0] in "./~" or place.count("/") > 1 or ("/" in place and folder.parent.is_dir())
        ):  # no OWNER/NAME of a hub
            raise EnvironmentFault(f"model {model!r}: there is no folder {place}")
    return found


def _folder_digest(folder: Path) -> str:
    whole = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        with file.open("rb") as stream:
            part = hashlib.file_digest(stream, "sha256").digest()
        whole.update(file.relative_to(folder).as_posix().encode() + b"\x00" + part)
    return whole.hexdigest()


def _model_of(config: EvalConfig, arm: str, settings: AgentSettings | None) -> ChatModel | None:
    """The model of an arm: its own for all roles, or the common one with what the
    settings say of roles; None for rules.
    """
    own = config.own_models.get(arm)
    name = own.model if own is not None else config.model
    if name is None:
        return None
    if own is not None and settings is not None:
        settings = settings.model_copy(update={"roles": {}})
    configured = settings is not None and (settings.model is not None or bool(settings.roles))
    if not configured and name.partition(":")[0] in available("models"):
        return _kept_model(name, config.weights.get(name))
    return build_model(name, settings or AgentSettings())


@cache
def _kept_model(name: str, weights: str | None) -> ChatModel | None:
    """A model of a plug-in, made once a process: it may be weights that take a while to load."""
    return build_model(name, AgentSettings())


def embedder_named(name: str, settings: AgentSettings | None = None) -> Embedder:
    """An embedder by name, loaded once a process; `settings` stands for that of the settings."""
    chosen = (
        (settings or AgentSettings()).embedder.model_dump_json() if name == FROM_SETTINGS else None
    )
    return _loaded(name, chosen)


@cache
def _loaded(name: str, settings_json: str | None) -> Embedder:
    if settings_json is None:
        return build_embedder(name)
    return build_embedder(
        AgentSettings.model_validate({"embedder": json.loads(settings_json)}).embedder
    )


def plan(episodes: Iterable[Episode], config: EvalConfig) -> list[tuple[str, int]]:
    """Id and number of questions of each episode that will be played."""
    return [(one.id, len(asked(one, config).probes)) for one in islice(episodes, config.limit)]


@dataclass(kw_only=True)
class _Job:
    """An episode being played in a process: which of its pairs have not left a file yet."""

    episode_id: str
    questions: int
    open: list[str] = field(default_factory=list[str])


def run_evaluation(
    config: EvalConfig,
    episodes: Iterable[Episode],
    *,
    out: Path,
    workers: int = 1,
    settings: AgentSettings | None = None,
    progress: Progress | None = None,
) -> dict[str, list[Score]]:
    """Play every episode with every arm, or read what was played before.

    Gives each arm's scores in the order of the episodes.

    `settings` is how the agents of all arms are built. Raises `EnvironmentFault` when
    the folder holds a run of another configuration, and whatever makes an arm
    impossible to open. Without `progress` nothing is told.
    """
    freeze(config, out)
    told = progress or Progress(console=Console(quiet=True))
    names: list[str] = []
    pool = None
    if workers > 1:
        pool = ProcessPoolExecutor(
            workers, mp_context=get_context("spawn"), initializer=die_with_parent
        )
    running: dict[Future[str], _Job] = {}
    try:
        for episode in (asked(one, config) for one in islice(episodes, config.limit)):
            names.append(episode.id)
            open_arms = [arm for arm in config.arms if read_score(out, arm, episode.id) is None]
            told.skip((len(config.arms) - len(open_arms)) * len(episode.probes))
            if not open_arms:
                told.say(f"{episode.id}: done before")
                continue
            for arm in open_arms:
                _place(out, arm, episode.id).unlink(missing_ok=True)
            job = (
                config.model_dump_json(),
                episode.model_dump_json(),
                open_arms,
                str(out),
                settings,
            )
            if pool is None:
                questions = len(episode.probes)
                told.say(
                    run_pairs(*job, done=lambda _, questions=questions: told.advance(questions))
                )
                continue
            running[pool.submit(run_pairs, *job)] = _Job(
                episode_id=episode.id, questions=len(episode.probes), open=open_arms
            )
            while len(running) >= 2 * workers:
                _collect(running, out, told)
        while running:
            _collect(running, out, told)
    finally:
        if pool is not None:
            pool.shutdown(cancel_futures=True)
    if not names:
        raise EnvironmentFault("there is no episode to play")
    return {arm: [_found(out, arm, name) for name in names] for arm in config.arms}


def run_pairs(
    config_json: str,
    episode_json: str,
    arms: Sequence[str],
    out: str,
    settings: AgentSettings | None = None,
    done: Callable[[str], object] = str,
) -> str:
    """Play one episode with some arms and write what came out, calling `done` after
    each; gives a line about it.

    Runs an event loop of its own.
    """
    config, episode = (
        EvalConfig.model_validate_json(config_json),
        Episode.model_validate_json(episode_json),
    )
    return asyncio.run(_run_pairs(config, episode, arms, Path(out), settings, done))


async def _run_pairs(
    config: EvalConfig,
    episode: Episode,
    arms: Sequence[str],
    out: Path,
    settings: AgentSettings | None,
    done: Callable[[str], object],
) -> str:
    # No arm writes to the user's own store or index.
    private = settings.model_copy(update={"index": None}) if settings is not None else None
    store = open_store(private, path=":memory:", embedder=embedder_named(config.embedder, settings))
    scoring = Scoring(ks=config.ks, cover_share=config.cover_share)
    seconds, failed = 0.0, 0
    try:
        second = None
        if "five_way" in arms and config.second_embedder is not None:
            second = embedder_named(config.second_embedder)
        shelf = shelf_for(episode, store, second=second, context_tokens=config.context_tokens)
        world = config.worlds.behind(episode) if config.worlds is not None else None
        reader = config.answering == "reader"
        agents = {  # all of them before the first is played: what cannot be opened is said at once
            arm: open_arm(
                arm,
                store,
                shelf,
                model=_model_of(config, arm, settings),
                own=config.own_models,
                world=world,
                reader=reader,
            )
            for arm in arms
        }
        for arm, agent in agents.items():
            score = scoring.score(episode, await play(agent, episode, k=config.k))
            score = marked(score, world.truth) if world is not None else score
            write_score(out, arm, score)
            seconds += score.seconds + sum(probe.seconds for probe in score.probes)
            failed += (score.failure is not None) + sum(
                probe.failure is not None for probe in score.probes
            )
            done(arm)
    finally:
        store.close()
    trouble = f", {failed} failed (run again to retry)" if failed else ""
    return (
        f"{episode.id}: {len(arms)} arms, {len(episode.probes)} questions, {seconds:.1f} s{trouble}"
    )


# -- files -----------------------------------------------------------------------------


def freeze(config: EvalConfig, out: Path) -> None:
    """Write the configuration, or hold it equal to the one there.

    Raises `EnvironmentFault` naming what differs.
    """
    path = out / "config.json"
    if path.exists():
        before = load_config(path)
        differing = [
            name
            for name in EvalConfig.model_fields
            if getattr(before, name) != getattr(config, name)
        ]
        if differing == ["judge"] and None in (before.judge, config.judge):
            _write(path, config.model_dump_json(indent=2) + "\n")
        elif differing:
            raise EnvironmentFault(
                f"{out} holds a run with another {', '.join(differing)}; choose another --out"
            )
        return
    out.mkdir(parents=True, exist_ok=True)
    _write(path, config.model_dump_json(indent=2) + "\n")


def load_config(path: Path) -> EvalConfig:
    """A frozen configuration. Raises `EnvironmentFault`."""
    try:
        return EvalConfig.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise EnvironmentFault(f"{path} is no configuration of an evaluation: {error}") from error


def write_score(out: Path, arm: str, score: Score) -> None:
    """Write a score's questions and its episode line."""
    lines = [probe.model_dump_json() for probe in score.probes]
    lines.append(json.dumps({"episode": json.loads(score.model_dump_json(exclude={"probes"}))}))
    path = _place(out, arm, score.episode_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, "\n".join(lines) + "\n")


def read_score(out: Path, arm: str, episode_id: str, *, failures: bool = False) -> Score | None:
    """A score written before; None when there is none or, unless `failures`, when
    something in it failed.
    """
    path = _place(out, arm, episode_id)
    if not path.exists():
        return None
    *questions, last = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    probes = [ProbeScore.model_validate_json(line) for line in questions]
    score = Score.model_validate({**json.loads(last)["episode"], "probes": probes})
    failed = score.failure is not None or any(probe.failure is not None for probe in probes)
    return None if failed and not failures else score


def _found(out: Path, arm: str, episode_id: str) -> Score:
    score = read_score(out, arm, episode_id, failures=True)
    if score is None:
        raise EnvironmentFault(f"arm {arm!r} left nothing for episode {episode_id!r} in {out}")
    return score


def _place(out: Path, arm: str, episode_id: str) -> Path:
    plain = [
        name if re.fullmatch(r"\w[\w.-]{0,99}", name) else content_id("x", name)
        for name in (arm, episode_id)
    ]
    return out / "questions" / plain[0] / f"{plain[1]}.jsonl"


def _write(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


# -- work ------------------------------------------------------------------------------


def asked(episode: Episode, config: EvalConfig) -> Episode:
    """The episode with the questions of the chosen categories."""
    wanted = set(config.categories)
    return select_probes(episode, lambda probe: probe.category in wanted) if wanted else episode


def _collect(running: dict[Future[str], _Job], out: Path, progress: Progress) -> None:
    """Wait a moment; tell which pairs have left a file since, and which episodes are through."""
    done, _ = wait(running, timeout=_LOOK_EVERY_S, return_when=FIRST_COMPLETED)
    for job in running.values():
        for arm in [arm for arm in job.open if _place(out, arm, job.episode_id).exists()]:
            job.open.remove(arm)
            progress.advance(job.questions)
    for future in done:
        del running[future]
        progress.say(future.result())


def die_with_parent() -> None:
    """Called in each process as it starts: when its parent is killed, nobody else would
    ever end it.
    """

    def watch() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=watch, name="watch-parent", daemon=True).start()

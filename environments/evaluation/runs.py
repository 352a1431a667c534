"""The progress of an evaluation and the time left, on standard error.

The unit is one question asked of one arm. On a terminal one line is kept up to date;
elsewhere a line is written now and then. The time left goes by the speed so far of what
was really played, so it is rough while the arms differ much.

The files of an evaluation's folder: `config.json` and a file of scores a pair.

`questions/<arm>/<episode>.jsonl` has a line a question, then one line about the episode.
A file appears whole or not at all.

Running an evaluation: episodes times arms, each pair once, in several processes, resumable.

A pair whose file is there and holds no failure is not run again. A folder begun with
another configuration or other data is refused, so that one table never mixes two. A
folder allows one change: to have what was played judged, or not, because judging plays
nothing. Keys and addresses of models are handed to the processes and written nowhere.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from time import monotonic
from types import TracebackType
from typing import Self

from pydantic import ValidationError
from rich.console import Console

from environments.errors import EnvironmentFault
from environments.evaluation.arms import ArmContext, open_arm, shelf_for
from environments.evaluation.config import EvalConfig, embedder_named, model_of
from environments.evaluation.play_figures import marked
from environments.play.rollout import play
from environments.records import Episode, ProbeScore, Score
from environments.rewards.scoring import Scoring
from environments.views import select_probes
from memagent.build import AgentSettings, open_store
from memagent.core.records import content_id

QUIET_S = 15.0
"""Seconds between two lines where standard error is no terminal."""


class Progress:
    """Counts what is done of `total`; a context manager that owns the live line."""

    def __init__(
        self,
        total: int = 0,
        *,
        console: Console | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._console = console or Console(
            stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True
        )
        self._status = self._console.status("")
        self._clock = clock
        self._total = total
        self._before = 0
        self._done = 0
        self._began = self._said = clock()

    def __enter__(self) -> Self:
        self._began = self._said = self._clock()
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, at: TracebackType | None
    ) -> None:
        self._status.stop()

    def say(self, line: str) -> None:
        """Write a line of its own."""
        self._console.print(line)

    def skip(self, questions: int) -> None:
        """Count questions that were answered in an earlier run."""
        self._before += questions

    def advance(self, questions: int) -> None:
        """Count questions that were answered now."""
        self._done += questions
        if self._console.is_terminal:
            self._status.update(self.line())
        elif self._clock() - self._said >= QUIET_S:
            self._said = self._clock()
            self.say(self.line())

    def line(self) -> str:
        """Return the line: `120 of 400 questions asked of arms, 0:30 gone, about 1:10 left`."""
        gone = self._clock() - self._began
        asked = self._before + self._done
        counts = f"{asked:,} of {self._total:,} questions asked of arms, {_minutes(gone)} gone"
        left = self._total - self._before - self._done
        if not self._done or left <= 0:
            return counts
        return f"{counts}, about {_minutes(gone * left / self._done)} left"


def _minutes(seconds: float) -> str:
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    return f"{hours}:{rest // 60:02}:{rest % 60:02}" if hours else f"{rest // 60}:{rest % 60:02}"


def freeze(config: EvalConfig, out: Path) -> None:
    """Write the configuration, or check that it equals the one there.

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
    """Load a frozen configuration. Raises `EnvironmentFault`."""
    try:
        return EvalConfig.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise EnvironmentFault(f"{path} is no configuration of an evaluation: {error}") from error


def write_score(out: Path, arm: str, score: Score) -> None:
    """Write a score's questions and its episode line."""
    lines = [probe.model_dump_json() for probe in score.probes]
    lines.append(json.dumps({"episode": json.loads(score.model_dump_json(exclude={"probes"}))}))
    path = score_path(out, arm, score.episode_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(path, "\n".join(lines) + "\n")


def read_score(out: Path, arm: str, episode_id: str, *, failures: bool = False) -> Score | None:
    """Read a score; return None when there is none.

    A score with a failure counts as none, unless `failures`.
    """
    path = score_path(out, arm, episode_id)
    if not path.exists():
        return None
    *questions, last = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    probes = [ProbeScore.model_validate_json(line) for line in questions]
    score = Score.model_validate({**json.loads(last)["episode"], "probes": probes})
    failed = score.failure is not None or any(probe.failure is not None for probe in probes)
    return None if failed and not failures else score


def require_score(out: Path, arm: str, episode_id: str) -> Score:
    """Read a score, failures included. Raises `EnvironmentFault` when there is none."""
    score = read_score(out, arm, episode_id, failures=True)
    if score is None:
        raise EnvironmentFault(f"arm {arm!r} left nothing for episode {episode_id!r} in {out}")
    return score


def score_path(out: Path, arm: str, episode_id: str) -> Path:
    """Return the file of an arm's score on an episode."""
    plain = [
        name if re.fullmatch(r"\w[\w.-]{0,99}", name) else content_id("x", name)
        for name in (arm, episode_id)
    ]
    return out / "questions" / plain[0] / f"{plain[1]}.jsonl"


def _write(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


_LOOK_EVERY_S = 0.5


def plan(episodes: Iterable[Episode], config: EvalConfig) -> list[tuple[str, int]]:
    """Return the id and the number of questions of each episode that will be played."""
    return [
        (episode.id, len(select_categories(episode, config).probes))
        for episode in islice(episodes, config.limit)
    ]


def select_categories(episode: Episode, config: EvalConfig) -> Episode:
    """Return the episode with the questions of the chosen categories."""
    chosen = set(config.categories)
    return select_probes(episode, lambda probe: probe.category in chosen) if chosen else episode


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

    Returns each arm's scores in the order of the episodes.

    The agents of all arms are built from `settings`. Without `progress` nothing is
    shown. Raises `EnvironmentFault` when the folder holds a run of another
    configuration, and whatever makes an arm impossible to open.
    """
    freeze(config, out)
    progress = progress or Progress(console=Console(quiet=True))
    names: list[str] = []
    queue = _Queue(out, workers, progress)
    try:
        for whole in islice(episodes, config.limit):
            episode = select_categories(whole, config)
            names.append(episode.id)
            missing = [arm for arm in config.arms if read_score(out, arm, episode.id) is None]
            progress.skip((len(config.arms) - len(missing)) * len(episode.probes))
            if not missing:
                progress.say(f"{episode.id}: done before")
                continue
            for arm in missing:
                score_path(out, arm, episode.id).unlink(missing_ok=True)
            queue.submit(config, episode, missing, settings)
        queue.finish()
    finally:
        queue.close()
    if not names:
        raise EnvironmentFault("there is no episode to play")
    return {arm: [require_score(out, arm, name) for name in names] for arm in config.arms}


@dataclass(kw_only=True)
class _Job:
    """An episode being played in a process."""

    episode_id: str
    questions: int
    arms: list[str] = field(default_factory=list[str])
    """Arms whose pairs have not left a file yet."""


class _Queue:
    """Plays episodes: in worker processes, or here when there is one worker."""

    def __init__(self, out: Path, workers: int, progress: Progress) -> None:
        self.out, self.workers, self.progress = out, workers, progress
        self._running: dict[Future[str], _Job] = {}
        self._pool = None
        if workers > 1:
            context = get_context("spawn")
            self._pool = ProcessPoolExecutor(
                workers, mp_context=context, initializer=die_with_parent
            )

    def submit(
        self, config: EvalConfig, episode: Episode, arms: list[str], settings: AgentSettings | None
    ) -> None:
        """Play an episode, or have it played; wait while too many are under way."""
        job = (config.model_dump_json(), episode.model_dump_json(), arms, str(self.out), settings)
        questions = len(episode.probes)
        if self._pool is None:
            line = run_pairs(*job, done=lambda _: self.progress.advance(questions))
            self.progress.say(line)
            return
        self._running[self._pool.submit(run_pairs, *job)] = _Job(
            episode_id=episode.id, questions=questions, arms=list(arms)
        )
        while len(self._running) >= 2 * self.workers:
            self._collect()

    def finish(self) -> None:
        """Wait for all episodes."""
        while self._running:
            self._collect()

    def close(self) -> None:
        """End the processes; episodes that have not begun are not played."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _collect(self) -> None:
        """Wait a moment; show the pairs that left a file since, and the finished episodes."""
        done, _ = wait(self._running, timeout=_LOOK_EVERY_S, return_when=FIRST_COMPLETED)
        for job in self._running.values():
            for arm in list(job.arms):
                if score_path(self.out, arm, job.episode_id).exists():
                    job.arms.remove(arm)
                    self.progress.advance(job.questions)
        for future in done:
            del self._running[future]
            self.progress.say(future.result())


def run_pairs(
    config_json: str,
    episode_json: str,
    arms: Sequence[str],
    out: str,
    settings: AgentSettings | None = None,
    done: Callable[[str], object] = str,
) -> str:
    """Play one episode with some arms and write the scores; return a line about it.

    Calls `done` after each arm. Runs an event loop of its own.
    """
    config = EvalConfig.model_validate_json(config_json)
    episode = Episode.model_validate_json(episode_json)
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
        world = config.worlds.behind(episode) if config.worlds is not None else None
        context = ArmContext(
            store=store,
            shelf=shelf_for(episode, store, second=second, context_tokens=config.context_tokens),
            own=config.own_models,
            world=world,
            reader=config.answering == "reader",
        )
        # All of them before the first is played, so that an arm that cannot be opened
        # fails at once.
        agents = {arm: open_arm(arm, context, model_of(config, arm, settings)) for arm in arms}
        for arm, agent in agents.items():
            trajectory = await play(agent, episode, k=config.k)
            score = scoring.score(episode, trajectory)
            if world is not None:
                score = marked(score, world.truth, trajectory.end)
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


def die_with_parent() -> None:
    """End this worker process when its parent ends, even if the parent is killed."""

    def watch() -> None:
        parent = parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=watch, name="watch-parent", daemon=True).start()

"""Running an evaluation: episodes times arms, each pair once, in several processes, resumable.

A run's folder holds `config.json`, frozen at the first start, and `questions/<arm>/<episode>.jsonl`: a line a question, then one line
about the episode. A file appears whole or not at all; a pair whose file is there and holds no failure is not run again. A folder begun
with another configuration or other data is refused, so that one table never mixes two.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from importlib.metadata import version
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from environments.arms import open_arm, shelf_for
from environments.errors import EnvironmentFault
from environments.records import Episode, ProbeScore, Score
from environments.rollout import DEFAULT_K, play
from environments.scoring import Scoring
from environments.views import select_probes
from memagent.build import open_store
from memagent.core.records import Record, Text, content_id

Progress = Callable[[str], None]
"""Told one line about each step."""


class EvalConfig(Record):
    """Everything that the figures of an evaluation depend on."""

    benchmark: Literal["locomo", "longmemeval"]
    data_digest: Text
    """SHA-256 of the data files."""
    arms: Annotated[tuple[Text, ...], Field(min_length=1)]
    embedder: Text = "static"
    model: Text | None = None
    """litellm's name of the model of all roles; None answers by rules."""
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


def run_evaluation(
    config: EvalConfig, episodes: Iterable[Episode], *, out: Path, workers: int = 1, progress: Progress = lambda _: None
) -> dict[str, list[Score]]:
    """Play every episode with every arm, or read what was played before. Gives each arm's scores in the order of the episodes.

    Raises `EnvironmentFault` when the folder holds a run of another configuration, and whatever makes an arm impossible to open.
    """
    freeze(config, out)
    names: list[str] = []
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn")) if workers > 1 else None
    running: dict[Future[str], str] = {}
    try:
        for episode in islice(episodes, config.limit):
            names.append(episode.id)
            open_arms = [arm for arm in config.arms if read_score(out, arm, episode.id) is None]
            if not open_arms:
                progress(f"{episode.id}: done before")
                continue
            job = (config.model_dump_json(), _asked(episode, config).model_dump_json(), open_arms, str(out))
            if pool is None:
                progress(run_pairs(*job))
                continue
            running[pool.submit(run_pairs, *job)] = episode.id
            while len(running) >= 2 * workers:
                _collect(running, progress)
        while running:
            _collect(running, progress)
    finally:
        if pool is not None:
            pool.shutdown(cancel_futures=True)
    if not names:
        raise EnvironmentFault("there is no episode to play")
    return {arm: [_found(out, arm, name) for name in names] for arm in config.arms}


def run_pairs(config_json: str, episode_json: str, arms: Sequence[str], out: str) -> str:
    """Play one episode with some arms and write what came out; gives a line about it. Runs an event loop of its own."""
    config, episode = EvalConfig.model_validate_json(config_json), Episode.model_validate_json(episode_json)
    return asyncio.run(_run_pairs(config, episode, arms, Path(out)))


async def _run_pairs(config: EvalConfig, episode: Episode, arms: Sequence[str], out: Path) -> str:
    store = open_store(path=":memory:", embedder=config.embedder)
    scoring = Scoring(ks=config.ks, cover_share=config.cover_share)
    seconds, failed = 0.0, 0
    try:
        shelf = shelf_for(episode, store, context_tokens=config.context_tokens)
        for arm in arms:
            agent = open_arm(arm, store, shelf, model=config.model)
            score = scoring.score(episode, await play(agent, episode, k=config.k))
            write_score(out, arm, score)
            seconds += score.seconds + sum(probe.seconds for probe in score.probes)
            failed += (score.failure is not None) + sum(probe.failure is not None for probe in score.probes)
    finally:
        store.close()
    trouble = f", {failed} failed (run again to retry)" if failed else ""
    return f"{episode.id}: {len(arms)} arms, {len(episode.probes)} questions, {seconds:.1f} s{trouble}"


# -- files -------------------------------------------------------------------------------------------------------------


def freeze(config: EvalConfig, out: Path) -> None:
    """Write the configuration, or hold it equal to the one there. Raises `EnvironmentFault` naming what differs."""
    path = out / "config.json"
    if path.exists():
        before = load_config(path)
        differing = [name for name in EvalConfig.model_fields if getattr(before, name) != getattr(config, name)]
        if differing:
            raise EnvironmentFault(f"{out} holds a run with another {', '.join(differing)}; choose another --out")
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
    """A score written before; None when there is none or, unless `failures`, when something in it failed."""
    path = _place(out, arm, episode_id)
    if not path.exists():
        return None
    *questions, last = path.read_text(encoding="utf-8").splitlines()
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
    plain = [name if re.fullmatch(r"\w[\w.-]{0,99}", name) else content_id("x", name) for name in (arm, episode_id)]
    return out / "questions" / plain[0] / f"{plain[1]}.jsonl"


def _write(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


# -- work --------------------------------------------------------------------------------------------------------------


def _asked(episode: Episode, config: EvalConfig) -> Episode:
    wanted = set(config.categories)
    return select_probes(episode, lambda probe: probe.category in wanted) if wanted else episode


def _collect(running: dict[Future[str], str], progress: Progress) -> None:
    done, _ = wait(running, return_when=FIRST_COMPLETED)
    for future in done:
        del running[future]
        progress(future.result())

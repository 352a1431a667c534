"""`memagent-eval synthetic`: arms on generated worlds, of which every answer, its
evidence and what it replaced are known.

memagent-eval synthetic --level tiny --sessions 8 --episodes 50 --arms
ideal,verbatim,oracle,empty memagent-eval synthetic --level tiny --answering reader
--arms ideal,trained=memory_r2_brief@hf:runs/x/best,empty
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Annotated, Any

import typer

from environments.datasets.synthetic import LEVELS, Level, Part
from environments.errors import EnvironmentFault
from environments.evaluation.benchmark_command import (
    Arms,
    AsJson,
    Categories,
    ConfigFile,
    EmbedderName,
    Judge,
    Material,
    Model,
    Out,
    SettingsFile,
    Workers,
    chosen_options,
    run_verb,
    words,
)
from environments.evaluation.known_worlds import ASKS, Answering, Worlds
from environments.evaluation.runs import EvalConfig, load_config

_OWN = "by default the level's own."


def synthetic_command(
    level: Annotated[Level | None, typer.Option(help="The world; standard by default.")] = None,
    sessions: Annotated[
        int | None, typer.Option(min=1, help="Sessions an episode; 8 by default.")
    ] = None,
    episodes: Annotated[
        int | None, typer.Option(min=1, help="Episodes played; 20 by default.")
    ] = None,
    split: Annotated[
        Part | None,
        typer.Option(
            help="Whose names and surface forms; test by default, which training never sees."
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Of the worlds; 0 by default.")] = None,
    turns: Annotated[int | None, typer.Option(help=f"Turns a session at least; {_OWN}")] = None,
    facts: Annotated[
        float | None, typer.Option(help=f"True things told in a session, on average; {_OWN}")
    ] = None,
    overwrite: Annotated[
        float | None, typer.Option(help=f"Share of them that revise what was told before; {_OWN}")
    ] = None,
    interference: Annotated[
        float | None,
        typer.Option(help=f"Repetitions and revisions of old facts in later sessions; {_OWN}"),
    ] = None,
    distractors: Annotated[
        float | None, typer.Option(help=f"Tellings per fact that change nothing; {_OWN}")
    ] = None,
    friends: Annotated[
        int | None, typer.Option(help=f"People a speaker tells of at most; {_OWN}")
    ] = None,
    only: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Comma-separated relations to use; all of the level's by default."
        ),
    ] = None,
    probes: Annotated[
        int | None,
        typer.Option(min=1, help="Questions an episode at most; three a session by default."),
    ] = None,
    asks: Annotated[
        str | None,
        typer.Option(
            metavar="KINDS",
            help=f"Comma-separated kinds of questions: {', '.join(ASKS)}; all by default.",
        ),
    ] = None,
    answering: Annotated[
        Answering | None,
        typer.Option(
            help="Who answers: every arm's own agent (by default), or for arms that write notes the worlds' reader, "
            "a rule that reads nothing else; arms that keep turns then still answer by themselves."
        ),
    ] = None,
    arms: Arms = None,
    out: Out = None,
    config: ConfigFile = None,
    workers: Workers = 1,
    model: Model = None,
    settings: SettingsFile = None,
    embedder: EmbedderName = None,
    categories: Categories = None,
    judge: Judge = None,
    as_json: AsJson = False,
) -> None:
    """Generated worlds: dialogues that change their minds, with exact answers and
    evidence, as many as you like.
    """
    before = load_config(config) if config is not None else None
    knobs = {
        "sessions": sessions,
        "turns": turns,
        "facts": facts,
        "overwrite": overwrite,
        "interference": interference,
        "distractors": distractors,
        "friends": friends,
        "only": words(only),
        "probes": probes,
    }
    named = {
        "level": level,
        "split": split,
        "seed": seed,
        "episodes": episodes,
        "asks": words(asks),
    }
    material = _material(_worlds(_given(named), _given(knobs), before=before))
    chosen = chosen_options(
        arms=arms,
        model=model,
        embedder=embedder,
        categories=categories,
        judge=judge,
        answering=answering,
    )
    run_verb(
        material,
        chosen,
        before=before,
        settings=settings,
        out=out,
        workers=workers,
        as_json=as_json,
    )


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _worlds(named: dict[str, Any], knobs: dict[str, Any], *, before: EvalConfig | None) -> Worlds:
    """The worlds that the options name: those of an earlier run, or the defaults, with
    the options on top.
    """
    if before is not None:
        if before.worlds is None:
            raise EnvironmentFault(
                f"the configuration is of {before.benchmark}, not of generated worlds"
            )
        first = before.worlds
    else:
        level = named.get("level", "standard")
        first = Worlds(level=level, split="test", seed=0, episodes=20, knobs=LEVELS[level])
    return first.model_copy(update={**named, "knobs": replace(first.knobs, **knobs)})


def _material(worlds: Worlds) -> Material:
    """The episodes of the worlds, made once."""
    made = tuple(worlds.played())
    whole = hashlib.sha256()
    for episode in made:
        whole.update(hashlib.sha256(episode.model_dump_json().encode()).digest())
    return Material(
        name="synthetic",
        what="the worlds that the options name",
        digest=whole.hexdigest(),
        episodes=lambda: made,
        worlds=worlds,
    )

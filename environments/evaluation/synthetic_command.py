"""`memagent-eval synthetic`: arms on generated worlds.

Every answer, its evidence and what it replaced are known.

    memagent-eval synthetic --level tiny --episodes 50 --arms ideal,verbatim,oracle,empty
    memagent-eval synthetic --level tiny --answering reader --arms ideal,t=memory_r2@hf:runs/x
    memagent-eval synthetic --level worlds/office
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from environments.datasets.synthetic import Part
from environments.errors import EnvironmentFault
from environments.evaluation.benchmark_command import Material, RunOptions, run_verb, words
from environments.evaluation.config import EvalConfig
from environments.evaluation.known_worlds import ASKS, Answering, Worlds
from environments.options import command
from environments.worlds.language.loading import open_world

_OWN = "by default the level's own."


@dataclass(frozen=True, kw_only=True)
class _WorldChoice:
    """The options that name the worlds."""

    level: Annotated[
        str | None,
        typer.Option(
            help="The world: tiny, standard, rich, or the folder of your own; standard by default."
        ),
    ] = None
    sessions: Annotated[
        int | None, typer.Option(min=1, help="Sessions an episode; 8 by default.")
    ] = None
    episodes: Annotated[int | None, typer.Option(min=1, help="Episodes played; 20 by default.")] = (
        None
    )
    split: Annotated[
        Part | None,
        typer.Option(
            help="Whose names and surface forms; test by default, which training never sees."
        ),
    ] = None
    seed: Annotated[int | None, typer.Option(help="Of the worlds; 0 by default.")] = None
    turns: Annotated[int | None, typer.Option(help=f"Turns a session at least; {_OWN}")] = None
    facts: Annotated[
        float | None, typer.Option(help=f"True things told in a session, on average; {_OWN}")
    ] = None
    overwrite: Annotated[
        float | None, typer.Option(help=f"Share of them that revise what was told before; {_OWN}")
    ] = None
    interference: Annotated[
        float | None,
        typer.Option(help=f"Repetitions and revisions of old facts in later sessions; {_OWN}"),
    ] = None
    distractors: Annotated[
        float | None, typer.Option(help=f"Tellings per fact that change nothing; {_OWN}")
    ] = None
    friends: Annotated[
        int | None, typer.Option(help=f"People a speaker tells of at most; {_OWN}")
    ] = None
    only: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Comma-separated relations to use; all of the level's by default."
        ),
    ] = None
    probes: Annotated[
        int | None,
        typer.Option(min=1, help="Questions an episode at most; three a session by default."),
    ] = None
    asks: Annotated[
        str | None,
        typer.Option(
            metavar="KINDS",
            help=f"Comma-separated kinds of questions: {', '.join(ASKS)}; all by default.",
        ),
    ] = None
    answering: Annotated[
        Answering | None,
        typer.Option(
            help="Who answers: every arm's own agent (by default), or for arms that write notes "
            "the worlds' reader, a rule that reads nothing else; arms that keep turns then still "
            "answer by themselves."
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class SyntheticOptions(RunOptions, _WorldChoice):
    """The options of the verb."""

    def worlds(self, earlier: EvalConfig | None) -> Worlds:
        """Return the worlds of an earlier run, or the defaults, with the options on top.

        Raises `EnvironmentFault`.
        """
        if earlier is not None:
            if earlier.worlds is None:
                raise EnvironmentFault(
                    f"the configuration is of {earlier.benchmark}, not of generated worlds"
                )
            base = earlier.worlds
        else:
            level = self.level or "standard"
            own = open_world(level).config
            base = Worlds(level=level, split="test", seed=0, episodes=20, knobs=own)
        fields = self._set("level", "split", "seed", "episodes", "asks")
        config = self._set(
            "sessions", "turns", "facts", "overwrite", "interference", "distractors", "friends",
            "only", "probes",
        )  # fmt: skip
        return base.model_copy(update={**fields, "knobs": replace(base.knobs, **config)})

    def _set(self, *names: str) -> dict[str, Any]:
        """Return the named options that are set, lists of words split."""
        values = {name: getattr(self, name) for name in names}
        lists = {name: words(values[name]) for name in ("only", "asks") if name in values}
        return {name: value for name, value in (values | lists).items() if value is not None}


def evaluate_synthetic(options: SyntheticOptions) -> None:
    """Play arms on generated worlds: dialogues that change their minds, with exact answers."""
    earlier = options.earlier()
    material = _material(options.worlds(earlier))
    run_verb(material, options, options.changes(answering=options.answering), earlier)


synthetic_command = command(SyntheticOptions, evaluate_synthetic)


def _material(worlds: Worlds) -> Material:
    """Make the episodes of the worlds, once."""
    episodes = tuple(worlds.played())
    digest = hashlib.sha256()
    for episode in episodes:
        digest.update(hashlib.sha256(episode.model_dump_json().encode()).digest())
    return Material(
        name="synthetic",
        what="the worlds that the options name",
        digest=digest.hexdigest(),
        episodes=lambda: episodes,
        worlds=worlds,
    )

"""`memagent-eval demonstrations`: chats with right replies as JSON Lines.

They are a warm start for any model.

    memagent-eval demonstrations warm.jsonl --level tiny --episodes 400
    memagent-eval demonstrations warm.jsonl --locomo locomo10.json --design memory_r2
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from environments.datasets.synthetic import Part, synthetic
from environments.demonstrations.ideal import (
    Demonstration,
    demonstrations,
    write_demonstrations,
)
from environments.demonstrations.locomo import locomo_demonstrations
from environments.demonstrations.oracle import OracleModel
from environments.errors import EnvironmentFault
from environments.options import command
from memagent.build import open_agent
from memagent.core.exchange import Role

_ROLES = frozenset((Role.EXTRACTOR, Role.MANAGER))


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """The options of the verb."""

    out: Annotated[
        Path, typer.Argument(metavar="OUT.jsonl", help="The file to write.", show_default=False)
    ]
    level: Annotated[
        str,
        typer.Option(help="The synthetic world: tiny, standard, rich, or the folder of your own."),
    ] = "tiny"
    episodes: Annotated[int, typer.Option(min=1, help="Episodes played.")] = 100
    sessions: Annotated[int, typer.Option(min=1, help="Sessions an episode.")] = 8
    noise: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of replies spoiled while playing.")
    ] = 0.1
    design: Annotated[str, typer.Option(metavar="NAME", help="Whose prompts are answered.")] = (
        "memory_r2_brief"
    )
    split: Annotated[Part, typer.Option(help="Whose names and surface forms.")] = "train"
    seed: Annotated[int, typer.Option(help="Of the worlds and of the noise.")] = 0
    answers: Annotated[bool, typer.Option("--answers", help="Demonstrate answering too.")] = False
    locomo: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="From LoCoMo's observed facts instead of a world; for extractors only.",
        ),
    ] = None


def make_demonstrations(options: CommandOptions) -> None:
    """Demonstrations: the prompts of a design with right replies, as chats in JSON Lines."""
    if options.locomo is not None:
        observed = asyncio.run(locomo_demonstrations(options.locomo, design=options.design))
        chats = list(observed.demonstrations)
        typer.echo(
            f"{observed.facts:,} facts; {observed.left_out:,} name no turn and are left out",
            err=True,
        )
    else:
        chats = asyncio.run(_play(options))
    try:
        count = write_demonstrations(options.out, chats)
    except OSError as error:
        raise EnvironmentFault(
            f"{options.out} cannot be written: {error.strerror or error}"
        ) from error
    typer.echo(f"{count:,} demonstrations in {options.out}")


demonstrations_command = command(CommandOptions, make_demonstrations)


async def _play(options: CommandOptions) -> list[Demonstration]:
    env = synthetic(options.level, sessions=options.sessions, seed=options.seed)
    first = env.episode(options.split, 0)
    # `demonstrations` replaces the model for every episode.
    model = OracleModel(env.truth(first), first.sessions, env.lexicon(options.split))
    async with open_agent(
        path=":memory:", design=options.design, embedder="hashing", model=model
    ) as agent:
        chats = await demonstrations(
            env,
            agent,
            split=options.split,
            indexes=range(options.episodes),
            noise=options.noise,
            seed=options.seed,
            roles=_ROLES | {Role.ANSWERER} if options.answers else _ROLES,
        )
    if not chats:
        raise EnvironmentFault(
            f"design {options.design!r} asks no model, so there is nothing to demonstrate"
        )
    return chats

"""`memagent-eval demonstrations`: chats with right replies as JSON Lines, for a warm
start of any model.

memagent-eval demonstrations warm.jsonl --level tiny --episodes 400 memagent-eval
demonstrations warm.jsonl --locomo locomo10.json --design memory_r2
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from environments.datasets.synthetic import Level, Part, synthetic
from environments.demonstrations.ideal import (
    Demonstration,
    OracleModel,
    demonstrations,
    write_demonstrations,
)
from environments.demonstrations.locomo import locomo_demonstrations
from environments.errors import EnvironmentFault
from memagent.build import open_agent
from memagent.core.exchange import Role

_ROLES = frozenset((Role.EXTRACTOR, Role.MANAGER))


def demonstrations_command(
    out: Annotated[
        Path, typer.Argument(metavar="OUT.jsonl", help="The file to write.", show_default=False)
    ],
    level: Annotated[Level, typer.Option(help="The synthetic world.")] = "tiny",
    episodes: Annotated[int, typer.Option(min=1, help="Episodes played.")] = 100,
    sessions: Annotated[int, typer.Option(min=1, help="Sessions an episode.")] = 8,
    noise: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of replies spoiled while playing.")
    ] = 0.1,
    design: Annotated[
        str, typer.Option(metavar="NAME", help="Whose prompts are answered.")
    ] = "memory_r2_brief",
    split: Annotated[Part, typer.Option(help="Whose names and surface forms.")] = "train",
    seed: Annotated[int, typer.Option(help="Of the worlds and of the noise.")] = 0,
    answers: Annotated[bool, typer.Option("--answers", help="Demonstrate answering too.")] = False,
    locomo: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="From LoCoMo's observed facts instead of a world; for extractors only.",
        ),
    ] = None,
) -> None:
    """Demonstrations: the prompts of a design with right replies, as chats in JSON Lines."""
    if locomo is not None:
        observed = asyncio.run(locomo_demonstrations(locomo, design=design))
        found: list[Demonstration] = list(observed.demonstrations)
        typer.echo(
            f"{observed.facts:,} facts; {observed.left_out:,} name no turn and are left out",
            err=True,
        )
    else:
        roles = _ROLES | {Role.ANSWERER} if answers else _ROLES
        found = asyncio.run(
            _played(
                level,
                episodes,
                sessions,
                noise=noise,
                design=design,
                split=split,
                seed=seed,
                roles=roles,
            )
        )
    try:
        count = write_demonstrations(out, found)
    except OSError as error:
        raise EnvironmentFault(f"{out} cannot be written: {error.strerror or error}") from error
    typer.echo(f"{count:,} demonstrations in {out}")


async def _played(
    level: Level,
    episodes: int,
    sessions: int,
    *,
    noise: float,
    design: str,
    split: Part,
    seed: int,
    roles: frozenset[Role],
) -> list[Demonstration]:
    env = synthetic(level, sessions=sessions, seed=seed)
    first = env.episode(split, 0)
    model = OracleModel(
        env.truth(first), first.sessions, env.lexicon(split)
    )  # replaced for every episode
    async with open_agent(path=":memory:", design=design, embedder="hashing", model=model) as agent:
        found = await demonstrations(
            env, agent, split=split, indexes=range(episodes), noise=noise, seed=seed, roles=roles
        )
    if not found:
        raise EnvironmentFault(
            f"design {design!r} asks no model, so there is nothing to demonstrate"
        )
    return found

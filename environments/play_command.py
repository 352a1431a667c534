"""`memagent-eval play NAME`: play an environment or a set of acting tasks by its name.

The name is that of an entry point, ours or an installed package's, or a dotted path. An
environment of episodes is heard and asked; tasks are acted in by their scripted player.
Nothing asks a model, so designs that need one are refused.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from inspect import signature
from itertools import islice
from statistics import fmean
from typing import Annotated, Any, cast

import typer

from environments.acting.play import OraclePlayer, play_task
from environments.acting.task import TaskSet
from environments.base import Environment
from environments.errors import EnvironmentFault
from environments.play.rollout import play
from memagent.build import open_agent
from memagent.core.snapshot import EMPTY
from memagent.plugins import available, load

Figures = Mapping[str, float]


def play_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Environment or set of tasks.")],
    design: Annotated[
        list[str] | None,
        typer.Option(help="Design to play with; may be repeated. verbatim by default."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the episodes or tasks; 0 by default.")] = 0,
    count: Annotated[int, typer.Option(min=1, help="Episodes or tasks played.")] = 10,
    model: Annotated[
        str | None,
        typer.Option(
            help="Model of the designs in a set of tasks, such as hf:RUN/best; none by default.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Play an environment or a set of acting tasks by name with some designs."""
    if name in available("tasks") and name not in available("environments"):
        loaded = load("tasks", name)
    else:
        loaded = load("environments", name)
    arms: list[str] = list(design or ["verbatim"])
    rows: dict[str, Figures] = {}
    if isinstance(loaded, TaskSet):
        arms = ["oracle", "no memory", *arms]
        for arm in arms:
            rows[arm] = asyncio.run(acted(loaded, arm, seed=seed, count=count, model=model))
    else:
        env = opened(cast("Callable[..., object]", loaded), seed=seed, episodes=count)
        for arm in arms:
            rows[arm] = asyncio.run(listened(env, arm, count=count))
    if as_json:
        typer.echo(json.dumps({"name": name, "seed": seed, "count": count, "arms": rows}))
        return
    for arm, figures in rows.items():
        typer.echo(f"{arm:20} " + "  ".join(f"{key} {v:.2f}" for key, v in figures.items()))


def opened(make: Callable[..., object], **known: Any) -> Environment:
    """Open an environment with those arguments that it takes. Raises `EnvironmentFault`."""
    takes = signature(make).parameters.values()
    every = any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes)
    names = {parameter.name for parameter in takes}
    try:
        env = make(**{key: value for key, value in known.items() if every or key in names})
    except TypeError as error:
        raise EnvironmentFault(f"the environment needs more than a name: {error}") from error
    if not isinstance(env, Environment):
        raise EnvironmentFault(f"{env!r} is neither an environment nor a set of tasks")
    return env


async def acted(
    tasks: TaskSet, arm: str, *, seed: int, count: int, model: str | None = None
) -> Figures:
    """Return the figures of one arm over one stream of tasks."""
    stream = tasks.stream(seed, count)
    player = OraclePlayer() if arm == "oracle" else tasks.player(seed)
    if arm in ("oracle", "no memory"):
        trials = [await play_task(task, player) for task in stream]
    else:
        async with open_agent(
            path=":memory:", embedder="hashing", design=arm, model=model
        ) as agent:
            trials = [await play_task(task, player, agent=agent) for task in stream]
    outcomes = [trial.outcome for trial in trials if trial.outcome is not None]
    return {
        "success": fmean(outcome.good for outcome in outcomes),
        "reward": fmean(outcome.reward for outcome in outcomes),
        "steps": fmean(len(trial.steps) for trial in trials),
    }


async def listened(env: Environment, arm: str, *, count: int) -> Figures:
    """Return the figures of one design over the first episodes of an environment."""
    rewards: list[float] = []
    sizes: list[float] = []
    async with open_agent(path=":memory:", embedder="hashing", design=arm) as agent:
        for episode in islice(env.episodes("test"), count):
            trajectory = await play(agent.at(EMPTY), episode)
            if trajectory.failure is not None:
                raise EnvironmentFault(f"{arm} in {episode.id}: {trajectory.failure}")
            score = await env.score(episode, trajectory)
            rewards += [p.reward for p in score.probes if p.reward is not None]
            sizes.append(score.memory_items)
    if not rewards:
        raise EnvironmentFault(f"{env.name}: the test split asks nothing")
    return {"reward": fmean(rewards), "questions": len(rewards), "memories": fmean(sizes)}

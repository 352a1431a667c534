"""The model that training begins with: loaded or made, and warmed up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from environments.demonstrations.ideal import Demonstration, lines_of
from environments.worlds.language.vocabulary import tiny_vocabulary
from train.ranks import on_main
from train.run.acting.demonstrations import demonstrate_acting, words_of_tasks
from train.run.task import demonstrate
from train.run.warmup import WarmUpPlan, warm_up
from train.sampling.decisions import first_decisions
from train.sampling.small_models import (
    byte_tokenizer,
    save_model,
    small_model,
    word_tokenizer,
    words_of,
)
from train.settings.acting import is_acted_in
from train.settings.run import RunSettings
from train.settings.world import open_environment

_READ_EPISODES = 50
"""Episodes whose words a model from scratch knows."""
Say = Callable[[str], None]
"""Takes a line of progress."""


def first_model(settings: RunSettings, folder: Path, *, say: Say = print) -> None:
    """Make the model and tokenizer that training begins with in `folder/init`.

    Nothing is done when they are there. Processes that train together warm up together.
    """
    init = folder / "init"
    if on_main((init / "config.json").is_file):
        return
    if settings.model.size == "decisions" and settings.model.path is None:
        episodes = settings.warmup.episodes if settings.warmup is not None else 0
        model, tokenizer = first_decisions(episodes, seed=settings.seed)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        say(f"decision policy with {parameters:,} parameters, {episodes} labelled dialogues")
        on_main(lambda: save_model(model, tokenizer, init, note={"max_tokens": 1}))
        return
    shown = asyncio.run(_shown(settings)) if settings.warmup or settings.model.path is None else []
    if settings.model.path is not None:
        model, tokenizer = _load(settings.model.path, warmed_up=settings.warmup is not None)
    else:
        model, tokenizer = new_model(settings, shown)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    say(f"model with {parameters:,} parameters and {len(tokenizer):,} tokens")
    if settings.warmup is None:
        on_main(lambda: save_model(model, tokenizer, init))
    else:
        say(f"warm start on {len(shown):,} demonstrations")
        figures = warm_up(model, tokenizer, shown, folder=init, plan=_warmup_plan(settings))
        say(f"warm start: loss {figures['loss']:.3f}, token accuracy {figures['accuracy']:.3f}")


def new_model(
    settings: RunSettings, shown: Sequence[Demonstration] | None = None
) -> tuple[Any, Any]:
    """Return a (model, tokenizer) with random weights for the language of the settings' world.

    `shown` are demonstrations; they are played when not given.
    """
    if shown is None:
        shown = asyncio.run(_shown(settings))
    tokenizer = _own_tokenizer(settings, shown)
    part = settings.model
    model = small_model(
        tokenizer, size=part.size, context_tokens=part.context_tokens, seed=settings.seed
    )
    return model, tokenizer


async def _shown(settings: RunSettings) -> list[Demonstration]:
    """Play the demonstrations of the settings' world."""
    acted = is_acted_in(settings.environment.kind)
    return await (demonstrate_acting(settings) if acted else demonstrate(settings))


def _load(source: str, *, warmed_up: bool) -> tuple[Any, Any]:
    """Return the model in its own precision, or in fp32 when all its weights learn."""
    dtype = torch.float32 if warmed_up else "auto"
    model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype)
    return model, AutoTokenizer.from_pretrained(source)


def _warmup_plan(settings: RunSettings) -> WarmUpPlan:
    part = settings.warmup
    assert part is not None
    return WarmUpPlan(
        epochs=part.epochs,
        learning_rate=part.learning_rate,
        optimizer=part.optimizer,
        batch_rows=part.batch_rows,
        max_tokens=settings.model.context_tokens,
        by_role=settings.model.path is None,
        seed=settings.seed,
    )


def _own_tokenizer(settings: RunSettings, shown: Sequence[Demonstration]) -> Any:
    if is_acted_in(settings.environment.kind):  # tasks to come have other names and numbers
        return byte_tokenizer(
            [*lines_of(shown), *words_of_tasks(settings, _READ_EPISODES)], size=8_000
        )
    lines = [*lines_of(shown), *_told(settings)]
    if settings.environment.level == "tiny":
        return word_tokenizer([*tiny_vocabulary(), *words_of(lines), *map(str, range(32))])
    return byte_tokenizer(lines, size=8_000)


def _told(settings: RunSettings) -> list[str]:
    """Return turns, questions and answers of an environment other than the synthetic world.

    The demonstrations do not have its words.
    """
    if settings.environment.kind == "synthetic":
        return []
    env = open_environment(settings.environment, sessions=settings.stage[0].sessions)
    return [
        line
        for episode in islice(env.episodes("train"), _READ_EPISODES)
        for line in (
            *(turn.text for turn in episode.turns),
            *(text for probe in episode.probes for text in (probe.question, *probe.answers)),
        )
    ]

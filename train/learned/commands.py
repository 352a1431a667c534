"""The commands that fit heads of the design `learned`: from a store, or from a model."""

from __future__ import annotations

import asyncio
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from memagent.async_agent import AsyncAgent
from memagent.build import AgentSettings, build_model
from memagent.core.errors import ConfigError


def tuned(store: Path, out: Path, *, user: str, seed: int) -> dict[str, Any]:
    """Fit heads to what a user corrected in a store. Raises `ConfigError`."""
    _need_torch()
    if not store.is_file():
        raise ConfigError(f"there is no store at {store}")
    return asyncio.run(_tuned(store, out, user=user, seed=seed))


async def _tuned(store: Path, out: Path, *, user: str, seed: int) -> dict[str, Any]:
    from train.learned.tune import tune

    async with AsyncAgent(
        path=store, user_id=user, design="verbatim", settings=AgentSettings(), read_only=True
    ) as agent:
        return await tune(agent, out, seed=seed)


def distilled(
    model: str, out: Path, *, base_url: str | None, episodes: int, seed: int
) -> dict[str, Any]:
    """Fit heads to the decisions of a model. Raises `ConfigError`."""
    _need_torch()
    from train.learned.distil import distil

    teacher = build_model(model, AgentSettings(), base_url=base_url)
    if teacher is None:
        raise ConfigError("name the model to learn from, such as --model openai/gpt-4o-mini")
    return asyncio.run(distil(teacher, out, episodes=episodes, seed=seed))


def _need_torch() -> None:
    if find_spec("torch") is None:
        raise ConfigError('fitting heads needs torch: pip install "memagent[train]"')

"""Each prompt of each design meets the faults of a model: an error that is told, or data.

A site is one prompt of one design. It is broken for a whole run, which has to reach it, and
mended: the sessions are there and are worked off, and questions are answered. Every site
meets one kind of fault, in turn, and all of them on demand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from model_faults import ERRORS, FAULTS
from obliging_model import MORE, SESSIONS, STEPS, ask, obliging, remember

from memagent.async_agent import AsyncAgent
from memagent.core.errors import MemAgentError
from memagent.core.exchange import ModelRequest, ModelResponse
from memagent.designs.base import MemoryDesign
from memagent.plugins import available, load
from memagent.testing.models import FunctionModel

Fault = type[Exception] | str | ModelResponse


class Breaking:
    """An obliging model that does wrong at one site while it is broken; notes the sites."""

    def __init__(self, site: str = "", fault: Fault = "") -> None:
        self.site, self.fault, self.seen = site, fault, set[str]()

    def __call__(self, request: ModelRequest) -> str | ModelResponse:
        self.seen.add(request.prompt_digest)
        if not self.site or request.prompt_digest != self.site:
            return obliging(request)
        if isinstance(self.fault, type):
            raise self.fault("told to fail")
        return self.fault


def agent_of(design: str, model: Breaking) -> AsyncAgent:
    return AsyncAgent(
        model=FunctionModel(model), path=":memory:", embedder="hashing", design=design, user_id="a"
    )


async def played(agent: AsyncAgent) -> int:
    """Play all steps; return how many failed with an error of ours."""
    failed = 0
    for step in STEPS:
        try:
            await step(agent)
        except MemAgentError:
            failed += 1
    return failed


def sites() -> Iterator[tuple[str, str, str]]:
    """(design, name of the prompt, its digest) of all."""
    for name in available("designs"):
        design = load("designs", name)
        assert isinstance(design, MemoryDesign)
        yield from ((name, *prompt) for prompt in design.prompt_digests.items())


SITES = list(sites())


@pytest.mark.parametrize("stride", [pytest.param(1, marks=pytest.mark.full), len(FAULTS)])
async def test_a_fault_at_any_site_is_told_and_loses_nothing(stride: int) -> None:
    assert len(SITES) > 35
    for number, (design, name, digest) in enumerate(SITES):
        for at in range(number % stride, len(FAULTS), stride):
            place = (design, name, at)
            await _broken_and_mended(design, digest, FAULTS[at], place)


async def _broken_and_mended(
    design: str, digest: str, fault: Fault, place: Sequence[str | int]
) -> None:
    model = Breaking(digest, fault)
    async with agent_of(design, model) as agent:
        failed = await played(agent)
        assert digest in model.seen, place
        assert failed or fault not in ERRORS, (place, "an error was swallowed")
        model.site = ""
        await agent.resume()
        await remember(agent)
        await ask(agent)
        assert (await agent.status()).unfinished == 0, place
        assert {one.id for one in await agent.memory.sessions()} >= {one.id for one in SESSIONS}
        kept = {item.text for item in await agent.memory.get_all()}
        assert kept.issuperset(MORE) and not any("told to fail" in text for text in kept), place

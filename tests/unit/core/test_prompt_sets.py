"""A design names every prompt it uses, and one digest stands for them all."""

from __future__ import annotations

import re
from dataclasses import replace
from importlib.metadata import entry_points

import pytest

from memagent.build import prompt_set_digest
from memagent.core.errors import UnknownPlugin
from memagent.designs.base import MemoryDesign, load_prompt
from memagent.designs.compass_mem import DESIGN as COMPASS_MEM, MODEL_FREE
from memagent.designs.memory_r1 import DESIGN as MEMORY_R1
from memagent.designs.memory_r2 import DESIGN as MEMORY_R2
from memagent.designs.memory_t1 import DESIGN as MEMORY_T1
from memagent.designs.parts.event_indexer import EventIndexer
from memagent.designs.parts.model_answerer import ModelAnswerer, SessionRetriever
from memagent.designs.verbatim import DESIGN as VERBATIM
from memagent.plugins import load


@pytest.mark.parametrize(
    ("design", "names"),
    [
        (VERBATIM, []),
        (MODEL_FREE, []),
        (MEMORY_R1, ["answer", "extract", "manage_r1"]),
        (MEMORY_R2, ["answer", "extract", "manage_r2"]),
        (
            COMPASS_MEM,
            ["answer", "explore", "merge_events", "missing", "plan", "relate_events", "segment"],
        ),
        (MEMORY_T1, ["answer_sessions", "window"]),
    ],
    ids=lambda value: value.name if isinstance(value, MemoryDesign) else "",
)
def test_a_design_knows_its_prompts(design: MemoryDesign, names: list[str]) -> None:
    assert design.prompt_digests == {name: load_prompt(name).digest for name in names}


def test_no_design_that_asks_a_model_is_silent_about_its_prompts() -> None:
    for point in entry_points(group="memagent.designs"):
        design = load("designs", point.name)
        assert isinstance(design, MemoryDesign)
        # Remembering and answering; what a trial needs may ask a model that is there.
        served = replace(design, learner=None, keeper=None, compactor=None)
        assert bool(served.prompt_digests) == design.needs_model, (
            f"{point.name}: name the prompts of its parts"
        )


def test_the_digest_stands_for_the_set_and_for_nothing_else() -> None:
    digest = prompt_set_digest("memory_r2")
    assert re.fullmatch(r"[0-9a-f]{64}", digest) and digest == prompt_set_digest(MEMORY_R2)
    assert digest == prompt_set_digest(replace(MEMORY_R2, chunk_turns=3)), "settings are no prompts"
    others = [
        prompt_set_digest(MEMORY_R1),
        prompt_set_digest(VERBATIM),
        prompt_set_digest(replace(MEMORY_R2, answerer=ModelAnswerer(prompt="answer_sessions"))),
    ]
    assert len({digest, *others}) == 4


def test_parts_that_ask_less_name_less() -> None:
    rules = replace(MEMORY_T1, retriever=SessionRetriever(ask_model=False))
    assert list(rules.prompt_digests) == ["answer_sessions"]
    assert (
        "merge_events" not in replace(COMPASS_MEM, indexer=EventIndexer(judge=None)).prompt_digests
    )


def test_an_unknown_design_is_an_error() -> None:
    with pytest.raises(UnknownPlugin, match="memory_r2"):
        prompt_set_digest("memory_r3")

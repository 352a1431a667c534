"""Each paper gets one short file: what it claims, what was changed, the command to run."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from places import ROOT

from memagent.designs.base import MemoryDesign
from memagent.plugins import available, load

MOST_LINES = 60
MODULES = {
    point.name: point.value.partition(":")[0]
    for point in entry_points(group="memagent.designs")
    if point.value.startswith("memagent.")
}


PAPERS = sorted(
    {module for module in MODULES.values() if "Claim" in (import_module(module).__doc__ or "")}
)
"""Files of designs that follow a paper or a public system."""


def test_the_designs_of_papers_are_known_by_their_claims() -> None:
    assert len(PAPERS) >= 14


@pytest.mark.parametrize("module", PAPERS)
def test_a_design_is_a_file_of_at_most_sixty_lines(module: str) -> None:
    loaded = import_module(module)
    assert loaded.__file__ is not None
    lines = Path(loaded.__file__).read_text("utf-8").splitlines()
    assert len(lines) <= MOST_LINES, f"{module} has {len(lines)} lines; move parts to designs.parts"


@pytest.mark.parametrize("module", sorted(set(MODULES.values())))
def test_the_file_of_a_paper_tells_claim_change_and_command(module: str) -> None:
    told = import_module(module).__doc__ or ""
    if "arXiv" in told or module.startswith("memagent.designs.experience"):
        assert "Claim" in told and "hanged" in told and "Agent(design=" in told


def test_every_design_has_its_row_and_its_own_name() -> None:
    page = (ROOT / "docs" / "designs.md").read_text("utf-8")
    for name in MODULES:
        design = load("designs", name)
        assert isinstance(design, MemoryDesign) and design.name == name
        assert f"| `{name}` |" in page, f"docs/designs.md has no row for {name}"
    assert set(MODULES) <= set(available("designs"))

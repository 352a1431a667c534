"""What the README claims is shown by a test, or read from a dated source."""

from __future__ import annotations

import ast
import re
import tomllib

import pytest
from places import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
CLAIMS: list[dict[str, str | list[str]]] = tomllib.loads(
    (ROOT / "tests/data/readme_claims.toml").read_text(encoding="utf-8")
)["claim"]
COMPARISON = (ROOT / "docs/comparison.md").read_text(encoding="utf-8")
NAMES = ("memagent", "mem0", "Graphiti", "Letta", "LangMem", "Hindsight")


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: str(claim["says"]))
def test_a_claim_stands_there_and_its_tests_exist(claim: dict[str, str | list[str]]) -> None:
    assert str(claim["says"]) in " ".join(README.split())
    for shown in claim["shown_by"]:
        path, _, name = shown.partition("::")
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        assert name in {getattr(node, "name", "") for node in tree.body}, shown


def test_every_bullet_and_every_row_of_what_is_in_the_box_is_a_claim() -> None:
    box = README.partition("## What is in the box")[2].partition("\n## ")[0]
    told = re.findall(r"^- (?:.*\n(?:  .*\n)*)", README, re.MULTILINE)
    told += re.findall(r"^\| .*", box.partition("| --- | --- |")[2], re.MULTILINE)
    assert len(told) >= 8
    for text in told:
        assert [claim for claim in CLAIMS if str(claim["says"]) in " ".join(text.split())], text


def test_a_cell_of_the_comparison_is_that_of_the_page_with_sources() -> None:
    table = README.partition("## Compared")[2].partition("\n## ")[0]
    rows = [
        line.strip("| ").split(" | ") for line in table.splitlines() if re.search("[✓◐✗]", line)
    ]
    rows = [row for row in rows if len(row) == len(NAMES) + 1]
    assert len(rows) == 10
    for title, *cells in rows:
        heading = f"\n## {title[0].upper()}{title[1:]}\n"
        assert heading in COMPARISON, title
        section = COMPARISON.partition(heading)[2].partition("\n## ")[0]
        for name, cell in zip(NAMES, cells, strict=True):
            known = "(?:Graphiti|Zep)" if name == "Graphiti" else name
            assert re.search(rf"\b{known}(?:, \w+)* {cell}", section), f"{title}: {name} {cell}"
    states = re.findall(r"^\| \[.*?\) \| (\d+ \w+ 20\d\d) \|", COMPARISON, re.MULTILINE)
    assert len(states) == len(NAMES) - 1, "each project was read in a dated state"

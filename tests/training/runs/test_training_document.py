"""The page on training lists every setting with its default, and names commands, files
and figures that exist.

Run as a script, this writes the tables of settings anew.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from places import ROOT
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from train.settings.options import LoGoOptions
from train.settings.run import (
    AgentPart,
    EnvironmentPart,
    Gate,
    LoRASettings,
    ModelPart,
    RunSettings,
    Stage,
    ValidationPart,
    WarmUpPart,
)

PAGE = ROOT / "docs" / "training.md"
BLOCK = re.compile(r"(<!-- settings -->\n).*?(<!-- end -->)", re.DOTALL)
PARTS: dict[str, type[BaseModel]] = {
    "[model]": ModelPart,
    "[model.lora]": LoRASettings,
    "[environment]": EnvironmentPart,
    "[agent]": AgentPart,
    "[warmup]": WarmUpPart,
    "[[stage]]": Stage,
    "gate of a stage": Gate,
    "[validation]": ValidationPart,
}


def tables() -> str:
    """A table for each part of the file."""
    parts = [
        _table("top level", [row for row in _rows(RunSettings) if row[0] in ("seed", "folder")])
    ]
    parts += [_table(name, _rows(model)) for name, model in PARTS.items()]
    return "\n".join([*parts, _table("[trainer]", _trainer_rows())]) + "\n"


def _table(name: str, rows: list[tuple[str, str, str]]) -> str:
    lines = "\n".join(f"| `{key}` | {default} | {meaning} |" for key, default, meaning in rows)
    return f"\n| `{name}` | default | meaning |\n| --- | --- | --- |\n{lines}\n"


def _rows(model: type[BaseModel]) -> list[tuple[str, str, str]]:
    return [
        (name, _shown(one.default), _plain(one.description))
        for name, one in model.model_fields.items()
    ]


def _trainer_rows() -> list[tuple[str, str, str]]:
    return [
        (one.name, _shown(one.default), _plain(one.metadata.get("help")))
        for one in fields(LoGoOptions)
    ]


def _shown(value: Any) -> str:
    if value is None or value is PydanticUndefined or value is MISSING or value in ("", ()):
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    return "-" if isinstance(value, BaseModel) else str(value)


def _plain(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def written(page: str) -> str:
    """The page with its tables as they are now."""
    return BLOCK.sub(lambda match: f"{match[1]}{tables()}\n{match[2]}", page)


def test_the_tables_of_settings_are_those_of_the_code() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert written(page) == page, (
        f"write the tables anew: PYTHONPATH=tests/kits python {Path(__file__).relative_to(ROOT)}"
    )


def test_every_setting_says_what_it_is() -> None:
    empty = [
        line
        for line in tables().splitlines()
        if line.startswith("| `") and line.rstrip().endswith("|  |")
    ]
    assert empty == []


def test_what_the_page_names_exists() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name in re.findall(r"(?:examples|scripts)/[\w/]+\.(?:toml|py)", page):
        assert (ROOT / name).is_file(), name
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"`make ([\w-]+)`", page):
        assert f"\n{target}:" in makefile, target


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

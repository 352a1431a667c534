"""A whole training run in half a minute: 200,000 parameters, a short warm start, four
updates in two stages.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from train.run.command import app, main

CONFIG = """
folder = "{folder}"
seed = 3

[model]
size = "200k"
context_tokens = 512

[environment]
episodes = 8
turns = 4

[warmup]
episodes = 60
sessions = 2
epochs = 5
learning_rate = 4e-3

[trainer]
num_generations = 2
steps_per_generation = 2
gradient_accumulation_steps = 2
num_iterations = 1
local_probability = 0.8
reruns = 2
learning_rate = 1e-4
max_completion_length = 64
save_steps = 1
gradient_checkpointing = false

[[stage]]
sessions = 2
steps = 2

[[stage]]
sessions = 3
steps = 2

[validation]
every = 1
episodes = 2
test_episodes = 2
"""


def written(
    folder: Path, *, name: str = "run.toml", replace: Sequence[tuple[str, str]] = ()
) -> Path:
    """The settings as a file in `folder`, for a run in `folder/run`."""
    text = CONFIG.replace("{folder}", str(folder / "run"))
    for old, new in replace:
        assert old in text
        text = text.replace(old, new)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def train(*words: str | Path) -> Result:
    """The command in this process; what it raises is in the result."""
    return CliRunner().invoke(app, [str(word) for word in words])


def entered(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> int:
    """The entry point with these words; gives its exit status."""
    monkeypatch.setattr(sys, "argv", ["memagent-train", *(str(word) for word in words)])
    try:
        main()
    except SystemExit as left:
        return int(left.code or 0)
    return 0


def lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

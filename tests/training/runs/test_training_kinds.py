"""Every environment that needs no file of the user's own trains from TOML, by its name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from training_run_kit import train, written

from environments.datasets.generated import PARTS
from memagent.core.errors import ConfigError
from memagent.plugins import available
from train.settings.run import load_run
from train.settings.world import TrainingWorld, preview

KINDS = [
    name for name in available("environments") if name not in ("locomo", "longmemeval", "synthetic")
]
OPTIONS = {"needle": "needles = 2", "task_stream": "tasks = 4"}
LEAST_SESSIONS = {"whole_story": 3}


def settings_of(folder: Path, kind: str, *, options: str = "", more: str = "") -> Path:
    table = f"\n[environment.options]\n{options}\n" if options else ""
    sessions = LEAST_SESSIONS.get(kind, 2)
    return written(
        folder,
        replace=[
            ("turns = 4", f'kind = "{kind}"\n{more}{table}\n[agent]\nanswering = "policy"'),
            (
                "[warmup]\nepisodes = 60\nsessions = 2\nepochs = 5",
                f"[warmup]\nepisodes = 4\nsessions = {sessions}\nepochs = 1",
            ),
            ("[[stage]]\nsessions = 2\nsteps = 2\n\n", ""),
            ("[[stage]]\nsessions = 3\nsteps = 2", f"[[stage]]\nsessions = {sessions}\nsteps = 1"),
        ],
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_opens_from_settings(tmp_path: Path, kind: str) -> None:
    settings = load_run(settings_of(tmp_path, kind, options=OPTIONS.get(kind, "")))
    world = TrainingWorld.of(settings, sessions=4)
    episode = world.episodes("train", 1)[0]
    assert episode.id.startswith(f"{kind}-tiny-") and len(episode.sessions) <= 4
    assert {part: bool(world.episodes(part, 1)) for part in PARTS} == dict.fromkeys(PARTS, True)
    assert preview(settings)["stages"][0]["rows"] > 0


def test_a_run_on_another_kind_takes_a_step_and_is_judged(tmp_path: Path) -> None:
    kind = "needle"
    result = train("run", settings_of(tmp_path, kind, options=OPTIONS.get(kind, "")))
    assert result.exit_code == 0, result.output
    told = [path for path in (tmp_path / "run").rglob("*.json*") if path.stat().st_size]
    text = "".join(path.read_text(encoding="utf-8") for path in told)
    assert f"{kind}-tiny-0-" in text
    assert json.dumps(kind) in text


@pytest.mark.parametrize(
    ("kind", "more", "options", "said"),
    [
        ("needel", "", "", "environment.kind: .*needel.*needle"),
        ("needle", "turns = 4\n", "", "environment.turns: of synthetic only"),
        ("synthetic", "", "needles = 2", "environment.options: synthetic has fields of its own"),
    ],
)
def test_settings_that_do_not_fit_the_kind_are_refused(
    tmp_path: Path, kind: str, more: str, options: str, said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        load_run(settings_of(tmp_path, kind, more=more, options=options))


def test_an_option_that_the_environment_does_not_take_is_named(tmp_path: Path) -> None:
    settings = load_run(settings_of(tmp_path, "needle", options="pins = 2"))
    with pytest.raises(ConfigError, match=r"environment.options: .*pins"):
        TrainingWorld.of(settings, sessions=4)

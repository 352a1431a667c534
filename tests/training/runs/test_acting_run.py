"""Tasks that are acted in train from a run file: whole, from settings that fit, by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from training_run_kit import train

from memagent.core.errors import ConfigError
from train.report.report import write_report
from train.settings.options import LoGoOptions
from train.settings.parts import MEANINGLESS, ActingWorld
from train.settings.run import load_run
from train.settings.world import preview

RUN = """
folder = "{folder}"
[model]
size = "200k"
context_tokens = 384
[environment]
kind = "{kind}"
episodes = 4
[agent]
design = "{design}"
acting = "{acting}"
{agent}
[warmup]
episodes = 4
epochs = 1
guess = 0.5
guess_answers = 0.2
{warmup}
[trainer]
num_generations = 2
steps_per_generation = 2
gradient_accumulation_steps = 2
num_iterations = 1
max_completion_length = 12
save_steps = 1
gradient_checkpointing = false
{trainer}
[[stage]]
sessions = 1
steps = 1
[validation]
every = 1
episodes = 1
measure = "{measure}"
test_episodes = 2
"""
TALKS = "environments.acting.topics:SHORT_TALKS"


def settings_of(folder: Path, **parts: str) -> Path:
    """Write a run file that is right but for the parts given."""
    right = {"kind": TALKS, "design": "mem_act", "acting": "player", "measure": "reward"}
    right |= {"agent": "workspace_words = 50", "warmup": "", "trainer": ""}
    path = folder / "run.toml"
    path.write_text(RUN.format(**(right | {"folder": str(folder / "run")} | parts)), "utf-8")
    return path


def test_a_run_on_tasks_takes_a_step_and_is_judged(tmp_path: Path) -> None:
    """A run is judged, reported and gone on with."""
    both = preview(load_run(settings_of(tmp_path, acting="policy")))
    assert both["stages"][0]["rows"] == 2 * (8 + 6), "eight actions and six edits a run"
    path = settings_of(tmp_path)
    assert preview(load_run(path))["stages"][0]["rows"] == 2 * 6
    result = train("run", path)
    assert result.exit_code == 0, result.output
    assert "step 1 of 1: failed 0.000  reward" in result.output
    (line,) = (tmp_path / "run/stage0/steps.jsonl").read_text("utf-8").splitlines()
    assert json.loads(line)["figures"]["segments"] >= 2, "one or more for each of two runs"
    summary = json.loads((tmp_path / "run/summary.json").read_text("utf-8"))
    tested = summary["test"]["stage0/best@1"]
    assert {*"success reward steps words edits rejected failed".split()} == set(tested)
    assert tested["steps"]["mean"] == 8.0
    records = (tmp_path / "run/validation.jsonl").read_text("utf-8").splitlines()
    assert {json.loads(record)["shown"][0]["episode"] for record in records} == {
        "short_talks-validation-0"
    }
    write_report(tmp_path / "run", tmp_path / "report.html")
    assert train("run", path, "--resume").exit_code == 0


def test_splits_share_no_task(tmp_path: Path) -> None:
    world = ActingWorld.of(load_run(settings_of(tmp_path)))
    texts = [
        {task.text for task in world.stream(split, 20).values()}
        for split in ("train", "validation", "test", "demonstrations")
    ]
    assert len(set.union(*texts)) == 80
    later = world.stream("test", 5, skip=3)
    assert next(iter(later)) == "short_talks-test-3"
    assert {task.text for task in later.values()} <= texts[2]


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"kind": "tiny_shop", "design": "exp_rag", "agent": ""}, "policy would never speak"),
        ({"kind": "tiny_shopp"}, "environment.kind: .*tiny_shopp"),
        ({"measure": "f1"}, "validation.measure: .*success"),
        ({"trainer": "reruns = 3"}, "trainer.reruns: means nothing"),
        ({"trainer": 'control = "shuffled_advantage"'}, "trainer.control: .*random_reward"),
        ({"trainer": 'estimator = "gdpo"'}, "trainer.estimator: gdpo weighs parts"),
        ({"trainer": 'estimator = "rdpo"'}, "trainer.estimator: rdpo weighs parts"),
        ({"trainer": 'estimator = "sdar"'}, "trainer.estimator: sdar needs a teacher"),
        ({"trainer": 'selectors = ["rorecomp"]'}, "trainer.selectors: means nothing"),
        ({"design": "exp_rag", "acting": "policy"}, "agent.workspace_words: exp_rag keeps no"),
        ({"kind": "tiny_shop", "design": "mem1", "agent": ""}, "nothing demonstrates the edits"),
    ],
)
def test_settings_that_do_not_fit_tasks_are_refused(
    tmp_path: Path, parts: dict[str, str], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        load_run(settings_of(tmp_path, **parts))


def test_every_setting_that_means_nothing_exists() -> None:
    assert set(LoGoOptions.__dataclass_fields__) >= MEANINGLESS

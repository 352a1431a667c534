"""`memagent-train`: mistakes are told at once and by name, nothing is loaded that is
not needed, results go to standard output.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest
from command_line_kit import ROOT
from run_folder_kit import write_run
from training_run_kit import entered, train, written

from memagent.core.errors import ConfigError
from train.settings.run import checked_run, load_run

EXAMPLES = sorted((ROOT / "examples" / "training").glob("*.toml"))
LIGHT = """
import sys
from train.run.command import main
sys.argv = ["memagent-train", *sys.argv[1:]]
try:
    main()
finally:
    heavy = {"torch", "transformers", "trl", "langgraph", "pandas", "datasets"} & set(sys.modules)
    print("HEAVY", sorted(heavy))
"""


def light(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, which also says what of the heavy libraries it loaded."""
    command = [sys.executable, "-W", "error", "-c", LIGHT, *(str(word) for word in words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("replace", "said"),
    [
        ([("[warmup]", "[warmpu]")], "warmpu: there is no such setting; did you mean warmup?"),
        ([("size =", "sise =")], "model.sise: there is no such setting; did you mean size?"),
        (
            [("steps = 2", "setps = 2")],
            "stage.0.setps: there is no such setting; did you mean steps?",
        ),
        ([('size = "200k"', 'size = "3g"')], "model.size: input should be 'decisions', '200k'"),
        (
            [("every = 1", "every = 0")],
            "validation.every: input should be greater than or equal to 1; it is 0",
        ),
        (
            [("every = 1", 'every = 1\nmeasure = "lost"')],
            "validation.measure: input should be 'f1'",
        ),
        ([('size = "200k"', 'path = "./nothing"')], "model.path: there is no folder ./nothing"),
        ([("episodes = 8", 'kind = "locomo"')], "environment.path: LoCoMo is not shipped"),
        (
            [("episodes = 8", 'kind = "locomo"\npath = "/nowhere"')],
            "environment.path: there is nothing at /nowhere",
        ),
        ([("[warmup]", '[agent]\ndesign = "memory_r9"\n[warmup]')], "memory_r9"),
        ([("seed = 3", "seed = ")], "not valid TOML"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_setting(
    replace: Sequence[tuple[str, str]],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    config = written(tmp_path, replace=replace)
    assert entered(monkeypatch, config) == 2
    heard = capsys.readouterr()
    assert (
        heard.err.startswith("memagent-train: ") and heard.err.count("\n") == 1 and heard.out == ""
    )
    assert said in heard.err
    assert str(config) in heard.err or "memory_r9" in said
    assert not (tmp_path / "run").exists()


def test_a_missing_file_and_a_missing_command_are_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert entered(monkeypatch, tmp_path / "none.toml") == 2
    assert "none.toml cannot be read: No such file" in capsys.readouterr().err
    assert entered(monkeypatch, "tarin") == 2
    assert "No such command 'tarin'" in capsys.readouterr().err


def test_a_used_folder_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    config = written(tmp_path)
    write_run(tmp_path / "run")
    refused = light(config)
    assert (
        "holds a run already; say --resume to go on with it, or choose another folder"
        in refused.stderr
    )
    assert refused.returncode == 2 and refused.stdout == "HEAVY []\n"
    other = light("run", config, "--resume")
    assert "holds a run with other settings" in other.stderr and other.returncode == 2


def test_settings_help_and_reports_load_no_torch(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    for words in (
        ["--help"],
        ["run", "--help"],
        ["run", tmp_path / "none.toml"],
        ["report", tmp_path / "run"],
    ):
        done = light(*words)
        assert done.stdout.endswith("HEAVY []\n"), done.stderr
    assert (tmp_path / "run" / "report.html").is_file()


def test_a_dry_run_loads_no_learning_library_unless_a_setting_is_that_librarys(
    tmp_path: Path,
) -> None:
    done = light("run", written(tmp_path), "--dry-run")
    heavy = json.loads(done.stdout.rpartition("HEAVY ")[2].replace("'", '"'))
    assert done.returncode == 0 and not set(heavy) - {"langgraph"}, done.stderr
    assert "nothing was trained" in done.stderr


def test_a_report_says_where_it_is(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    done = train("report", tmp_path / "run", "--out", tmp_path / "new" / "page.html")
    assert json.loads(done.stdout) == {"report": str(tmp_path / "new" / "page.html")}
    assert isinstance(train("report", tmp_path).exception, ConfigError)


def test_a_dry_run_counts_and_trains_nothing(tmp_path: Path) -> None:
    done = train("run", written(tmp_path), "--dry-run")
    assert done.exit_code == 0, (done.output, done.exception)
    found = json.loads(done.stdout)
    first, second = found["stages"]
    assert (first["sessions"], first["steps"], first["episodes"], first["rollouts"]) == (2, 2, 1, 2)
    assert first["reruns"] == round(0.8 * 2 * 2) and second["reruns"] == round(0.8 * 3 * 2)
    assert second["rounds"] > first["rounds"] >= 3 and first["rows"] > first["rounds"]
    assert found["disk_mb"] > found["weights_mb"] > 0
    assert "stage 1: 3 sessions, 2 steps" in done.stderr and "nothing was trained" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("replace", "said"),
    [
        (
            [("reruns = 2", "rerunz = 2")],
            "trainer.rerunz: there is no such setting; did you mean reruns?",
        ),
        ([("reruns = 2", "reruns = 0")], "reruns must be at least 1"),
        (
            [("steps_per_generation = 2", "steps_per_generation = 3")],
            "is a multiple of num_generations",
        ),
        (
            [("reruns = 2", 'reruns = 2\nreport_to = ["wandb"]')],
            'trainer.report_to: wandb is not installed: pip install "memagent[wandb]"',
        ),
    ],
)
def test_a_wrong_trainer_setting_stops_the_run_before_its_folder_is_made(
    replace: Sequence[tuple[str, str]], said: str, tmp_path: Path
) -> None:
    for words in ([], ["--dry-run"]):
        done = train("run", written(tmp_path, replace=replace), *words)
        assert isinstance(done.exception, ConfigError) and said in str(done.exception)
        assert not (tmp_path / "run").exists()


def test_a_model_from_scratch_is_made_once(tmp_path: Path) -> None:
    done = train("init-model", tmp_path / "model", "--size", "200k")
    assert done.exit_code == 0, (done.output, done.exception)
    found = json.loads(done.stdout)
    assert found["tokens"] > 250 and 50_000 < found["parameters"] < 300_000
    assert isinstance(train("init-model", tmp_path / "model").exception, ConfigError)
    config = written(tmp_path, replace=[('size = "200k"', f'path = "{tmp_path / "model"}"')])
    assert load_run(config).model.path == str(tmp_path / "model")


def test_a_warm_start_alone_is_taken_up_by_its_run(tmp_path: Path) -> None:
    config = written(
        tmp_path, replace=[("episodes = 60", "episodes = 4"), ("epochs = 5", "epochs = 1")]
    )
    done = train("warmup", config)
    assert done.exit_code == 0, (done.output, done.exception)
    found = json.loads(done.stdout)
    assert (
        found["folder"] == str(tmp_path / "run" / "init") and found["warm_up"]["demonstrations"] > 4
    )
    assert isinstance(train("warmup", config).exception, ConfigError)
    load_run(config)  # and the folder is still free for the run
    assert not (tmp_path / "run" / "settings.json").exists()


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_examples_hold_settings_that_exist(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples" / "experiments")
    values = tomllib.loads(file.read_text(encoding="utf-8"))
    if values["environment"].get("kind") == "locomo":
        (tmp_path / "locomo.json").write_text("[]", encoding="utf-8")
        values["environment"]["path"] = str(tmp_path / "locomo.json")
    settings = checked_run(values)
    from train.run.runs import stage_config

    for stage in settings.stage:
        on_cpu = settings.model_copy(
            update={"trainer": settings.trainer | {"bf16": False, "use_cpu": True}}
        )
        args = stage_config(on_cpu, stage, tmp_path / "stage")
        assert args.max_steps == stage.steps
    assert settings.folder.startswith("runs/")


def test_the_run_file_of_techniques_names_each_and_each_can_take_its_place(tmp_path: Path) -> None:
    from memagent.plugins import available
    from train.run.runs import stage_config

    text = (ROOT / "examples" / "training" / "techniques.toml").read_text(encoding="utf-8")
    values = tomllib.loads(text)
    choices = [
        (slot, name, given.startswith("["))
        for slot, given, others in re.findall(
            r"^(\w+) = (\S+)(?: +# or (.*))?$", text, re.MULTILINE
        )
        if slot in values["trainer"] and slot != "importance_sampling_level"
        for name in re.findall(r'"(\w+)"', given + others)
    ]
    assert set(available("techniques")) <= {name for _, name, _ in choices}
    for slot, name, several in choices:
        filled: dict[str, object] = {slot: [name] if several else name}
        if slot == "selectors" and name != "d3s":
            filled["arguments"] = {}
        if name == "skill1":  # for chains in which the policy chooses
            with pytest.raises(ConfigError, match="skill1 needs tasks in which the policy chooses"):
                checked_run(values | {"trainer": values["trainer"] | filled})
            continue
        settings = checked_run(values | {"trainer": values["trainer"] | filled})
        on_cpu = settings.trainer | {"bf16": False, "use_cpu": True}
        one = settings.model_copy(update={"trainer": on_cpu})
        args = stage_config(one, settings.stage[0], tmp_path / "stage")
        assert getattr(args, slot) in (name, [name])


def test_the_gpu_check_says_that_there_is_no_gpu() -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here: make gpu-check")
    for words, code in (([], 0), (["--require"], 1)):
        command = [sys.executable, str(ROOT / "scripts" / "gpu_check.py"), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == code
        assert "no GPU" in done.stderr and json.loads(done.stdout)["checked"] is False

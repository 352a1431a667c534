"""The experiments from end to end, with next to nothing to learn: arms start alike,
spend alike, are compared, and can be stopped.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import subprocess
import sys
import time
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from places import ROOT
from safetensors.numpy import load_file
from training_run_kit import lines

pytestmark = pytest.mark.timeout(900)
FOLDER = ROOT / "examples" / "experiments"
ARMS = ("terminal", "session_logo")
TOKENS = 600
WORDS = (
    *(
        "--size",
        "200k",
        "--demonstrations",
        "6",
        "--epochs",
        "1",
        "--arms",
        ",".join(ARMS),
        "--seeds",
        "1",
    ),
    *(
        "--tokens",
        str(TOKENS),
        "--sessions",
        "2",
        "--every",
        "5",
        "--validation",
        "1",
        "--test",
        "2",
        "--jobs",
        "1",
    ),
)


def script(name: str) -> ModuleType:
    """An experiment as a module; they import each other by name, as scripts do."""
    if str(FOLDER) not in sys.path:
        sys.path.insert(0, str(FOLDER))
    return importlib.import_module(name)


def digest(folder: Path) -> str:
    """Of all weights in a folder, by name."""
    found = hashlib.sha256()
    for name, values in sorted(load_file(folder / "model.safetensors").items()):
        found.update(name.encode() + values.tobytes())
    return found.hexdigest()


def given(out: Path, *more: str) -> list[str]:
    """The words of the command."""
    return ["credit.py", "--out", str(out), "--summary", str(out / "credit.json"), *WORDS, *more]


def start_and_kill(out: Path, arm: str) -> int:
    """Begin an arm in a process of its own and kill it in the middle; gives the steps it had made."""
    words = given(out, "--init", str(out / "warm" / "init"), "--one", arm, "0")
    steps = out / f"{arm}-0" / "stage0" / "steps.jsonl"
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        [sys.executable, str(FOLDER / "credit.py"), *words[1:]], stdout=quiet, stderr=quiet
    ) as child:
        try:
            while not (steps.is_file() and steps.read_text(encoding="utf-8").endswith("\n")):
                assert child.poll() is None, "the arm ended without a step"
                time.sleep(0.02)
        finally:
            child.kill()
    assert not (out / f"{arm}-0" / "summary.json").exists()
    return len(lines(steps))


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder of experiment A, whose first arm was killed once, and its summary."""
    out = tmp_path_factory.mktemp("credit")
    credit, arms = script("credit"), script("arms")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", given(out))
        arms.warm_start(
            arms.parser("", out=str(out), tokens=1, seeds=1).parse_args(_known(given(out)[1:]))
        )
        assert start_and_kill(out, ARMS[0]) >= 1
        credit.main()
    return out, json.loads((out / "credit.json").read_text(encoding="utf-8"))


def _known(words: list[str]) -> list[str]:
    """Without the option that only this experiment has."""
    at = words.index("--sessions")
    return words[:at] + words[at + 2 :]


def test_every_arm_starts_from_the_same_weights(experiment: tuple[Path, dict[str, Any]]) -> None:
    out, _ = experiment
    first = digest(out / "warm" / "init")
    assert {digest(out / f"{arm}-0" / "init") for arm in ARMS} == {first}


def test_every_arm_spends_the_tokens_and_at_most_one_update_more(
    experiment: tuple[Path, dict[str, Any]],
) -> None:
    out, _ = experiment
    for arm in ARMS:
        steps = lines(out / f"{arm}-0" / "stage0" / "steps.jsonl")
        assert [one["step"] for one in steps] == list(
            range(len(steps))
        )  # also of the one that was killed
        spent = [one["figures"]["tokens/completion"] for one in steps]
        assert sum(spent[:-1]) < TOKENS <= sum(spent)


def test_the_summary_has_intervals_differences_and_curves(
    experiment: tuple[Path, dict[str, Any]],
) -> None:
    _, summary = experiment
    (length,) = summary["test"].values()
    assert set(length) == {"start", *ARMS, *(f"{arm}, last" for arm in ARMS)}
    for name, entry in length.items():
        low, high = entry["f1"]["interval"]
        assert low <= entry["f1"]["mean"] <= high
        assert ("over_base" in entry) == (not name.startswith("terminal"))
    over = length["session_logo"]["over_base"]
    values = [length[name]["f1_by_seed"][0] for name in ("session_logo", "terminal")]
    assert over["mean"] == pytest.approx(values[0] - values[1], abs=2e-4)
    assert over["interval"][0] <= over["mean"] <= over["interval"][1]
    assert set(summary["curves"]) == set(ARMS)
    alike = summary["settings"]
    assert (
        alike["agent"]["listening"] == "oracle"
        and alike["environment"]["only"]
        and alike["trainer"]["reruns"]
    )
    assert "credit" not in alike["trainer"], "what arms differ in is not what they share"
    assert all(point[0] >= TOKENS for arm in ARMS for point in summary["curves"][arm]["0"][-1:])


def test_what_is_finished_is_not_done_again(
    experiment: tuple[Path, dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, summary = experiment
    before = {
        path: path.stat().st_mtime_ns
        for path in out.rglob("*")
        if path.is_file() and path.name != "credit.json"
    }
    monkeypatch.setattr(sys, "argv", given(out))
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("an arm was run again"))
    script("credit").main()
    assert json.loads((out / "credit.json").read_text(encoding="utf-8")) == summary
    after = {
        path: path.stat().st_mtime_ns
        for path in out.rglob("*")
        if path.is_file() and path.name != "credit.json"
    }
    assert after == before


@lru_cache(maxsize=1)
def _arguments() -> Any:
    return script("arms").parser("", out="runs", tokens=600, seeds=1).parse_args([])


def test_both_arms_of_the_curriculum_may_spend_the_same_and_are_tested_at_the_same_lengths() -> (
    None
):
    """What they do with it is too long for a test; that the settings are a run's is not."""
    from train.settings.run import checked_run

    curriculum = script("curriculum")
    runs = {arm: checked_run(curriculum.settings(arm, 0, _arguments())) for arm in curriculum.ARMS}
    assert [stage.sessions for stage in runs["curriculum"].stage] == [8, 16, 32]
    assert {sum(stage.tokens or 0 for stage in run.stage) for run in runs.values()} == {600}
    assert len({run.environment.model_dump_json() for run in runs.values()}) == 1
    assert len({json.dumps(run.trainer, sort_keys=True, default=str) for run in runs.values()}) == 1
    for run in runs.values():
        assert sorted(
            {stage.sessions for stage in run.stage} | set(run.validation.test_sessions)
        ) == [8, 16, 32]


def test_the_summary_of_a_curriculum_holds_the_best_of_every_stage(tmp_path: Path) -> None:
    places = [
        "init",
        *(f"stage{stage}/{which}" for stage in range(3) for which in ("best", "last")),
    ]
    f1 = {
        f"{place}@{length}": place_number + length
        for place_number, place in enumerate(places)
        for length in (8, 32)
    }
    folder = tmp_path / "curriculum-0"
    folder.mkdir()
    found = {
        "stages": [{}, {}, {}],
        "test": {name: {"f1": {"mean": value / 100}} for name, value in f1.items()},
    }
    (folder / "summary.json").write_text(json.dumps(found), encoding="utf-8")
    (folder / "validation.jsonl").write_text(
        json.dumps({"stage": "stage0", "tokens": 5, "figures": {"f1": 0.5}}) + "\n",
        encoding="utf-8",
    )
    arms = script("arms")
    args = arms.parser("", out=str(tmp_path), tokens=1, seeds=1).parse_args([])
    test = arms.summary_of(args, ["direct", "curriculum"], base="direct")["test"]
    assert {name: entry["f1"]["mean"] for name, entry in test["32"].items()} == {
        "start": 0.32,
        "curriculum, stage 1": 0.33,
        "curriculum, stage 2": 0.35,
        "curriculum": 0.37,
        "curriculum, last": 0.38,
    }

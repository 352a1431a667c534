"""The probe's figures on gradients whose signal and direction are known, and a real probe
that goes on where it was stopped.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from train.run.command import app
from train.run.probe import cosine, jackknife, plot, snr

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings(
        "ignore::FutureWarning", "ignore:.*pin_memory.*:UserWarning", "ignore::DeprecationWarning"
    ),
]
ROOT = Path(__file__).resolve().parents[3]


def _gradients(seed: int, *, mean: float, episodes: int = 300, size: int = 50) -> np.ndarray:
    """Gradients of unit variance in each number, whose mean lies along the first."""
    found = np.random.default_rng(seed).normal(size=(episodes, size))
    found[:, 0] += mean
    return found


def test_snr_is_that_of_one_episode_and_zero_for_noise() -> None:
    signal, error = jackknife(snr(_gradients(0, mean=5.0)), 300)
    assert signal == pytest.approx(25 / 50, abs=3 * error)
    assert 0 < error < 0.1
    noise, error = jackknife(snr(_gradients(1, mean=0.0)), 300)
    assert abs(noise) < 3 * error < 0.01


def test_noise_does_not_lower_a_cosine() -> None:
    left, right = _gradients(2, mean=3.0), _gradients(3, mean=3.0)
    alike, error = jackknife(cosine(left, right), 300)
    assert alike == pytest.approx(1.0, abs=3 * error)
    found, error = jackknife(cosine(left, np.roll(right, 1, axis=1)), 300)
    assert found == pytest.approx(0.0, abs=3 * error)


def test_a_probe_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    text = (ROOT / "examples" / "training" / "smoke.toml").read_text(encoding="utf-8")
    config = tmp_path / "run.toml"
    config.write_text(text.replace("runs/smoke", str(tmp_path / "run")), encoding="utf-8")

    def probed(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["probe", str(config), "--sessions", "2", *words])
        return done.exit_code, done.output

    assert probed("--episodes", "3")[0] == 0
    folder = tmp_path / "run" / "probe2"
    times = {file.name: file.stat().st_mtime_ns for file in folder.glob("0*.npz")}
    assert len(times) == 3
    status, said = probed("--episodes", "4")
    assert status == 0 and "probed 4 of 4" in said and "probed 3 of" not in said
    assert {name: (folder / name).stat().st_mtime_ns for name in times} == times
    table = (folder / "table.md").read_text(encoding="utf-8").splitlines()
    assert [line.split("`")[1] for line in table[2:]][:4] == ["terminal", "session", "asof", "gain"]
    assert (folder / "plot.html").read_text(encoding="utf-8").count("<svg") == 3
    config.write_text(config.read_text().replace("turns = 4", "turns = 5"), encoding="utf-8")
    assert probed("--episodes", "4")[0] != 0


def test_the_plot_shows_each_credit_beside_the_strongest() -> None:
    figures = {"as of": [1.02, 0.1], "end": [float("nan"), float("nan")]}
    rows = [
        {"credit": "gain", "snr": [8.0, 1.0], **figures},
        {"credit": "session", "snr": [2.0, 0.5], **figures},
    ]
    page = plot(rows, "a probe")
    assert "gain: 1.000" in page and "session: 0.250" in page and "nan" not in page

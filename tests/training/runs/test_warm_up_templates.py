"""A warm start learns the replies alone, whether or not the chat template marks them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from training_kit import tiny_model, tiny_tokenizer

from environments.demonstrations.ideal import Demonstration
from memagent.core.exchange import Role
from train.run.models import WarmUpPlan, WarmUpTrainer, marks_replies, warm_up


def _noted(
    folder: Path, tokenizer: Any, monkeypatch: Any
) -> tuple[list[list[int]], dict[str, float]]:
    noted: list[list[int]] = []
    loss = WarmUpTrainer.compute_loss

    def watched(self: Any, model: Any, inputs: Any, *values: Any, **options: Any) -> Any:
        noted.extend([label for label in row if label != -100] for row in inputs["labels"].tolist())
        return loss(self, model, inputs, *values, **options)

    shown = Demonstration(
        episode_id="e",
        role=Role.MANAGER,
        messages=({"role": "user", "content": "where does ana live ?"},),
        reply="ana lives in rome",
    )
    with monkeypatch.context() as patched:
        patched.setattr(WarmUpTrainer, "compute_loss", watched)
        figures = warm_up(
            tiny_model(tokenizer),
            tokenizer,
            [shown, shown],
            folder=folder,
            plan=WarmUpPlan(epochs=1, batch_rows=2, by_role=False),
        )
    [logged, *_] = (folder / "run" / "log.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(logged)["logs"]["loss"] > 0  # how the start went can be read later
    return noted, figures


def test_replies_alone_are_learned_without_marks_in_the_template(
    tmp_path: Path, monkeypatch: Any
) -> None:
    tokenizer = tiny_tokenizer()
    assert marks_replies(tokenizer)
    marked, _ = _noted(tmp_path / "marked", tokenizer, monkeypatch)
    plain = tiny_tokenizer()
    plain.chat_template = plain.chat_template.replace("{% generation %}", "").replace(
        "{% endgeneration %}", ""
    )
    assert not marks_replies(plain)
    unmarked, figures = _noted(tmp_path / "plain", plain, monkeypatch)
    assert len(unmarked) == len(marked) == 2
    assert unmarked == marked
    assert figures["loss"] > 0

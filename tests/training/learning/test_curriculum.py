"""The curriculum: when a stage has done enough, and which settings are refused."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from train.settings.run import Gate, Stage


def test_a_gate_holds_only_when_all_of_it_does() -> None:
    both = Gate(f1=0.5, lost=0.2)
    assert both.passed({"f1": 0.5, "lost": 0.2})
    assert not both.passed({"f1": 0.5, "lost": 0.21}) and not both.passed({"f1": 0.49, "lost": 0.0})
    assert Gate(f1=0.5).passed({"f1": 0.6}) and not Gate(f1=0.5).passed({})
    assert Gate(lost=0.1).passed({"lost": 0.0}) and not Gate(lost=0.1).passed({})
    assert not Gate().passed({"f1": 1.0, "lost": 0.0}), "no conditions never end a stage"


@pytest.mark.parametrize(
    "wrong", [{"steps": 0}, {"patience": 0}, {"tokens": 0}, {"roles": "nobody"}, {"setps": 3}]
)
def test_stages_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Stage.model_validate(wrong)

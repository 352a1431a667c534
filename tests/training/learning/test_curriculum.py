"""The curriculum is a function of steps: where a step belongs, when a stage has done
enough, and that settings say what is wrong.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from train.errors import TrainFault
from train.run.curriculum import REFERENCE, Gate, Stage, stage_at

THREE = (Stage(sessions=4, steps=10), Stage(sessions=8, steps=5), Stage(sessions=16, steps=5))


@pytest.mark.parametrize(
    ("step", "place"), [(0, (0, 0)), (9, (0, 0)), (10, (1, 10)), (14, (1, 10)), (15, (2, 15))]
)
def test_a_step_belongs_to_the_stage_that_its_number_falls_into(
    step: int, place: tuple[int, int]
) -> None:
    assert stage_at(step, THREE) == place


def test_stages_that_ended_early_make_the_next_begin_early() -> None:
    assert stage_at(3, THREE, ended=[3]) == (1, 3)
    assert stage_at(3, THREE, ended=[3, 0]) == (2, 3)
    assert stage_at(7, THREE, ended=[3]) == (1, 3) and stage_at(8, THREE, ended=[3]) == (2, 8)


def test_a_step_after_the_last_stage_is_refused() -> None:
    with pytest.raises(
        TrainFault, match="step 20 lies after the last of 3 stages, which ends at step 20"
    ):
        stage_at(20, THREE)


@given(
    stages=st.lists(
        st.builds(Stage, sessions=st.just(4), steps=st.integers(1, 6)), min_size=1, max_size=5
    ),
    ended=st.lists(st.integers(0, 6), max_size=5),
)
def test_every_step_belongs_to_one_stage_and_stages_follow_one_another(
    stages: list[Stage], ended: list[int]
) -> None:
    lengths = [ended[at] if at < len(ended) else stage.steps for at, stage in enumerate(stages)]
    found = [stage_at(step, stages, ended=ended) for step in range(sum(lengths))]
    assert [place for place, _ in found] == [
        place for place, length in enumerate(lengths) for _ in range(length)
    ]
    assert all(first == sum(lengths[:place]) for place, first in found)


def test_a_gate_holds_only_when_all_of_it_does() -> None:
    both = Gate(f1=0.5, lost=0.2)
    assert both.passed({"f1": 0.5, "lost": 0.2})
    assert not both.passed({"f1": 0.5, "lost": 0.21}) and not both.passed({"f1": 0.49, "lost": 0.0})
    assert Gate(f1=0.5).passed({"f1": 0.6}) and not Gate(f1=0.5).passed({})
    assert Gate(lost=0.1).passed({"lost": 0.0}) and not Gate(lost=0.1).passed({})
    assert not Gate().passed({"f1": 1.0, "lost": 0.0}), "no conditions never end a stage"


def test_the_reference_grows() -> None:
    assert [stage.sessions for stage in REFERENCE] == [8, 16, 32]


@pytest.mark.parametrize(
    "wrong", [{"steps": 0}, {"patience": 0}, {"tokens": 0}, {"roles": "nobody"}, {"setps": 3}]
)
def test_stages_that_make_no_sense_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Stage.model_validate(wrong)

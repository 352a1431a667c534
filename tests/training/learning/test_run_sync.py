"""Work run from synchronous code gives its result or its error, never written out."""

from __future__ import annotations

import pytest

from train.sync import run_sync


class Shy:
    """What must not be written out."""

    def __repr__(self) -> str:
        raise AssertionError("the result was written out")


def test_the_result_comes_back_and_is_never_written_out() -> None:
    shy = Shy()

    async def work() -> Shy:
        return shy

    assert run_sync(work()) is shy


def test_an_error_comes_out() -> None:
    async def work() -> None:
        raise ValueError("down")

    with pytest.raises(ValueError, match="down"):
        run_sync(work())

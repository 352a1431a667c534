"""One of two processes that train together over gloo: run as a script it trains on its
own rows and writes the gradients it applied.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

CASES = {"unequal": (7, 2), "none on one": (5, 0), "none at all": (0, 0)}
"""Rows of each rank."""


def step_of(tokenizer: Any, case: str, rank: int) -> Any:
    """The rows of one rank."""
    from training_kit import random_step

    return random_step(tokenizer, rows=CASES[case][rank], seed=10 * list(CASES).index(case) + rank)


def main(folder: Path, rank: int) -> None:
    """Train one step of each case and save the averaged gradients as this rank saw them."""
    from training_kit import GivenSteps, saved_model, settings, tiny_tokenizer, trainer_of
    from transformers import TrainerCallback

    class Note(TrainerCallback):
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            named = kwargs["model"].named_parameters()
            noted.update(
                {name.removeprefix("module."): one.grad.numpy().copy() for name, one in named}
            )

    tokenizer = tiny_tokenizer()
    for case in CASES:
        noted: dict[str, Any] = {}
        model = saved_model(folder / f"model{rank}", tokenizer)
        args = settings(folder / "run", trace=False)
        trainer = trainer_of(model, tokenizer, args, GivenSteps([step_of(tokenizer, case, rank)]))
        trainer.add_callback(Note())
        trainer.train()
        assert trainer.accelerator.num_processes == 2
        episodes = ",".join(trainer.experience.asked[0][0])  # type: ignore[attr-defined]
        np.savez(
            folder / f"{case.replace(' ', '_')}_{rank}.npz", episodes=np.array(episodes), **noted
        )


if __name__ == "__main__":
    root = Path(__file__).resolve().parents[3]
    sys.path[:0] = [str(root), str(root / "tests/kits"), str(root / "tests/kits/learning")]
    main(Path(sys.argv[1]), int(sys.argv[2]))

"""One of two processes that train together over gloo: run as a script it trains on its
own rows and writes the gradients it applied.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from memagent.core.exchange import Role

CASES = {"unequal": (7, 2), "none on one": (5, 0), "none at all": (0, 0)}
"""Rows of each rank."""
ADAPTER_CASES = {
    "a role each": ("m" * 4, "a" * 5),
    "uneven": ("ma" * 9, "a"),
    "one role": ("", "a"),
}
"""Roles of each rank's rows: m for the manager, a for the answerer."""
TOKENS = 40
"""Of a micro-batch, so that ranks make different numbers of passes."""


def step_of(tokenizer: Any, case: str, rank: int) -> Any:
    """The rows of one rank."""
    from training_kit import random_step

    return random_step(tokenizer, rows=CASES[case][rank], seed=10 * list(CASES).index(case) + rank)


def adapter_step_of(tokenizer: Any, case: str, rank: int) -> Any:
    """The rows of one rank, spoken by the roles of the case."""
    from training_kit import random_step

    spoken = ADAPTER_CASES[case][rank]
    seed = 100 + 10 * list(ADAPTER_CASES).index(case) + rank
    step = random_step(tokenizer, rows=len(spoken), seed=seed)
    roles = {"m": Role.MANAGER, "a": Role.ANSWERER}
    return replace(
        step, roles={key: roles[letter] for key, letter in zip(step.traces, spoken, strict=True)}
    )


def adapted(folder: Path) -> tuple[Any, Any, dict[Role, str]]:
    """The model with two adapters, saved once in the folder."""
    from adapter_kit import adapted_model

    from train.settings.run import LoRASettings

    lora = LoRASettings(r=2, alpha=8, targets=("q_proj", "v_proj"), per_role=True)
    return adapted_model(folder, lora)


def main(folder: Path, rank: int) -> None:
    """Train one step of each case and save the averaged gradients as this rank saw them."""
    from training_kit import GivenSteps, saved_model, settings, tiny_tokenizer, trainer_of
    from transformers import TrainerCallback

    class Note(TrainerCallback):
        def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            named = kwargs["model"].named_parameters()
            noted.update(
                {
                    name.removeprefix("module."): each.grad.numpy().copy()
                    for name, each in named
                    if each.grad is not None
                }
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
    for case in ADAPTER_CASES:
        noted = {}
        model, tokenizer, adapters = adapted(folder / "base")
        args = settings(
            folder / "run", trace=False, gradient_checkpointing=True, micro_batch_tokens=TOKENS
        )
        step = adapter_step_of(tokenizer, case, rank)
        trainer = trainer_of(model, tokenizer, args, GivenSteps([step]), adapters=adapters)
        trainer.add_callback(Note())
        trainer.train()
        np.savez(folder / f"{case.replace(' ', '_')}_{rank}.npz", **noted)


if __name__ == "__main__":
    root = Path(__file__).resolve().parents[3]
    sys.path += [str(root), str(root / "tests/kits"), str(root / "tests/kits/learning")]
    from ranks_kit import fork_ranks

    sys.exit(fork_ranks(main, Path(sys.argv[1]), Path(sys.argv[2])))

"""Small policies and steps for tests of training: a word-level model of 20,000
parameters, episodes of a few turns, steps made by hand.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from environments.records import Episode, Probe
from memagent.core.exchange import Role, TokenTrace
from memagent.core.records import Session, Turn
from train.credit.advantages import Credit
from train.rollouts.allocation import SuccessHistory
from train.rollouts.anchors import SessionSpread
from train.rollouts.experience import Step
from train.run.config import LoGoGRPOConfig
from train.run.trainer import LoGoGRPOTrainer
from train.sampling.decisions import save_model, word_tokenizer

torch.set_num_threads(1)

WORDS = "Note Decide Answer facts memories none ana ben lives in rome oslo . ? : 0 1 2 3 where does live January 2024"


def tiny_tokenizer() -> Any:
    """Words of the episodes below and the pieces of replies."""
    return word_tokenizer(WORDS.split())


def tiny_model(tokenizer: Any, *, seed: int = 0) -> Any:
    """Two layers, width 32, random weights."""
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
    )
    return Qwen3ForCausalLM(config)


def saved_model(folder: Path, tokenizer: Any, *, seed: int = 0) -> Any:
    """A tiny model that TRL can load again as its reference."""
    model = tiny_model(tokenizer, seed=seed)
    save_model(model, tokenizer, folder)
    model.config._name_or_path = str(folder)
    return model


def small_episode(place: int, *, sessions: int = 3) -> Episode:
    """Two turns a session and one question about each session."""
    at = datetime(2024, 1, 1, tzinfo=UTC)
    heard = tuple(
        Session(
            id=f"s{place}.{k}",
            at=at + timedelta(days=k),
            turns=(
                Turn(id=f"t{place}.{k}.0", speaker="ana", text="ana lives in rome"),
                Turn(id=f"t{place}.{k}.1", speaker="ben", text="ben lives in oslo"),
            ),
        )
        for k in range(sessions)
    )
    probes = tuple(
        Probe(
            id=f"p{place}.{k}",
            question="where does ana live ?",
            answers=("rome",),
            evidence_turn_ids=(f"t{place}.{k}.0",),
        )
        for k in range(sessions)
    )
    return Episode(id=f"e{place}", sessions=heard, probes=probes)


def random_step(tokenizer: Any, *, rows: int, seed: int = 0, version: int = 0) -> Step:
    """Rows of random tokens, lengths and advantages."""
    draws = random.Random(seed)
    size = len(tokenizer)
    traces: dict[str, TokenTrace] = {}
    for place in range(rows):
        length = draws.randint(1, 9)
        traces[f"r{seed}.{place}"] = TokenTrace(
            prompt_ids=tuple(draws.randrange(5, size) for _ in range(draws.randint(1, 12))),
            completion_ids=tuple(draws.randrange(5, size) for _ in range(length)),
            logprobs=(-1.0,) * length,
            policy_version=version,
        )
    return made_step(traces, {key: draws.gauss(0, 1) for key in traces})


def made_step(
    traces: Mapping[str, TokenTrace], advantages: Mapping[str, float], *, role: Role = Role.MANAGER
) -> Step:
    """A step with these rows and nothing else."""
    return Step(
        credit=Credit(advantages=dict(advantages)),
        traces=dict(traces),
        roles=dict.fromkeys(traces, role),
        groups=(),
        rollouts=(),
        metrics={},
        seconds={"rollout": 0.0, "score": 0.0, "credit": 0.0},
    )


class GivenSteps:
    """In the place of an `Experience`: gives the same steps again and again."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = list(steps)
        self.asked: list[tuple[list[str], int]] = []
        self.collector = self
        self.read_entropies: Any = None
        self.read_logps: Any = None
        self.spread = SessionSpread()
        self.history = SuccessHistory()

    async def gather(self, episodes: Sequence[Episode], *, step: int) -> Step:
        """The next step."""
        self.asked.append(([episode.id for episode in episodes], step))
        return self.steps[(len(self.asked) - 1) % len(self.steps)]


def settings(folder: Path, **values: Any) -> LoGoGRPOConfig:
    """A quick configuration on the CPU."""
    base: dict[str, Any] = {
        "output_dir": str(folder),
        "num_generations": 2,
        "per_device_train_batch_size": 1,
        "steps_per_generation": 4,
        "gradient_accumulation_steps": 4,
        "num_iterations": 1,
        "max_steps": 1,
        "max_completion_length": 12,
        "beta": 0.0,
        "entropy_coef": 0.0,
        "max_grad_norm": 1e9,
        "learning_rate": 1e-3,
        "report_to": [],
        "logging_steps": 1,
        "disable_tqdm": True,
        "bf16": False,
        "use_cpu": True,
        "save_strategy": "no",
        "gradient_checkpointing": False,
    }
    return LoGoGRPOConfig(**(base | values))


def trainer_of(
    model: Any, tokenizer: Any, args: LoGoGRPOConfig, source: Any, **options: Any
) -> LoGoGRPOTrainer:
    """A trainer fed by `source`, an `Experience` or `GivenSteps`."""
    make: Any = source if callable(source) else lambda policy: source
    return LoGoGRPOTrainer(
        model,
        args=args,
        episodes=options.pop("episodes", None) or [small_episode(place) for place in range(4)],
        experience=make,
        processing_class=tokenizer,
        **options,
    )

"""Rows become vLLM requests with their own sampling; what is missing is named. vLLM
itself is not needed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from training_kit import GivenSteps, saved_model, settings, tiny_tokenizer, trainer_of

from memagent.core.errors import ConfigError
from train.sampling.generation import Job
from train.sampling.vllm_engine import ColocatedSender, ServerSender, VLLMEngine

SCHEMA = {"type": "object"}
JOBS = [
    Job(key="a", prompt_ids=(1, 2), max_tokens=5, temperature=0.7, top_p=0.9, seed=2**64 - 1),
    Job(key="b", prompt_ids=(3,), max_tokens=9, seed=4, grammar=json.dumps(SCHEMA)),
]


@dataclass
class Client:
    """Answers like TRL's client: the prompt turned round, then the end token."""

    asked: list[dict[str, Any]] = field(default_factory=list)

    def generate(self, **asked: Any) -> dict[str, Any]:
        self.asked.append(asked)
        ids = [*asked["prompts"][0][::-1], 0]
        return {"completion_ids": [ids], "logprobs": [[[-0.5, -2.0] for _ in ids]]}


def test_a_server_is_asked_row_by_row_each_with_its_own_seed() -> None:
    client = Client()
    said = VLLMEngine(ServerSender(client), eos_ids=[0]).generate(JOBS)
    assert [one.completion_ids for one in said] == [(2, 1, 0), (3, 0)]
    assert said[0].logprobs == (-0.5, -0.5, -0.5)
    assert all(one.ended for one in said)
    asked = {tuple(one["prompts"][0]): one for one in client.asked}
    assert asked[(1, 2)] == {
        "prompts": [[1, 2]],
        "n": 1,
        "temperature": 0.7,
        "top_p": 0.9,
        "max_tokens": 5,
        "logprobs": 0,
        "generation_kwargs": {"seed": 2**63 - 1},
    }
    assert asked[(3,)]["generation_kwargs"] == {"seed": 4, "structured_outputs": {"json": SCHEMA}}


class Llm:
    """Answers like `vllm.LLM`, without an end token."""

    def generate(self, prompts: Any, *, sampling_params: Any, use_tqdm: bool) -> list[Any]:
        self.asked = prompts, sampling_params, use_tqdm
        answers = [[*prompt["prompt_token_ids"], 7] for prompt in prompts]
        return [
            SimpleNamespace(
                outputs=[
                    SimpleNamespace(
                        token_ids=ids,
                        logprobs=[{one: SimpleNamespace(logprob=-float(one))} for one in ids],
                    )
                ]
            )
            for ids in answers
        ]


def test_the_engine_in_this_process_is_asked_once_for_all_rows() -> None:
    llm = Llm()
    sender = ColocatedSender(llm, sampling=dict, structured=dict)
    said = VLLMEngine(sender, eos_ids=[0]).generate(JOBS)
    prompts, sampling, _ = llm.asked
    assert prompts == [{"prompt_token_ids": [1, 2]}, {"prompt_token_ids": [3]}]
    assert [one["seed"] for one in sampling] == [2**63 - 1, 4]
    assert [one["max_tokens"] for one in sampling] == [5, 9]
    assert ("structured_outputs" in sampling[0], sampling[1]["structured_outputs"]) == (
        False,
        {"json": SCHEMA},
    )
    assert [one.completion_ids for one in said] == [(1, 2, 7), (3, 7)]
    assert said[0].logprobs == (-1.0, -2.0, -7.0)
    assert not said[0].ended


def test_weights_are_handed_over_once_an_update() -> None:
    versions, handed = [0], list[int]()
    engine = VLLMEngine(
        ServerSender(Client()),
        eos_ids=[0],
        version=lambda: versions[-1],
        hand_over=handed.append,
    )
    for version in (0, 0, 1, 1, 1):
        versions.append(version)
        engine.generate(JOBS)
    assert handed == [0, 1]


def test_a_row_with_an_adapter_is_refused_where_whole_weights_are_given() -> None:
    with pytest.raises(ConfigError, match="adapter 'manager'"):
        VLLMEngine(ServerSender(Client()), eos_ids=[0]).generate(
            [Job(key="a", prompt_ids=(1,), max_tokens=1, adapter="manager")]
        )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, r'pip install "memagent\[train,vllm\]"'),
        ({"vllm_enable_sleep_mode": True}, "vllm_enable_sleep_mode must be false"),
        ({"vllm_tensor_parallel_size": 2}, "vllm_tensor_parallel_size must be 1"),
    ],
)
def test_what_stands_in_the_way_is_named(
    tmp_path: Path, values: dict[str, Any], message: str
) -> None:
    try:
        import vllm  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError:
        pass
    else:
        pytest.skip("vLLM is installed")
    tokenizer = tiny_tokenizer()
    args = settings(tmp_path / "run", use_vllm=True, **values)
    with pytest.raises(ConfigError, match=message):
        trainer_of(saved_model(tmp_path / "model", tokenizer), tokenizer, args, GivenSteps([]))

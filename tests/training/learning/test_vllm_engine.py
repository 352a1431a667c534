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
from train.sampling.batcher import Job
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


@dataclass
class Llm:
    """Answers like the engine of a `vllm.LLM`, a token a step, without an end token."""

    asked: list[Any] = field(default_factory=list)
    rows: dict[str, list[int]] = field(default_factory=dict)
    steps: list[int] = field(default_factory=list)
    """Rows under way in each step."""

    @property
    def llm_engine(self) -> Llm:
        return self

    def add_request(self, name: str, prompt: Any, params: Any, *, lora_request: Any) -> None:
        self.asked.append((prompt, params, lora_request))
        self.rows[name] = [*prompt["prompt_token_ids"], 7]
        self.left = {**getattr(self, "left", {}), name: len(self.rows[name])}

    def has_unfinished_requests(self) -> bool:
        return any(self.left.values())

    def step(self) -> list[Any]:
        under_way = [name for name, count in self.left.items() if count]
        self.steps.append(len(under_way))
        for name in under_way:
            self.left[name] -= 1
        return [
            SimpleNamespace(
                request_id=name,
                finished=not self.left[name],
                outputs=[
                    SimpleNamespace(
                        token_ids=self.rows[name],
                        logprobs=[
                            {one: SimpleNamespace(logprob=-float(one))} for one in self.rows[name]
                        ],
                    )
                ],
            )
            for name in under_way
        ]


def test_rows_of_the_engine_in_this_process_join_and_leave_between_its_steps() -> None:
    llm = Llm()
    sender = ColocatedSender(llm, sampling=dict, structured=dict)
    ended: list[list[int]] = []
    further = [Job(key="c", prompt_ids=(4, 5), max_tokens=3)]

    def more(results: Any) -> list[Job]:
        ended.append(sorted(results))
        return further if len(ended) == 1 else []

    VLLMEngine(sender, eos_ids=[0]).serve(JOBS, more)
    assert ended == [[1], [0], [2]]
    assert llm.steps == [2, 2, 2, 1, 1]


def test_the_engine_in_this_process_is_asked_with_each_row_s_sampling() -> None:
    llm = Llm()
    sender = ColocatedSender(llm, sampling=dict, structured=dict)
    said = VLLMEngine(sender, eos_ids=[0]).generate(JOBS)
    prompts, sampling = ([each[part] for each in llm.asked] for part in (0, 1))
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

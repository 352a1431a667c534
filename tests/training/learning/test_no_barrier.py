"""No rollout waits for the longest reply of another: in this process rows join and leave
between tokens, and a server is asked by each rollout on its own.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from patience import patience_s
from training_kit import tiny_model, tiny_tokenizer
from vllm_server import VLLMServer, running

from memagent.core.exchange import Message, ModelRequest, Role, Sampling
from train.sampling.generation import TransformersEngine
from train.sampling.policy import PolicyModel
from train.sampling.vllm_engine import ServerSender, VLLMEngine

CALLS, CAP, MEAN = 8, 256, 50
"""A quarter of the lengths of `benchmarks/generation.py --parts tail`, so that the tokens
between two times that rows join weigh four times as much.
"""


def _lengths(rollouts: int, *, seed: int = 0) -> list[list[int]]:
    """Tokens of each call of each rollout: a long tail, cut at the cap."""
    draws = random.Random(seed)
    return [
        [min(CAP, max(1, round(draws.expovariate(1 / MEAN)))) for _ in range(CALLS)]
        for _ in range(rollouts)
    ]


async def _played(
    policy: PolicyModel, lengths: Sequence[Sequence[int]], ended: Callable[[], object] = int
) -> list[list[Any]]:
    """Let each rollout make its calls one after the other; return the tokens said."""

    async def rollout(member: int) -> list[Any]:
        view = policy.bound(str(member))
        said = []
        for length in lengths[member]:
            messages = (Message(role="user", content=f"where does ana live ? {length}"),)
            sampling = Sampling(max_tokens=length)
            request = ModelRequest(role=Role.MANAGER, messages=messages, sampling=sampling)
            said.append((await view.complete(request)).tokens)
        return said

    async def taking_part(member: int) -> list[Any]:
        with policy.participant():
            said = await rollout(member)
        ended()
        return said

    tasks = [asyncio.create_task(taking_part(member)) for member in range(len(lengths))]
    return await asyncio.gather(*tasks)


async def _sampled(lengths: Sequence[Sequence[int]]) -> tuple[list[list[Any]], int, int]:
    """Return what was said, and the passes over single tokens and over prompts."""
    tokenizer = tiny_tokenizer()
    model = tiny_model(tokenizer)
    forward, passes = model.forward, {True: 0, False: 0}

    def counted(*values: Any, **options: Any) -> Any:
        passes[options["input_ids"].shape[1] == 1] += 1
        return forward(*values, **options)

    model.forward = counted
    engine = TransformersEngine(model, eos_ids=[], pad_id=tokenizer.pad_token_id)
    said = await _played(PolicyModel(engine, tokenizer), lengths)
    return said, passes[True], passes[False]


@pytest.mark.parametrize("rollouts", [20, 64])
async def test_decode_steps_are_nearly_those_of_the_longest_rollout(rollouts: int) -> None:
    lengths = _lengths(rollouts)
    said, steps, prompts = await _sampled(lengths)
    free = max(map(sum, lengths))
    lockstep = sum(max(each[call] for each in lengths) for call in range(CALLS))
    assert [[len(each.completion_ids) for each in run] for run in said] == lengths
    assert steps <= 1.15 * free
    assert steps < 0.6 * lockstep
    assert prompts <= rollouts * CALLS


async def test_the_same_rollouts_say_the_same_to_the_bit() -> None:
    lengths = [[min(60, length) for length in each] for each in _lengths(12)]
    first, again = await _sampled(lengths), await _sampled(lengths)
    assert first == again


@dataclass
class HoldingServer(VLLMServer):
    """Answers the shortest of the requests that it holds, but only once it holds enough."""

    running: int = 0
    """Rollouts that have not ended."""
    share: float = 0.8
    held: dict[int, int] = field(default_factory=dict)
    """Tokens still to say by number of the request."""
    seen: list[float] = field(default_factory=list)
    """Requests held over rollouts that have not ended, at each answer."""
    calls: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)
    timed_out: bool = False

    def complete(self, body: dict[str, Any]) -> tuple[int, Any]:
        with self.changed:
            self.calls += 1
            number = self.calls
            self.held[number] = body["max_tokens"]
            self.changed.notify_all()
            if not self.changed.wait_for(lambda: self._is_next(number), patience_s(5)):
                self.timed_out = True
            self.seen.append(len(self.held) / self.running)
            elapsed = self.held.pop(number)
            self.held = {each: left - elapsed for each, left in self.held.items()}
            self.changed.notify_all()
        ids = [5] * body["max_tokens"]
        logprobs = {
            "tokens": [f"token_id:{each}" for each in ids],
            "token_logprobs": [-1.0] * len(ids),
            "top_logprobs": [{} for _ in ids],
        }
        [prompt] = body["prompt"]
        choice = {"prompt_token_ids": prompt, "token_ids": ids, "logprobs": logprobs}
        return 200, {"choices": [choice]}

    def end(self) -> None:
        """Take in that a rollout has ended."""
        with self.changed:
            self.running -= 1
            self.changed.notify_all()

    def _is_next(self, number: int) -> bool:
        """Whether the request is the shortest held, and enough are held."""
        shortest = min(self.held, key=lambda each: (self.held[each], each))
        return number == shortest and len(self.held) >= self.share * self.running


async def test_a_server_sees_at_least_four_fifths_of_the_rollouts_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a barrier it would wait for ever: those answered first wait for the longest."""
    from trl.generation import vllm_client

    monkeypatch.setattr(vllm_client, "is_vllm_available", lambda *_, **__: True)
    lengths = [[min(64, length) for length in each] for each in _lengths(20)]
    server = HoldingServer(base=None, eos_id=0, running=len(lengths))
    with running(server):
        client = vllm_client.VLLMClient(base_url=server.url)
        tokenizer = tiny_tokenizer()
        policy = PolicyModel(VLLMEngine(ServerSender(client), eos_ids=[0]), tokenizer)
        said = await _played(policy, lengths, server.end)
    mean = sum(server.seen) / len(server.seen)
    assert not server.timed_out
    assert [[len(each.completion_ids) for each in run] for run in said] == lengths
    assert mean >= 0.8
    assert policy.stats.widest >= 0.8 * len(lengths)

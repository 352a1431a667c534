"""The real agent with a tiny policy: the short design, episodes of `training_kit`, and
an engine that says sensible things by rule.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

from training_kit import WORDS

from memagent.async_agent import AsyncAgent
from memagent.build import open_store
from memagent.core.exchange import ModelRequest
from memagent.core.records import Scope
from memagent.testing import FunctionModel
from train.rollouts.collect import Collector, RolloutPlan
from train.rollouts.experience import CreditPlan, Experience
from train.sampling.batcher import Engine, Job, Sampled
from train.sampling.decisions import word_tokenizer
from train.sampling.policy import PolicyModel

_LINE = re.compile(r"^(\d) ?(.*)$", re.MULTILINE)


def policy_tokenizer() -> Any:
    """Words of the prompts and replies of the small episodes."""
    return word_tokenizer([*WORDS.split(), *map(str, range(10)), "decide", "note", "answer"])


def answer(request: ModelRequest) -> str:
    """The newest memory about Ana, by rule: who scores memories without costing a model."""
    found = re.findall(r"^(\d) ana lives in (\w+)", request.messages[-1].content, re.MULTILINE)
    if not found:
        return '{"citations":[],"answer":"","abstain":true}'
    return json.dumps({"citations": [found[-1][0]], "answer": found[-1][1], "abstain": False})


def brief_agent() -> AsyncAgent:
    """An agent of the design `memory_r2_brief` in memory, whose own model answers by `answer`.

    Like the agent of a run, it keeps a policy's unreadable replies as data.
    """
    store = open_store(path=":memory:", embedder="hashing")
    return store.agent(
        Scope(user_id="train"),
        model=FunctionModel(answer),
        design="memory_r2_brief",
        keep_unreadable=True,
    )


class RuleEngine:
    """Notes each turn and adds each fact with the chance `keep`, drawn from the job's
    seed; answers Rome or Oslo by a coin.
    """

    def __init__(
        self, tokenizer: Any, *, keep: float = 0.6, spoil: Callable[[Job, str], bool] | None = None
    ) -> None:
        self.tokenizer = tokenizer
        self.keep = keep
        self.spoil = spoil
        self.batches: list[list[str]] = []

    def generate(self, jobs: Sequence[Job]) -> list[Sampled]:
        """One reply a job."""
        self.batches.append([job.key for job in jobs])
        return [self._reply(job) for job in jobs]

    def _reply(self, job: Job) -> Sampled:
        prompt = self.tokenizer.decode(job.prompt_ids)
        if self.spoil is not None and self.spoil(job, prompt):
            raise RuntimeError("the engine is down")
        draws = random.Random(job.seed)
        lines = prompt.partition("memories")[0] if "facts" in prompt else prompt
        kept = [place for place, _ in _LINE.findall(lines) if draws.random() < self.keep]
        if "note" in prompt:
            said: Any = {
                "facts": [
                    {
                        "source": one,
                        "text": "ana lives in rome" if one == "0" else "ben lives in oslo",
                    }
                    for one in kept
                ]
            }
        elif "decide" in prompt:
            said = {"ops": [{"fact": int(one), "op": "add"} for one in kept]}
        else:
            said = {"citations": ["0"], "answer": draws.choice(["rome", "oslo"]), "abstain": False}
        ids = self.tokenizer(json.dumps(said, separators=(",", ":")), add_special_tokens=False)[
            "input_ids"
        ]
        ids = [*ids, self.tokenizer.eos_token_id]
        return Sampled(completion_ids=tuple(ids), logprobs=(-1.0,) * len(ids), ended=True)


def policy_of(engine: Engine, tokenizer: Any, *, width: int = 64, seed: int = 0) -> PolicyModel:
    """A policy over an engine."""
    return PolicyModel(engine, tokenizer, context_tokens=512, width=width, seed=seed)


def experience_of(
    policy: PolicyModel, *, plan: RolloutPlan, credit: CreditPlan, own_answers: bool = True
) -> Experience:
    """The experience of the real agent; memories are scored by rule unless `own_answers` is False."""
    agent = brief_agent()
    collector = Collector(agent=agent, policy=policy, plan=plan)
    return Experience(collector=collector, plan=credit, answering=agent if own_answers else None)

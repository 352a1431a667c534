"""Benchmark of batched generation, sampler overhead, step shares and local reruns.

Promises: 256 rollouts, agent and memory included, are at least 10 times as fast in
batches as one by one (500k), the engine has at least 0.7 of the speed of
`model.generate`, all but generation and loss is at most 8 % of a step (30m), local
reruns add at most 2 generation rounds, and rollouts whose replies have a long tail take at
most 1.15 times the decode steps of the longest of them. Times are processor time of one thread, and
everything is compared within one run.

Rollouts are those of the real agent in the world `tiny`: prompts, parsing, search and
commits as in training. A model that was not warmed up says nothing that could be
parsed, so a rule chooses the replies, and the model samples as many tokens as the reply
has: the work is that of a trained model which says this. `model.generate` gets the same
left-padded prompts, temperature 1, dtype and thread; neither side knows an end token
there, so both give the same number of tokens.

    python benchmarks/generation.py [--sizes 500k,30m] [--widths 1,8,16,32,64,256]
        [--parts rounds,rollouts,sampler,tail,step] [--quick]

The widest batches are for the smaller sizes. `--quick` is 500k alone in narrow batches.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from measured import report
from transformers import TrainerCallback, set_seed

import train.rollouts.experience
import train.run.trainer
import train.sampling.batcher
from environments.datasets.synthetic import Synthetic, synthetic
from environments.demonstrations.ideal import demonstrations, lines_of
from environments.records import Episode
from environments.worlds.language.lexicon import tiny_vocabulary
from environments.worlds.readers.notes import NoteLanguage
from environments.worlds.readers.world_reader import WorldReader
from memagent.async_agent import AsyncAgent
from memagent.build import open_store
from memagent.core.exchange import Message, ModelRequest, Role, Sampling
from memagent.core.records import Scope
from memagent.testing import FunctionModel
from train.rollouts.collect import Collector, RolloutPlan
from train.rollouts.experience import Experience
from train.run.config import LoGoGRPOConfig
from train.run.plans import credit_plan, rollout_plan
from train.run.trainer import LoGoGRPOTrainer
from train.sampling.batcher import Job, Sampled
from train.sampling.decisions import small_model, word_tokenizer, words_of
from train.sampling.generation import TransformersEngine
from train.sampling.policy import PolicyModel
from train.sync import run_sync

SESSIONS = 2
_LINE = re.compile(r"^(\d+) ?(.*)$", re.MULTILINE)


class RuleReplies:
    """An engine whose replies follow a rule.

    With a model below it, each reply costs what sampling it would.

    Of a turn it notes eight words, with the chance `keep`; a fact is mostly added, at
    times it changes, ends or repeats a memory.
    """

    def __init__(
        self, tokenizer: Any, below: TransformersEngine | None = None, *, keep: float = 0.6
    ) -> None:
        self.tokenizer, self.below, self.keep = tokenizer, below, keep

    def generate(self, jobs: Sequence[Job]) -> list[Sampled]:
        """One reply a job; the log-probabilities are those of what the model sampled."""
        replies = [self._reply(job) for job in jobs]
        if self.below is None:
            return [
                Sampled(completion_ids=ids, logprobs=(-1.0,) * len(ids), ended=True)
                for ids in replies
            ]
        asked = [replace(job, max_tokens=len(ids)) for job, ids in zip(jobs, replies, strict=True)]
        sampled = self.below.generate(asked)
        return [
            replace(one, completion_ids=ids, ended=True)
            for one, ids in zip(sampled, replies, strict=True)
        ]

    def _reply(self, job: Job) -> tuple[int, ...]:
        prompt = self.tokenizer.decode(job.prompt_ids)
        draws = random.Random(job.seed)
        shown, _, memories = prompt.partition("memories")
        known = [place for place, _ in _LINE.findall(memories)]
        lines = [
            (place, text)
            for place, text in _LINE.findall(shown)
            if ":" in text and draws.random() < self.keep
        ]
        if "memories" not in prompt:
            said: Any = {
                "facts": [
                    {"source": place, "text": " ".join(text.split()[:8])} for place, text in lines
                ]
            }
        else:
            draws.shuffle(known)
            said = {"ops": [_op(int(place), known, draws) for place, _ in _LINE.findall(shown)]}
        ids = self.tokenizer(json.dumps(said, separators=(",", ":")), add_special_tokens=False)[
            "input_ids"
        ]
        return (*ids, self.tokenizer.eos_token_id)


def _op(fact: int, known: list[str], draws: random.Random) -> dict[str, Any]:
    draw = draws.random()
    if draw < 0.6 or not known:
        return {"fact": fact, "op": "ADD"}
    return {
        "fact": fact,
        "op": "UPDATE" if draw < 0.8 else "DELETE" if draw < 0.9 else "NOOP",
        "id": known.pop(),
    }


def cpu_of(work: Callable[[], Any]) -> tuple[float, Any]:
    """(processor seconds, result)."""
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


def world(sessions: int) -> Synthetic:
    """Short sessions about few things."""
    return synthetic("tiny", sessions=sessions, turns=4, facts=2.0)


def agent() -> AsyncAgent:
    """Return the agent under training, in memory."""
    store = open_store(path=":memory:", embedder="hashing")
    return store.agent(Scope(user_id="bench"), model=FunctionModel(str), design="memory_r2_brief")


def engine_of(model: Any, tokenizer: Any) -> TransformersEngine:
    """Return a sampler that no token ends."""
    return TransformersEngine(model, eos_ids=[], pad_id=tokenizer.pad_token_id)


# -- rollouts --------------------------------------------------------------------------


def rollout_speed(
    model: Any, tokenizer: Any, playing: AsyncAgent, *, width: int, rollouts: int
) -> dict[str, float]:
    """Completion tokens a second of processor time in whole rollouts, and in the sampler alone."""
    policy = PolicyModel(
        RuleReplies(tokenizer, engine_of(model, tokenizer)), tokenizer, width=width
    )
    plan = RolloutPlan(members=rollouts, local_probability=0.0)
    collector = Collector(agent=playing, policy=policy, plan=plan)
    episode = next(iter(world(SESSIONS).episodes("train")))
    seconds, (group,) = cpu_of(lambda: run_sync(collector.collect([episode], step=0)))
    assert not any(one.trajectory.failure for one in group.rollouts), group.rollouts[
        0
    ].trajectory.failure
    calls = [call for one in group.rollouts for call in one.calls]
    tokens = sum(call.response.usage.completion_tokens for call in calls)
    return {
        "whole": tokens / seconds,
        "sampler": tokens / policy.generation_s,
        "tokens a call": tokens / len(calls),
    }


def speeds(model: Any, tokenizer: Any, widths: Sequence[int]) -> dict[str, Any]:
    """Rollouts at each width, as tokens a second and as multiples of one by one."""
    playing = agent()
    rollout_speed(model, tokenizer, playing, width=4, rollouts=4)  # imports and caches
    one = rollout_speed(model, tokenizer, playing, width=1, rollouts=4)
    found: dict[str, Any] = {"tokens a call": round(one["tokens a call"], 1)}
    for width in widths:
        at = (
            one
            if width == 1
            else rollout_speed(model, tokenizer, playing, width=width, rollouts=width)
        )
        found[f"width {width}"] = {
            "tokens a second": round(at["whole"]),
            "times one by one": round(at["whole"] / one["whole"], 1),
            "times one by one, sampler alone": round(at["sampler"] / one["sampler"], 1),
        }
    return found


# -- the sampler against model.generate ------------------------------------------------


def against_generate(
    model: Any, tokenizer: Any, *, width: int, tokens: int, repeats: int
) -> dict[str, float]:
    """Return the engine's speed over that of `model.generate` on the same prompts.

    Each speed is the best of several repeats that alternate.
    """
    draws = random.Random(width)
    prompts = [
        [draws.randrange(5, len(tokenizer)) for _ in range(draws.randint(40, 100))]
        for _ in range(width)
    ]
    jobs = [
        Job(key=str(row), prompt_ids=tuple(ids), max_tokens=tokens, seed=draws.getrandbits(64))
        for row, ids in enumerate(prompts)
    ]
    longest = max(map(len, prompts))
    ids = torch.tensor([[tokenizer.pad_token_id] * (longest - len(one)) + one for one in prompts])
    mask = torch.tensor([[0] * (longest - len(one)) + [1] * len(one) for one in prompts])
    engine = engine_of(model, tokenizer)
    model.eval()
    model.generation_config.eos_token_id = None
    options: dict[str, Any] = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0}
    options |= {"max_new_tokens": tokens, "pad_token_id": tokenizer.pad_token_id}

    def bare() -> Any:
        return model.generate(input_ids=ids, attention_mask=mask, **options)

    ours = theirs = float("inf")
    for _ in range(repeats):
        seconds, said = cpu_of(lambda: engine.generate(jobs))
        ours = min(ours, seconds)
        assert all(len(one.completion_ids) == tokens for one in said)
        seconds, said = cpu_of(bare)
        theirs = min(theirs, seconds)
        assert said.shape == (width, longest + tokens)
    return {
        "engine, ms a step": round(1e3 * ours / tokens, 2),
        "model.generate, ms a step": round(1e3 * theirs / tokens, 2),
        "engine over model.generate": round(theirs / ours, 2),
    }


# -- a training step -------------------------------------------------------------------


class StepTimes(TrainerCallback):
    """Processor seconds of every optimizer step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._began = 0.0

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Note the start of an optimizer step, generation included."""
        self._began = time.process_time()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Note the end of the step."""
        self.seconds.append(time.process_time() - self._began)


def step_shares(
    model: Any, tokenizer: Any, *, sessions: int, members: int, episodes: int, steps: int
) -> dict[str, float]:
    """Where the processor time of an update goes, the first left out.

    The modules' own clocks are set to processor time.
    """
    for module in (train.sampling.batcher, train.rollouts.experience, train.run.trainer):
        module.perf_counter = time.process_time  # type: ignore[attr-defined]
    with tempfile.TemporaryDirectory() as folder:
        args = LoGoGRPOConfig(
            output_dir=folder,
            num_generations=members,
            per_device_train_batch_size=members * episodes // 4,
            steps_per_generation=4,
            gradient_accumulation_steps=4,
            num_iterations=1,
            max_steps=steps + 1,
            reruns=3,
            beta=0.0,
            entropy_coef=0.0,
            max_completion_length=64,
            learning_rate=1e-6,
            gradient_checkpointing=False,
            bf16=False,
            use_cpu=True,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            logging_strategy="no",
        )
        env = world(sessions)
        played = [env.episode("train", index) for index in range(8)]
        language = NoteLanguage(env.lexicon("train"))
        reader = WorldReader(base=agent(), language=language).knowing(
            *(env.truth(one) for one in played)
        )
        figures: list[dict[str, float]] = []

        def experience(policy: PolicyModel) -> Experience:
            policy._engine = RuleReplies(tokenizer, engine_of(model, tokenizer))  # noqa: SLF001 (the trainer has no public hook)
            collector = Collector(agent=agent(), policy=policy, plan=rollout_plan(args))
            return Experience(collector=collector, plan=credit_plan(args), answering=reader)

        times = StepTimes()
        trainer = LoGoGRPOTrainer(
            model,
            args=args,
            episodes=played,
            experience=experience,
            processing_class=tokenizer,
            callbacks=[times],
        )
        written = trainer._report  # noqa: SLF001 (the trainer has no public hook)

        def noted(step: Any, batch: Any, **options: Any) -> None:
            generation_s, began, packed = (
                options["generation_s"],
                options["began"],
                options["packed"],
            )
            spent = step.seconds
            figures.append(
                {
                    "generation": generation_s,
                    "agent and memory": spent["rollout"] - generation_s,
                    "scoring": spent["score"],
                    "credit and packing": packed - began - spent["rollout"] - spent["score"],
                    "rows": float(batch.rows),
                }
            )
            written(step, batch, **options)

        trainer._report = noted  # noqa: SLF001 (the trainer has no public hook)
        trainer.train()
    kept, whole = figures[1:], sum(times.seconds[1:])
    found = {name: sum(one[name] for one in kept) / whole for name in kept[0] if name != "rows"}
    found["loss and optimizer"] = 1 - sum(found.values())
    shares = {name: round(value, 3) for name, value in found.items()}
    rest = 1 - found["generation"] - found["loss and optimizer"]
    return {
        "s a step": round(whole / len(kept), 2),
        "rows a step": round(sum(one["rows"] for one in kept) / len(kept)),
        **shares,
        "neither generation nor loss": round(rest, 3),
    }


# -- rounds ----------------------------------------------------------------------------


def rounds(tokenizer: Any, sessions: int, *, local: float) -> int:
    """Count the generation rounds of a collection of eight rollouts."""
    policy = PolicyModel(RuleReplies(tokenizer), tokenizer, width=256)
    plan = RolloutPlan(members=8, local_probability=local, reruns=4)
    episode: Episode = next(iter(world(sessions).episodes("train")))
    asyncio.run(Collector(agent=agent(), policy=policy, plan=plan).collect([episode], step=0))
    return policy.stats.rounds


# -- a long tail -----------------------------------------------------------------------


def long_tail(model: Any, tokenizer: Any, *, rollouts: int, calls: int = 8) -> dict[str, float]:
    """Count the decode steps of rollouts whose replies have a mean of 200 tokens, 1,024 at most.

    Free-running rollouts take as many as the longest has tokens; in lockstep every call
    waits for the longest reply.
    """
    draws = random.Random(rollouts)
    lengths = [
        [min(1024, max(1, round(draws.expovariate(1 / 200)))) for _ in range(calls)]
        for _ in range(rollouts)
    ]
    policy = PolicyModel(engine_of(model, tokenizer), tokenizer, width=rollouts)
    counts: Counter[str] = Counter()
    forward = model.forward

    def counted(*values: Any, **options: Any) -> Any:
        counts["steps" if options["input_ids"].shape[1] == 1 else "prompts"] += 1
        return forward(*values, **options)

    async def rollout(member: int) -> None:
        view = policy.bound(str(member))
        with policy.participant():
            for number, length in enumerate(lengths[member]):
                message = Message(role="user", content=f"{member} {number}")
                await view.complete(
                    ModelRequest(
                        role=Role.MANAGER,
                        messages=(message,),
                        sampling=Sampling(max_tokens=length),
                    )
                )

    async def every() -> None:
        await asyncio.gather(*(asyncio.create_task(rollout(each)) for each in range(rollouts)))

    model.forward = counted
    try:
        seconds, _ = cpu_of(lambda: asyncio.run(every()))
    finally:
        model.forward = forward
    free = max(map(sum, lengths))
    lockstep = sum(max(each[call] for each in lengths) for call in range(calls))
    return {
        "decode steps": counts["steps"],
        "passes over prompts": counts["prompts"],
        "steps over free-running": round(counts["steps"] / free, 3),
        "passes over free-running": round(counts.total() / free, 3),
        "lockstep over free-running": round(lockstep / free, 2),
        "processor seconds": round(seconds, 1),
    }


def main(*, sizes: Sequence[str], widths: Sequence[int], parts: Sequence[str]) -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    shown = asyncio.run(demonstrations(world(SESSIONS), agent(), indexes=range(8)))
    tokenizer = word_tokenizer(
        [*tiny_vocabulary(), *words_of(lines_of(shown)), *map(str, range(32))]
    )
    results: dict[str, Any] = {}
    promises: dict[str, float | tuple[float, float]] = {}
    for sessions in (4, 8, 16) if "rounds" in parts else ():
        alone, beside = (rounds(tokenizer, sessions, local=local) for local in (0.0, 0.5))
        results[f"rounds at {sessions} sessions, without and with reruns"] = [alone, beside]
        promises[f"rounds that reruns add at {sessions} sessions"] = (beside - alone, 2)
    for size in sizes:
        set_seed(0)
        model = small_model(tokenizer, size=size, context_tokens=512)
        small = size != "30m"
        fitting = [width for width in widths if small or width <= 64]
        found: dict[str, Any] = {"parameters": sum(one.numel() for one in model.parameters())}
        results[size] = found
        if "rollouts" in parts:
            found["rollouts"] = speeds(model, tokenizer, fitting)
            if size == "500k" and max(widths) >= 256:
                widest = found["rollouts"][f"width {max(widths)}"]["times one by one"]
                promises["one by one over batched, 500k"] = (round(1 / widest, 3), 0.1)
        if "sampler" in parts:
            repeats = 5 if small else 2
            found["sampler"] = {
                f"width {width}": against_generate(
                    model, tokenizer, width=width, tokens=32, repeats=repeats
                )
                for width in fitting
            }
            slowest = min(one["engine over model.generate"] for one in found["sampler"].values())
            promises[f"model.generate over the engine at its worst width, {size}"] = (
                round(1 / slowest, 2),
                1.43,
            )
        if "tail" in parts:
            for rollouts in (20, 64):
                found[f"long tail, {rollouts} rollouts"] = tail = long_tail(
                    model, tokenizer, rollouts=rollouts
                )
                promises[f"decode steps over free-running, {rollouts} rollouts, {size}"] = (
                    tail["steps over free-running"],
                    1.15,
                )
        if "step" in parts:
            shape = {"sessions": 4, "members": 8} if small else {"sessions": 2, "members": 4}
            found["step"] = step_shares(
                model, tokenizer, **shape, episodes=1, steps=3 if small else 1
            )
            if size == "30m":
                promises["neither generation nor loss, 30m"] = (
                    found["step"]["neither generation nor loss"],
                    0.08,
                )
    report("generation", results, promises=promises)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default="500k,30m")
    parser.add_argument("--widths", default="1,8,16,32,64,256")
    parser.add_argument("--parts", default="rounds,rollouts,sampler,tail,step")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    main(
        sizes=["500k"] if options.quick else options.sizes.split(","),
        widths=[1, 8] if options.quick else [int(one) for one in options.widths.split(",")],
        parts=options.parts.split(","),
    )

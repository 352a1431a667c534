"""Learn what to write down after a task, by reruns from one memory: chains of tasks.

    python examples/experiments/chains.py --seeds 3 --into chains.json   # trains and compares
    python examples/experiments/chains.py --tasks-of tiny_shop --seeds 3 --into shop.json
    python examples/experiments/chains.py --signs 6                      # whose sign is right

`chain_world` has the chains and `chain_credit` their credits; the policy of decisions (as
many weights as that of conversations, drawn by chance) says what becomes of each trial.
The controls are random rewards from the same weights, every trial kept (ExpRAG), cases by
their value (MemRL), the newest trial kept alone, and no memory. Tests are chains of other
seeds, policies sample in them. `--into` is written after every run, and the same call
goes on from there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from time import process_time
from typing import Any, Final

from chain_credit import ChainExperience
from chain_sets import SETS
from chain_world import (
    DESIGN,
    EXP_RAG,
    FORKS,
    NO_LEARNER,
    TASKS,
    ChainWorld,
    Worth,
    agent_of,
    chain_of,
    played_chain,
)

from memagent.async_agent import AsyncAgent
from memagent.core.exchange import Sampling
from memagent.designs.base import MemoryDesign
from memagent.designs.experience.mem_rl import DESIGN as MEM_RL
from memagent.testing import FunctionModel
from train.rollouts.grading import CreditPlan
from train.sampling.policy import PolicyModel

EXACT: Final = 200
"""Forks that tell the true effect of a lesson."""
CREDITS: Final[Mapping[str, Mapping[str, float]]] = {
    "terminal": {"terminal": 1.0},
    "gain": {"gain": 1.0, "terminal": 0.3},
    "local": {"terminal": 1.0, "local": 1.0},
}
GLOBAL: Final = {"global": "terminal", "session": "session", "gain": "gain"}
"""Credits of whole chains whose signs are compared with that of reruns, by their names."""
DESIGNS: Final[Mapping[str, MemoryDesign]] = {
    "no memory": NO_LEARNER,
    "exp_rag": EXP_RAG,
    "mem_rl": MEM_RL,
    "newest": DESIGN,
}
"""What a trained policy is compared with; in the last the policy is a rule."""


def plan_of(credit: str, *, control: Any = "") -> CreditPlan:
    """Return the plan of one of `CREDITS`."""
    weights = dict(CREDITS[credit])
    local = weights.pop("local", 0.0)
    return CreditPlan(credit=weights, local_weight=local, flat_tolerance=1e-6, control=control)


# -- training and tests ----------------------------------------------------------------


def trained(
    credit: str, seed: int, *, steps: int, control: str = "", tasks_of: str = "procedures"
) -> tuple[PolicyModel, float]:
    """Return a policy trained from random weights, and its processor seconds."""
    from train.run.config import LoGoGRPOConfig
    from train.run.trainer import LoGoGRPOTrainer
    from train.sampling.decisions import first_decisions

    model, tokenizer = first_decisions(0, seed=seed)
    began = process_time()
    world = ChainWorld(tasks_of=tasks_of)
    episodes = [world.episode(f"{world.begins}train{number}") for number in range(world.count)]
    with tempfile.TemporaryDirectory() as folder:
        args = LoGoGRPOConfig(
            output_dir=folder, num_generations=8, per_device_train_batch_size=4,
            steps_per_generation=4, gradient_accumulation_steps=4, num_iterations=1,
            max_steps=max(1, steps), max_completion_length=1, beta=0.0, entropy_coef=0.0,
            learning_rate=1e-2, report_to=[], logging_steps=50, disable_tqdm=True, bf16=False,
            use_cpu=True, save_strategy="no", gradient_checkpointing=False, seed=seed,
            trace=False, batch_width=256,
        )  # fmt: skip
        trainer = LoGoGRPOTrainer(
            model,
            args=args,
            episodes=episodes,
            experience=lambda policy: ChainExperience(
                policy=policy,
                agent=agent_of(DESIGN),
                members=8,
                seed=seed,
                plan=plan_of(credit, control=control),
            ),
            processing_class=tokenizer,
        )
        if steps:
            trainer.train()
    trainer.model.eval()  # type: ignore[union-attr]
    return trainer.policy, process_time() - began


async def successes_of(
    agent: AsyncAgent, *, seed: int, chains: int, policy: PolicyModel | None = None,
    tasks_of: str = "procedures",
) -> list[list[float]]:  # fmt: skip
    """Return the success by task over a seed's own test chains (chains, tasks)."""

    async def one(number: int) -> list[float]:
        chain = chain_of(f"{tasks_of}/test{seed}x{number}")
        if policy is None:
            links = await played_chain(agent, chain, draw="test")
        else:
            with policy.participant():
                view = policy.bound(f"test/{number}")
                links = await played_chain(agent, chain, model=view, draw="test")
        return [link.success for link in links]

    return await asyncio.gather(*map(one, range(chains)))


def figures(successes: Sequence[Sequence[float]]) -> dict[str, float]:
    """Return the mean success of whole chains and of their last third."""
    late = -(-TASKS // 3)
    return {
        "success": round(fmean(map(fmean, successes)), 3),
        "last third": round(fmean(fmean(each[-late:]) for each in successes), 3),
    }


def random_policy(seed: int) -> PolicyModel:
    """Return a policy of decisions with random weights."""
    from train.sampling.decisions import first_decisions
    from train.sampling.generation import TransformersEngine

    model, tokenizer = first_decisions(0, seed=seed)
    eos = [tokenizer.eos_token_id]
    engine = TransformersEngine(model, eos_ids=eos, pad_id=tokenizer.pad_token_id)
    sampling = Sampling(temperature=1.0, max_tokens=1)
    return PolicyModel(engine, tokenizer, width=256, sampling=sampling)


async def signs(chains: int, *, seed: int = 0, tasks_of: str = "procedures") -> dict[str, Any]:
    """Return how often the sign of a credit is that of the lesson's true effect.

    The policy has random weights. The true effect of a lesson is what it leaves for the
    later tasks over many forks, less the mean over the reruns from the same memory. Its
    forks have draws of their own. A credit without a sign is wrong. Intervals are over
    chains.
    """
    from train.run.plans import bootstrap

    experience = ChainExperience(
        policy=random_policy(seed), agent=agent_of(DESIGN), reruns=8, seed=seed
    )
    worths = {
        f"local, {forks} forks": Worth(agent=experience.worth.agent, forks=forks)
        for forks in (FORKS, 4 * FORKS)
    }
    exact = Worth(agent=experience.worth.agent, forks=EXACT, draws="truth")
    hits: dict[str, list[list[bool]]] = {name: [] for name in (*worths, *GLOBAL)}
    for number in range(chains):
        chain = chain_of(f"{tasks_of}/sign{number}")
        for worth in (exact, experience.worth, *worths.values()):
            worth.known.clear()
        whole = await asyncio.gather(
            *(experience.chain(chain, f"sign/{number}/{m}", "0") for m in range(8))
        )
        for told in hits.values():
            told.append([])
        for place in range(TASKS - 1):
            given = {
                name: await experience.rewards(credit, chain, place, whole)
                for name, credit in GLOBAL.items()
            }
            for member, links in enumerate(whole):
                link = links[place]
                rerun = await experience.rerun(
                    chain, place, link.before, f"sign/{number}/{member}/{place}", "0"
                )
                every = [link, *rerun]
                true = [await exact.of(chain, place + 1, each.after) for each in every]
                effect = true[0] - fmean(true)
                if abs(effect) < 0.02:
                    continue
                for name, values in given.items():
                    credit = values[member] - fmean(values)
                    hits[name][-1].append(credit * effect > 1e-12)
                for name, worth in worths.items():
                    local = [await worth.of(chain, place + 1, each.after) for each in every]
                    hits[name][-1].append((local[0] - fmean(local)) * effect > 1e-12)
    right = {
        name: {
            "mean": round(fmean([hit for told in every for hit in told]), 3),
            "interval": [round(edge, 3) for edge in bootstrap([fmean(t) for t in every if t])],
        }
        for name, every in hits.items()
    }
    lessons = sum(map(len, hits["global"]))
    return {"chains": chains, "lessons": lessons, "right": right}


def main(argv: Sequence[str] | None = None) -> int:
    """Train, compare and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--test", type=int, default=60)
    parser.add_argument("--credits", default=",".join(CREDITS))
    parser.add_argument("--tasks-of", choices=tuple(SETS), default="procedures")
    parser.add_argument("--signs", type=int, default=0, help="chains; nothing is trained then")
    parser.add_argument("--into", type=Path)
    options = parser.parse_args(argv)
    if options.signs:
        told: Any = asyncio.run(signs(options.signs, tasks_of=options.tasks_of))
    else:
        told = compared(options)
    print(json.dumps(told, indent=1))
    if options.into is not None:
        options.into.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return 0


def compared(options: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of all arms by seed, and their differences.

    Goes on where an earlier call with the same `--into` stopped. Raises `ValueError` when
    that file has other settings.
    """
    told: dict[str, Any] = {}
    if options.into is not None and options.into.is_file():
        told = json.loads(options.into.read_text("utf-8"))
    settings = {"tasks of": options.tasks_of, "steps": options.steps, "test": options.test}
    if told.setdefault("settings", settings) != settings:
        raise ValueError(f"{options.into} has other settings: {told['settings']}")
    arms: dict[str, list[Any]] = told.setdefault("arms", {})
    policies = ["untrained", *options.credits.split(","), "random_reward"]
    for seed in range(options.seeds):
        for name in (*DESIGNS, *policies):
            lines = arms.setdefault(name, [])
            if len(lines) > seed:
                continue
            lines.append(tested(name, seed, options))
            print(name, seed, lines[-1], file=sys.stderr, flush=True)
            if options.into is not None:
                options.into.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    counted = {name: lines[: options.seeds] for name, lines in arms.items()}
    whole = {name: lines for name, lines in counted.items() if len(lines) == options.seeds}
    return told | {"summary": summary_of(whole)}


def tested(name: str, seed: int, options: argparse.Namespace) -> dict[str, float]:
    """Return the figures of one arm with one seed."""
    if name in DESIGNS:
        agent = agent_of(DESIGNS[name]).with_model(FunctionModel(lambda _: "update0"))
        return figures(
            asyncio.run(
                successes_of(agent, seed=seed, chains=options.test, tasks_of=options.tasks_of)
            )
        )
    credit, steps = (name, options.steps) if name in CREDITS else ("gain", options.steps)
    control = name if name == "random_reward" else ""
    policy, seconds = trained(
        credit,
        seed,
        steps=0 if name == "untrained" else steps,
        control=control,
        tasks_of=options.tasks_of,
    )
    successes = asyncio.run(
        successes_of(
            agent_of(DESIGN),
            seed=seed,
            chains=options.test,
            policy=policy,
            tasks_of=options.tasks_of,
        )
    )
    return figures(successes) | {"seconds": round(seconds)}


def summary_of(arms: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    """Return the means by arm and paired differences over seeds, with 95 % intervals."""
    from train.run.plans import bootstrap

    def interval(values: Sequence[float]) -> dict[str, Any]:
        edges = [round(edge, 3) for edge in bootstrap(values)]
        return {"mean": round(fmean(values), 3), "interval": edges}

    measures = ("success", "last third")
    trained_by = [name for name in CREDITS if name in arms]
    apart = [(one, other) for one in trained_by for other in arms if other not in trained_by]
    apart += [(one, other) for one in trained_by for other in trained_by if one > other]
    apart.append(("random_reward", "untrained"))
    return {
        "seeds": max(map(len, arms.values())),
        "arms": {
            name: {each: interval([line[each] for line in lines]) for each in measures}
            for name, lines in arms.items()
        },
        "last third": {
            f"{one} - {other}": interval(
                [
                    a["last third"] - b["last third"]
                    for a, b in zip(arms[one], arms[other], strict=True)
                ]
            )
            for one, other in apart
        },
    }


if __name__ == "__main__":
    sys.exit(main())

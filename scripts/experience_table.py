"""Print the claims of the designs that learn, over ten seeds: `python scripts/experience_table.py`.

MemRL: one helpful case among nine that look more alike, 200 tasks, success in the last
50, with learned values and with similarity alone. ACE: rules left of 200 after as many
deltas, and with a rewriter that loses a fifth each time. Case scorer: AUC after 200
trials where shared words point the wrong way. Control arms stand beside each.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import fmean

from memagent.build import open_agent
from memagent.core.exchange import ModelRequest
from memagent.core.records import MemoryItem
from memagent.core.trials import Credit, Trial, TrialStep
from memagent.designs.experience import ace, mem_rl
from memagent.designs.parts.lessons import CaseScorer, ValueRetriever
from memagent.state.effects import tokenize
from memagent.testing import FunctionModel

WORDS = ("steel", "old", "small", "grey", "tall", "locked")
RING = {"red": "green", "green": "blue", "blue": "amber", "amber": "red"}


async def cabinets(weight: float, *, seed: int, tasks: int) -> float:
    """Return the success in the last 50 tasks, by the weight of the learned value."""
    rng = Random(seed)
    word, moves = rng.choice(WORDS), ["iron"] * 9 + ["brass"]
    design = replace(mem_rl.DESIGN, retriever=ValueRetriever(weight=weight))
    won: list[bool] = []
    async with open_agent(path=":memory:", embedder="hashing", design=design) as agent:
        for number, key in enumerate(moves):
            look = f"open the {word} cabinet of room {rng.randint(900, 999)}"
            task = look if key == "iron" else "open the cabinet"
            await agent.memory.add(f"{task}\ntake the {key} key {number}", kind="case")
        for number in range(tasks):
            recall = await agent.recall(f"open the {word} cabinet of room {number}", k=1)
            item = recall.hits[0].item
            action = item.text.split("\n")[-1] if item is not None else ""
            won.append("brass" in action)
            steps = (TrialStep(action=action, used=(recall.hits[0].id,)),)
            await agent.report(recall, 1.0 if won[-1] else -1.0, steps=steps)
    return fmean(won[-50:])


def rule(request: ModelRequest) -> str:
    """Reflect: one new rule for each job."""
    number = request.messages[-1].content.split("task: job ")[1].split()[0]
    return json.dumps({"notes": [{"text": f"rule {number}: check the valve {number}"}]})


async def playbook(jobs: int) -> int:
    """Return how many rules are left after a job for each."""
    async with open_agent(
        path=":memory:", embedder="hashing", design=ace.DESIGN, model=FunctionModel(rule)
    ) as agent:
        for number in range(jobs):
            await agent.report(await agent.recall(f"job {number}", k=3), 1.0)
        return len(await agent.memory.get_all(limit=None))


def rewritten(jobs: int, *, seed: int) -> int:
    """Return how many rules a rewriter keeps that loses a fifth of them each time."""
    rng, kept = Random(seed), list[int]()
    for number in range(jobs):
        kept = [known for known in kept if rng.random() > 0.2] + [number]
    return len(kept)


async def scorer(*, seed: int, honest: bool = True) -> tuple[float, float]:
    """Return the AUC of the learned scorer and of shared words, on unseen objects."""
    rng = Random(seed)
    texts = {tone: f"fix the {tone} lamp\ntreat it with {tone} oil" for tone in RING}
    items = {tone: MemoryItem(id=f"mem_{tone}", text=text) for tone, text in texts.items()}
    trials: list[Trial] = []
    for number in range(200):
        tone, used = rng.choice(list(RING)), rng.choice(list(RING))
        good = RING[tone] == used if honest else rng.random() < 0.25
        share = Credit(id=f"mem_{used}", reward=1.0 if good else -1.0)
        task = f"fix the {tone} thing{seed}x{number}"
        trials.append(Trial(id=f"trl_{number}", task=task, credit=(share,)))
    learned = CaseScorer(trials, {item.id: item for item in items.values()})
    pairs = [
        (f"fix the {tone} new{seed}", used, RING[tone] == used) for tone in RING for used in RING
    ]
    scores = [(await learned.score(task, [texts[used]]))[0] for task, used, _ in pairs]
    shared = [
        float(len(set(tokenize(task)) & set(tokenize(texts[used])))) for task, used, _ in pairs
    ]
    good_pairs = [good for _, _, good in pairs]
    return auc(scores, good_pairs), auc(shared, good_pairs)


def auc(scores: Sequence[float], good: Sequence[bool]) -> float:
    """Return the chance that a good pair scores higher than a bad one; ties count half."""
    best = [score for score, right in zip(scores, good, strict=True) if right]
    rest = [score for score, right in zip(scores, good, strict=True) if not right]
    return fmean((a > b) + 0.5 * (a == b) for a in best for b in rest)


async def measure(seeds: int) -> dict[str, list[float]]:
    """Return each claim's figures, seed by seed."""
    runs = range(seeds)
    scored = [await scorer(seed=seed) for seed in runs]
    return {
        "mem_rl, last 50 of 200": [await cabinets(1.0, seed=s, tasks=200) for s in runs],
        "similarity alone, last 50 of 200": [await cabinets(0.0, seed=s, tasks=200) for s in runs],
        "ace, rules left of 200": [float(await playbook(200))],
        "rewriter, rules left of 200": [float(rewritten(200, seed=s)) for s in runs],
        "case scorer, AUC": [learned for learned, _ in scored],
        "shared words, AUC": [shared for _, shared in scored],
        "case scorer, random rewards, AUC": [(await scorer(seed=s, honest=False))[0] for s in runs],
    }


if __name__ == "__main__":
    figures = asyncio.run(measure(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
    for name, values in figures.items():
        print(f"{name:36} {fmean(values):7.2f}  least {min(values):.2f}  most {max(values):.2f}")
    if len(sys.argv) > 2:
        Path(sys.argv[2]).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")

"""Train a tiny policy to edit its workspace, by credit of segments: `scripts/trained_memory.py`.

Short talks: two notes with numbers among fillers, in any order, then both are asked for.
The player reads the last 50 words of its workspace only, as a model of short context
does, so what `mem_act` lets leave decides. A policy of 40,000 parameters chooses one
segment to drop, one token an edit. It is warmed up on demonstrations of which half are
random, then trained by `ActingExperience` in the trainer; a run with random rewards from
the same warmed-up weights is the control. Talks of the evaluation are of another seed,
and a policy plays each eight times.

    python scripts/trained_memory.py --seeds 3 --into benchmarks/measured/trained_memory.json
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any, Final

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from environments.acting.play import OraclePlayer, Player, RandomPlayer, play_task
from environments.acting.task import ActingTask
from environments.acting.topics import TOPICS, TopicPlayer, drop_fillers, shortest_talks
from memagent.async_agent import AsyncAgent
from memagent.build import open_store
from memagent.core.exchange import ModelRequest
from memagent.core.records import Scope
from memagent.core.snapshot import EMPTY
from memagent.core.trials import Edit, Trial
from memagent.core.workspace import Workspace, workspace_of
from memagent.designs.base import MemoryDesign, SlotContext
from memagent.designs.parts.lessons import all_but_last
from memagent.designs.verbatim import DESIGN as VERBATIM
from memagent.designs.working.mem_act import DESIGN, EditAction
from memagent.testing import FunctionModel
from train.rollouts.acting import ActedRun, ActingExperience
from train.rollouts.grading import CreditPlan
from train.run.config import LoGoGRPOConfig
from train.run.trainer import LoGoGRPOTrainer
from train.sampling.decisions import word_tokenizer, words_of
from train.sampling.policy import PolicyModel
from train.settings.parts import task_episodes

WINDOW: Final = 50
EDITS: Final = tuple(f'{{"folds":[{place}]}}' for place in range(5))
SPOKEN: Final = """let us note that the has number and then there is the of which there is so
much to tell today back to which was its number did saw say go on you act task steps < > / ( )
: , . short listen answer begin with"""
Figures = dict[str, float]


def talks(seed: int, count: int) -> dict[str, ActingTask]:
    """Return short talks by name."""
    return {task.name: task for task in shortest_talks(seed, count)}


def tiny(seed: int) -> tuple[Any, Any]:
    """Return a tokenizer of the talks' words and a model with random weights."""
    words = [*words_of([SPOKEN, *TOPICS]), *map(str, range(6))]
    tokenizer = word_tokenizer(words, pieces=EDITS)
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer), hidden_size=48, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=4, head_dim=12, max_position_embeddings=256,
        tie_word_embeddings=True, pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id, bos_token_id=None,
    )  # fmt: skip
    return tokenizer, Qwen3ForCausalLM(config)


def agent_of(design: MemoryDesign, model: Callable[[ModelRequest], str]) -> AsyncAgent:
    """Return an agent in memory that keeps unreadable replies as data."""
    store = open_store(path=":memory:", embedder="hashing")
    scope = Scope(user_id="t")
    return store.agent(scope, model=FunctionModel(model), design=design, keep_unreadable=True)


def editing() -> MemoryDesign:
    """Return `mem_act`, asked whenever the workspace is longer than the player reads."""
    return replace(DESIGN, compactor=EditAction(budget=WINDOW))


async def last_step_only(workspace: Workspace, _: SlotContext, /) -> Edit | None:
    """Cut all but the last step."""
    places = all_but_last(workspace)
    return Edit(at=0, folds=places) if places else None


# -- warm-up ---------------------------------------------------------------------------


def demonstrations(policy: PolicyModel, tasks: Sequence[ActingTask], seed: int) -> Any:
    """Return prompts and edits of random play; half of the edits are the right ones."""
    rng, pairs = Random(seed), list[tuple[tuple[int, ...], int]]()

    def reply(request: ModelRequest) -> str:
        places = re.findall(r"^\((\d+)\)", request.messages[-1].content, re.MULTILINE)
        drawn = json.dumps({"folds": [rng.randrange(len(places))]})
        said = drop_fillers(request) if rng.random() < 0.5 else drawn
        piece = said.replace(" ", "")
        if piece in EDITS:
            token = policy.tokenizer(piece, add_special_tokens=False)["input_ids"][0]
            pairs.append((policy.prompt_ids(request), token))
        return said

    async def play() -> None:
        agent = agent_of(editing(), reply)
        for task in tasks:
            await play_task(task, TopicPlayer(window=WINDOW), agent=agent.at(EMPTY))

    asyncio.run(play())
    return pairs


def warm_up(model: Any, pairs: Any, *, pad: int, seed: int, steps: int) -> None:
    """Fit the first token of the reply to the demonstrations."""
    rng, optimizer = Random(seed), torch.optim.AdamW(model.parameters(), lr=3e-3)
    model.train()
    for _ in range(steps):
        drawn = rng.sample(pairs, 32)
        longest = max(len(prompt) for prompt, _ in drawn)
        prompts = torch.tensor([[pad] * (longest - len(p)) + list(p) for p, _ in drawn])
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p, _ in drawn])
        logits = model(input_ids=prompts, attention_mask=mask, logits_to_keep=1).logits[:, -1]
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor([t for _, t in drawn]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


# -- training and evaluation -----------------------------------------------------------


def trainer_of(
    model: Any, tokenizer: Any, tasks: Mapping[str, ActingTask], folder: str, **options: Any
) -> tuple[LoGoGRPOTrainer, list[ActingExperience]]:
    """Return a trainer over the tasks and the list that holds its experience."""
    made: list[ActingExperience] = []
    args = LoGoGRPOConfig(
        output_dir=folder, num_generations=8, per_device_train_batch_size=8,
        steps_per_generation=4, gradient_accumulation_steps=4, num_iterations=1,
        max_steps=options["steps"], max_completion_length=1, beta=0.0, entropy_coef=0.0,
        learning_rate=2e-3, report_to=[], logging_steps=50, disable_tqdm=True, bf16=False,
        use_cpu=True, save_strategy="no", gradient_checkpointing=False, seed=options["seed"],
    )  # fmt: skip

    def source(policy: PolicyModel) -> ActingExperience:
        made.append(
            ActingExperience(
                policy=policy,
                agent=agent_of(editing(), lambda _: "{}"),
                tasks=tasks,
                player=lambda _: TopicPlayer(window=WINDOW),
                seed=options["seed"],
                plan=CreditPlan(control=options["control"]),
            )
        )
        return made[0]

    episodes = task_episodes({name: task for name, task in tasks.items() if "short0" in name})
    trainer = LoGoGRPOTrainer(
        model, args=args, episodes=episodes, experience=source, processing_class=tokenizer
    )
    return trainer, made


def figures(trials: Sequence[Trial]) -> Figures:
    """Return the figures of some talks."""
    outcomes = [trial.outcome for trial in trials if trial.outcome is not None]
    return {
        "success": fmean(outcome.good for outcome in outcomes),
        "reward": fmean(outcome.reward for outcome in outcomes),
        "steps": fmean(len(trial.steps) for trial in trials),
        "words": fmean(workspace_of(trial).words for trial in trials),
        "refused": fmean(sum(bool(edit.refused) for edit in trial.edits) for trial in trials),
    }


async def played_all(made: ActingExperience, names: Sequence[str]) -> list[ActedRun]:
    """Return eight runs of each task; the calls of all are batched."""
    groups = await asyncio.gather(*(made.played(name, key=f"held/{name}") for name in names))
    return [run for group in groups for run in group]


def trained(seed: int, *, count: int, steps: int, warm: int) -> dict[str, Figures]:
    """Return the figures of the policy untrained, warmed up, trained, and of the control."""
    every = talks(0, 64) | talks(100 + seed, count)
    held = [name for name in every if "short0" not in name]
    told: dict[str, Figures] = {}
    begun: Any = {}
    for control in ("", "random_reward"):
        tokenizer, model = tiny(seed)
        with tempfile.TemporaryDirectory() as folder:
            options = {"steps": steps, "seed": seed, "control": control}
            trainer, (made,) = trainer_of(model, tokenizer, every, folder, **options)

            def played(made: ActingExperience = made) -> Figures:
                model.eval()  # noqa: B023 - called within the loop's turn
                return figures([run.trial for run in asyncio.run(played_all(made, held))])

            if not control:
                told["mem_act, policy untrained"] = played()
                shown = [task for name, task in every.items() if "short0" in name]
                pairs = demonstrations(made.policy, shown, seed)
                warm_up(model, pairs, pad=tokenizer.pad_token_id, seed=seed, steps=warm)
                begun = deepcopy(model.state_dict())
                told["mem_act, policy warmed up"] = played()
            model.load_state_dict(begun)
            trainer.train()
            name = "random rewards" if control else "trained"
            told[f"mem_act, policy {name}"] = played()
    return told


def scripted(seed: int, *, count: int) -> dict[str, Figures]:
    """Return the figures of the arms without a trained policy."""

    async def arm(player: Player, design: MemoryDesign | None) -> Figures:
        tasks = list(talks(100 + seed, count).values())
        if design is None:
            return figures([await play_task(task, player) for task in tasks])
        agent = agent_of(design, drop_fillers)
        return figures([await play_task(task, player, agent=agent.at(EMPTY)) for task in tasks])

    short, cut = TopicPlayer(window=WINDOW), replace(VERBATIM, compactor=last_step_only)
    return {
        "oracle": asyncio.run(arm(OraclePlayer(), None)),
        "random": asyncio.run(arm(RandomPlayer(seed), None)),
        "no memory": asyncio.run(arm(short, cut)),
        "full history, last 50 words read": asyncio.run(arm(short, None)),
        "full history, all read": asyncio.run(arm(TopicPlayer(), None)),
        "mem_act, scripted": asyncio.run(arm(short, editing())),
    }


def main() -> int:
    """Measure seed by seed into a file; a run that was stopped goes on."""
    parser = argparse.ArgumentParser(description="A tiny policy that edits its workspace.")
    parser.add_argument(
        "--into", type=Path, default=Path("benchmarks/measured/trained_memory.json")
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--count", type=int, default=40, help="talks of the evaluation")
    parser.add_argument("--steps", type=int, default=24, help="updates of the trainer")
    parser.add_argument("--warm", type=int, default=300, help="updates of the warm-up")
    given = parser.parse_args()
    torch.set_num_threads(1)
    known: dict[str, Any] = json.loads(given.into.read_text("utf-8")) if given.into.exists() else {}
    for seed in range(given.seeds):
        if str(seed) not in known:
            arms = scripted(seed, count=given.count)
            arms |= trained(seed, count=given.count, steps=given.steps, warm=given.warm)
            known[str(seed)] = arms
            given.into.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        for arm, row in known[str(seed)].items():
            print(
                seed, f"{arm:34}", {key: round(value, 2) for key, value in row.items()}, flush=True
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

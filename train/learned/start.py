"""The policy of decisions that training by reward begins with: little trained, or random.

It is fitted to the labels of a few dialogues, so few that most of what the shipped
scorer knows is left for rewards to teach.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn import functional

from memagent.designs.parts.learned.pairs import Decision
from memagent.designs.parts.learned.policy import (
    LEVELS,
    MEMORIES,
    PAIR,
    PER_MEMORY,
    REPLIES,
    STATEMENT,
    described,
    nearest,
)
from memagent.designs.parts.learned.reading import shipped_reader
from train.learned.dialogues import labelled_episodes
from train.learned.pairs import StatementCase, heard_statements
from train.sampling.decisions import DecisionConfig, DecisionModel, decision_tokenizer

_FAR = 3_000_000
"""Added to the seed: dialogues that no other fit uses."""
_RATE = 3e-3
_EPOCHS = 4


def first_decisions(episodes: int, *, seed: int) -> tuple[Any, Any]:
    """Return (model, tokenizer), fitted to the labels of so many dialogues; 0 for random."""
    torch.manual_seed(seed)
    model = DecisionModel(
        DecisionConfig(statement=STATEMENT, pair=PAIR, memories=MEMORIES,
                       per_memory=len(PER_MEMORY), levels=LEVELS)
    )  # fmt: skip
    tokenizer = decision_tokenizer(LEVELS, REPLIES)
    rows = list(demonstrated(episodes, seed=seed + _FAR)) if episodes else []
    if rows:
        _fit(model, tokenizer, rows, seed=seed)
    return model.eval(), tokenizer


def demonstrated(episodes: int, *, seed: int) -> Iterator[tuple[str, str]]:
    """Yield (prompt, reply) of the right decisions in labelled dialogues."""
    reader, rng = shipped_reader(), random.Random(seed)
    for episode in labelled_episodes(episodes, seed=seed):
        for heard in heard_statements(reader, episode, rng):
            places = nearest(heard.side, heard.shown)
            if heard.about is None or heard.about in places:
                prompt = described(heard.side, [heard.shown[place] for place in places])
                yield prompt, _reply(heard, places)


def _reply(heard: StatementCase, places: list[int]) -> str:
    if heard.about is None:
        return "skip" if heard.label.act in ("joke", "hearsay") else "add"
    op: Decision = "update"
    if heard.label.repeats:
        op = "same"
    elif heard.label.act in ("end", "retract"):
        op = "delete"
    return f"{op}{places.index(heard.about)}"


def _fit(model: Any, tokenizer: Any, rows: list[tuple[str, str]], *, seed: int) -> None:
    optimiser = torch.optim.AdamW(model.parameters(), lr=_RATE)
    rng = random.Random(seed)
    for _ in range(_EPOCHS):
        rng.shuffle(rows)
        for start in range(0, len(rows), 32):
            batch = rows[start : start + 32]
            prompts = tokenizer([prompt for prompt, _ in batch], padding=True, return_tensors="pt")
            replies = tokenizer.convert_tokens_to_ids([reply for _, reply in batch])
            output = model(
                prompts["input_ids"], attention_mask=prompts["attention_mask"], logits_to_keep=1
            )
            loss = functional.cross_entropy(output.logits[:, -1], torch.tensor(replies))
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()

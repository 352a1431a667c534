"""The policy of decisions that training by reward begins with: little trained, or random.

It is fitted to the labels of a few hand-written dialogues, so few that most is left for
rewards to teach. Batches of even number stay unseen.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, time
from typing import Any

import torch
from torch.nn import functional

from environments.dialogues.records import Dialogue
from environments.dialogues.state import held_out
from memagent.designs.parts.decisions import (
    LEVELS,
    MEMORIES,
    PAIR,
    PER_MEMORY,
    REPLIES,
    STATEMENT,
    described,
    nearest,
)
from memagent.designs.parts.reading import read_once
from memagent.language.reader import Statement, open_reader
from train.sampling.decisions import DecisionConfig, DecisionModel, decision_tokenizer

_RATE = 3e-3
_EPOCHS = 4
_WORDS = {"replaces": "update", "corrects": "update", "ends": "delete", "same": "same"}


def first_decisions(episodes: int, *, seed: int) -> tuple[Any, Any]:
    """Return (model, tokenizer), fitted to the labels of so many dialogues; 0 for random."""
    torch.manual_seed(seed)
    model = DecisionModel(
        DecisionConfig(statement=STATEMENT, pair=PAIR, memories=MEMORIES,
                       per_memory=len(PER_MEMORY), levels=LEVELS)
    )  # fmt: skip
    tokenizer = decision_tokenizer(LEVELS, REPLIES)
    rows = list(demonstrated(episodes, seed=seed)) if episodes else []
    if rows:
        _fit(model, tokenizer, rows, seed=seed)
    return model.eval(), tokenizer


def demonstrated(episodes: int, *, seed: int) -> Iterator[tuple[str, str]]:
    """Yield (prompt, reply) of the right decisions in dialogues drawn by the seed."""
    known = held_out(odd=True)
    for dialogue in random.Random(seed).sample(known, min(episodes, len(known))):
        yield from _decisions(dialogue)


def _decisions(dialogue: Dialogue) -> Iterator[tuple[str, str]]:
    said = read_once(
        open_reader(),
        (
            Statement(turn.text, turn.speaker, datetime.combine(turn.day, time(12), UTC))
            for turn in dialogue.turns
        ),
    )
    standing: dict[str, Statement] = {}
    for turn, own in zip(dialogue.turns, said, strict=True):
        if turn.statement is None:
            continue
        names, memories = list(standing), list(standing.values())
        places = nearest(own, memories) if memories else []
        reply = "add"
        for relation in turn.relations:
            if (word := _WORDS.get(relation.kind)) and relation.to in names:
                at = names.index(relation.to)
                if at in places:
                    reply = f"{word}{places.index(at)}"
                    if word != "same":
                        del standing[relation.to]
                    break
        yield described(own, [memories[place] for place in places]), reply
        standing[turn.id] = own


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

"""A causal language model of a few thousand weights that makes one decision a prompt.

Its words are rounded numbers ("f12") and replies ("add", "update3"). A prompt is the
numbers of a statement followed by those of each memory; the one token after it is the
reply. So a decision is a row of one token, and sampling, credit, trainer, checkpoints and
apps treat this model as any other. Its surprise: the logits are the same at every
position, since only the last one counts.

Shapes: B rows, L positions, N memories, V words.

The policy of decisions that training by reward begins with: little trained, or random.

It is fitted to the labels of a few hand-written dialogues, so few that most is left for
rewards to teach. Batches of even number stay unseen.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, time
from typing import Any, ClassVar

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationMixin,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.cache_utils import DynamicCache
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

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

PAD, END, UNKNOWN = "<pad>", "<end>", "<unk>"
_SPECIAL = (PAD, END, UNKNOWN)
_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
_NEVER = -1e4
"""Logit of a word that is no reply here; its probability is 0 in float32."""


class DecisionConfig(PretrainedConfig):
    """The numbers of a decision model."""

    model_type = "memagent_decisions"

    def __init__(
        self,
        *,
        statement: int = 1,
        pair: int = 1,
        memories: int = 1,
        per_memory: int = 3,
        levels: int = 64,
        hidden: int = 48,
        **options: Any,
    ) -> None:
        """Describe prompts of `statement` numbers and up to `memories` times `pair` numbers.

        Replies are two about the statement alone and `per_memory` about each memory.
        """
        self.statement, self.pair = statement, pair
        self.memories, self.per_memory = memories, per_memory
        self.levels, self.hidden = levels, hidden
        self.replies = 2 + per_memory * memories
        self.max_position_embeddings = statement + pair * memories + 1
        options.setdefault("vocab_size", len(_SPECIAL) + levels + self.replies)
        options.setdefault("pad_token_id", 0)
        options.setdefault("eos_token_id", 1)
        super().__init__(**options)


class DecisionBackbone(nn.Module):
    """Scores the replies to a prompt of numbers: two small networks."""

    def __init__(self, config: DecisionConfig) -> None:
        super().__init__()
        self.config = config
        both = config.statement + config.pair
        self.alone = nn.Sequential(
            nn.Linear(config.statement, config.hidden), nn.ReLU(), nn.Linear(config.hidden, 2)
        )
        self.beside = nn.Sequential(
            nn.Linear(both, config.hidden), nn.ReLU(), nn.Linear(config.hidden, config.per_memory)
        )

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any
    ) -> BaseModelOutputWithPast:
        """Return (B, L, replies + 1): the scores at each position, and a constant 1."""
        scores = self.scores(*self._numbers(input_ids, attention_mask))
        scores = torch.cat([scores, scores.new_ones(len(scores), 1)], dim=1)
        length = input_ids.shape[1]
        return BaseModelOutputWithPast(last_hidden_state=scores[:, None, :].expand(-1, length, -1))

    def scores(self, statement: Tensor, memories: Tensor, known: Tensor) -> Tensor:
        """Return the scores (B, replies) for numbers (B, S), (B, N, P) and a mask (B, N)."""
        alone = statement[:, None, :].expand(-1, memories.shape[1], -1)
        beside = self.beside(torch.cat([alone, memories], dim=2))
        beside = beside.masked_fill(~known[:, :, None], _NEVER)
        return torch.cat([self.alone(statement), beside.flatten(1)], dim=1)

    def _numbers(self, ids: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the numbers in the prompts: (B, S), (B, N, P), and which memories there are."""
        config, first = self.config, len(_SPECIAL)
        numbers = (ids >= first) & (ids < first + config.levels)
        if mask is not None:
            numbers &= mask.bool()
        width = config.statement + config.pair * config.memories
        counts = numbers.sum(dim=1).clamp(max=width)  # (B,)
        starts = numbers.int().argmax(dim=1)
        offsets = torch.arange(width, device=ids.device)
        places = (starts[:, None] + offsets).clamp(max=ids.shape[1] - 1)
        values = (ids.gather(1, places) - first).to(next(self.alone.parameters()).dtype)
        values = values / (config.levels - 1) * 2.0 - 1.0
        values = values * (offsets < counts[:, None])
        memories = values[:, config.statement :].unflatten(1, (config.memories, config.pair))
        heard = (counts - config.statement).clamp(min=0) // config.pair
        known = torch.arange(config.memories, device=ids.device) < heard[:, None]
        return values[:, : config.statement], memories, known


class FixedHead(nn.Module):
    """Puts scores at the last places of the vocabulary; nothing in it is trained."""

    weight: Tensor
    bias = None
    """None, as of a linear layer without one."""

    def __init__(self, replies: int, words: int) -> None:
        super().__init__()
        weight = torch.zeros(words, replies + 1)
        weight[: words - replies, -1] = _NEVER
        weight[words - replies :, :-1] = torch.eye(replies)
        self.register_buffer("weight", weight)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the logits (..., V) of (..., replies + 1)."""
        return nn.functional.linear(hidden, self.weight)


class DecisionModel(PreTrainedModel, GenerationMixin):
    """The backbone with a fixed head that puts its scores at the places of the replies."""

    config_class = DecisionConfig
    base_model_prefix = "model"
    _no_split_modules: ClassVar[list[str]] = []

    def __init__(self, config: DecisionConfig) -> None:
        super().__init__(config)
        self.model = DecisionBackbone(config)
        self.lm_head = FixedHead(config.replies, config.vocab_size)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Leave the weights as torch draws them."""

    def get_output_embeddings(self) -> nn.Module:
        """Return the fixed head."""
        return self.lm_head

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        logits_to_keep: int = 0,
        past_key_values: Any = None,
        use_cache: bool | None = None,
        **_: Any,
    ) -> CausalLMOutputWithPast:
        """Return the logits (B, L, V) of the replies, the same at each position."""
        hidden = self.model(input_ids, attention_mask).last_hidden_state
        logits = self.lm_head(hidden[:, -logits_to_keep:] if logits_to_keep else hidden)
        cache = past_key_values or (DynamicCache() if use_cache else None)
        return CausalLMOutputWithPast(logits=logits, past_key_values=cache)


def decision_tokenizer(levels: int, replies: tuple[str, ...]) -> Any:
    """Make the tokenizer of a decision model: a token for each number and each reply."""
    words = (*_SPECIAL, *(f"f{level}" for level in range(levels)), *replies)
    vocabulary = {word: place for place, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocab=vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PAD, eos_token=END, unk_token=UNKNOWN,
        padding_side="left", clean_up_tokenization_spaces=False,
    )  # fmt: skip
    fast.chat_template = _TEMPLATE
    return fast


def register_decisions() -> None:
    """Let transformers' auto classes open decision models; harmless when done before."""
    AutoConfig.register(DecisionConfig.model_type, DecisionConfig, exist_ok=True)
    AutoModelForCausalLM.register(DecisionConfig, DecisionModel, exist_ok=True)


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

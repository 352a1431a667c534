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

import json
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any, ClassVar

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    GenerationMixin,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from transformers.cache_utils import DynamicCache
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from environments.dialogues.records import Dialogue
from environments.dialogues.state import held_out
from memagent.core.errors import ConfigError
from memagent.designs.learned_policy import (
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
from train.sampling.kv_cache import CACHE

# Models and tokenizers from scratch.
#
# They serve machines without a model hub, and experiments that fit a CPU.
#
# `word_tokenizer` has one token a word and one for each fixed piece of the reply forms
# (`,"op":"ADD"`), so replies are short and copying a name is copying a token; text that
# it can spell comes back as it was. `byte_tokenizer` is a byte-level BPE of any text, for
# larger vocabularies. Both speak through `CHAT_TEMPLATE`, which keeps only the first word
# of the instructions: it names the task, and a model made here learns the rest from
# demonstrations.

PAD, END, START, TURN = "<pad>", "<end>", "<start>", "<reply>"
UNKNOWN = "<unk>"
SPECIAL = (PAD, END, START, TURN, UNKNOWN)
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'system' %}{{ '<start>' + message['content'].split(' ')[0] + '\\n' }}"
    "{% elif message['role'] == 'user' %}{{ message['content'] }}"
    "{{ '<reply>' if not loop.last else '' }}"
    "{% else %}{% generation %}{{ message['content'] + '<end>' }}{% endgeneration %}{% endif %}"
    "{% endfor %}{% if add_generation_prompt or messages[-1]['role'] == 'assistant' %}{% endif %}"
    "{{ '<reply>' if add_generation_prompt else '' }}"
)
REPLY_PIECES = (
    '{"facts":[',
    '{"source":"',
    '","text":"',
    '"}',
    '"},{"source":"',
    "]}",
    '{"ops":[',
    '{"fact":',
    '},{"fact":',
    '"},{"fact":',
    ',"op":"ADD"',
    ',"op":"NOOP"',
    ',"op":"NOOP","id":"',
    ',"op":"UPDATE","id":"',
    ',"op":"DELETE","id":"',
    "}",
    '{"citations":[',
    '","',
    '"],"answer":"',
    '","abstain":false}',
    '","abstain":true}',
    '],"answer":"',
    '"',
    ",",
)
"""Fixed pieces of the replies of `memory_r2_brief`, in compact JSON."""
_WORD = re.compile(r"\w+|[^\w\s]")
SIZES = {
    "200k": (64, 2, 4, 3),
    "500k": (128, 3, 4, 2),
    "1m": (160, 3, 4, 3),
    "4m": (256, 5, 8, 3),
    "30m": (512, 8, 8, 3),
    "60m": (640, 11, 10, 3),
}
"""Width, layers, heads and feed-forward width over width, by approximate number of
parameters. Wide before deep: a name is copied by two layers that are wide enough, and a
deeper small model comes to it later.
"""


def words_of(texts: Iterable[str], *, lower: bool = True) -> list[str]:
    """Return every word, number and mark of the texts, each once, in order of appearance."""
    words = (word for text in texts for word in _WORD.findall(text.lower() if lower else text))
    return list(dict.fromkeys(words))


def word_tokenizer(
    words: Iterable[str], *, pieces: Sequence[str] = REPLY_PIECES, lower: bool = True
) -> Any:
    """Make a tokenizer with a token for each word, mark, number and piece given.

    Anything else is unknown. With `lower` it neither sees nor says capitals, which
    halves what a small model has to learn.
    """
    if lower:
        words, pieces = (word.lower() for word in words), [piece.lower() for piece in pieces]
    vocabulary = {
        token: place for place, token in enumerate(dict.fromkeys((*SPECIAL, "\n", *pieces, *words)))
    }
    tokenizer = Tokenizer(models.WordLevel(vocab=vocabulary, unk_token=UNKNOWN))
    if lower:
        tokenizer.normalizer = normalizers.Lowercase()
    longest = sorted(pieces, key=len, reverse=True)
    pattern = "|".join(map(re.escape, longest)) + r"|\n|\w+|[^\w\s]"
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.Split(Regex(r" +"), "removed"),
        ]
    )
    # Words are joined by spaces; a closing mark leans on what stands before it, and
    # JSON strings have no space at their ends.
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace(Regex(r"\A"), " "),
            decoders.Fuse(),
            decoders.Replace(Regex(r"(?<=[\"\[{:(\n]) | (?=[\"\]},:;.?!)\n])|\A "), ""),
        ]
    )
    return _wrapped(tokenizer)


def byte_tokenizer(texts: Iterable[str], *, size: int = 4_000) -> Any:
    """Train a byte-level BPE of at most `size` tokens on the texts; it can spell anything."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return _wrapped(tokenizer)


def _wrapped(
    tokenizer: Tokenizer, *, special: Sequence[str] = SPECIAL, template: str = CHAT_TEMPLATE
) -> Any:
    tokenizer.add_special_tokens(list(special))
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = template
    return fast


def small_model(
    tokenizer: Any, *, size: str = "500k", context_tokens: int = 1_024, seed: int = 0
) -> Any:
    """Make a Qwen3-style causal model with random weights for the tokenizer.

    Raises `ConfigError` for an unknown size.
    """
    if size not in SIZES:
        raise ConfigError(f"model size must be one of {', '.join(SIZES)}, not {size!r}")
    width, layers, heads, wider = SIZES[size]
    torch.manual_seed(seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=width * wider,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=width // heads,
        max_position_embeddings=context_tokens,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        attention_dropout=0.0,
    )
    return Qwen3ForCausalLM(config)


def save_model(
    model: Any, tokenizer: Any, folder: Path, *, note: dict[str, Any] | None = None
) -> None:
    """Save weights, tokenizer and a note about their origin in one folder.

    `load_policy` reads it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "memagent.json").write_text(json.dumps(note or {}, indent=1), encoding="utf-8")


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
        use_cache: bool | None = None,
        **rest: Any,
    ) -> CausalLMOutputWithPast:
        """Return the logits (B, L, V) of the replies, the same at each position."""
        hidden = self.model(input_ids, attention_mask).last_hidden_state
        logits = self.lm_head(hidden[:, -logits_to_keep:] if logits_to_keep else hidden)
        cache = rest.get(CACHE) or (DynamicCache() if use_cache else None)
        return CausalLMOutputWithPast(logits=logits, **dict[str, Any]({CACHE: cache}))


def decision_tokenizer(levels: int, replies: tuple[str, ...]) -> Any:
    """Make the tokenizer of a decision model: a token for each number and each reply."""
    numbers = (f"f{level}" for level in range(levels))
    places = {word: place for place, word in enumerate((*_SPECIAL, *numbers, *replies))}
    tokenizer = Tokenizer(models.WordLevel(vocab=places, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return _wrapped(tokenizer, special=_SPECIAL, template=_TEMPLATE)


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
    optimiser, rng = torch.optim.AdamW(model.parameters(), lr=_RATE), random.Random(seed)
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

"""Models and tokenizers from scratch.

They serve machines without a model hub, and experiments that fit a CPU.

`word_tokenizer` has one token a word and one for each fixed piece of the reply forms
(`,"op":"ADD"`), so replies are short and copying a name is copying a token; text that
it can spell comes back as it was. `byte_tokenizer` is a byte-level BPE of any text, for
larger vocabularies. Both speak through `CHAT_TEMPLATE`, which keeps only the first word
of the instructions: it names the task, and a model made here learns the rest from
demonstrations.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from memagent.core.errors import ConfigError

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


def _wrapped(tokenizer: Tokenizer) -> Any:
    tokenizer.add_special_tokens(list(SPECIAL))
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    fast.chat_template = CHAT_TEMPLATE
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

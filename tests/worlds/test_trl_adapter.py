"""TRL's `GRPOTrainer` plays a world through `environment_factory`, with a scripted model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from worlds_played import adding

pytest.importorskip("gymnasium", reason='needs the extra: pip install "memagent[gym]"')
pytest.importorskip("trl", reason='needs the extra: pip install "memagent[train]"')

from environments.trl_adapter import OVER, MemoryToolEnvironment, environment_factory

WORLD: dict[str, Any] = {"knobs": {"sessions": 1}, "embedder": "hashing"}
SPECIAL = (
    "<|endoftext|> <|im_start|> <|im_end|> <think> </think> "
    "<tool_call> </tool_call> <tool_response> </tool_response>"
).split()


def test_an_episode_is_played_by_its_tool_and_earns_its_reward() -> None:
    environment = environment_factory("synthetic", **WORLD)()
    shown = environment.reset(episode=0, prompt="ignored")
    assert "<facts>" in shown and environment.get_reward() == 0.0
    calls = 0
    while shown != OVER:
        shown, calls = environment.reply(adding(shown)), calls + 1
    assert calls == 1 and environment.get_reward() > 0.5
    assert environment.reply("more") == OVER
    assert environment.reset(episode=0) != environment.reset(episode=1)
    assert environment.get_reward() == 0.0


def tokenizer() -> Any:
    """Return a tokenizer of single bytes with the tokens and the template of Qwen 3."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast
    from trl.chat_template_utils import qwen3_chat_template

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: number for number, letter in enumerate(letters)}
    raw = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = decoders.ByteLevel()
    made = PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    made.add_tokens(SPECIAL, special_tokens=False)
    made.chat_template = qwen3_chat_template
    return made


def scripted_model(words: Any) -> Any:
    """Return a tiny Qwen 3 that adds every fact it is shown, and says `Done.` after the last."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    class Scripted(Qwen3ForCausalLM):
        def generate(self, input_ids: Any = None, **_: Any) -> Any:
            rows = [self.reply(words.decode(row)) for row in input_ids]
            ids = [words(text, add_special_tokens=False)["input_ids"] for text in rows]
            width = max(map(len, ids))
            padded = [row + [words.pad_token_id] * (width - len(row)) for row in ids]
            return torch.cat([input_ids, torch.tensor(padded)], dim=1)

        def reply(self, prompt: str) -> str:
            if OVER in prompt.rpartition("<tool_response>")[2]:
                return "Done.<|im_end|>"
            call = {"name": "reply", "arguments": {"text": adding(prompt)}}
            return f"<tool_call>\n{json.dumps(call)}\n</tool_call><|im_end|>"

    size: dict[str, Any] = {"hidden_size": 8, "intermediate_size": 8, "head_dim": 4}
    heads: dict[str, Any] = {
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
    }
    return Scripted(Qwen3Config(vocab_size=len(words), **size, **heads))


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
def test_trls_trainer_takes_a_step_on_what_the_memory_earned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datasets import Dataset
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY", True)
    words = tokenizer()
    rows = [
        {"prompt": [{"role": "user", "content": "Keep a memory."}], "episode": n} for n in (0, 1)
    ]
    config = GRPOConfig(
        output_dir=str(tmp_path),
        per_device_train_batch_size=2,
        num_generations=2,
        max_completion_length=20_000,
        max_steps=1,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_steps=1,
        disable_tqdm=True,
    )
    trainer = GRPOTrainer(
        model=scripted_model(words),
        args=config,
        train_dataset=Dataset.from_list(rows),
        processing_class=words,
        environment_factory=environment_factory("synthetic", **WORLD),
    )
    trainer.train()
    [logged] = [row for row in trainer.state.log_history if "reward" in row]
    assert logged[f"rewards/{MemoryToolEnvironment.__name__}/mean"] == logged["reward"] > 0.5
    assert logged["tools/failure_frequency"] == 0

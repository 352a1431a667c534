"""Held to a schema, every reply parses and validates, whatever the model says and
wherever the limit lies.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from training_kit import WORDS, tiny_model, tiny_tokenizer

from memagent.core.errors import ConfigError
from memagent.core.exchange import ModelRequest
from train.sampling.batcher import Job
from train.sampling.checkpoints import load_policy
from train.sampling.decisions import REPLY_PIECES, byte_tokenizer, save_model, word_tokenizer
from train.sampling.generation import TransformersEngine

pytest.importorskip("outlines_core")
jsonschema = pytest.importorskip("jsonschema")

from train.sampling.constrained import schema_masks  # noqa: E402

FACTS = {
    "type": "object",
    "additionalProperties": False,
    "required": ["facts"],
    "properties": {
        "facts": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["text", "source"],
                "properties": {"text": {"type": "string"}, "source": {"type": "string"}},
            },
        }
    },
}
OPS = {
    "type": "object",
    "required": ["ops"],
    "properties": {
        "ops": {
            "type": "array",
            "items": {
                "anyOf": [
                    {
                        "type": "object",
                        "required": ["op", "fact"],
                        "properties": {"op": {"const": "ADD"}, "fact": {"type": "integer"}},
                    },
                    {
                        "type": "object",
                        "required": ["op", "id", "text", "fact"],
                        "properties": {
                            "op": {"const": "UPDATE"},
                            "id": {"type": "string"},
                            "text": {"type": "string"},
                            "fact": {"type": "integer"},
                        },
                    },
                ]
            },
        }
    },
}
ANSWER = {
    "type": "object",
    "required": ["citations", "answer", "abstain"],
    "properties": {
        "citations": {"type": "array", "items": {"type": "string"}},
        "answer": {"type": "string"},
        "abstain": {"type": "boolean"},
    },
}


def _lower(schema: Any) -> Any:
    return json.loads(json.dumps(schema).replace("ADD", "add").replace("UPDATE", "update"))


def _tokenizers() -> dict[str, Any]:
    lines = [
        *REPLY_PIECES,
        "ana lives in rome",
        "où est-ce ? — là",
        '{"ops": [{"op": "ADD", "fact": 1}]}',
    ] * 3
    return {
        "words": tiny_tokenizer(),
        "words with capitals": word_tokenizer(WORDS.split(), lower=False),
        "bytes": byte_tokenizer(lines, size=400),
    }


TOKENIZERS = _tokenizers()


def _replies(
    tokenizer: Any, schema: Any, *, max_tokens: int, rows: int = 24, temperature: float = 1.0
) -> list[str]:
    model = tiny_model(tokenizer, seed=1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4.0)  # sharper, so that rows differ in more than noise
    engine = TransformersEngine(
        model,
        eos_ids=[tokenizer.eos_token_id],
        pad_id=tokenizer.pad_token_id,
        masks=schema_masks(tokenizer),
    )
    jobs = [
        Job(
            key=str(row),
            prompt_ids=(5 + row % 7, 6),
            max_tokens=max_tokens,
            seed=row,
            temperature=temperature,
            grammar=json.dumps(schema),
        )
        for row in range(rows)
    ]
    return [
        tokenizer.decode(one.completion_ids, skip_special_tokens=True)
        for one in engine.generate(jobs)
    ]


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("schema", [FACTS, OPS, ANSWER], ids=["facts", "ops", "answer"])
def test_every_reply_of_a_random_model_parses_and_validates(name: str, schema: Any) -> None:
    wanted = _lower(schema) if name == "words" else schema
    for max_tokens in (60, 120):
        for text in _replies(TOKENIZERS[name], schema, max_tokens=max_tokens):
            jsonschema.validate(json.loads(text), wanted)


def test_without_the_mask_a_random_model_hardly_ever_does() -> None:
    tokenizer = TOKENIZERS["words"]
    engine = TransformersEngine(
        tiny_model(tokenizer, seed=1),
        eos_ids=[tokenizer.eos_token_id],
        pad_id=tokenizer.pad_token_id,
    )
    jobs = [Job(key=str(row), prompt_ids=(5, 6), max_tokens=60, seed=row) for row in range(24)]
    read = 0
    for one in engine.generate(jobs):
        try:
            read += isinstance(
                json.loads(tokenizer.decode(one.completion_ids, skip_special_tokens=True)), dict
            )
        except ValueError:
            continue
    assert read == 0


def test_a_folder_that_was_trained_held_to_schemas_is_held_to_them_in_an_app(
    tmp_path: Path,
) -> None:
    tokenizer = TOKENIZERS["bytes"]
    request = ModelRequest.model_validate(
        {
            "role": "extractor",
            "step": {},
            "messages": [{"role": "user", "content": "ana"}],
            "schema": FACTS,
        }
    )

    def said(folder: Path, **options: Any) -> str:
        return asyncio.run(load_policy(str(folder), **options).bound("app").complete(request)).text

    for held in (True, False):
        note = {"max_tokens": 60, "constrained": held}
        save_model(tiny_model(tokenizer, seed=1), tokenizer, tmp_path / str(held), note=note)
    jsonschema.validate(json.loads(said(tmp_path / "True")), FACTS)
    assert said(tmp_path / "False") == said(tmp_path / "True", constrained=False)
    assert said(tmp_path / "False", constrained=True) == said(tmp_path / "True")
    with pytest.raises(ValueError):
        json.loads(said(tmp_path / "False"))


def test_replies_differ_and_greedy_ones_are_held_too() -> None:
    tokenizer = TOKENIZERS["bytes"]
    assert len(set(_replies(tokenizer, FACTS, max_tokens=80))) > 12
    for text in _replies(tokenizer, OPS, max_tokens=80, rows=4, temperature=0.0):
        jsonschema.validate(json.loads(text), OPS)


def test_log_probabilities_are_those_of_the_distribution_that_the_grammar_leaves() -> None:
    tokenizer = TOKENIZERS["words"]
    model = tiny_model(tokenizer, seed=2)
    engine = TransformersEngine(
        model,
        eos_ids=[tokenizer.eos_token_id],
        pad_id=tokenizer.pad_token_id,
        masks=schema_masks(tokenizer),
    )
    job = Job(key="a", prompt_ids=(5, 6, 7), max_tokens=40, seed=3, grammar=json.dumps(FACTS))
    said = engine.generate([job])[0]
    ids = torch.tensor([[*job.prompt_ids, *said.completion_ids]])
    logits = model(input_ids=ids).logits[0, len(job.prompt_ids) - 1 : -1].detach().float()
    mask = schema_masks(tokenizer)(json.dumps(FACTS), job.max_tokens)
    again, free = [], []
    for place, token in enumerate(said.completion_ids):
        allowed = logits[place].masked_fill(~mask.allowed(logits.shape[1]), -torch.inf)
        again.append(float(torch.log_softmax(allowed, -1)[token]))
        free.append(float(torch.log_softmax(logits[place], -1)[token]))
        mask.accept(token)
    assert said.logprobs == pytest.approx(again, abs=1e-4)
    assert sum(said.logprobs) > sum(free) + 1.0  # the grammar leaves few tokens


def test_a_schema_that_the_tokenizer_cannot_spell_is_refused() -> None:
    schema = {"type": "object", "required": ["zebra"], "properties": {"zebra": {"type": "integer"}}}
    with pytest.raises(ConfigError, match="cannot spell"):
        schema_masks(TOKENIZERS["words"])(json.dumps(schema), 40)


def test_a_tokenizer_of_another_kind_is_refused() -> None:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.Unigram([("<unk>", 0.0), ("a", -1.0)], unk_id=0))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="<unk>", eos_token="<unk>"
    )
    with pytest.raises(ConfigError, match="byte-level and word-level"):
        schema_masks(tokenizer)

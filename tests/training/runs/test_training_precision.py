"""Weights that learn are in fp32, and a run that its data cannot feed stops before it begins."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from places import ROOT
from training_kit import (
    GivenSteps,
    random_step,
    saved_model,
    settings,
    small_episode,
    tiny_tokenizer,
    trainer_of,
)

from memagent.core.errors import ConfigError
from memagent.core.exchange import Message, ModelRequest, Role
from train.run.config import check_share
from train.run.runs import _config_of
from train.run.task import TrainingTask
from train.sampling.checkpoints import load_for_training
from train.settings.run import LoRASettings, checked_run
from train.settings.world import lines_of, preview
from train.sync import run_sync


def _in_bf16(folder: Path) -> Path:
    """A saved model whose files are in bf16, as those of most hub models."""
    model = saved_model(folder / "first", tiny_tokenizer())
    model.to(torch.bfloat16).save_pretrained(folder / "bf16")
    tiny_tokenizer().save_pretrained(folder / "bf16")
    return folder / "bf16"


def _moved(folder: Path, model: Any, tokenizer: Any) -> float:
    """Share of the weights that an AdamW step of 2e-6 changes."""
    before = torch.cat([each.detach().flatten().clone() for each in model.parameters()])
    step = random_step(tokenizer, rows=12, seed=1)
    args = settings(folder / "run", learning_rate=2e-6, lr_scheduler_type="constant")
    trainer_of(model, tokenizer, args, GivenSteps([step])).train()
    after = torch.cat([each.detach().flatten() for each in model.parameters()])
    return float((after != before).float().mean())


def test_all_weights_are_trained_in_fp32_whatever_the_files_hold(tmp_path: Path) -> None:
    """In bf16 a step of 2e-6 is lost in most of them."""
    from transformers import AutoModelForCausalLM

    source = _in_bf16(tmp_path)
    kept = AutoModelForCausalLM.from_pretrained(source, dtype="auto")
    kept.config._name_or_path = str(source)
    assert kept.dtype == torch.bfloat16
    model, tokenizer, _ = load_for_training(source, source)
    assert {each.dtype for each in model.parameters()} == {torch.float32}
    lost = _moved(tmp_path / "bf16", kept, tokenizer)
    moved = _moved(tmp_path / "fp32", model, tokenizer)
    assert lost < 0.2 < 0.8 < moved


def test_adapters_learn_in_fp32_over_a_base_as_its_files_are(tmp_path: Path) -> None:
    source = _in_bf16(tmp_path)
    lora = LoRASettings(r=2, alpha=4, targets=("q_proj",), per_role=True)
    model, _, _ = load_for_training(source, source, lora=lora)
    dtypes = {each.requires_grad: each.dtype for each in model.parameters()}
    assert dtypes == {True: torch.float32, False: torch.bfloat16}


def test_a_step_that_plays_more_episodes_than_there_are_is_refused_at_the_start(
    tmp_path: Path,
) -> None:
    tokenizer = tiny_tokenizer()
    model = saved_model(tmp_path / "model", tokenizer)
    args = settings(tmp_path / "run", per_device_train_batch_size=2)
    with pytest.raises(ConfigError, match=r"plays 4 episodes .*and there are 3"):
        trainer_of(
            model,
            tokenizer,
            args,
            GivenSteps([]),
            episodes=[small_episode(place) for place in range(3)],
        )


def test_the_shipped_settings_have_episodes_for_the_processes_they_name(tmp_path: Path) -> None:
    """LoCoMo's split has two conversations to train on, whatever `episodes` says."""
    text = (ROOT / "examples/training/qwen7b_locomo.toml").read_text(encoding="utf-8")
    launch = next(line for line in text.splitlines() if "accelerate launch" in line)
    file = next(word for word in launch.split() if word.endswith(".yaml"))
    processes = yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))["num_processes"]
    trainer = tomllib.loads(text)["trainer"] | {
        "output_dir": str(tmp_path),
        "bf16": False,
        "use_cpu": True,
    }
    args = _config_of(trainer)
    check_share(args, 2, processes=processes)
    with pytest.raises(ConfigError, match="plays 4 episodes"):
        check_share(args, 2, processes=4)


QUESTIONS = {"conv-43": (178, 64), "conv-47": (150, 40), "conv-44": (123, 35), "conv-26": (152, 47)}
"""Questions of conversations of LoCoMo: of categories 1 to 4, and adversarial ones."""


def _locomo(folder: Path) -> Path:
    """A file in LoCoMo's format with its numbers of questions; its text is not LoCoMo's."""
    conversations = [
        {
            "sample_id": name,
            "conversation": {
                "session_1_date_time": "1:56 pm on 8 May, 2023",
                "session_1": [
                    {"speaker": "Ana", "dia_id": "D1:1", "text": "I adopted a kitten."},
                    {"speaker": "Bo", "dia_id": "D1:2", "text": "Congratulations!"},
                ],
            },
            "qa": [
                {"question": f"What {place}?", "evidence": ["D1:1"]}
                | (
                    {"category": place % 4 + 1, "answer": "a kitten"}
                    if place < asked
                    else {"category": 5, "adversarial_answer": "a dog"}
                )
                for place in range(asked + adversarial)
            ],
        }
        for name, (asked, adversarial) in QUESTIONS.items()
    ]
    file = folder / "locomo10.json"
    file.write_text(json.dumps(conversations), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("changes", "questions"),
    [({}, 328), ({"split_by": "memory_r1", "episodes": 1}, 152), ({"asks": []}, 432)],
)
def test_the_papers_run_asks_the_papers_questions_of_a_frozen_reader(
    changes: dict[str, Any], questions: int, tmp_path: Path
) -> None:
    text = (ROOT / "examples/training/qwen7b_locomo.toml").read_text(encoding="utf-8")
    values = tomllib.loads(text)
    values["environment"] |= {"path": str(_locomo(tmp_path))} | changes
    values["agent"]["embedder"] = "hashing"
    plan = preview(checked_run(values))
    assert {stage["questions"] for stage in plan["stages"]} == {questions}
    assert sum(stage["steps"] for stage in plan["stages"]) == 70
    shown = "\n".join(lines_of(plan))
    assert f"{questions} questions, answered by hosted_vllm/Qwen/Qwen2.5-7B-Instruct" in shown


def test_the_setting_of_memory_r1_is_sound(tmp_path: Path) -> None:
    """One question an episode, of generated talks and of a file in LoCoMo's format."""
    text = (ROOT / "examples/training/memory_r1.toml").read_text(encoding="utf-8")
    values = tomllib.loads(text)
    values["agent"]["embedder"] = "hashing"
    (stage,) = preview(checked_run(values))["stages"]
    assert (stage["questions"], stage["credit"], stage["roles"]) == (152, "asof", "decider")
    inner = {"path": str(_locomo(tmp_path)), "split_by": "memory_r1"}
    values["environment"]["options"] = {"of": "locomo", "options": inner}
    task = TrainingTask.of(checked_run(values), sessions=64)
    assert len(task.episodes("train", 500)) == 152  # adversarial questions have no answer


@pytest.mark.parametrize(
    ("split", "trained", "questions"),
    [("memory_r2", ("conv-43", "conv-47"), 328), ("memory_r1", ("conv-26",), 152)],
)
def test_a_copy_of_locomo_has_the_papers_numbers_of_questions(
    split: str, trained: tuple[str, ...], questions: int, locomo_dir: Path
) -> None:
    if not all((locomo_dir / f"{name}.json").is_file() for name in trained):
        pytest.skip(f"{locomo_dir} has not all of {trained} as files")
    text = (ROOT / "examples/training/qwen7b_locomo.toml").read_text(encoding="utf-8")
    values = tomllib.loads(text)
    values["environment"] |= {"path": str(locomo_dir), "split_by": split, "episodes": len(trained)}
    values["agent"]["embedder"] = "hashing"
    plan = preview(checked_run(values))
    assert plan["stages"][-1]["questions"] == questions
    assert {stage["reader"] for stage in plan["stages"]} == {values["agent"]["reader"]}
    assert sum(stage["steps"] for stage in plan["stages"]) == 70


def test_a_part_of_locomo_that_trains_on_nothing_is_refused(tmp_path: Path) -> None:
    text = (ROOT / "examples/training/qwen7b_locomo.toml").read_text(encoding="utf-8")
    values = tomllib.loads(text)
    whole = json.loads(_locomo(tmp_path).read_text(encoding="utf-8"))
    part = tmp_path / "part.json"
    part.write_text(json.dumps(whole[-1:]), encoding="utf-8")
    values["environment"]["path"] = str(part)
    values["agent"]["embedder"] = "hashing"
    with pytest.raises(ConfigError, match="no conversation to train on by split_by = 'memory_r2'"):
        preview(checked_run(values))


def test_a_frozen_reader_answers_when_memories_are_scored(tmp_path: Path) -> None:
    saved_model(tmp_path / "frozen", tiny_tokenizer())
    values: dict[str, Any] = {
        "agent": {"answering": "policy", "reader": f"hf:{tmp_path / 'frozen'}"},
    }
    task = TrainingTask.of(checked_run(values), sessions=1)
    (episode,) = task.episodes("train", 1)
    asked: Any = task.answering([episode], split="train")
    request = ModelRequest(role=Role.ANSWERER, messages=(Message(role="user", content="a b a"),))
    replies = [run_sync(asked.model.complete(request)) for _ in range(3)]
    assert {reply.model for reply in replies} == {"frozen"}
    assert len({reply.text for reply in replies}) == 1  # greedy
    assert task.answering([], split="test") is asked
    without = checked_run({"agent": {"answering": "policy"}})
    assert TrainingTask.of(without, sessions=1).answering([episode], split="train") is None


@pytest.mark.parametrize(
    "changes", [{"agent": {"reader": "hf:x"}}, {"stage": [{"sessions": 1, "roles": "both"}]}]
)
def test_a_frozen_reader_is_refused_where_somebody_else_answers(changes: dict[str, Any]) -> None:
    agent = {"agent": {"answering": "policy", "reader": "hf:x"}}
    with pytest.raises(ConfigError, match=r"agent\.reader"):
        checked_run(agent | changes)


def test_each_call_of_the_manager_can_have_weights_of_its_own(tmp_path: Path) -> None:
    source = _in_bf16(tmp_path)
    lora = LoRASettings(r=2, alpha=4, targets=("q_proj",), per_role="calls")
    model, _, adapters = load_for_training(source, source, lora=lora)
    assert set(model.peft_config) == {"extractor", "manager", "answerer"}
    assert (adapters[Role.EXTRACTOR], adapters[Role.MANAGER]) == ("extractor", "manager")
    assert adapters[Role.ANSWERER] == "answerer"

"""The policy of decisions: a language model of one token a row, trained as any other."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from environments.datasets.synthetic import synthetic
from environments.worlds.readers.fact_reader import notes_in
from memagent import Agent
from memagent.core.records import MemoryItem, Session, Turn
from memagent.designs.learned_policy import (
    DESIGN as POLICY,
    LEVELS,
    MEMORIES,
    PAIR,
    REPLIES,
    STATEMENT,
    described,
    nearest,
    read_reply,
)
from memagent.designs.parts.reading import read_once
from memagent.language.reader import Statement, open_reader
from train.run.models import first_model
from train.run.runs import train_run
from train.sampling.checkpoints import load_policy
from train.sampling.decisions import demonstrated, first_decisions, save_model
from train.settings.run import checked_run

pytestmark = pytest.mark.torch


def sides(texts: list[str]) -> list[Statement]:
    return read_once(open_reader(), [Statement(text, "Zarina") for text in texts])


def test_a_prompt_has_a_word_for_each_number_and_at_most_so_many_memories() -> None:
    new, *memories = sides(["I live in Quorbal.", *(f"I own {n} cats." for n in range(20))])
    assert len(described(new, []).split()) == STATEMENT
    places = nearest(new, memories)
    assert places == sorted(places)
    assert len(places) == MEMORIES
    words = described(new, [memories[place] for place in places]).split()
    assert len(words) == STATEMENT + MEMORIES * PAIR
    assert set(words) <= {f"f{level}" for level in range(LEVELS)}


def test_replies_are_read_and_an_unreadable_one_keeps_the_statement() -> None:
    assert (read_reply("update2", [3, 5, 8]).op, read_reply("update2", [3, 5, 8]).target) == (
        "update",
        8,
    )
    assert read_reply("skip", []).op == "skip"
    for wrong in ("", "update", "delete7", "I would keep it", '{"ops": []}'):
        choice = read_reply(wrong, [4])
        assert (choice.op, choice.target) == ("add", None)
        assert "kept" in choice.reason


def test_the_model_scores_memories_that_are_there_only_and_reads_padding_as_nothing() -> None:
    model, tokenizer = first_decisions(0, seed=3)
    new, *memories = sides(["I live in Quorbal.", "I own a cat.", "I live in Vestrin."])
    prompts = [described(new, memories[:count]) for count in (0, 1, 2)]
    batch = tokenizer(prompts, padding=True, return_tensors="pt")
    with torch.no_grad():
        together = model(batch["input_ids"], attention_mask=batch["attention_mask"])
        logps = together.logits[:, -1].log_softmax(dim=1)
    shares = logps.exp()[:, -len(REPLIES) :]
    assert torch.allclose(shares.sum(dim=1), torch.ones(3))
    assert [int((row > 0).sum()) for row in shares] == [2, 5, 8]
    for place, prompt in enumerate(prompts):
        alone = tokenizer([prompt], return_tensors="pt")["input_ids"]
        with torch.no_grad():
            logits = model(alone).logits[0, -1]
        torch.testing.assert_close(logits.log_softmax(dim=0), logps[place])


def test_labels_of_a_dialogue_teach_the_start_and_it_comes_back_from_its_folder(
    tmp_path: Path,
) -> None:
    rows = list(demonstrated(60, seed=5))
    assert {reply.rstrip("0123456789") for _, reply in rows} >= {"add", "delete", "update"}
    model, tokenizer = first_decisions(60, seed=0)
    save_model(model, tokenizer, tmp_path / "m", note={"max_tokens": 1})
    policy = load_policy(str(tmp_path / "m"))
    session = Session(
        id="S1",
        turns=(
            Turn(id="D1:1", speaker="Zarina", text="I live in Quorbal."),
            Turn(id="D1:2", speaker="Zarina", text="I own a green lamp."),
        ),
    )
    with Agent(model=policy, design=POLICY, path=":memory:") as agent:
        agent.remember(session)
        texts = [item.text for item in agent.snapshot().items.values()]
    assert texts
    assert all(text in "I live in Quorbal. I own a green lamp." for text in texts)


def test_the_reader_of_facts_takes_what_a_memory_states_and_not_what_it_says_is_over() -> None:
    env = synthetic("tiny", sessions=4, overwrite=0.7, seed=2)
    episode = next(iter(env.episodes("train")))
    truth = env.truth(episode)
    by_turn = {t.turn_id: [t] for t in truth.tellings}
    change = next(t for t in truth.tellings if t.act == "change")
    texts = {turn.id: turn.text for session in episode.sessions for turn in session.turns}
    earlier = truth.by_id[change.supersedes]
    both = MemoryItem(
        id="mem_1",
        text=f"{texts[change.turn_id]} {texts[earlier.turn_id]}",
        source_turn_ids=(earlier.turn_id, change.turn_id),
    )
    assert [note.value for note in notes_in(both, by_turn)] == [change.value]
    old = both.model_copy(update={"source_turn_ids": (earlier.turn_id,)})
    assert [note.value for note in notes_in(old, by_turn)] == [earlier.value]


def test_a_run_may_begin_with_a_saved_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = first_decisions(0, seed=3)
    save_model(model, tokenizer, tmp_path / "saved")
    known = CONFIG_MAPPING._extra_content  # as in a new process, where nobody has told of it
    monkeypatch.setattr(CONFIG_MAPPING, "_extra_content", {
        name: each for name, each in known.items() if name != model.config.model_type
    })  # fmt: skip
    part = {"size": "decisions", "path": str(tmp_path / "saved")}
    first_model(checked_run({"model": part}), tmp_path / "run", say=lambda _line: None)
    begun = AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "init").state_dict()
    assert begun.keys() == model.state_dict().keys()
    assert all(torch.equal(begun[name], each) for name, each in model.state_dict().items())


def test_the_shared_trainer_changes_it_and_credits_every_decision(tmp_path: Path) -> None:
    random.seed(0)
    settings = {
        "folder": str(tmp_path / "run"),
        "model": {"size": "decisions"},
        "environment": {"only": ["lives_in", "has"], "friends": 0, "turns": 4, "episodes": 4,
                        "overwrite": 0.5, "asks": ["now"]},
        "agent": {"design": "memagent.designs.learned_policy:DESIGN", "answering": "facts"},
        "trainer": {"num_generations": 4, "per_device_train_batch_size": 2, "num_iterations": 1,
                    "steps_per_generation": 2, "gradient_accumulation_steps": 2, "reruns": 1,
                    "beta": 0.0, "max_completion_length": 1, "bf16": False, "use_cpu": True,
                    "learning_rate": 1e-2, "save_strategy": "no", "gradient_checkpointing": False, "report_to": []},
        "stage": [{"sessions": 2, "steps": 2}],
        "validation": {"every": 2, "episodes": 2, "test_episodes": 0, "measure": "facts"},
    }  # fmt: skip
    train_run(checked_run(settings), say=lambda _line: None)
    start, best = (load_policy(str(tmp_path / "run" / part)) for part in ("init", "stage0/best"))
    assert start.tokenizer.get_vocab() == best.tokenizer.get_vocab()
    lines = (tmp_path / "run" / "stage0" / "steps.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2
    assert all('"tokens/completion"' in line for line in lines)

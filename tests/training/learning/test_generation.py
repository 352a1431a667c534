"""What the sampler says belongs to the row, and its log-probabilities are the model's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from training_kit import tiny_model, tiny_tokenizer

from train.sampling.batcher import Job, Sampled
from train.sampling.generation import TransformersEngine


def _sharp(seed: int = 0, *, by: float = 6.0) -> tuple[Any, Any]:
    """A tokenizer and a random model whose choices differ clearly."""
    tokenizer = tiny_tokenizer()
    model = tiny_model(tokenizer, seed=seed)
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(by)
    return model, tokenizer


def _engine(model: Any, tokenizer: Any) -> TransformersEngine:
    return TransformersEngine(
        model, eos_ids=[tokenizer.eos_token_id], pad_id=tokenizer.pad_token_id
    )


def _job(place: int, **values: Any) -> Job:
    prompt = tuple(5 + (place * 7 + at) % 40 for at in range(1 + place % 9))
    return Job(
        **({"key": f"j{place}", "prompt_ids": prompt, "max_tokens": 16, "seed": place} | values)
    )


def _forward(model: Any, job: Job, said: Sampled, *, temperature: float = 1.0) -> torch.Tensor:
    ids = torch.tensor([[*job.prompt_ids, *said.completion_ids]])
    with torch.no_grad():
        logps = torch.log_softmax(model(input_ids=ids).logits[0, :-1].float() / temperature, dim=-1)
    return logps.gather(1, ids[0, 1:, None]).squeeze(1)[len(job.prompt_ids) - 1 :]


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probabilities_equal_a_forward_pass_over_the_same_ids(temperature: float) -> None:
    model, tokenizer = _sharp()
    jobs = [_job(place, temperature=temperature) for place in range(24)]
    for job, said in zip(jobs, _engine(model, tokenizer).generate(jobs), strict=True):
        again = _forward(model, job, said, temperature=temperature)
        assert torch.allclose(again, torch.tensor(said.logprobs), atol=2e-5)


def test_a_completion_does_not_depend_on_its_batch() -> None:
    model, tokenizer = _sharp()
    engine = _engine(model, tokenizer)
    jobs = [_job(place) for place in range(24)]
    together = engine.generate(jobs)
    turned = engine.generate(jobs[::-1])[::-1]
    alone = [engine.generate([job])[0] for job in jobs]
    assert [one.completion_ids for one in together] == [one.completion_ids for one in turned]
    assert [one.completion_ids for one in together] == [one.completion_ids for one in alone]
    assert len({one.completion_ids for one in together}) > 12


def test_rows_of_one_prompt_read_it_once_and_say_what_they_would_alone() -> None:
    model, tokenizer = _sharp()
    engine = _engine(model, tokenizer)
    jobs = [_job(place % 3, seed=place, key=str(place)) for place in range(12)]
    shapes: list[tuple[int, ...]] = []
    forward = model.forward

    def watched(*values: Any, **options: Any) -> Any:
        shapes.append(tuple(options["input_ids"].shape))
        return forward(*values, **options)

    model.forward = watched
    together = engine.generate(jobs)
    model.forward = forward
    assert shapes[:2] == [(3, 3), (12, 1)]
    alone = [engine.generate([job])[0] for job in jobs]
    assert [one.completion_ids for one in together] == [one.completion_ids for one in alone]
    for one, other in zip(together, alone, strict=True):
        assert torch.allclose(torch.tensor(one.logprobs), torch.tensor(other.logprobs), atol=2e-5)


def test_keys_with_room_are_those_of_the_model_s_own_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokenizer = _sharp()
    jobs = [
        _job(place, max_tokens=4 if place % 4 else 150) for place in range(8)
    ]  # past the free places, rows taken out
    engine = TransformersEngine(model, eos_ids=[], pad_id=tokenizer.pad_token_id)
    roomy = engine.generate(jobs)
    monkeypatch.setattr("train.sampling.generation.with_room", lambda cache: cache)
    assert engine.generate(jobs) == roomy
    assert [len(one.completion_ids) for one in roomy] == [job.max_tokens for job in jobs]


def test_the_seed_alone_makes_rows_of_one_prompt_differ() -> None:
    model, tokenizer = _sharp(by=1.0)
    jobs = [_job(3, seed=seed) for seed in (1, 2, 1)]
    first, second, again = _engine(model, tokenizer).generate(jobs)
    assert first == again
    assert first.completion_ids != second.completion_ids


def test_temperature_zero_takes_the_most_probable_token_whatever_the_seed() -> None:
    model, tokenizer = _sharp()
    jobs = [_job(4, temperature=0.0, seed=seed) for seed in range(3)]
    said = _engine(model, tokenizer).generate(jobs)
    assert len({one.completion_ids for one in said}) == 1
    ids = list(jobs[0].prompt_ids)
    for token in said[0].completion_ids:
        with torch.no_grad():
            assert int(model(input_ids=torch.tensor([ids])).logits[0, -1].argmax()) == token
        ids.append(token)


def test_top_p_takes_nothing_outside_the_nucleus_and_samples_within_it() -> None:
    model, tokenizer = _sharp(by=2.0)
    jobs = [_job(5, top_p=0.5, max_tokens=1, seed=seed) for seed in range(200)]
    with torch.no_grad():
        probs = torch.softmax(
            model(input_ids=torch.tensor([list(jobs[0].prompt_ids)])).logits[0, -1], dim=-1
        )
    ordered, places = probs.sort(descending=True)
    inside = set(places[ordered.cumsum(0) - ordered < 0.5].tolist())
    said = {one.completion_ids[0] for one in _engine(model, tokenizer).generate(jobs)}
    assert said <= inside
    kept = probs / sum(probs[place] for place in inside)
    for sampled in _engine(model, tokenizer).generate(jobs[:20]):
        expected = float(kept[sampled.completion_ids[0]].log())
        assert sampled.logprobs[0] == pytest.approx(expected, abs=1e-4)
    assert len(said) > 1


def test_draws_follow_the_model_s_probabilities() -> None:
    model, tokenizer = _sharp(by=2.0)
    jobs = [_job(6, max_tokens=1, seed=seed) for seed in range(4_000)]
    with torch.no_grad():
        probs = torch.softmax(
            model(input_ids=torch.tensor([list(jobs[0].prompt_ids)])).logits[0, -1], dim=-1
        )
    counts = torch.bincount(
        torch.tensor([one.completion_ids[0] for one in _engine(model, tokenizer).generate(jobs)]),
        minlength=len(probs),
    )
    assert float((counts / 4_000 - probs).abs().max()) < 0.03


def test_rows_that_end_early_are_taken_out_and_the_others_go_on_unchanged() -> None:
    model, tokenizer = _sharp()
    engine = _engine(model, tokenizer)
    jobs = [_job(place, max_tokens=2 if place % 4 else 20) for place in range(16)]
    widths: list[int] = []
    forward = model.forward

    def watched(*values: Any, **options: Any) -> Any:
        widths.append(options["input_ids"].shape[0])
        return forward(*values, **options)

    model.forward = watched
    said = engine.generate(jobs)
    model.forward = forward
    assert max(widths) == 16
    assert min(widths) <= 4
    alone = [engine.generate([job])[0].completion_ids for job in jobs]
    assert [one.completion_ids for one in said] == alone
    assert all(
        len(one.completion_ids) <= job.max_tokens for one, job in zip(said, jobs, strict=True)
    )


def test_the_end_token_is_kept_and_ends_the_row() -> None:
    model, tokenizer = _sharp()
    engine = _engine(model, tokenizer)
    greedy = engine.generate([_job(4, temperature=0.0)])[0]
    ending = TransformersEngine(
        model, eos_ids=[greedy.completion_ids[0]], pad_id=tokenizer.pad_token_id
    )
    ended, cut = ending.generate([_job(4, temperature=0.0), _job(4, temperature=0.0, max_tokens=1)])
    assert (ended.completion_ids, ended.ended) == (greedy.completion_ids[:1], True)
    assert cut.ended
    assert not engine.generate([_job(4, temperature=0.0, max_tokens=1)])[0].ended


def test_sampling_leaves_the_model_in_the_mode_it_was_in() -> None:
    model, tokenizer = _sharp()
    model.train()
    _engine(model, tokenizer).generate([_job(1)])
    assert model.training

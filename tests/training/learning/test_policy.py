"""The policy keeps what was sampled, and a bound view says the same again."""

from __future__ import annotations

import asyncio

import pytest
from training_kit import tiny_model, tiny_tokenizer

from memagent.core.errors import ConfigError, ContextOverflow
from memagent.core.exchange import Message, ModelRequest, ModelResponse, Role, Sampling, StepRef
from train.sampling.generation import TransformersEngine
from train.sampling.policy import PolicyModel


def _policy(**options) -> PolicyModel:
    tokenizer = tiny_tokenizer()
    engine = TransformersEngine(
        tiny_model(tokenizer), eos_ids=[tokenizer.eos_token_id], pad_id=tokenizer.pad_token_id
    )
    sampling = Sampling(temperature=1.0, max_tokens=12)
    return PolicyModel(
        engine, tokenizer, **({"sampling": sampling, "context_tokens": 64} | options)
    )


def _request(
    text: str = "where does ana live ?", *, role: Role = Role.MANAGER, **options
) -> ModelRequest:
    messages = (
        Message(role="system", content="Answer briefly"),
        Message(role="user", content=text),
    )
    return ModelRequest(role=role, step=StepRef(), messages=messages, **options)


async def _ask(model, request: ModelRequest | None = None, times: int = 1) -> list[ModelResponse]:
    async def ask() -> list[ModelResponse]:
        return [await model.complete(request or _request()) for _ in range(times)]

    return await ask()


def _ids(response: ModelResponse) -> tuple[int, ...]:
    assert response.tokens is not None
    return response.tokens.prompt_ids


async def test_a_response_keeps_the_sampler_s_ids_and_is_never_tokenised_again() -> None:
    policy = _policy()
    said: list = []
    serve = policy._engine.serve  # type: ignore[attr-defined]
    policy._engine.serve = lambda jobs, more: serve(  # type: ignore[attr-defined]
        jobs, lambda ended: said.extend(ended.values()) or more(ended)
    )
    responses = await _ask(policy.bound("k"), times=6)
    for sampled, response in zip(said, responses, strict=True):
        assert response.tokens is not None
        assert response.tokens.completion_ids == sampled.completion_ids
        assert response.tokens.logprobs == sampled.logprobs
        assert response.tokens.prompt_ids == policy.prompt_ids(_request())
    # A random model says things whose text reads back as other ids: only keeping them is right.
    again = [
        tuple(policy.tokenizer(one.text, add_special_tokens=False)["input_ids"])
        for one in responses
    ]
    assert again != [one.completion_ids for one in said]


async def test_a_prompt_that_many_rollouts_share_is_tokenised_once() -> None:
    policy, seen = _policy(), list[str]()
    template = policy.tokenizer.apply_chat_template

    def counted(chat, **options):
        seen.append(chat[-1]["content"])
        return template(chat, **options)

    policy.tokenizer.apply_chat_template = counted
    same = [_ids((await _ask(policy.bound(str(member))))[0]) for member in range(4)]
    other = _ids((await _ask(policy.bound("other"), _request("who lives in rome ?")))[0])
    assert seen == ["where does ana live ?", "who lives in rome ?"]
    assert len(set(same)) == 1
    chat = [
        {"role": message.role, "content": message.content}
        for message in _request("who lives in rome ?").messages
    ]
    ids = template(chat, add_generation_prompt=True, tokenize=True, return_dict=False)
    assert other == tuple(ids) != same[0]


async def test_a_bound_view_says_the_same_again_and_another_something_else() -> None:
    first = [one.text for one in await _ask(_policy().bound("a"), times=4)]
    assert [one.text for one in await _ask(_policy().bound("a"), times=4)] == first
    assert [one.text for one in await _ask(_policy().bound("b"), times=4)] != first
    assert len(set(first)) > 1
    other_seed, later = _policy(seed=1), _policy()
    later.version = 3
    assert [one.text for one in await _ask(other_seed.bound("a"), times=4)] != first
    assert [one.text for one in await _ask(later.bound("a"), times=4)] != first


async def test_a_bound_view_keeps_its_calls_in_order() -> None:
    view = _policy().bound("a")
    responses = await _ask(view, times=3)
    assert [call.response for call in view.calls] == responses
    assert {call.role for call in view.calls} == {Role.MANAGER}
    assert len({one.id for one in responses}) == 3
    assert all(one.tokens is not None and one.tokens.policy_version == 0 for one in responses)


async def test_views_that_take_part_share_batches() -> None:
    policy = _policy()

    async def talk(key: str) -> None:
        with policy.participant():
            view = policy.bound(key)
            for _ in range(3):
                await view.complete(_request())

    await asyncio.gather(*(asyncio.create_task(talk(str(number))) for number in range(5)))
    assert (policy.stats.jobs, policy.stats.widest) == (15, 5)
    assert 3 <= policy.stats.rounds < 15


async def test_a_prompt_that_leaves_no_room_is_an_overflow_and_a_long_one_shortens_the_reply() -> (
    None
):
    length = len(_policy().prompt_ids(_request()))
    with pytest.raises(ContextOverflow, match=f"the prompt has {length} tokens"):
        await _ask(_policy(context_tokens=length))
    response = (await _ask(_policy(context_tokens=length + 2)))[0]
    assert response.tokens is not None
    assert len(response.tokens.completion_ids) <= 2


async def test_what_the_request_asks_for_comes_before_the_policy_s_own_sampling() -> None:
    view = _policy().bound("a")
    greedy = _request(sampling=Sampling(temperature=0.0, max_tokens=3))
    first, second = await _ask(view, greedy, times=2)
    assert first.text == second.text
    assert first.usage.completion_tokens <= 3
    assert first.finish == "length" or first.usage.completion_tokens < 3


def test_a_tokenizer_without_a_chat_template_is_refused() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.chat_template = None
    with pytest.raises(ConfigError, match="chat template"):
        PolicyModel(_policy()._engine, tokenizer)

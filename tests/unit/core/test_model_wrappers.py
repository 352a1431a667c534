"""What the model wrappers promise: one retry layer, a hard budget, faithful replay, a
model per role.
"""

from __future__ import annotations

import asyncio
import json
import stat
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from recorded_models import RecordingModel, ReplayingModel

from memagent.core.errors import (
    BudgetExceeded,
    ConfigError,
    ContextOverflow,
    ModelError,
    ModelRateLimited,
    ModelTimeout,
    ModelUnavailable,
)
from memagent.core.exchange import (
    Delta,
    Message,
    ModelRequest,
    ModelResponse,
    Role,
    Sampling,
    StepRef,
    ToolSpec,
    Usage,
)
from memagent.llm.wrappers import (
    BudgetedModel,
    RetryingModel,
    RoutedModel,
    request_digest,
    stream_of,
)
from memagent.protocols import ChatModel, StreamingChatModel
from memagent.testing.models import FunctionModel, ScriptedModel, check_chat_model


def ask(text: str = "hello", role: Role = Role.ANSWERER, **changes: object) -> ModelRequest:
    return ModelRequest(role=role, messages=(Message(role="user", content=text),)).model_copy(
        update=changes
    )


async def streamed(model: StreamingChatModel, request: ModelRequest) -> list[Delta]:
    return [delta async for delta in model.stream(request)]


class Naps:
    """A sleep that only notes how long it was asked for."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


class Breaking:
    """Streams the given pieces and then fails, a fresh list for each stream."""

    def __init__(self, *streams: list[str | Exception]) -> None:
        self.streams = list(streams)
        self.closed = 0

    async def complete(self, request: ModelRequest) -> ModelResponse:
        raise NotImplementedError

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        text = ""
        try:
            for piece in self.streams.pop(0):
                if isinstance(piece, Exception):
                    raise piece
                text += piece
                yield Delta(text=piece)
            yield Delta(response=ModelResponse(id="r", text=text, usage=Usage(calls=1)))
        finally:
            self.closed += 1


class Whole:
    """A model that cannot stream."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        return ModelResponse(
            id=f"r{time.perf_counter_ns()}", text="in one piece", usage=Usage(calls=1)
        )


WRAPPINGS: list[Callable[[ChatModel], ChatModel]] = [
    RetryingModel,
    lambda model: BudgetedModel(model, max_calls=100),
    RecordingModel,
    lambda model: RoutedModel({}, default=model),
]


@pytest.mark.parametrize("wrap", WRAPPINGS)
async def test_a_wrapped_model_keeps_the_promises_of_a_model(
    wrap: Callable[[ChatModel], ChatModel],
) -> None:
    await check_chat_model(lambda: wrap(FunctionModel(lambda request: "a few words")))
    await check_chat_model(lambda: wrap(Whole()))


@pytest.mark.parametrize("wrap", WRAPPINGS)
async def test_a_wrapper_streams_the_wrapped_models_pieces(
    wrap: Callable[[ChatModel], ChatModel],
) -> None:
    deltas = await streamed(wrap(ScriptedModel(["a few words"])), ask())  # type: ignore[arg-type]
    assert [delta.text for delta in deltas] == ["a ", "few ", "words", ""]


@pytest.mark.parametrize("wrap", WRAPPINGS)
async def test_giving_up_a_wrapped_stream_closes_the_inner_one(
    wrap: Callable[[ChatModel], ChatModel],
) -> None:
    inner = Breaking(["a", "b", "c"])

    async def run() -> int:
        stream = stream_of(wrap(inner), ask())
        await anext(stream)
        await stream.aclose()
        return inner.closed

    assert await run() == 1


# Retry


async def test_retryable_errors_are_tried_again_and_others_are_not() -> None:
    naps = Naps()
    model = ScriptedModel(
        [ModelTimeout("slow"), ModelUnavailable("down"), "at last", ContextOverflow("too long")]
    )
    retrying = RetryingModel(model, sleep=naps)
    assert (await retrying.complete(ask())).text == "at last"
    assert len(naps.seconds) == 2
    with pytest.raises(ContextOverflow):
        await retrying.complete(ask())
    assert len(model.requests) == 4


async def test_waits_grow_exponentially_within_their_jitter() -> None:
    naps = Naps()
    retrying = RetryingModel(
        ScriptedModel([ModelUnavailable("down")] * 5),
        attempts=5,
        first_wait_s=1.0,
        longest_wait_s=6.0,
        sleep=naps,
    )
    with pytest.raises(ModelUnavailable):
        await retrying.complete(ask())
    assert all(
        low <= nap <= high
        for nap, low, high in zip(naps.seconds, (1, 2, 4, 6), (2, 3, 5, 6), strict=True)
    )


async def test_the_last_error_is_raised_as_it_was_after_the_last_attempt() -> None:
    last = ModelUnavailable("third")
    retrying = RetryingModel(
        ScriptedModel([ModelTimeout("1"), ModelTimeout("2"), last]), attempts=3, sleep=Naps()
    )
    with pytest.raises(ModelUnavailable) as caught:
        await retrying.complete(ask())
    assert caught.value is last


async def test_a_providers_retry_after_is_waited_for() -> None:
    naps = Naps()
    limited = ModelRateLimited("slow down")
    limited.retry_after = 17.5
    await RetryingModel(ScriptedModel([limited, "fine"]), sleep=naps).complete(ask())
    assert naps.seconds == [17.5]


async def test_no_attempt_begins_after_the_deadline() -> None:
    naps = Naps()
    limited = [ModelRateLimited("slow down") for _ in range(5)]
    for error in limited:
        error.retry_after = 40.0
    retrying = RetryingModel(ScriptedModel(limited), attempts=5, deadline_s=100.0, sleep=naps)
    with pytest.raises(ModelRateLimited):
        await retrying.complete(ask())
    assert naps.seconds == [40.0, 40.0]


async def test_an_error_marked_not_retryable_is_not_tried_again() -> None:
    error = ModelRateLimited("quota used up")
    error.retryable = False
    model = ScriptedModel([error, "never"])
    with pytest.raises(ModelRateLimited):
        await RetryingModel(model, sleep=Naps()).complete(ask())
    assert model.remaining == 1


async def test_a_stream_is_tried_again_only_before_its_first_piece() -> None:
    early = Breaking([ModelUnavailable("down")], [], ["fine"])
    deltas = await streamed(RetryingModel(early, sleep=Naps()), ask())
    assert deltas[0].response is not None
    assert early.streams == [["fine"]]

    late = Breaking(["half ", ModelUnavailable("cut")], ["never"])

    pieces: list[str] = []

    async def run() -> None:
        async for delta in RetryingModel(late, sleep=Naps()).stream(ask()):
            pieces.append(delta.text)

    with pytest.raises(ModelUnavailable, match="cut"):
        await run()
    assert pieces == ["half "]
    assert late.streams == [["never"]]


# Budget


async def test_the_call_cap_holds_under_concurrency() -> None:
    async def slow(request: ModelRequest) -> str:
        await asyncio.sleep(0.01)
        return "done"

    inner = FunctionModel(slow)
    model = BudgetedModel(inner, max_calls=5)

    async def run() -> list[object]:
        return await asyncio.gather(
            *(model.complete(ask()) for _ in range(20)), return_exceptions=True
        )

    outcomes = await run()
    assert sum(isinstance(one, BudgetExceeded) for one in outcomes) == 15
    assert len(inner.requests) == model.spent.calls == 5


async def test_tokens_and_dollars_are_refused_before_the_call_once_spent() -> None:
    usage = Usage(calls=1, prompt_tokens=60, completion_tokens=40, cost_usd=0.5, seconds=1.0)
    answers = [ModelResponse(id=f"r{n}", usage=usage) for n in range(9)]
    for model in (
        BudgetedModel(ScriptedModel(answers), max_tokens=200),
        BudgetedModel(ScriptedModel(answers), max_usd=1.0),
    ):
        await model.complete(ask())
        await model.complete(ask())
        with pytest.raises(BudgetExceeded, match="is spent"):
            await model.complete(ask())
        assert model.spent == Usage(
            calls=2, prompt_tokens=120, completion_tokens=80, cost_usd=1.0, seconds=2.0
        )


async def test_a_dollar_cap_refuses_once_the_price_is_unknown() -> None:
    model = BudgetedModel(
        ScriptedModel([ModelResponse(id="r", usage=Usage(calls=1, cost_usd=None)), "never"]),
        max_usd=5.0,
    )
    await model.complete(ask())
    with pytest.raises(BudgetExceeded, match="price is unknown"):
        await model.complete(ask())


async def test_failed_attempts_count_as_calls_when_the_budget_is_inside_the_retries() -> None:
    errors = [ModelUnavailable("down")] * 9
    model = RetryingModel(
        BudgetedModel(ScriptedModel(errors), max_calls=3), attempts=9, sleep=Naps()
    )
    with pytest.raises(BudgetExceeded, match="3 calls"):
        await model.complete(ask())


async def test_streams_are_charged_whole_and_given_up_streams_by_their_length() -> None:
    model = BudgetedModel(
        ScriptedModel(["one two three", "eight chars and more to come"]), max_calls=2
    )

    async def run() -> tuple[Usage, Usage]:
        await streamed(model, ask("two words"))
        whole = model.spent
        stream = stream_of(model, ask("x" * 40))
        await anext(stream)
        await stream.aclose()
        with pytest.raises(BudgetExceeded):
            await streamed(model, ask())
        return whole, model.spent

    whole, after = await run()
    assert (whole.calls, whole.prompt_tokens, whole.completion_tokens) == (1, 2, 3)
    assert (after.calls, after.prompt_tokens, after.completion_tokens) == (2, 2 + 11, 3 + 2)


def test_a_budget_without_a_cap_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one"):
        BudgetedModel(ScriptedModel([]))


# Record and replay


async def test_a_recording_replays_every_field_in_order(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    text = "line one\nline two \u2028 \x85 \N{SNOWMAN}"
    recording = RecordingModel(ScriptedModel([text, "second", "streamed words"]), path)

    async def run(model: StreamingChatModel) -> list[ModelResponse | None]:
        first = await model.complete(ask("q", schema_={"type": "object"}))
        second = await model.complete(ask("q", schema_={"type": "object"}))
        return [first, second, (await streamed(model, ask("other")))[-1].response]

    recorded = await run(recording)
    assert await run(ReplayingModel(path)) == recorded
    assert await run(ReplayingModel(recording.exchanges)) == recorded
    assert len(path.read_bytes().splitlines()) == 3
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_request_asked_more_often_than_recorded_gets_the_last_answer_under_a_new_id() -> (
    None
):
    recording = RecordingModel(ScriptedModel(["one", "two"]))

    async def run(model: ChatModel, times: int) -> list[ModelResponse]:
        return [await model.complete(ask()) for _ in range(times)]

    await run(recording, 2)
    replayed = await run(ReplayingModel(recording.exchanges), 4)
    assert [response.text for response in replayed] == ["one", "two", "two", "two"]
    assert len({response.id for response in replayed}) == 4


async def test_a_request_never_recorded_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    await RecordingModel(ScriptedModel(["one"]), path).complete(ask())
    request = ask("where is Anna?", role=Role.PLANNER)
    with pytest.raises(
        ModelError,
        match=f"{request_digest(request)} .role planner, 1 messages, ending in 'where is Anna",
    ):
        await ReplayingModel(path).complete(request)


@pytest.mark.parametrize(
    "content", ["not json", '{"request": {}}', json.dumps({"request": {}, "response": {}}), "[]"]
)
async def test_a_damaged_recording_names_its_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "run.jsonl"
    await RecordingModel(ScriptedModel(["one"]), path).complete(ask())
    with path.open("a") as file:
        file.write(content + "\n")
    with pytest.raises(ConfigError, match="line 2 "):
        ReplayingModel(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        ReplayingModel(tmp_path / "missing.jsonl")


def test_the_digest_covers_what_decides_an_answer_and_nothing_else() -> None:
    base = request_digest(ask())
    assert request_digest(ask(step=StepRef(session_id="s", call=3), prompt_digest="p")) == base
    changed = [
        ask("other"),
        ask(role=Role.JUDGE),
        ask(schema_={"type": "object"}),
        ask(tools=(ToolSpec(name="t"),)),
        ask(sampling=Sampling(seed=1)),
    ]
    assert len({base, *map(request_digest, changed)}) == 6


# Routing and settings


async def test_each_role_goes_to_its_model_and_the_rest_to_the_default() -> None:
    small, large = FunctionModel(lambda request: "small"), FunctionModel(lambda request: "large")
    model = RoutedModel({Role.EXTRACTOR: small}, default=large)
    texts = [
        (await model.complete(ask(role=role))).text for role in (Role.EXTRACTOR, Role.ANSWERER)
    ]
    assert texts == ["small", "large"]


def test_settings_that_cannot_work_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        RetryingModel(Whole(), attempts=0)

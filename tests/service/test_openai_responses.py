"""`/v1/responses` with the official client: words, tools, events, and stored conversations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from service_kit import Served, place_on, serving

from memagent.core.errors import ModelRateLimited
from memagent.core.exchange import FinishReason, ModelRequest, ModelResponse, ToolCall
from memagent.testing.models import FunctionModel

TOOL: Any = {
    "type": "function",
    "name": "weather",
    "description": "Tell the weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
PIXEL = "data:image/png;base64,AA"


def upstream(request: ModelRequest) -> ModelResponse | str:
    """Call the offered tool, then answer from its result; else say what was asked."""
    last = request.messages[-1]
    if "too fast" in last.content:
        raise ModelRateLimited("slow down")
    if "long" in last.content:
        return ModelResponse(id="r", text="This is too", finish=FinishReason.LENGTH)
    if request.schema_ is not None:
        return '{"city": "Lisbon"}'
    if last.role == "tool":
        return f"It is {last.content}."
    if request.tools:
        call = ToolCall(id="c1", name="weather", arguments='{"city": "Lisbon"}')
        return ModelResponse(id="r", tool_calls=(call,), finish=FinishReason.TOOL_CALLS)
    return f"You said: {last.content.rpartition('</memories>')[2].strip()}"


@pytest.fixture(scope="module")
def model() -> FunctionModel:
    return FunctionModel(upstream)


@pytest.fixture(scope="module")
def served(model: FunctionModel) -> Iterator[Served]:
    with serving(model=model, design="verbatim") as running:
        yield running


@pytest.fixture
def client(served: Served) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as opened:
        yield opened


def texts(served: Served, **params: str) -> list[str]:
    with served.http() as http:
        sessions = http.get("/v1/sessions", params={"limit": 100, **params}).json()["items"]
    return [turn["text"] for session in sessions for turn in session["turns"]]


def shown(model: FunctionModel) -> list[str]:
    return [message.content for message in model.requests[-1].messages]


def test_a_conversation_goes_on_by_the_id_of_its_last_response(
    served: Served, client: Any, model: FunctionModel
) -> None:
    first = client.responses.create(
        model="memagent", input="My parrot is called Ada.", instructions="Be brief."
    )
    assert first.output_text == "You said: My parrot is called Ada."
    assert (first.status, first.error, first.usage.total_tokens > 0) == ("completed", None, True)
    assert shown(model)[0] == "Be brief."
    second = client.responses.create(
        model="memagent",
        previous_response_id=first.id,
        input=[{"role": "user", "content": [{"type": "input_text", "text": "How old is she?"}]}],
    )
    assert second.previous_response_id == first.id
    assert second.memagent["thread"] == first.memagent["thread"]
    assert shown(model)[1:3] == ["My parrot is called Ada.", first.output_text]
    assert shown(model)[0] != "Be brief.", "instructions are those of one request"
    other = client.responses.create(
        model="memagent", previous_response_id=first.id, input="What does she eat?"
    )
    assert other.memagent["thread"] != first.memagent["thread"]
    assert shown(model)[1:3] == ["My parrot is called Ada.", first.output_text]
    assert not any("How old" in text for text in shown(model)[1:-1])


def test_a_stored_response_is_fetched_listed_and_deleted(served: Served, client: Any) -> None:
    made = client.responses.create(model="memagent", input="I keep bees.", metadata={"a": "b"})
    again = client.responses.retrieve(made.id)
    assert again.model_dump() == made.model_dump()
    [item] = client.responses.input_items.list(made.id).data
    [part] = item.content
    assert (item.role, item.status, part.text) == ("user", "completed", "I keep bees.")
    client.responses.delete(made.id)
    for gone in (client.responses.retrieve, client.responses.delete):
        with pytest.raises(openai.NotFoundError) as missing:
            gone(made.id)
        assert missing.value.code == "response_not_found"
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="memagent", input="Go on", previous_response_id=made.id)
    assert "I keep bees." in texts(served), "what was said stays remembered"
    unstored = client.responses.create(model="memagent", input="I keep ducks.", store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(unstored.id)
    assert "I keep ducks." in texts(served)


@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_is_called_and_its_result_answered(
    served: Served, client: Any, model: FunctionModel, stream: bool
) -> None:
    question = f"How is the weather, stream {stream}?"
    asked = _run(client, stream, model="memagent", input=question, tools=[TOOL])
    [call] = asked.output
    assert (call.type, call.name, json.loads(call.arguments)) == (
        "function_call",
        "weather",
        {"city": "Lisbon"},
    )
    [tool] = (model.requests[-1].options or {})["tools"]
    assert tool["function"]["strict"] is True
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    done = _run(
        client,
        stream,
        model="memagent",
        previous_response_id=asked.id,
        input=[result],
        tools=[TOOL],
    )
    assert done.output_text == "It is sunny."
    sent = model.requests[-1].messages
    assert [message.role for message in sent[-3:]] == ["user", "assistant", "tool"]
    assert sent[-2].tool_calls[0].id == sent[-1].tool_call_id == "c1"
    more = client.responses.create(
        model="memagent", previous_response_id=done.id, input=f"Thanks {stream}!"
    )
    assert "It is sunny." in shown(model) and more.status == "completed"
    said = texts(served)
    assert [said.count(text) for text in (question, f"Thanks {stream}!")] == [1, 1]


def _run(client: Any, stream: bool, **given: Any) -> Any:
    if not stream:
        return client.responses.create(**given)
    with client.responses.stream(**given) as events:
        return events.get_final_response()


def test_a_whole_history_without_an_id_is_remembered_once(served: Served, client: Any) -> None:
    history: list[Any] = []
    for text in ("I grow figs.", "And plums.", "And pears."):
        history.append({"role": "user", "content": text})
        answer = client.responses.create(model="memagent", input=history, store=False)
        history += [item.model_dump(exclude_none=True) for item in answer.output]
    said = texts(served)
    assert [said.count(text) for text in ("I grow figs.", "And plums.", "And pears.")] == [1, 1, 1]


def test_items_may_be_named_by_id(client: Any, model: FunctionModel) -> None:
    first = client.responses.create(model="memagent", input="I own a kayak.", tools=[TOOL])
    items = [
        {"role": "user", "content": "I own a kayak."},
        {"type": "item_reference", "id": first.output[0].id},
        {"type": "function_call_output", "call_id": "c1", "output": "windy"},
    ]
    assert client.responses.create(model="memagent", input=items).output_text == "It is windy."
    items[1] = {"type": "item_reference", "id": "fc_00_0"}
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="memagent", input=items)


def test_the_events_of_a_stream_come_in_openais_order(client: Any) -> None:
    events = list(client.responses.create(model="memagent", input="I paint boats", stream=True))
    kinds = [event.type for event in events]
    assert list(dict.fromkeys(kinds)) == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert kinds.count("response.output_text.delta") > 3
    assert [event.sequence_number for event in events] == list(range(len(events)))
    words = "".join(event.delta for event in events if event.type.endswith("text.delta"))
    assert words == "You said: I paint boats" == events[-1].response.output_text
    stored = client.responses.retrieve(events[-1].response.id)
    assert stored.output_text == words


def test_structured_output_images_and_length_are_told(client: Any, model: FunctionModel) -> None:
    shape = {"type": "json_schema", "name": "c", "schema": TOOL["parameters"], "strict": True}
    answer = client.responses.create(
        model="memagent", input="Where do I live?", text={"format": shape}
    )
    assert json.loads(answer.output_text) == {"city": "Lisbon"}
    assert (model.requests[-1].options or {})["response_format"]["json_schema"]["strict"] is True
    image = [
        {"type": "input_text", "text": "Look at this"},
        {"type": "input_image", "image_url": PIXEL, "detail": "low"},
    ]
    client.responses.create(model="memagent", input=[{"role": "user", "content": image}])
    assert model.requests[-1].messages[-1].parts == (
        {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}},
    )
    cut = client.responses.create(model="memagent", input="Tell a long story")
    assert (cut.status, cut.incomplete_details.reason) == ("incomplete", "max_output_tokens")


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("tools", {"tools": [{"type": "web_search"}]}),
        ("tool_choice", {"tool_choice": "required"}),
        ("background", {"background": True}),
        ("conversation", {"conversation": "conv_1"}),
        ("input", {"input": [{"type": "computer_call", "call_id": "c"}]}),
        ("text", {"text": {"format": {"type": "text"}, "voice": "low"}}),
        ("store", {"store": True, "metadata": {"memagent.memory": "off"}}),
        ("max_tool_calls", {"max_tool_calls": 3}),
        ("role", {"input": [{"role": "robot", "content": "x"}]}),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_not_supported_is_refused_by_name(
    client: Any, field: str, given: dict[str, Any], stream: bool
) -> None:
    arguments = {"model": "memagent", "input": "Hello", "stream": stream, **given}
    with pytest.raises(openai.BadRequestError, match=field) as refused:
        client.responses.create(**arguments)
    assert refused.value.type == "invalid_request_error" and refused.value.code


def test_extras_are_named_as_dropped(client: Any) -> None:
    answer = client.responses.with_raw_response.create(
        model="memagent",
        input=[
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"role": "user", "content": "x"},
        ],
        include=["reasoning.encrypted_content"],
        reasoning={"summary": "auto"},
    )
    assert answer.headers["x-memagent-dropped"] == "include, reasoning"
    assert answer.parse().status == "completed"


def test_a_tool_that_openai_runs_is_refused_with_what_is_possible(client: Any) -> None:
    with pytest.raises(openai.BadRequestError, match="'web_search'; only functions that you run"):
        client.responses.create(model="memagent", input="x", tools=[{"type": "web_search"}])


def test_a_failing_model_is_told_and_the_message_is_kept(served: Served, client: Any) -> None:
    with pytest.raises(openai.RateLimitError):
        client.responses.create(model="memagent", input="too fast")
    events = list(client.responses.create(model="memagent", input="too fast", stream=True))
    assert events[-1].type == "response.failed"
    assert events[-1].response.error.code == "rate_limit_exceeded"
    assert texts(served).count("too fast") == 1, "an unanswered message is not repeated"
    with pytest.raises(openai.NotFoundError, match="gpt-4o"):
        client.responses.create(model="gpt-4o", input="Hello")


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_users_are_apart_and_a_restart_and_an_erasure_are_kept(
    database: str, request: pytest.FixtureRequest, tmp_path: Any
) -> None:
    model = FunctionModel(upstream)
    with place_on(database, request, tmp_path) as place:
        with serving(place, model=model, design="verbatim") as running:
            ann, bob = running.key("ann"), running.key("bob")
            shared = running.key(None)
            first = _client(running, ann).responses.create(model="memagent", input="I row.")
            with pytest.raises(openai.NotFoundError):
                _client(running, bob).responses.retrieve(first.id)
            with pytest.raises(openai.NotFoundError):
                _client(running, bob).responses.create(
                    model="memagent", input="Go on", previous_response_id=first.id
                )
            _client(running, shared).responses.create(model="memagent", input="I ski.", user="cyd")
        with serving(place, model=model, design="verbatim") as running:
            ours = _client(running, ann)
            assert ours.responses.retrieve(first.id).output_text == first.output_text
            again = ours.responses.create(
                model="memagent", input="And sail.", previous_response_id=first.id
            )
            assert "I row." in shown(model)
            third = ours.responses.create(model="memagent", input="And swim.")
            ours.responses.delete(third.id)
            with pytest.raises(openai.NotFoundError):
                ours.responses.retrieve(third.id)
            assert ours.responses.retrieve(again.id).output_text == again.output_text
            with running.http(running.key("cyd")) as http:
                [session] = http.get("/v1/sessions").json()["items"]
                assert session["turns"][0]["text"] == "I ski."
            with running.http(running.key("ann")) as http:
                job = http.post("/v1/users/ann/erase").json()
                while job["state"] not in ("done", "failed"):
                    job = http.get(f"/v1/jobs/{job['id']}").json()
            for gone in (first.id, again.id):
                with pytest.raises(openai.NotFoundError):
                    ours.responses.retrieve(gone)


def _client(running: Served, key: str) -> Any:
    return openai.OpenAI(base_url=f"{running.url}/v1", api_key=key, max_retries=0)


def test_the_same_idempotency_key_gives_the_first_response(served: Served, client: Any) -> None:
    sent = {"model": "memagent", "input": "I bake rye bread."}
    key = {"Idempotency-Key": "bread"}
    first = client.responses.create(**sent, extra_headers=key)
    assert client.responses.create(**sent, extra_headers=key).id == first.id
    assert texts(served).count("I bake rye bread.") == 1
    assert client.responses.retrieve(first.id).output_text == first.output_text


def test_memory_off_leaves_nothing_behind(
    served: Served, client: Any, model: FunctionModel
) -> None:
    with served.http() as http:
        http.post("/v1/memories", json={"text": "Ana plays the cello"})
    off = {"memagent.memory": "off"}
    answer = client.responses.create(model="memagent", input="Who plays the cello?", metadata=off)
    assert answer.store is False and answer.memagent["thread"] is None
    assert not any("Ana plays" in text for text in shown(model))
    assert "Who plays the cello?" not in texts(served)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(answer.id)
    client.responses.create(model="memagent", input="Who plays the cello?")
    assert any("Ana plays" in text for text in shown(model))

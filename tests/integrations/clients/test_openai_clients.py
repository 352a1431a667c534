"""The checks of `docs/integrations/checks.md` that run in Python: stock clients against
`memagent serve`. Each check uses the memory of a user of its own, named by `user`.
"""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import importlib.util
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from client_ground import Ground, client_ground
from litellm_marks import LITELLM_MARKS
from places import ROOT
from pydantic import BaseModel

from memagent.llm.litellm_errors import load_vendor

pytestmark = [pytest.mark.process, *LITELLM_MARKS]
PAGE = ROOT / "docs" / "integrations" / "checks.md"
PIXEL = "data:image/png;base64,AA"
CITY: Any = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL: Any = {"type": "function", "function": {"name": "weather", "parameters": CITY}}
FLAT: Any = {"type": "function", "name": "weather", "parameters": CITY, "strict": True}
Check = Callable[[Ground, str], None]
CHECKS: dict[tuple[str, str], Check] = {}


class City(BaseModel):
    """A city."""

    city: str


def check(client: str, says: str) -> Callable[[Check], Check]:
    """Enter a check under its client and what it shows."""

    def enter(run: Check) -> Check:
        CHECKS[client, says] = run
        return run

    return enter


def opened(ground: Ground) -> openai.OpenAI:
    strict = {"max_retries": 0, "_strict_response_validation": True}
    return openai.OpenAI(base_url=ground.base_url, api_key="any", **strict)


def chat(ground: Ground, user: str, *messages: Any, **more: Any) -> Any:
    listed: Any = [{"role": "user", "content": m} if isinstance(m, str) else m for m in messages]
    with opened(ground) as client:
        return client.chat.completions.create(model="memagent", messages=listed, user=user, **more)


def stream(ground: Ground, user: str, message: str, **more: Any) -> list[Any]:
    with opened(ground) as client:
        asked: Any = [{"role": "user", "content": message}]
        return list(
            client.chat.completions.create(
                model="memagent", messages=asked, user=user, stream=True, **more
            )
        )


def respond(ground: Ground, **given: Any) -> Any:
    with opened(ground) as client:
        return client.responses.create(model="memagent", **given)


# -- openai, chat ----------------------------------------------------------------------


@check("openai", "lists and retrieves the model; another name is 404")
def _(ground: Ground, user: str) -> None:
    with opened(ground) as client:
        assert [model.id for model in client.models.list()] == ["memagent", "test-model"]
        assert client.models.retrieve("memagent").id == "memagent"
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("gpt-4o")
        hello: Any = [{"role": "user", "content": "Hi"}]
        with pytest.raises(openai.NotFoundError, match="gpt-4o"):
            client.chat.completions.create(model="gpt-4o", messages=hello)


@check("openai", "what one conversation says, another one recalls, with its citation")
def _(ground: Ground, user: str) -> None:
    chat(ground, user, "I adopted a cat called Bolt.")
    ground.add(user, "Ana's cat is called Bolt")
    answer = chat(ground, user, "What is my cat called?")
    assert answer.choices[0].message.content == "Your cat is called Bolt."
    [cited] = answer.memagent["citations"]
    assert "Bolt" in cited["quote"] and cited["hit_id"].startswith("mem_")


@check("openai", "a history that is sent again is remembered once")
def _(ground: Ground, user: str) -> None:
    history: list[Any] = []
    for text in ("I grow figs.", "I grow plums.", "I grow pears."):
        history.append({"role": "user", "content": text})
        answer = chat(ground, user, *history)
        history.append(answer.choices[0].message.model_dump())
    turns = ground.turns(user)
    assert [turns.count(f"I grow {what}.") for what in ("figs", "plums", "pears")] == [1, 1, 1]
    assert len(turns) == 6


@check("openai", "a stream carries the words, the finish and the usage")
def _(ground: Ground, user: str) -> None:
    chunks = stream(ground, user, "I paint boats", stream_options={"include_usage": True})
    words = [c.choices[0].delta.content or "" for c in chunks if c.choices]
    assert "".join(words) == "You said: I paint boats" and len(words) > 3
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].choices == [] and chunks[-1].usage.total_tokens > 0


@check("openai", "without include_usage every chunk of a stream has a choice")
def _(ground: Ground, user: str) -> None:
    assert all(chunk.choices for chunk in stream(ground, user, "I paint boats"))


@check("openai", "a stream carries tool calls")
def _(ground: Ground, user: str) -> None:
    chunks = stream(ground, user, "The weather?", tools=[TOOL])
    calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
    assert [json.loads(call.function.arguments) for call in calls] == [{"city": "Lisbon"}]
    assert chunks[-1].choices[0].finish_reason == "tool_calls"


@check("openai", "an agent loop: tool called, result answered, answer cited, written once")
def _(ground: Ground, user: str) -> None:
    ground.add(user, "Ana's cat is called Bolt")
    messages: list[Any] = [{"role": "user", "content": "The weather for a cat called Bolt?"}]
    for _ in range(4):
        answer = chat(ground, user, *messages, tools=[TOOL])
        message = answer.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            break
        for call in message.tool_calls:
            assert json.loads(call.function.arguments) == {"city": "Lisbon"}
            messages.append({"role": "tool", "tool_call_id": call.id, "content": "sunny"})
    assert message.content == "It is sunny."
    assert [cited["quote"] for cited in answer.memagent["citations"]] == [
        "Ana's cat is called Bolt"
    ]
    chat(ground, user, *messages, "Thanks!", tools=[TOOL])
    assert ground.turns(user) == [
        "The weather for a cat called Bolt?",
        "It is sunny.",
        "Thanks!",
        "You said: Thanks!",
    ]


@check("openai", "two tools are called at once, and both results reach the model")
def _(ground: Ground, user: str) -> None:
    question: Any = {"role": "user", "content": "The weather in Lisbon and Porto?"}
    message = chat(ground, user, question, tools=[TOOL]).choices[0].message
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": what}
        for call, what in zip(message.tool_calls, ("sunny", "rainy"), strict=True)
    ]
    done = chat(ground, user, question, message.model_dump(), *results, tools=[TOOL])
    assert done.choices[0].message.content == "It is sunny and rainy."


@check("openai", "a forced tool is called")
def _(ground: Ground, user: str) -> None:
    for choice in ("required", {"type": "function", "function": {"name": "weather"}}):
        message = chat(ground, user, "Hello", tools=[TOOL], tool_choice=choice).choices[0].message
        assert message.tool_calls[0].function.name == "weather"
        assert ground.sent["tool_choice"] == choice


@check("openai", "`parse` gives an object of the asked type")
def _(ground: Ground, user: str) -> None:
    with opened(ground) as client:
        answer = client.chat.completions.parse(
            model="memagent",
            messages=[{"role": "user", "content": "Where do I live?"}],
            response_format=City,
            user=user,
        )
    assert answer.choices[0].message.parsed == City(city="Lisbon")
    assert ground.sent["response_format"]["json_schema"]["strict"] is True


@check("openai", "`json_object` reaches the model")
def _(ground: Ground, user: str) -> None:
    chat(ground, user, "Where? In JSON.", response_format={"type": "json_object"})
    assert ground.sent["response_format"] == {"type": "json_object"}


@check("openai", "`n` gives as many choices; the first is remembered")
def _(ground: Ground, user: str) -> None:
    answer = chat(ground, user, "I row", n=2)
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert {choice.message.content for choice in answer.choices} == {"You said: I row"}
    assert ground.turns(user) == ["I row", "You said: I row"]


@check("openai", "log-probabilities come back")
def _(ground: Ground, user: str) -> None:
    choice = chat(ground, user, "Yes?", logprobs=True, top_logprobs=2).choices[0]
    assert choice.logprobs.content[0].logprob == -0.25
    assert ground.sent["top_logprobs"] == 2


@check("openai", "an image reaches the model, also from an earlier message")
def _(ground: Ground, user: str) -> None:
    part: Any = {"type": "image_url", "image_url": {"url": PIXEL}}
    look: Any = {"role": "user", "content": [{"type": "text", "text": "Look"}, part]}
    message = chat(ground, user, look).choices[0].message
    assert ground.sent["messages"][-1]["content"][1] == part
    chat(ground, user, look, message.model_dump(), "What was it?")
    assert ground.sent["messages"][1]["content"][1] == part


@check("openai", "stop, seed, temperature and penalties reach the model")
def _(ground: Ground, user: str) -> None:
    given: Any = {"stop": ["END"], "seed": 7, "temperature": 0.5, "frequency_penalty": 0.25}
    chat(ground, user, "Hello", **given, max_completion_tokens=50)
    assert given.items() <= ground.sent.items()
    assert 50 in (ground.sent.get("max_tokens"), ground.sent.get("max_completion_tokens"))


@check("openai", "X-Memagent-Thread names the conversation")
def _(ground: Ground, user: str) -> None:
    header = {"X-Memagent-Thread": f"{user}-monday"}
    chat(ground, user, "I row.", extra_headers=header)
    answer = chat(ground, user, "I ski.", extra_headers=header)
    assert answer.memagent["thread"] == f"{user}-monday"
    assert "I row." in [message["content"] for message in ground.sent["messages"]]


@check("openai", "`user` keeps memories apart")
def _(ground: Ground, user: str) -> None:
    ground.add(user, "Ana's cat is called Bolt")
    chat(ground, f"{user}-other", "What is my cat called?")
    assert "Ana's cat" not in json.dumps(ground.sent)
    chat(ground, user, "What is my cat called?")
    assert "Ana's cat" in json.dumps(ground.sent)


@check("openai", "`metadata` turns memory off for one request")
def _(ground: Ground, user: str) -> None:
    ground.add(user, "Ana's cat is called Bolt")
    chat(ground, user, "What is my cat called?", metadata={"memagent.memory": "off"})
    assert "Ana's cat" not in json.dumps(ground.sent) and ground.turns(user) == []


@check("openai", "a spent quota upstream is RateLimitError, and told inside a stream")
def _(ground: Ground, user: str) -> None:
    with pytest.raises(openai.RateLimitError):
        chat(ground, user, "too fast")
    with pytest.raises(openai.APIError, match="quota"):
        stream(ground, user, "too fast")


@check("openai", "a stream that breaks off upstream is an error; no reply is remembered")
def _(ground: Ground, user: str) -> None:
    with pytest.raises(openai.APIError, match=r"broke off|ended before"):
        stream(ground, user, "break off")
    with pytest.raises(openai.APIError, match=r"broke off|ended before"):
        chat(ground, user, "break off")
    assert set(ground.turns(user)) == {"break off"}


@check("openai", "what the provider refuses is BadRequestError")
def _(ground: Ground, user: str) -> None:
    with pytest.raises(openai.BadRequestError, match="temperature must be below 1"):
        chat(ground, user, "refuse me")


@check("openai", "what is not supported is refused by name")
def _(ground: Ground, user: str) -> None:
    for name, value in (("audio", {"voice": "a"}), ("prediction", {}), ("unheard_of", 1)):
        with pytest.raises(openai.BadRequestError, match=f"`{name}`"):
            chat(ground, user, "Hello", extra_body={name: value})


@check("openai", "embeddings are unit vectors")
def _(ground: Ground, user: str) -> None:
    asked: Any = {"model": "memagent", "input": ["tea", "a dog"]}
    with opened(ground) as client:
        rows = client.embeddings.create(**asked, encoding_format="float").data
        # As base64, which the client's own types know no word of: it cannot be strict here.
        easy = client.with_options(_extra_kwargs={"_strict_response_validation": False})
        packed = easy.embeddings.create(**asked).data
    assert [round(sum(x * x for x in row.embedding), 3) for row in rows] == [1, 1]
    assert [row.embedding for row in packed] == [row.embedding for row in rows]


@check("openai", "token ids are embedded as their text")
def _(ground: Ground, user: str) -> None:
    tokens = [9906, 1917]  # of cl100k_base: Hello world
    with opened(ground) as client:
        rows = [
            client.embeddings.create(model="memagent", input=given, encoding_format="float").data
            for given in ("Hello world", tokens, [tokens, [9906]])
        ]
        assert rows[0][0].embedding == rows[1][0].embedding == rows[2][0].embedding
        assert len(rows[2]) == 2 and rows[2][1].embedding != rows[2][0].embedding
        with pytest.raises(openai.BadRequestError, match="no such token"):
            client.embeddings.create(model="memagent", input=[10**9])


@check("openai", "the asynchronous client streams")
def _(ground: Ground, user: str) -> None:
    async def story() -> str:
        async with openai.AsyncOpenAI(base_url=ground.base_url, api_key="any") as client:
            hello: Any = [{"role": "user", "content": "I bake bread"}]
            chunks = await client.chat.completions.create(
                model="memagent", messages=hello, user=user, stream=True
            )
            return "".join([chunk.choices[0].delta.content or "" async for chunk in chunks])

    assert asyncio.run(story()) == "You said: I bake bread"


# -- openai, responses -----------------------------------------------------------------


@check("openai", "responses: made, fetched, listed, deleted")
def _(ground: Ground, user: str) -> None:
    with opened(ground) as client:
        query = {"user_id": user}
        made = client.responses.create(model="memagent", input="I keep bees.", user=user)
        assert client.responses.retrieve(made.id, extra_query=query).output_text == made.output_text
        assert client.responses.input_items.list(made.id, extra_query=query).data
        client.responses.delete(made.id, extra_query=query)
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(made.id, extra_query=query)


@check("openai", "responses: previous_response_id continues the conversation")
def _(ground: Ground, user: str) -> None:
    first = respond(ground, input="I row.", user=user)
    respond(ground, input="And ski.", user=user, previous_response_id=first.id)
    shown = [message["content"] for message in ground.sent["messages"]]
    assert shown[1:3] == ["I row.", "You said: I row."]
    assert ground.turns(user)[::2] == ["I row.", "And ski."]


@check("openai", "responses: the events of a stream")
def _(ground: Ground, user: str) -> None:
    given: Any = {"model": "memagent", "input": "I row", "user": user}
    with opened(ground) as client, client.responses.stream(**given) as events:
        kinds = [event.type for event in events]
        final = events.get_final_response()
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    assert final.output_text == "You said: I row"


@check("openai", "responses: a tool loop by previous_response_id")
def _(ground: Ground, user: str) -> None:
    asked = respond(ground, input="The weather?", tools=[FLAT], user=user)
    call_id = asked.output[0].call_id
    result: Any = {"type": "function_call_output", "call_id": call_id, "output": "sunny"}
    more = {"previous_response_id": asked.id, "input": [result], "tools": [FLAT]}
    assert respond(ground, **more, user=user).output_text == "It is sunny."
    assert ground.turns(user) == ["The weather?", "It is sunny."]


@check("openai", "responses: `parse` gives an object of the asked type")
def _(ground: Ground, user: str) -> None:
    with opened(ground) as client:
        answer = client.responses.parse(
            model="memagent", input="Where?", text_format=City, user=user
        )
    assert answer.output_parsed == City(city="Lisbon")


@check("openai", "responses: a failing model ends the stream with response.failed")
def _(ground: Ground, user: str) -> None:
    with opened(ground) as client:
        told = client.responses.create(model="memagent", input="too fast", user=user, stream=True)
        last = list(told)[-1]
    assert last.type == "response.failed" and last.response.error is not None
    assert "quota" in last.response.error.message


# -- ChatOpenAI ------------------------------------------------------------------------


def chat_openai(ground: Ground, user: str, **more: Any) -> Any:
    from langchain_openai import ChatOpenAI
    from pydantic import SecretStr

    return ChatOpenAI(
        model="memagent", base_url=ground.base_url, api_key=SecretStr("any"), max_retries=0,
        model_kwargs={"user": user}, **more,
    )  # fmt: skip


def weather(city: str) -> str:
    """Tell the weather in a city."""
    return f"sunny in {city}"


@check("langchain-openai", "`invoke` and `stream`")
def _(ground: Ground, user: str) -> None:
    model = chat_openai(ground, user)
    answer = model.invoke("I row")
    assert answer.text == "You said: I row" and answer.usage_metadata["total_tokens"] > 0
    assert "".join(piece.text for piece in model.stream("I ski")) == "You said: I ski"


@check("langchain-openai", "`bind_tools`, with a forced choice too")
def _(ground: Ground, user: str) -> None:
    model = chat_openai(ground, user)
    [call] = model.bind_tools([weather]).invoke("The weather?").tool_calls
    assert (call["name"], call["args"]) == ("weather", {"city": "Lisbon"})
    assert model.bind_tools([weather], tool_choice="weather").invoke("Hello").tool_calls


@check("langchain-openai", "`with_structured_output` by schema, by function and by JSON mode")
def _(ground: Ground, user: str) -> None:
    model = chat_openai(ground, user)
    for method in ("json_schema", "function_calling", "json_mode"):
        shaped = model.with_structured_output(City, method=method)
        assert shaped.invoke("Where do I live? In JSON.") == City(city="Lisbon"), method


@check("langchain-openai", "`OpenAIEmbeddings`, which sends token ids")
def _(ground: Ground, user: str) -> None:
    from langchain_openai import OpenAIEmbeddings

    litellm: Any = load_vendor("the checks")
    tables = Path(litellm.__file__).parent / "litellm_core_utils" / "tokenizers"
    with opened(ground) as client, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIKTOKEN_CACHE_DIR", str(tables))  # the network has the table too
        model: Any = OpenAIEmbeddings(model="memagent", base_url=ground.base_url, api_key="any")
        plain = client.embeddings.create(model="memagent", input="tea", encoding_format="float")
        assert model.embed_query("tea") == pytest.approx(plain.data[0].embedding)


@check("langchain-openai", "the Responses face, chained by previous_response_id")
def _(ground: Ground, user: str) -> None:
    model = chat_openai(ground, user, use_responses_api=True, use_previous_response_id=True)
    first = model.invoke("I row.")
    model.invoke([("user", "I row."), first, ("user", "And ski.")])
    assert ground.turns(user)[::2] == ["I row.", "And ski."]


@check("langchain", "`create_agent` calls its tool and answers, written once")
def _(ground: Ground, user: str) -> None:
    from langchain.agents import create_agent

    for responses in (False, True):
        model = chat_openai(ground, f"{user}{responses}", use_responses_api=responses)
        agent: Any = create_agent(model, tools=[weather])
        said = agent.invoke({"messages": [("user", "The weather?")]})["messages"]
        assert [message.type for message in said] == ["human", "ai", "tool", "ai"]
        agent.invoke({"messages": [*said, ("user", "Thanks!")]})
        assert ground.turns(f"{user}{responses}") == [
            "The weather?",
            "It is sunny in Lisbon.",
            "Thanks!",
            "You said: Thanks!",
        ]


# -- litellm ---------------------------------------------------------------------------


def litellm_call(ground: Ground, name: str, **given: Any) -> Any:
    return getattr(load_vendor("the checks"), name)(
        model="openai/memagent", api_base=ground.base_url, api_key="any", **given
    )


@check("litellm", "`completion`, whole and streamed")
def _(ground: Ground, user: str) -> None:
    hello = [{"role": "user", "content": "I row"}]
    answer = litellm_call(ground, "completion", messages=hello, user=user)
    assert answer.choices[0].message.content == "You said: I row"
    chunks = litellm_call(ground, "completion", messages=hello, user=user, stream=True)
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == "You said: I row"


@check("litellm", "`completion` with tools")
def _(ground: Ground, user: str) -> None:
    messages: list[Any] = [{"role": "user", "content": "The weather?"}]
    given = {"tools": [TOOL], "user": user, "_skip_mcp_handler": True}
    message = litellm_call(ground, "completion", messages=messages, **given).choices[0].message
    [call] = message.tool_calls
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    messages += [message.model_dump(), result]
    done = litellm_call(ground, "completion", messages=messages, **given)
    assert done.choices[0].message.content == "It is sunny."


@check("litellm", "`completion` with a schema")
def _(ground: Ground, user: str) -> None:
    where = [{"role": "user", "content": "Where do I live?"}]
    answer = litellm_call(ground, "completion", messages=where, response_format=City, user=user)
    assert City.model_validate_json(answer.choices[0].message.content) == City(city="Lisbon")


@check("litellm", "`embedding`")
def _(ground: Ground, user: str) -> None:
    answer = litellm_call(ground, "embedding", input=["tea"], encoding_format="float")
    assert len(answer.data[0]["embedding"]) > 100


@check("litellm", "errors keep their kind")
def _(ground: Ground, user: str) -> None:
    vendor: Any = load_vendor("the checks")
    for text, kind in (("too fast", vendor.RateLimitError), ("refuse me", vendor.BadRequestError)):
        asked = [{"role": "user", "content": text}]
        with pytest.raises(kind):
            litellm_call(ground, "completion", messages=asked, user=user, max_retries=0)


# -- the tests -------------------------------------------------------------------------

NEEDS = {"langchain-openai": "langchain_openai", "langchain": "langchain_openai"}


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    with client_ground(tmp_path_factory.mktemp("clients")) as running:
        yield running


@pytest.mark.parametrize("number", range(len(CHECKS)), ids=lambda n: str(list(CHECKS)[n][1])[:60])
def test_a_stock_client_is_at_home(number: int, ground: Ground) -> None:
    (client, _), run = list(CHECKS.items())[number]
    needed = NEEDS.get(client)
    if needed is not None and importlib.util.find_spec(needed) is None:
        pytest.skip(f"needs {needed}: python scripts/framework_tests.py langchain")
    run(ground, f"user{number}")


def test_the_page_lists_these_checks() -> None:
    rows = re.findall(r"^\| \d+ \| (\S+) \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.M)
    assert rows[: len(CHECKS)] == list(CHECKS)
    assert len(rows) >= 40

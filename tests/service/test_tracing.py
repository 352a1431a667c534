"""OpenTelemetry's spans with the real SDK: what the tree is, what it tells, that it
tells no words, and what it costs when it is off.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from places import ROOT

pytest.importorskip("opentelemetry.sdk", reason="needs opentelemetry-sdk")

from rollout_kit import reply
from service_kit import serving
from tracing_kit import attributes, failed, traced

from memagent import Agent, Question, Session, Turn
from memagent.build import open_agent
from memagent.core.errors import ModelError, ModelTimeout, ModelUnavailable
from memagent.core.exchange import ModelRequest, ModelResponse, Role, Usage
from memagent.llm.wrappers import RetryingModel, RoutedModel, TracedModel
from memagent.testing.models import FunctionModel, ScriptedModel, check_chat_model

MARKER = "quincunx"
TURNS = (
    Turn(id=f"{MARKER}:1", speaker=f"Ana{MARKER}", text=f"the {MARKER} lamp is in room 7"),
    Turn(id=f"{MARKER}:2", speaker="Ben", text="I like rain"),
)
SESSION = Session(id=f"{MARKER}-session", turns=TURNS)


def model() -> FunctionModel:
    """Keeps every turn, cites the first memory, and repeats what it was told in
    everything it says; priced.
    """

    def answer(request: ModelRequest) -> ModelResponse:
        text = reply(request)
        if request.role is Role.ANSWERER:
            ids = re.findall(r"mem_\d+", request.messages[1].content)
            text = json.dumps({"answer": f"{MARKER} room 7", "citations": ids[:1]})
        usage = Usage(calls=1, prompt_tokens=11, completion_tokens=3, cost_usd=0.002)
        return ModelResponse(id=f"res_{MARKER}", text=text, usage=usage, model="big-model-2026")

    class Named(FunctionModel):
        def name_for(self, request: ModelRequest) -> str:
            return "azure/big-model"

    return Named(answer)


async def remember_and_ask(**options: Any) -> None:
    async with open_agent(
        user_id=f"{MARKER}@example.org",
        path=":memory:",
        embedder="hashing",
        model=model(),
        design="memory_r2",
        **options,
    ) as agent:
        await agent.remember(SESSION)
        answer = await agent.ask(f"Where is the {MARKER} lamp?")
        assert MARKER in answer.text and answer.citations


async def test_a_remembered_session_and_an_answer_are_two_trees() -> None:
    with traced() as seen:
        await remember_and_ask()
    remembered, asked = seen.tree()
    chat = ["chat big-model"]
    assert remembered == [
        "upsert_memory",
        ["extract", chat],
        ["relate"],
        ["decide", chat],
        ["commit"],
        ["index"],
    ]
    assert asked == ["invoke_agent memagent", ["search_memory"], ["answer", chat]]
    assert not any(failed(span) for span in seen.spans)


async def test_spans_tell_operations_models_tokens_and_cost_by_the_conventions() -> None:
    with traced() as seen:
        await remember_and_ask()
    told = attributes(seen.one("upsert_memory"))
    assert told["gen_ai.operation.name"] == "upsert_memory"
    assert told["gen_ai.memory.record.count"] == 2 and told["memagent.chunks"] == 1
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (22, 6)
    assert told["memagent.usage.cost_usd"] == pytest.approx(0.004)
    chats = [attributes(span) for span in seen.named("chat big-model")]
    assert [chat["memagent.role"] for chat in chats] == ["extractor", "manager", "answerer"]
    for chat in chats:
        assert chat["gen_ai.operation.name"] == "chat"
        assert (chat["gen_ai.provider.name"], chat["gen_ai.request.model"]) == (
            "azure.ai.openai",
            "big-model",
        )
        assert chat["gen_ai.response.model"] == "big-model-2026"
        assert (chat["gen_ai.usage.input_tokens"], chat["gen_ai.usage.output_tokens"]) == (11, 3)
        assert (
            chat["gen_ai.response.finish_reasons"] == ("stop",)
            and len(chat["memagent.prompt.digest"]) == 64
        )
    answered = attributes(seen.one("invoke_agent memagent"))
    assert answered["memagent.citations"] == 1 and answered["memagent.verdict"] == "supported"
    assert (
        answered["memagent.design"] == "memory_r2" and answered["gen_ai.agent.name"] == "memagent"
    )
    assert attributes(seen.one("search_memory"))["gen_ai.memory.record.count"] == 2


async def test_direct_verbs_are_spans_with_how_many_memories_they_touched() -> None:
    async def run() -> None:
        async with open_agent(path=":memory:", embedder="hashing") as agent:
            memory = agent.memory
            item = await memory.add(f"a {MARKER}", id=f"{MARKER}-id")
            made = (await memory.add_many([f"one {MARKER}", "two", "three"]))[0]
            await memory.update(item.id, f"another {MARKER}")
            assert len(await memory.search(MARKER, k=2, recipe="fast")) == 2
            await memory.delete(made.id)
            await memory.undo()
            await memory.restore(await memory.snapshot())
            await memory.delete_all(user_id="default")
            await memory.reset(user_id="default")

    with traced() as seen:
        await run()
    told = [
        (
            span.name,
            attributes(span).get("memagent.verb"),
            attributes(span)["gen_ai.memory.record.count"],
        )
        for span in seen.spans
    ]
    assert told == [
        ("create_memory", "add", 1), ("create_memory", "add_many", 3), ("update_memory", "update", 1),
        ("search_memory", None, 2), ("delete_memory", "delete", 1), ("update_memory", "undo", 1),
        ("update_memory", "restore", 1), ("delete_memory", "delete_all", 4), ("delete_memory_store", "reset", 1),
    ]  # fmt: skip
    search = attributes(seen.one("search_memory"))
    assert (search["memagent.recipe"], search["memagent.k"]) == ("fast", 2)
    assert MARKER not in seen.json


@pytest.mark.parametrize("retried", [False, True], ids=["at-once", "after-retries"])
async def test_a_model_that_fails_is_an_error_on_its_span_and_on_those_above(retried: bool) -> None:
    failure: ModelError = (
        ModelUnavailable(f"no {MARKER} today") if retried else ModelTimeout(f"no {MARKER} today")
    )

    async def run() -> None:
        async def no_wait(_: float) -> None: ...

        broken = ScriptedModel([failure] * 6)
        used = RetryingModel(broken, attempts=3, sleep=no_wait) if retried else broken
        async with open_agent(
            path=":memory:", embedder="hashing", model=used, design="memory_r2"
        ) as agent:
            assert (await agent.remember(SESSION, on_error="keep")).failed_chunks
            await agent.memory.add("the lamp is in room 7")
            with pytest.raises(ModelError):
                await agent.ask("Where is the lamp?")
        assert broken.remaining == (0 if retried else 4)

    with traced() as seen:
        await run()
    for name in ("upsert_memory", "extract", "invoke_agent memagent", "answer"):
        assert failed(seen.one(name)), name
        assert attributes(seen.one(name))["error.type"] == type(failure).__name__
    chats = seen.named("chat")
    assert len(chats) == 2, "one span covers a call with all its retries"
    assert all(
        failed(chat) and attributes(chat)["error.type"] == type(failure).__name__ for chat in chats
    )
    assert not any(span.status.description or span.events for span in seen.spans)
    assert MARKER not in seen.json


async def test_no_span_tells_a_word_unless_the_agent_was_told_to() -> None:
    with traced() as silent:
        await remember_and_ask()
    assert len(silent.spans) == 12 and MARKER not in silent.json and "rain" not in silent.json
    with traced() as telling:
        await _with_content()
    chat = attributes(telling.named("chat big-model")[0])
    assert MARKER in chat["gen_ai.input.messages"] and MARKER in chat["gen_ai.output.messages"]
    searched = attributes(telling.named("search_memory")[0])
    assert (
        MARKER in searched["gen_ai.memory.query.text"]
        and MARKER in searched["gen_ai.memory.records"]
    )
    asked = attributes(telling.one("invoke_agent memagent"))
    assert json.loads(asked["gen_ai.input.messages"])[0]["parts"][0]["type"] == "text"
    assert MARKER in attributes(telling.one("create_memory"))["gen_ai.memory.records"]


async def _with_content() -> None:
    from memagent.config import AgentSettings

    settings = AgentSettings(capture_content=True, design="memory_r2")
    async with open_agent(
        settings=settings, path=":memory:", embedder="hashing", model=model()
    ) as agent:
        await agent.remember(SESSION)
        await agent.ask(f"Where is the {MARKER} lamp?")
        await agent.memory.add(f"a {MARKER}")


async def test_a_streamed_answer_is_one_tree_even_when_the_listener_leaves() -> None:
    async def run(*, leave: bool) -> None:
        async with open_agent(
            path=":memory:", embedder="hashing", model=model(), design="memory_r2"
        ) as agent:
            await agent.memory.add("the lamp is in room 7")
            steps = agent.stream(Question(text="Where is the lamp?"))
            async for _ in steps:
                if leave:
                    break
            await steps.aclose()  # type: ignore[attr-defined]

    with traced() as seen:
        await run(leave=False)
        assert seen.tree()[-1] == [
            "invoke_agent memagent",
            ["search_memory"],
            ["answer", ["chat big-model"]],
        ]
        assert attributes(seen.one("invoke_agent memagent"))["memagent.citations"] == 1
        seen.exporter.clear()
        await run(leave=True)
        assert not failed(seen.one("invoke_agent memagent"))


def test_a_span_of_the_program_is_the_parent_across_threads() -> None:
    from opentelemetry import trace

    with traced() as seen, Agent(path=":memory:", embedder="hashing") as agent:
        with trace.get_tracer("program").start_as_current_span("program"):
            agent.memory.add("the lamp is in room 7")
        agent.memory.search("lamp")
        assert seen.tree() == [["program", ["create_memory"]], ["search_memory"]]


async def test_a_traced_model_is_a_model() -> None:
    with traced() as seen:
        await check_chat_model(lambda: TracedModel(FunctionModel(lambda _: "a few words")))
        assert {one.name for one in seen.spans} == {"chat"}


async def test_roles_name_their_own_models() -> None:
    class Named(FunctionModel):
        def __init__(self, name: str, answer: Callable[[ModelRequest], str]) -> None:
            super().__init__(answer)
            self.name = name

        def name_for(self, request: ModelRequest) -> str:
            return self.name

    async def run() -> None:
        routed = RoutedModel(
            {Role.EXTRACTOR: Named("ollama_chat/small", reply)}, default=Named("plain", reply)
        )
        async with open_agent(
            path=":memory:", embedder="hashing", model=routed, design="memory_r2"
        ) as agent:
            await agent.remember(SESSION)

    with traced() as seen:
        await run()
    small, plain = attributes(seen.one("chat small")), attributes(seen.one("chat plain"))
    assert (small["gen_ai.provider.name"], plain["gen_ai.provider.name"]) == (
        "ollama_chat",
        "custom",
    )


# -- the service -----------------------------------------------------------------------

PARENT = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}


def test_a_trace_goes_on_through_a_request_and_the_job_it_started() -> None:
    with (
        traced() as seen,
        serving(model=model(), design="memory_r2") as running,
        running.http(**PARENT) as http,
    ):
        turns = [{"speaker": "Ana", "text": f"the {MARKER} lamp is in room 7"}]
        job = http.post(
            "/v1/sessions", json={"turns": turns}, headers={"X-Request-Id": "abc"}
        ).json()
        while job["state"] in ("queued", "running"):
            job = http.get(f"/v1/jobs/{job['id']}").json()
        assert http.get(f"/v1/memories/{MARKER}").status_code == 404
    posted = seen.one("POST /v1/sessions")
    assert posted.context is not None and posted.parent is not None
    assert f"{posted.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert f"{posted.parent.span_id:016x}" == "b7ad6b7169203331"
    assert posted.kind.name == "SERVER"
    told = attributes(posted)
    assert (told["http.request.method"], told["http.route"], told["http.response.status_code"]) == (
        "POST",
        "/v1/sessions",
        202,
    )
    assert told["memagent.request.id"] == "abc"
    worked = seen.tree(posted)[1:]
    assert [branch[0] for branch in worked] == ["memagent.job"]
    assert worked[0][1][:2] == ["upsert_memory", ["extract", ["chat big-model"]]]
    assert not failed(seen.one("GET /v1/memories/{memory_id:path}"))
    assert MARKER not in seen.json


def test_a_failed_request_is_an_error_and_a_streamed_chat_is_below_its_request() -> None:
    broken = ScriptedModel([ModelTimeout(MARKER)])
    with (
        traced() as seen,
        serving(model=broken, design="memory_r2") as running,
        running.http() as http,
    ):
        http.post("/v1/memories", json={"text": "the lamp is in room 7"})
        assert http.post("/v1/questions", json={"text": "Where is the lamp?"}).status_code == 504
    assert failed(seen.one("POST /v1/questions"))
    assert attributes(seen.one("POST /v1/questions"))["error.type"] == "504"
    talker = FunctionModel(lambda _: f"In room 7, {MARKER}.")
    with (
        traced() as seen,
        serving(model=talker, design="verbatim") as running,
        running.http() as http,
    ):
        body = {"messages": [{"role": "user", "content": f"the {MARKER} lamp?"}], "stream": True}
        assert "[DONE]" in http.post("/v1/chat/completions", json=body).text
        assert (
            "event: answer"
            in http.post(
                "/v1/questions", json={"text": "lamp?"}, headers={"Accept": "text/event-stream"}
            ).text
        )
    (invoked,) = [
        branch
        for branch in seen.tree(seen.one("POST /v1/chat/completions"))[1:]
        if branch[0] == "invoke_agent memagent"
    ]
    steps = [branch[0] for branch in invoked[1:]]
    assert steps == ["load", "recall", "respond", "deliver", "remember"]
    assert invoked[3][1][0] == "chat"
    assert seen.tree(seen.one("POST /v1/questions"))[1][0] == "invoke_agent memagent"
    assert MARKER not in seen.json


def test_mcp_tools_are_spans_below_their_request_without_what_the_client_wrote() -> None:
    pytest.importorskip("mcp")
    from test_service_mcp import HEADERS, connected

    async def run(url: str) -> None:
        # the official client makes spans of its own, and names them in what it sends
        async with connected(url) as tools:
            await tools(MARKER, text=MARKER)
            await tools("history", memory_id=f"no-{MARKER}")

    add = {"name": "add", "arguments": {"text": f"the {MARKER} lamp is in room 7"}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": add}
    with traced() as seen, serving() as running, running.http(**HEADERS, **PARENT) as http:
        assert http.post("/mcp", json=call).status_code == 200
        posted = seen.one("POST /mcp")
        assert (
            posted.context is not None
            and f"{posted.context.trace_id:032x}" == PARENT["traceparent"].split("-")[1]
        )
        assert seen.tree(posted) == ["POST /mcp", ["tools/call add", ["create_memory"]]]
        assert attributes(seen.one("tools/call add"))["gen_ai.tool.name"] == "add"
        asyncio.run(run(running.url))
    ours = [
        one
        for one in seen.spans
        if one.instrumentation_scope and one.instrumentation_scope.name == "memagent"
    ]
    tools = {one.name: one for one in ours}
    assert failed(tools["tools/call history"]) and failed(tools["tools/call unknown"])
    assert tools["tools/call history"].parent is not None
    assert not any(MARKER in one.to_json() for one in ours)


# -- off -------------------------------------------------------------------------------


def test_without_an_sdk_nothing_of_opentelemetry_is_loaded_and_nothing_changes() -> None:
    code = """
import sys, asyncio
from memagent.build import open_agent
async def main():
    async with open_agent(path=":memory:", embedder="hashing") as agent:
        await agent.memory.add("the lamp is in room 7")
        assert await agent.search("lamp")
        if "opentelemetry.trace" not in sys.modules:
            print([name for name in sys.modules if name.startswith("opentelemetry")])
        assert agent.context.model is agent.model
        assert (await agent.ask("Where is the lamp?")).citations
asyncio.run(main())
import opentelemetry.trace
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_the_example_of_the_documentation_runs() -> None:
    page = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block], capture_output=True, text=True, timeout=100
    )
    assert (
        done.stdout.strip()
        == "['create_memory', 'search_memory', 'answer', 'invoke_agent memagent']"
    ), done.stderr

"""The service's log and figures: what language models cost by request, job, role and
model, and not one word of anybody.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from rollout_kit import reply
from service_kit import serving

from memagent.core.errors import ModelTimeout
from memagent.core.exchange import Message, ModelRequest, ModelResponse, Role, Usage
from memagent.llm.wrappers import aclose_stream
from memagent.service.metrics import MOST_MODELS, MeteredModel, Metrics
from memagent.testing.models import FunctionModel, check_chat_model

MARKER = "quincunx"
LOGGERS = ("memagent", "mcp", "uvicorn", "asyncio", "langgraph")


@contextmanager
def listening() -> Iterator[list[str]]:
    """Every line that any of these loggers writes at any level, as a file would have
    it, tracebacks included.
    """
    lines: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(self.format(record))

    keep = Keep(logging.DEBUG)
    keep.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s"))
    root, before = logging.getLogger(), {name: logging.getLogger(name).level for name in LOGGERS}
    root.addHandler(keep)
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.DEBUG)
    try:
        yield lines
    finally:
        root.removeHandler(keep)
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


def told(lines: list[str], logger: str) -> list[dict[str, Any]]:
    """The JSON lines of a logger."""
    return [
        json.loads(line.split(" ", 2)[2])
        for line in lines
        if line.startswith(f"INFO memagent.service.{logger} ")
    ]


def priced(request: ModelRequest) -> ModelResponse:
    text = reply(request)
    if request.role is Role.ANSWERER:
        ids = re.findall(r"mem_\d+", request.messages[1].content)
        text = json.dumps({"answer": f"{MARKER} room 7", "citations": ids[:1]})
    usage = Usage(calls=1, prompt_tokens=11, completion_tokens=3, cost_usd=0.002)
    return ModelResponse(id=f"res-{MARKER}", text=text, usage=usage, model="big-model")


def finished(http: httpx.Client, job: dict[str, Any]) -> dict[str, Any]:
    while job["state"] in ("queued", "running"):
        job = http.get(f"/v1/jobs/{job['id']}").json()
    return job


def session(number: int = 0) -> dict[str, Any]:
    return {
        "id": f"ses{number}",
        "turns": [{"speaker": f"Ana{MARKER}", "text": f"the {MARKER} lamp is in room 7"}],
    }


def test_lines_tell_what_models_cost_by_call_request_and_job() -> None:
    with (
        listening() as lines,
        serving(model=FunctionModel(priced), design="memory_r2") as running,
        running.http() as http,
    ):
        job = finished(http, http.post("/v1/sessions", json=session()).json())
        assert http.post("/v1/sessions?wait=true", json=session(1)).status_code == 200
        asked = http.post(
            "/v1/questions",
            json={"text": "Where is the lamp?"},
            headers={"X-Request-Id": "asked-1"},
        )
        assert asked.json()["citations"]
        figures = http.get("/metrics").text
    calls = told(lines, "models")
    assert [call["role"] for call in calls] == [
        "extractor",
        "manager",
        "extractor",
        "manager",
        "answerer",
    ]
    for call in calls:
        assert (call["event"], call["model"], call["outcome"]) == ("model_call", "big-model", "ok")
        assert (call["input_tokens"], call["output_tokens"], call["cost_usd"]) == (
            11,
            3,
            0.002,
        ) and call["ms"] >= 0
    assert calls[-1]["request_id"] == "asked-1" and "request_id" not in calls[0]
    (line,) = told(lines, "jobs")
    assert {**line, "at": "", "ms": 0} == {
        "at": "", "event": "job", "job_id": job["id"], "kind": "ingest", "attempt": 1, "outcome": "ok", "ms": 0,
        "stored_turns": 0, "chunks": 1, "skipped": False, "ops": {"ADD": 1, "UPDATE": 0, "DELETE": 0, "NOOP": 0, "REJECTED": 0},
        "model_calls": 2, "input_tokens": 22, "output_tokens": 6, "cost_usd": 0.004,
    }  # fmt: skip
    by_route = {(one["method"], one["route"], one["status"]): one for one in told(lines, "access")}
    assert by_route["POST", "/v1/sessions", 200]["input_tokens"] == 22, (
        "who waits is told what it cost"
    )
    assert "model_calls" not in by_route["POST", "/v1/sessions", 202]
    question = by_route["POST", "/v1/questions", 200]
    assert (question["model_calls"], question["output_tokens"], question["cost_usd"]) == (
        1,
        3,
        0.002,
    )
    assert 'memagent_model_calls_total{model="big-model",outcome="ok",role="manager"} 2' in figures
    assert (
        'memagent_model_tokens_total{kind="input",model="big-model",role="answerer"} 11' in figures
    )
    assert 'memagent_model_cost_usd_total{model="big-model",role="extractor"} 0.004' in figures
    assert re.search(
        r'memagent_model_seconds_total\{model="big-model",role="manager"\} \d', figures
    )
    assert MARKER not in "\n".join([*lines, figures])


def test_no_line_repeats_a_word_whatever_goes_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words in texts, ids, names, queries, paths, cursors, headers and messages of
    errors; all of it through every part.
    """

    def broken(request: ModelRequest) -> ModelResponse:
        if request.role is Role.MANAGER:
            raise ModelTimeout(f"the provider repeats: {MARKER}")
        if request.role is Role.ANSWERER:
            raise RuntimeError(f"a bug that repeats: {MARKER}")
        return priced(request)

    model = FunctionModel(broken)
    with (
        listening() as lines,
        serving(tmp_path / "memory.db", model=model, design="memory_r2") as running,
    ):
        http = running.http(**{"X-Request-Id": "r1", "User-Agent": MARKER, "Cookie": MARKER})
        with http:
            assert (
                http.post(
                    "/v1/memories", json={"text": MARKER, "id": MARKER, "tags": [MARKER]}
                ).status_code
                == 201
            )
            http.post("/v1/memories", json={"text": [MARKER], MARKER: MARKER})
            http.post(
                "/v1/memories",
                content=f'{{"text": "{MARKER}'.encode(),
                headers={"Content-Type": "application/json"},
            )
            http.post("/v1/search", json={"text": MARKER, "recipe": MARKER})
            http.get(f"/v1/memories/{MARKER}", params={MARKER: MARKER})
            http.get("/v1/memories", params={"cursor": MARKER, "run_id": MARKER})
            http.get(f"/{MARKER}")
            http.post("/v1/sessions?wait=true", json=session())
            http.post("/v1/sessions", json=session(1))
            assert http.post("/v1/questions", json={"text": MARKER}).status_code >= 500
            http.post("/v1/chat", json={"text": MARKER})
            stream = {"messages": [{"role": "user", "content": MARKER}], "stream": True}
            with suppress(httpx.RemoteProtocolError):
                http.post("/v1/chat/completions", json=stream)
            http.post(f"/v1/users/{MARKER}/export")
            _mcp_calls(http)
            monkeypatch.setattr(running.service.keys, "_keys", lambda: {}[MARKER])
            assert http.get("/v1/memories").status_code == 500
    text = "\n".join(lines)
    assert len(lines) > 30 and "ModelTimeout" in text and "RuntimeError" in text, (
        "it must have gone wrong, or this is vacuous"
    )
    assert [line for line in lines if MARKER in line] == []


def _mcp_calls(http: httpx.Client) -> None:
    pytest.importorskip("mcp")
    accept = {"Accept": "application/json, text/event-stream"}
    for version in (
        {},
        {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call"},
        {"MCP-Protocol-Version": MARKER},
    ):
        for name, arguments in (
            ("ask", {"question": MARKER}),
            ("history", {"memory_id": MARKER}),
            (MARKER, {}),
            ("add", {"text": 5, MARKER: 1}),
        ):
            call = {
                "jsonrpc": "2.0",
                "id": MARKER,
                "method": "tools/call",
                "params": {"name": name, "arguments": arguments},
            }
            assert http.post("/mcp", json=call, headers={**accept, **version}).status_code < 500
        http.post(
            "/mcp",
            json={"jsonrpc": "2.0", "id": 1, "method": MARKER, "params": {MARKER: MARKER}},
            headers={**accept, **version},
        )


def test_a_model_that_fails_is_counted_and_its_job_told() -> None:
    def down(_: ModelRequest) -> ModelResponse:
        raise ModelTimeout(MARKER)

    with (
        listening() as lines,
        serving(model=FunctionModel(down), design="memory_r2") as running,
        running.http() as http,
    ):
        http.post("/v1/sessions", json=session())
        while not told(lines, "jobs"):
            http.get("/healthz")
        figures = http.get("/metrics").text
    call, job = told(lines, "models")[0], told(lines, "jobs")[0]
    assert (call["outcome"], call["error"], call["model"]) == ("error", "ModelTimeout", "")
    assert (job["outcome"], job["error"], job["model_calls"]) == ("error", "model_error", 1)
    assert 'memagent_model_calls_total{model="unknown",outcome="error",role="extractor"}' in figures


def test_the_labels_of_models_are_bounded_whatever_providers_call_themselves() -> None:
    metrics = Metrics()
    for number in range(100):
        metrics.models.observe(
            "answerer",
            f"provider/model-{number}",
            Usage(prompt_tokens=1),
            seconds=0.1,
            outcome="ok",
        )
    for name in ('x"} 1\nevil 1', f"{MARKER} words of somebody", "m" * 500):
        metrics.models.observe("answerer", name, Usage(prompt_tokens=1), seconds=0.1, outcome="ok")
    rows = [line for line in metrics.text({}).splitlines() if "memagent_model_calls_total{" in line]
    assert len(rows) == MOST_MODELS + 1
    labels = r"\{model=\"[\w./-]+\",outcome=\"ok\",role=\"answerer\"\}"
    assert all(re.fullmatch(rf"memagent_model_calls_total{labels} [\d.]+", row) for row in rows)
    other = {"role": "answerer", "model": "other", "outcome": "ok"}
    assert metrics.value("memagent_model_calls_total", **other) == 100 - MOST_MODELS + 3


async def test_a_metered_model_is_a_model_and_a_stream_that_is_given_up_is_counted() -> None:
    await check_chat_model(
        lambda: MeteredModel(FunctionModel(lambda _: "a few words"), Metrics().models)
    )
    metrics = Metrics()

    stream = MeteredModel(FunctionModel(lambda _: "a few words"), metrics.models).stream(
        ModelRequest(role=Role.ANSWERER, messages=(Message(role="user", content="x"),))
    )
    async for _ in stream:
        break
    await aclose_stream(stream)
    labels = {"role": "answerer", "model": "unknown", "outcome": "given_up"}
    assert metrics.value("memagent_model_calls_total", **labels) == 1
    assert metrics.text({}).count("memagent_model_calls_total{") == 1

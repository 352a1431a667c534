"""Chat in OpenAI's format with its official client, streaming, and every error as a
problem that becomes the same error again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import httpx
import openai
import pytest
from service_kit import serving

from memagent import AsyncClient, Client
from memagent.client.http import FAULTS, Problem, ServiceError, error_of, problem_of
from memagent.core import errors
from memagent.core.errors import MemAgentError, MemoryNotFound, ModelTimeout
from memagent.testing.models import FunctionModel, ScriptedModel


def told(model: FunctionModel) -> str:
    """Everything the model was shown in its last request."""
    return "\n".join(message.content for message in model.requests[-1].messages)


def test_the_official_client_talks_to_it_and_is_remembered(new_place: Callable[[], str]) -> None:
    model = FunctionModel(lambda _: "Your cat is called Bolt.")
    with (
        serving(new_place(), model=model, design="verbatim") as running,
        Client(running.url) as client,
    ):
        client.memory.add("Ana adopted a cat called Bolt")
        nobody = openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)
        with nobody as chat:
            assert chat.models.list().data, "without keys any token is welcome"
        key = running.key("default")
        nobody = openai.OpenAI(base_url=f"{running.url}/v1", api_key="none", max_retries=0)
        with nobody as chat, pytest.raises(openai.AuthenticationError):
            chat.models.list()
        with openai.OpenAI(base_url=f"{running.url}/v1", api_key=key, max_retries=0) as chat:
            assert [one.id for one in chat.models.list().data] == ["memagent"]
            asked: Sequence[Any] = [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "What is my cat called?"},
            ]
            answer = chat.chat.completions.create(
                model="memagent", messages=asked, user="somebody-else", temperature=0
            )
            assert answer.choices[0].message.content == "Your cat is called Bolt."
            assert answer.usage is not None and answer.usage.total_tokens > 0
            assert "Ana adopted a cat called Bolt" in told(model) and "Be brief." in told(model)
            assert model.requests[-1].sampling.temperature == 0
            pieces = [
                chunk.choices[0].delta.content or ""
                for chunk in chat.chat.completions.create(
                    model="memagent", messages=asked, stream=True
                )
            ]
            assert "".join(pieces) == "Your cat is called Bolt." and len(pieces) > 3
            with pytest.raises(openai.BadRequestError, match="no user message"):
                chat.chat.completions.create(
                    model="memagent", messages=[{"role": "system", "content": "x"}]
                )
    with serving(new_place()) as running:
        key = running.key("ann")
        with (
            Client(running.url, api_key=key) as mine,
            openai.OpenAI(base_url=f"{running.url}/v1", api_key=key) as chat,
        ):
            chat.chat.completions.create(
                model="memagent",
                messages=[{"role": "user", "content": "I moved to Lisbon"}],
                user="bob",
            )
            assert mine.memory.sessions()[0].turns[0].text == "I moved to Lisbon"
        with Client(running.url, api_key=running.key("bob")) as other:
            assert other.memory.sessions() == []


def test_a_model_that_fails_in_the_middle_of_a_stream_is_told_and_the_turn_is_kept(
    place: str,
) -> None:
    model = ScriptedModel([ModelTimeout("late"), ModelTimeout("late")])
    with serving(place, model=model, design="verbatim") as running, running.http() as http:
        http.post("/v1/memories", json={"text": "Tea is hot"})
        body = {"messages": [{"role": "user", "content": "Is tea hot?"}], "stream": True}
        answer = http.post("/v1/chat/completions", json=body).text
        assert '"code": "model_timeout"' in answer and answer.endswith("data: [DONE]\n\n")
        assert http.get("/v1/sessions").json()["items"][0]["turns"][0]["text"] == "Is tea hot?"


def test_a_listener_who_leaves_does_not_lose_the_turn(place: str) -> None:
    async def slow(_: object) -> str:
        await asyncio.sleep(5)
        return "late"

    with (
        serving(place, model=FunctionModel(slow), design="verbatim") as running,
        running.http() as http,
    ):
        http.post("/v1/memories", json={"text": "Tea is hot"})
        body = {"messages": [{"role": "user", "content": "Is tea hot?"}], "stream": True}
        with http.stream("POST", "/v1/chat/completions", json=body) as answer:
            next(answer.iter_lines())
        for _ in range(200):
            items = http.get("/v1/sessions").json()["items"]
            if items:
                break
        assert items and items[0]["turns"][0]["text"] == "Is tea hot?"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.code)
def test_every_error_survives_the_journey(fault: Any) -> None:
    made = {
        errors.MissingExtra: lambda: errors.MissingExtra("llm", needed_for="it"),
        errors.VersionConflict: lambda: errors.VersionConflict("stale", expected=1, actual=2),
        errors.StoreLocked: lambda: errors.StoreLocked("locked", pid=1),
    }
    error: MemAgentError = made.get(fault.kind, lambda: fault.kind("what happened"))()
    problem = Problem.model_validate_json(problem_of(error).model_dump_json())
    assert (problem.status, problem.code, problem.retryable) == (
        fault.status,
        fault.code,
        error.retryable,
    )
    back = error_of(problem)
    if fault.status == 500:
        assert isinstance(back, ServiceError) and "what happened" not in str(back)
    else:
        assert isinstance(
            back, errors.ConfigError if fault.kind is errors.MissingExtra else fault.kind
        )
        assert back.retryable == error.retryable
    if isinstance(back, errors.VersionConflict):
        assert (back.expected, back.actual) == (1, 2)


def test_a_user_in_the_wrong_place_and_a_wrong_path_are_told_the_right_one() -> None:
    with serving() as running, running.http() as http:
        wrong = http.post("/v1/memories", json={"text": "one", "user_id": "ana"}).json()
        assert [fault["message"] for fault in wrong["errors"]] == [
            "give the user in the query: ?user_id=ID"
        ]
        assert (
            http.get("/v1/memories?user=ana").json()["detail"] == "the user is named by ?user_id="
        )
        assert "/docs describes the API" in http.get("/v1/ask").json()["detail"]


def test_the_table_knows_every_class_of_the_tree() -> None:
    def tree(kind: type[MemAgentError]) -> set[type[MemAgentError]]:
        return {kind}.union(
            *(tree(one) for one in kind.__subclasses__() if one.__module__ == errors.__name__)
        )

    assert {fault.kind for fault in FAULTS} == tree(MemAgentError)


@pytest.mark.parametrize(
    ("method", "path", "send", "status", "code"),
    [
        ("GET", "/v1/nowhere", {}, 404, "no_such_path"),
        ("PUT", "/v1/memories", {}, 405, "method_not_allowed"),
        (
            "POST",
            "/v1/memories",
            {"content": b"{", "headers": {"Content-Type": "application/json"}},
            400,
            "malformed",
        ),
        ("POST", "/v1/memories", {"json": {"txt": "x"}}, 422, "invalid_request"),
        ("POST", "/v1/memories", {"json": {"text": "  "}}, 422, "invalid_input"),
        ("POST", "/v1/memories", {"json": {"text": "x" * 20_001}}, 422, "invalid_request"),
        ("POST", "/v1/memories/batch", {"json": {"texts": ["x"] * 1_001}}, 422, "invalid_request"),
        ("POST", "/v1/search", {"json": {"text": "x", "k": 0}}, 422, "invalid_request"),
        ("POST", "/v1/search", {"json": {"text": "x", "recipe": "nope"}}, 422, "invalid_request"),
        ("GET", "/v1/memories?cursor=AAAA", {}, 400, "invalid_cursor"),
        ("GET", "/v1/memories?limit=1001", {}, 422, "invalid_request"),
        ("GET", "/v1/memories?as_of_seq=99", {}, 200, ""),
        ("GET", "/v1/memories?user=ana", {}, 422, "invalid_input"),
        (
            "PATCH",
            "/v1/memories/one",
            {"json": {"text": "x"}, "headers": {"If-Match": '"9-c9.0"'}},
            412,
            "precondition_failed",
        ),
        (
            "PATCH",
            "/v1/memories/one",
            {"json": {"text": "x", "version": 7}},
            409,
            "version_conflict",
        ),
        ("GET", "/v1/memories/two", {}, 404, "not_found"),
        ("POST", "/v1/undo", {"json": {"commit_id": "c99"}}, 404, "not_found"),
        ("POST", "/v1/users/default/import", {"content": b"x"}, 415, "unsupported_media_type"),
        ("DELETE", "/v1/memories?confirm=other", {}, 422, "invalid_setting"),
    ],
)
def test_what_is_wrong_is_told_as_a_problem(
    method: str, path: str, send: dict[str, Any], status: int, code: str
) -> None:
    with serving() as running, running.http() as http:
        http.post("/v1/memories", json={"text": "one", "id": "one"})
        answer = http.request(method, path, **send)
        assert answer.status_code == status, answer.text
        if code:
            assert answer.headers["content-type"] == "application/problem+json"
            problem = Problem.model_validate_json(answer.content)
            assert (problem.code, problem.status) == (code, status) and problem.request_id
            if code == "invalid_request":
                assert problem.errors and problem.errors[0].pointer[:1] in "/?"


def test_etags_guard_edits(place: str) -> None:
    with serving(place) as running, running.http() as http:
        made = http.post("/v1/memories", json={"text": "one", "id": "one"})
        tag = made.headers["etag"]
        assert http.get("/v1/memories/one", headers={"If-None-Match": tag}).status_code == 304
        changed = http.patch("/v1/memories/one", json={"text": "uno"}, headers={"If-Match": tag})
        assert changed.status_code == 200 and changed.headers["etag"] != tag
        assert (
            http.patch(
                "/v1/memories/one", json={"text": "eins"}, headers={"If-Match": tag}
            ).status_code
            == 412
        )
        assert http.delete("/v1/memories/one", headers={"If-Match": tag}).status_code == 412
        bare = http.delete("/v1/memories/one", headers={"If-Match": '"2"'})
        assert (bare.status_code, bare.json()["code"]) == (412, "precondition_failed")
        assert changed.headers["etag"] in bare.json()["detail"], "no version against itself"
        assert (
            http.delete(
                "/v1/memories/one", headers={"If-Match": changed.headers["etag"]}
            ).status_code
            == 204
        )


async def test_the_client_tries_again_with_the_same_key_and_tells_when_nobody_answers() -> None:
    seen: list[str] = []

    def flaky(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers["idempotency-key"])
        if len(seen) == 1:
            raise httpx.ConnectError("refused", request=request)
        if len(seen) == 2:
            problem = problem_of(errors.StoreUnavailable("busy"))
            return httpx.Response(503, content=problem.model_dump_json())
        return httpx.Response(200, json={"hits": []})

    async with AsyncClient("http://127.0.0.1:1", transport=httpx.MockTransport(flaky)) as client:
        assert await client.search("x") == []
    assert len(seen) == 3 and len(set(seen)) == 1
    with (
        Client("http://127.0.0.1:9", attempts=1) as client,
        pytest.raises(ServiceError, match="cannot be reached"),
    ):
        client.memory.get("x")
    with serving() as running, Client(running.url) as client, pytest.raises(MemoryNotFound):
        client.memory.get("nothing")

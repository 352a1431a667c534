"""Who may call, rule by rule: places, origins, keys, scopes, users and rates."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from memagent.build import open_store
from memagent.client.http import ServiceError
from memagent.config import AgentSettings, ServiceSettings
from memagent.core.errors import InputError, StoreUnavailable
from memagent.memory.bank import system_clock
from memagent.service.access import (
    CALLER,
    PROXIED,
    caller_of,
    identify,
    may,
    may_for_user,
    named_call,
)
from memagent.service.data.leases import LOCAL, LOCAL_USER, SCOPES, StoredKey
from memagent.service.hosting import Service

OWN = "127.0.0.1:8377"


@contextmanager
def opened(**limits: Any) -> Iterator[Service]:
    settings = AgentSettings(service=ServiceSettings(**limits))
    service = Service(open_store(settings, path=":memory:", embedder="hashing"))
    try:
        yield service
    finally:
        service.close()


@pytest.fixture
def service() -> Iterator[Service]:
    with opened() as made:
        yield made


def key_of(service: Service, user_id: str | None, *scopes: str) -> str:
    at = system_clock()
    return service.keys.create(name="k", scopes=scopes or SCOPES, user_id=user_id, at=at)[1]


def request(
    service: Service,
    headers: Mapping[str, str] | None = None,
    *,
    peer: str | None = "127.0.0.1",
    body: object = None,
    **scope: Any,
) -> Request:
    sent = {"host": OWN} | dict(headers or {})
    whole = {
        "type": "http",
        "app": SimpleNamespace(state=SimpleNamespace(service=service)),
        "client": None if peer is None else (peer, 50_000),
        "scheme": "http",
        "method": "GET",
        "http_version": "1.1",
        "path": "/v1/memories",
        "query_string": b"",
        "headers": [(k.encode(), v.encode("latin-1")) for k, v in sent.items() if v],
    }

    async def receive() -> dict[str, object]:
        text = body if isinstance(body, str) else json.dumps(body)
        return {"type": "http.request", "body": text.encode(), "more_body": False}

    return Request(whole | scope, receive)


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def refused(service: Service, headers: Mapping[str, str] | None = None, **more: Any) -> str:
    """The code of the refusal; "" where the request is let in."""
    try:
        identify(request(service, headers, **more), service)
    except ServiceError as exc:
        return exc.code
    return ""


# -- without keys ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peer", "more", "code"),
    [
        ("127.0.0.1", {}, ""),
        ("127.8.9.10", {}, ""),
        ("::1", {}, ""),
        ("::1%lo", {}, ""),
        ("10.0.0.1", {}, "unauthorized"),
        ("fe80::1%eth0", {}, "unauthorized"),
        ("localhost", {}, "unauthorized"),
        (None, {}, "unauthorized"),
        ("127.0.0.1", {"http_version": "1.0"}, "unauthorized"),
    ],
)
def test_only_this_machine_is_served(
    service: Service, peer: str | None, more: dict[str, Any], code: str
) -> None:
    assert refused(service, peer=peer, **more) == code


@pytest.mark.parametrize(
    "name",
    [
        *sorted(name.decode() for name in PROXIED),
        *("x-forwarded-for", "x-forwarded-port", "x-original-url", "x-real-ip", "fastly-client-ip"),
        *("cf-connecting-ip", "cf-ray", "x-client-ip", "x-amzn-trace-id", "x-azure-clientip"),
        *("x-cluster-client-ip", "fly-client-ip", "x-appengine-user-ip", "true-client-ip"),
    ],
)
def test_what_a_proxy_adds_is_refused(service: Service, name: str) -> None:
    assert refused(service, {name: "127.0.0.1"}) == "unauthorized"


def test_what_a_program_itself_adds_is_no_sign_of_a_proxy(service: Service) -> None:
    assert refused(service, {"x-client-request-id": "0197", "x-client-ip": "::1"}) == "unauthorized"
    assert refused(service, {"x-client-request-id": "0197"}) == ""


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({"host": "localhost"}, True),
        ({"host": "[::1]:8377"}, True),
        ({"host": "evil.example"}, False),
        ({"host": "127.0.0.1.evil.example"}, False),
        ({"host": "["}, False),
        ({"host": ""}, False),
        ({"host": "mem.example:8377"}, True),
        ({"origin": f"http://{OWN}"}, True),
        ({"origin": "http://localhost:8377"}, True),
        ({"origin": "http://127.0.0.1:8378"}, False),
        ({"origin": "http://127.0.0.1"}, False),
        ({"origin": "null"}, False),
        ({"origin": "http://["}, False),
        ({"origin": "http://evil.example:8377"}, False),
        ({"host": "localhost", "origin": "http://localhost"}, True),
        ({"host": "localhost:80", "origin": "http://localhost"}, True),
        ({"host": "localhost", "origin": "https://localhost"}, False),
        ({"host": "localhost:443", "origin": "https://localhost"}, True),
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "none"}, True),
        ({"sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, True),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "cors"}, False),
    ],
)
def test_host_and_origin_have_to_name_this_service(headers: dict[str, str], allowed: bool) -> None:
    with opened(hosts=("mem.example",)) as service:
        assert refused(service, headers) == ("" if allowed else "misdirected")


def test_a_link_leads_here_but_a_form_of_another_page_does_not(service: Service) -> None:
    followed = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    assert refused(service, followed, method="POST") == "misdirected"


def test_a_token_without_keys_is_warned_of_once(
    service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert caller_of(request(service, bearer("any"))) is LOCAL
        assert caller_of(request(service)) is LOCAL
    assert sum("has no API keys" in record.message for record in caplog.records) == 1


# -- with keys -------------------------------------------------------------------------


def test_a_key_is_asked_for_and_looked_up(service: Service) -> None:
    key = key_of(service, "ana", "memory:read")
    assert refused(service) == "unauthorized"
    assert refused(service, bearer("ma_unknown")) == "unauthorized"
    assert refused(service, {"authorization": f"Basic {key}"}) == "unauthorized"
    assert refused(service, {"authorization": key}) == "unauthorized"
    for peer in ("127.0.0.1", "10.0.0.1"):
        for scheme in ("Bearer", "bearer"):
            sent = {"authorization": f"{scheme}  {key} ", "x-forwarded-for": "1.2.3.4"}
            assert identify(request(service, sent, peer=peer), service).user_id == "ana"


def test_the_gate_s_caller_is_believed(service: Service) -> None:
    key = key_of(service, "ana", "memory:read")
    known = identify(request(service, bearer(key)), service)
    gated: dict[str, Any] = {CALLER: known}
    assert caller_of(request(service, **gated)) is known


def test_a_caller_is_served_as_often_as_the_settings_say() -> None:
    with opened(requests_per_minute=2) as service:
        asked = request(service)
        assert [caller_of(asked), caller_of(asked)] == [LOCAL, LOCAL]
        with pytest.raises(ServiceError, match="come back in") as caught:
            caller_of(asked)
        assert caught.value.code == "too_many_requests" and caught.value.retryable
        assert service.metrics.value("memagent_refused_total", reason="rate") == 1


async def test_scopes_and_users_decide_what_is_reached(service: Service) -> None:
    bound = bearer(key_of(service, "ana", "memory:read"))
    free = bearer(key_of(service, None, "memory:read", "memory:write"))
    reads, writes = may("memory:read"), may("memory:read", "memory:write")

    async def code(rule: Any, headers: dict[str, str], user_id: str | None) -> str:
        try:
            call = await rule(request(service, headers), user_id)
        except ServiceError as exc:
            return exc.code
        return call.scope.user_id

    assert await code(reads, bound, None) == await code(reads, bound, "ana") == "ana"
    assert await code(reads, bound, "ben") == "forbidden"
    assert await code(writes, bound, "ana") == "forbidden"
    assert await code(writes, free, "ben") == "ben"
    assert await code(writes, free, None) == "invalid_request"
    assert await code(may_for_user("memory:read"), bound, "ben") == "forbidden"
    assert await code(may_for_user("memory:write"), free, "ben") == "ben"
    with pytest.raises(InputError, match="cannot be one"):
        await reads(request(service, free), "a\x1fb")
    call = named_call(request(service, bound), user_id=None, agent_id="x", run_id="y")
    assert (call.scope.agent_id, call.scope.run_id) == ("x", "y")
    call.need("memory:read", "reads")
    with pytest.raises(ServiceError, match="lacks the scope memory:delete: this deletes"):
        call.need("memory:delete", "deletes")


async def test_without_keys_the_local_user_or_the_named_one_is_meant(service: Service) -> None:
    rule = may("memory:read", "admin")
    assert (await rule(request(service))).scope.user_id == LOCAL_USER
    assert (await rule(request(service), "ben")).scope.user_id == "ben"


async def test_a_body_may_name_the_user_of_a_free_key_alone(service: Service) -> None:
    bound, free = (bearer(key_of(service, user)) for user in ("ana", None))
    rule = may("chat", for_programs=True)

    async def user(headers: dict[str, str], body: object, named: str | None = None) -> str:
        call = await rule(request(service, headers, body=body), named)
        return call.scope.user_id

    assert await user(bound, {"user": "ben"}) == "ana"
    assert await user(free, {"user": "ben"}) == "ben"
    assert await user(free, {"user": "ben"}, "ben") == "ben"
    assert await user(free, {"user": 7}, "cat") == "cat"
    assert await user({**free, "x-openwebui-user-id": "dan"}, {"user": "ben"}) == "dan"
    assert await user({**bound, "x-openwebui-user-id": "dan"}, {"user": "ben"}) == "ana"
    about_no_memory = may("chat", userless=True)
    for headers, owner in ((free, LOCAL_USER), (bound, "ana")):
        assert (await about_no_memory(request(service, headers))).scope.user_id == owner
    for body, named, words in (
        ({"user": "ben"}, "cat", "name two users"),
        ({"user": ""}, None, "bound to no user"),
        ([1], None, "bound to no user"),
        ("{not json", None, "bound to no user"),
    ):
        with pytest.raises(ServiceError, match=words) as caught:
            await user(free, body, named)
        assert caught.value.code == "invalid_request"


async def test_one_memory_takes_no_more_than_its_places() -> None:
    with opened(max_per_memory=2) as service, ExitStack() as held:
        rule = may("memory:read")
        call = await rule(request(service), "ana")
        for _ in range(2):
            held.enter_context(call.agent())
        with pytest.raises(ServiceError) as caught:
            call.agent()
        assert caught.value.code == "too_many_requests" and caught.value.retryable
        assert service.metrics.value("memagent_refused_total", reason="memory") == 1
        other = await rule(request(service), "ben")
        held.enter_context(other.agent())


async def test_keys_of_requests_are_apart_for_every_caller(service: Service) -> None:
    ran: list[int] = []

    async def work() -> Response:
        ran.append(1)
        return Response("done")

    rule = may("memory:read")
    first, second = (bearer(key_of(service, "ana")) for _ in range(2))
    for headers in (first, first, second):
        call = await rule(request(service, headers, body={}), key="same")
        assert (await call.once(work)).body == b"done"
    assert len(ran) == 2
    plain = await rule(request(service, first))
    await plain.once(work)
    assert len(ran) == 3


async def test_a_slow_read_of_the_keys_is_waited_for_and_a_hanging_one_refused(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine takes its time; a database that hangs must not hold the requests."""
    keys = service.keys
    _, key = keys.create(name="k", scopes=["chat"], user_id=None, at=system_clock())
    assert keys.caller(key)
    monkeypatch.setattr("memagent.service.data.leases._FRESH_S", 0.0)
    monkeypatch.setattr("memagent.service.data.leases._PATIENCE_S", 60.0)
    read, go_on, reading = keys.stored, threading.Event(), threading.Event()

    def late() -> Any:
        reading.set()
        go_on.wait()
        return read()

    monkeypatch.setattr(keys, "stored", late)
    watching = asyncio.create_task(keys.watch())
    await asyncio.to_thread(reading.wait)
    threading.Timer(0.2, go_on.set).start()
    assert keys.caller(key), "it waited"
    go_on.clear()
    monkeypatch.setattr("memagent.service.data.leases._PATIENCE_S", 0.1)
    reading.clear()
    await asyncio.to_thread(reading.wait)
    with pytest.raises(StoreUnavailable, match="come back"):
        keys.caller(key)
    go_on.set()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


def test_a_key_made_while_the_keys_are_read_counts_at_once(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring, made = service.keys, list[str]()
    stored = ring.stored

    def slow() -> list[StoredKey]:
        rows = stored()
        monkeypatch.setattr(ring, "stored", stored)
        made.append(key_of(service, "ann", "chat"))
        return rows

    monkeypatch.setattr(ring, "stored", slow)
    ring.read()
    assert ring.caller(made[0]) is not None

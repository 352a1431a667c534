"""A caller without a key holds no place, and a slow or oversized one costs nobody else."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx
import pytest
from patience import patience_s
from service_kit import Served, serving

from memagent.config import ServiceSettings
from memagent.core.exchange import ModelRequest, ModelResponse
from memagent.core.records import Scope

QUICK = ServiceSettings(header_s=1.0, body_s=1.0, drain_s=1.0)
PATIENT = ServiceSettings(header_s=60.0, body_s=60.0, drain_s=1.0)
ONE_BYTE = (
    b"POST /v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: 1000\r\n\r\n{"
)


@pytest.fixture(autouse=True)
def many_files() -> None:
    """Allow this process as many sockets as the tests open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 4_096 <= hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (4_096, hard))


def connect(served: Served, data: bytes) -> socket.socket:
    """Open a connection and send some bytes."""
    address = httpx.URL(served.url)
    connection = socket.create_connection((address.host, address.port or 80), timeout=20)
    connection.sendall(data)
    return connection


@contextmanager
def crowd(served: Served, count: int, data: bytes) -> Iterator[list[socket.socket]]:
    """Open that many connections, each with the same bytes, and leave them."""
    with ExitStack() as stack:
        yield [stack.enter_context(connect(served, data)) for _ in range(count)]


def answer_of(connection: socket.socket) -> bytes:
    """Read what the service sends until it closes the connection."""
    received = b""
    try:
        while piece := connection.recv(65_536):
            received += piece
    except ConnectionResetError:
        pass
    return received


def slowest(http: httpx.Client, count: int = 40) -> float:
    """The slowest of some searches, in seconds; every one must succeed."""
    took: list[float] = []
    for _ in range(count):
        began = time.perf_counter()
        response = http.post("/v1/search", json={"text": "tea"})
        took.append(time.perf_counter() - began)
        assert response.status_code == 200, response.text
    return max(took)


@pytest.mark.parametrize(
    ("count", "data"),
    [(540, ONE_BYTE), (1_000, ONE_BYTE[:40]), (1_000, b"")],
    ids=["body", "head", "nothing"],
)
def test_callers_with_a_key_are_served_among_slow_sockets_without_one(
    count: int, data: bytes
) -> None:
    with serving(settings=PATIENT) as served:
        key = served.key("ana")
        with served.http(key) as http:
            http.post("/v1/memories", json={"text": "Ana drinks tea"})
            idle = slowest(http)
            with crowd(served, count, data), served.http(key) as newcomer:
                assert slowest(http) < max(2.0, 3 * idle)
                assert slowest(newcomer) < max(2.0, 3 * idle)
                assert served.service.metrics.in_flight <= 1


def test_without_any_key_slow_bodies_of_this_machine_hold_no_place() -> None:
    settings = PATIENT.model_copy(update={"max_in_flight": 4})
    with serving(settings=settings) as served, served.http() as http, crowd(served, 300, ONE_BYTE):
        assert slowest(http) < 5.0
        assert served.service.metrics.in_flight <= 1


def test_an_unknown_caller_is_refused_before_its_body_is_read() -> None:
    with serving(settings=PATIENT) as served:
        served.key("ana")
        with connect(served, ONE_BYTE[:-1]) as connection:
            received = answer_of(connection)
        assert received.startswith(b"HTTP/1.1 401") and b"connection: close" in received.lower()


@pytest.mark.parametrize(
    ("data", "status"),
    [(b"GET /healthz HTT", b"408"), (ONE_BYTE, b"408"), (b"", b"")],
    ids=["head", "body", "nothing"],
)
def test_a_request_that_does_not_arrive_in_time_is_ended(data: bytes, status: bytes) -> None:
    with serving(settings=QUICK) as served, connect(served, data) as connection:
        began = time.monotonic()
        received = answer_of(connection)
        assert received[9:12] == status and 0.5 < time.monotonic() - began < patience_s(10)
        if status:
            problem = json.loads(received.partition(b"\r\n\r\n")[2])
            assert problem["code"] == "request_timeout"


def test_a_body_that_arrives_at_a_fair_pace_may_take_longer_than_its_allowance() -> None:
    settings = QUICK.model_copy(update={"body_s": 0.8})
    piece = b" " * 16_384
    body = b'{"text": "tea"}' + piece * 12
    head = ONE_BYTE[:-1].replace(b"1000", str(len(body)).encode())
    with serving(settings=settings) as served, connect(served, head) as connection:
        began = time.monotonic()
        for start in range(0, len(body), len(piece)):
            connection.sendall(body[start : start + len(piece)])
            time.sleep(0.1)
        assert connection.recv(12) == b"HTTP/1.1 200" and time.monotonic() - began > 1.0


def test_a_head_beyond_its_limit_is_refused_and_not_kept() -> None:
    with serving(settings=PATIENT) as served:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with connect(served, b"GET /v1/memories HTTP/1.1\r\nX-Big: ") as connection:
            sent = 0
            try:
                while sent < 100_000_000:
                    connection.sendall(b"x" * 1_000_000)
                    sent += 1_000_000
            except OSError:
                pass
            assert sent < 20_000_000
        grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown_kb < 64_000
        with served.http() as http:
            many = {f"X-{place}": "y" * 700 for place in range(99)}
            refused = http.get("/v1/memories", headers=many)
            assert (refused.status_code, refused.json()["code"]) == (431, "headers_too_large")
            assert http.get("/v1/memories").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "["},
        {"Host": "[::1"},
        {"Host": "127.0.0.1:x"},
        {"Origin": "http://["},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://localhost:3000"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"},
    ],
    ids=str,
)
def test_without_a_key_no_page_of_another_origin_erases(headers: dict[str, str]) -> None:
    with serving(settings=QUICK) as served, served.http() as http:
        for name in ("erase", "export"):
            refused = http.post(f"/v1/users/default/{name}", headers=headers)
            assert refused.status_code == 421, refused.text


def test_a_page_of_the_service_itself_and_a_link_to_it_are_let_in() -> None:
    with serving(settings=QUICK) as served, served.http() as http:
        own = {"Origin": served.url, "Sec-Fetch-Site": "same-origin"}
        assert http.post("/v1/search", json={"text": "x"}, headers=own).status_code == 200
        link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
        assert http.get("/v1/memories", headers=link).status_code == 200


def test_one_memory_never_holds_more_than_its_share_of_the_places() -> None:
    settings = PATIENT.model_copy(update={"max_per_memory": 2})
    with serving(settings=settings) as served, served.http() as http:
        assert http.post("/v1/memories", json={"text": "Ana drinks tea"}).status_code == 201
        banks = served.service.banks
        with banks.agent(Scope(user_id="default")), banks.agent(Scope(user_id="default")):
            refused = http.post("/v1/search", json={"text": "tea"})
            assert refused.status_code == 429
            assert refused.json()["retryable"]
            other = http.post("/v1/search?user_id=bo", json={"text": "tea"})
            assert other.status_code == 200
        assert http.post("/v1/search", json={"text": "tea"}).status_code == 200
        assert served.service.metrics.value("memagent_refused_total", reason="memory") == 1


class Waiting:
    """A model that answers once it is let."""

    def __init__(self) -> None:
        self.let = threading.Event()

    async def complete(self, request: ModelRequest) -> ModelResponse:
        await asyncio.to_thread(self.let.wait, 60)
        return ModelResponse(id="r", text='{"facts": []}')


def session(number: int) -> dict[str, Any]:
    """A session of one turn."""
    turn = {"speaker": "Ana", "text": f"Parcel number {number} came in the morning"}
    return {"id": f"s{number}", "turns": [turn]}


def test_a_service_at_work_on_all_it_may_answers_503_and_goes_on_afterwards() -> None:
    model = Waiting()
    settings = PATIENT.model_copy(update={"max_in_flight": 2})
    with (
        serving(model=model, settings=settings, design="add_only") as served,
        ThreadPoolExecutor(2) as pool,
        served.http() as http,
    ):

        def remember(number: int) -> int:
            with served.http() as own:
                return own.post("/v1/sessions?wait=true", json=session(number)).status_code

        at_work = [pool.submit(remember, number) for number in range(2)]
        while served.service.metrics.in_flight < 2:
            assert not any(work.done() for work in at_work)
            time.sleep(0.01)
        refused = http.post("/v1/search", json={"text": "tea"})
        assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")
        assert refused.json()["retryable"] and refused.headers["retry-after"] == "1"
        for path in ("/healthz", "/readyz"):
            assert http.get(path).status_code == 200
        for path in ("/v1/memories/jazz", "/v1/nowhere/healthz", "/ui/z"):
            assert http.get(path).status_code == 503, "no name of a memory is a way around"
        model.let.set()
        assert [work.result(60) for work in at_work] == [200, 200]
        assert http.post("/v1/search", json={"text": "tea"}).status_code == 200


def test_a_full_queue_takes_no_further_session_and_stores_nothing_of_it() -> None:
    model = Waiting()
    settings = PATIENT.model_copy(update={"max_jobs": 2, "ingest_jobs": 1})
    with (
        serving(model=model, settings=settings, design="add_only") as served,
        served.http() as http,
    ):
        taken = [http.post("/v1/sessions", json=session(number)) for number in range(2)]
        assert [answer.status_code for answer in taken] == [202, 202]
        refused = http.post("/v1/sessions", json=session(2))
        assert (refused.status_code, refused.json()["code"]) == (503, "overloaded")
        assert refused.json()["retryable"] and refused.headers["retry-after"] == "1"
        assert http.post("/v1/sessions", json=session(1)).status_code == 202
        assert http.post("/v1/search", json={"text": "tea"}).status_code == 200
        model.let.set()
        for answer in taken:
            job = answer.json()
            while job["state"] != "done":
                assert job["state"] != "failed"
                time.sleep(0.01)
                job = http.get(f"/v1/jobs/{job['id']}").json()
        assert http.post("/v1/sessions?wait=true", json=session(2)).json()["stored_turns"] == 1

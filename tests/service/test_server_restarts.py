"""The service while its PostgreSQL server stops and starts."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from postgres_kit import running_postgres
from service_kit import serving

from memagent.service.data.leases import SCOPES

pytest.importorskip("psycopg", reason="needs the postgres extra")


def until(true: Callable[[], bool], *, seconds: float = 60.0) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.05)


def test_while_the_server_restarts_every_refusal_is_a_503_that_may_be_tried_again() -> None:
    """Callers with keys, on every kind of route, while PostgreSQL stops and starts."""
    asked: list[tuple[str, str, Any]] = [
        ("POST", "/v1/memories", {"text": "meanwhile"}),
        ("POST", "/v1/search", {"text": "tea"}),
        ("POST", "/v1/sessions", {"turns": [{"text": "I like tea"}]}),
        ("POST", "/v1/chat", {"text": "I like tea"}),
        ("POST", "/v1/snapshots", {"name": "now"}),
        ("POST", "/v1/trials", {"task": "Make tea"}),
        ("POST", "/v1/users/ann/export", None),
        *(("GET", path, None) for path in ("/v1/memories/before", "/v1/sessions", "/v1/oplog")),
        *(("GET", path, None) for path in ("/v1/jobs", "/v1/users", "/v1/graph", "/metrics")),
        *(("GET", path, None) for path in ("/v1/models", "/v1/events", "/v1/snapshots")),
    ]
    seen: list[tuple[int, str]] = []
    wrong: list[str] = []
    over = threading.Event()

    def load(running: Any, key: str, number: int) -> None:
        with running.http(key) as http:
            turn = number
            while not over.is_set():
                method, path, body = asked[turn % len(asked)]
                headers = {"Idempotency-Key": f"{number} {turn}"} if turn % 2 else {}
                answer = http.request(method, path, json=body, headers=headers)
                turn += 1
                code = "" if answer.is_success else answer.json()["code"]
                seen.append((answer.status_code, code))
                fine = answer.is_success or (
                    answer.status_code == 503
                    and answer.json()["retryable"]
                    and "retry-after" in answer.headers
                )
                if not fine:
                    wrong.append(f"{method} {path} {answer.status_code} {answer.text}")

    with running_postgres() as own:
        if own.folder is None:
            pytest.skip("the server is not ours to stop")
        with own.schema() as url, serving(url) as running:
            key = running.key("ann", *SCOPES)
            with running.http(key) as http:
                assert http.post("/v1/memories", json={"text": "x", "id": "before"}).is_success
            callers = [threading.Thread(target=load, args=(running, key, n)) for n in range(3)]
            for caller in callers:
                caller.start()
            for how in ("immediate", "fast"):
                refused = len([status for status, _ in seen if status == 503])
                own.stop(how)
                until(lambda: sum(status == 503 for status, _ in seen) > refused + 60)  # noqa: B023
                own.start()
                answered = len(seen)
                until(lambda: any(status < 300 for status, _ in seen[answered:]))  # noqa: B023
            over.set()
            for caller in callers:
                caller.join()
    assert wrong == []
    assert {code for status, code in seen if status == 503} == {"store_unavailable"}

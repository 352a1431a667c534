"""What a service does between its start and its first requests."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import pytest
from fastapi import FastAPI
from service_kit import serving

from memagent.service import app as app_module
from memagent.service.app import build_routes, create_app


def calls_of(work: Callable[[], None]) -> int:
    """How many Python functions some work calls."""
    count = 0

    def counted(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_the_first_request_does_not_wait_for_the_framework_to_build_its_routes() -> None:
    app = create_app()
    first = calls_of(lambda: build_routes(app))
    assert calls_of(lambda: build_routes(app)) < first / 20


def test_routes_are_built_aside_once_the_service_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []

    def noted(app: FastAPI) -> None:
        build_routes(app)
        built.append(threading.current_thread().name)

    monkeypatch.setattr(app_module, "build_routes", noted)
    with serving() as served, served.http() as http:
        assert http.get("/v1/events").status_code == 200
    assert len(built) == 1 and not built[0].startswith("Thread-")

"""The OpenAPI document: the one in the repository is the one served, and the service
keeps it under requests nobody would write.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import sys
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from places import ROOT
from service_kit import place_on, served_process, serving

from memagent.service.app import create_app

DOCUMENT = ROOT / "docs" / "openapi.json"
CASES = int(os.environ.get("MEMAGENT_SCHEMATHESIS_CASES", "10000"))
SEED = int(os.environ.get("MEMAGENT_SCHEMATHESIS_SEED", "1"))


@lru_cache(maxsize=1)
def served() -> dict[str, Any]:
    """The document of the app, made once."""
    return create_app().openapi()


def written() -> str:
    return json.dumps(served(), indent=1, sort_keys=True) + "\n"


def test_the_document_in_the_repository_is_the_one_served() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == written(), (
        f"write it anew: PYTHONPATH=tests/kits python {Path(__file__).relative_to(ROOT)}"
    )
    assert json.loads(DOCUMENT.read_text(encoding="utf-8"))["openapi"].startswith("3.1")


def test_pages_load_nothing_from_elsewhere() -> None:
    with serving() as running, running.http() as http:
        page = http.get("/docs")
        assert page.status_code == 200 and "/v1/memories/batch" in page.text
        assert re.findall(r"(?:src|href)=[\"'](?!/|#)", page.text) == []
        assert re.findall(r"<script.*?>", page.text) == [
            '<script type="module" src="/docs/try.js">'
        ]
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", page.text)
        assert "default-src 'none'" in page.headers["content-security-policy"]
        assert http.get("/docs/style.css").headers["content-type"].startswith("text/css")
        assert http.get("/docs/try.js").headers["content-type"].startswith("text/javascript")
        assert http.get("/openapi.json").json() == served(), "run python scripts/api_page.py"
        for path in ("/docs", "/v1/memories", "/v1/nowhere", "/healthz"):
            headers = http.get(path, headers={"X-Request-Id": "my-id"}).headers
            assert (
                headers["x-content-type-options"] == "nosniff"
                and headers["x-request-id"] == "my-id"
            )
            assert "content-security-policy" in headers


@pytest.mark.parametrize(("database", "cases"), [("sqlite", 80), ("postgres", 80)])
def test_generated_requests_find_no_fault(
    database: str, cases: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with place_on(database, request, tmp_path) as place:
        _probe(place, cases=cases)


@pytest.mark.full
@pytest.mark.timeout(7_200)
def test_ten_thousand_generated_requests_find_no_fault(tmp_path: Path) -> None:
    _probe(str(tmp_path / "memory.db"), cases=CASES)


def _probe(place: str, *, cases: int) -> None:
    """Requests written from the document: none may end in a fault of the service or in
    an answer it does not tell of.
    """
    import schemathesis
    from hypothesis import HealthCheck, Phase, given, seed, settings
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_headers_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    checks = [
        not_a_server_error,
        status_code_conformance,
        content_type_conformance,
        response_headers_conformance,
        response_schema_conformance,
    ]

    @schemathesis.serializer("application/x-ndjson")
    def as_lines(_: object, value: object) -> bytes:  # pyright: ignore[reportUnusedFunction]
        return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")

    statuses: Counter[int] = Counter()
    document = json.loads(DOCUMENT.read_text(encoding="utf-8"))
    with served_process(place, "--embedder", "hashing") as (_, url):
        schema = schemathesis.openapi.from_dict(document)
        schema.config.update(base_url=url)
        operations = [result.ok() for result in schema.get_all_operations()]  # pyright: ignore[reportAttributeAccessIssue]
        pairs = itertools.product(operations, (GenerationMode.POSITIVE, GenerationMode.NEGATIVE))
        runs = [
            (one, mode)
            for one, mode in pairs
            if mode is GenerationMode.POSITIVE or one.body or one.query
        ]
        each = -(-cases // len(runs))
        for operation, mode in runs:
            quick = settings(
                max_examples=each,
                deadline=None,
                database=None,
                phases=(Phase.generate,),
                suppress_health_check=list(HealthCheck),  # pyright: ignore[reportArgumentType]
            )

            @seed(SEED)
            @quick
            @given(case=operation.as_strategy(generation_mode=mode))
            def probe(case: schemathesis.Case) -> None:
                response = case.call(timeout=60)
                statuses[response.status_code] += 1
                case.validate_response(response, checks=checks)

            probe()
    sys.stdout.write(f"{dict(sorted(statuses.items()))} {statuses.total()} requests\n")
    assert not [status for status in statuses if status >= 500]
    assert statuses.total() >= cases // 2


if __name__ == "__main__":
    DOCUMENT.write_text(written(), encoding="utf-8")

"""Searching and adding go a short way past the framework: same answers, same refusals,
same headers as the long way gives.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from typing import Any

import httpx
import pytest
from service_kit import Served, serving

from memagent.client.wire import Hits, SearchRequest
from memagent.core.answers import AsOf, Hit, Relevance
from memagent.core.records import MemoryItem, TimeSpan
from memagent.memory.incoming import as_point
from memagent.service.routes.exchange import hits_response, record

SHORT = {"Content-Type": "application/json"}
LONG = {"Content-Type": "application/json; charset=utf-8"}
"""A way to say the same that only the framework understands."""


@pytest.fixture(scope="module")
def served() -> Generator[Served]:
    with serving() as running:
        with running.http() as http:
            for text in (
                "Ana keeps bees",
                "Bo sold the boat in May 2024",
                "the bees are well — é 東京",
                "does Ana sail?",
            ):
                assert (
                    http.post(
                        "/v1/memories", json={"text": text, "subject": "Ana", "tags": ["x"]}
                    ).status_code
                    == 201
                )
        yield running


def shown(response: httpx.Response) -> dict[str, Any]:
    headers = {
        name: value
        for name, value in response.headers.items()
        if name not in ("x-request-id", "date")
    }
    body = response.json()
    if isinstance(body, dict):
        body.pop("request_id", None)
    return {"status": response.status_code, "headers": headers, "body": body}


def both(http: httpx.Client, path: str, body: bytes | str, **headers: str) -> dict[str, Any]:
    """What both ways answer, after a look that it is the same."""
    short = shown(http.post(path, content=body, headers={**SHORT, **headers}))
    assert short == shown(http.post(path, content=body, headers={**LONG, **headers}))
    return short


@pytest.mark.parametrize(
    "body",
    [
        '{"text": "bees"}',
        '{"text": "bees", "k": 2, "explain": true}',
        '{"text": "Ana bees", "k": "3", "recipe": "deep", "explain": true}',
        '{"text": "boat in May 2024", "recipe": {"time": "hard"}}',
        '{"text": "bees", "where": {"subjects": ["Ana"], "tags": ["x"]}, "max_tokens": 5}',
        '{"text": "bees", "as_of": {"recorded": 2}}',
        '{"text": "bees", "as_of": "2024-02-01"}',
        '{"text": ""}',
        '{"text": "bees", "text": "boat"}',
    ],
)
def test_a_search_finds_the_same_both_ways(served: Served, body: str) -> None:
    with served.http() as http:
        assert both(http, "/v1/search", body)["status"] == 200


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/search", "{", 400),
        ("/v1/search", "", 422),
        ("/v1/search", b"\xff\xfe", 400),
        ("/v1/search", '{"text": "bees", "k": 0}', 422),
        ("/v1/search", '{"text": "bees", "more": 1}', 422),
        ("/v1/search", '{"text": "bees", "recipe": "best"}', 422),
        ("/v1/search", '["bees"]', 422),
        ("/v1/search", '{"text": "bees", "as_of": {"recorded": 900}}', 200),
        ("/v1/search", '{"text": "bees", "as_of": "yesterday"}', 422),
        ("/v1/search", '{"text": "bees", "as_of": ""}', 422),
        ("/v1/search?user_id=", '{"text": "bees"}', 422),
        ("/v1/search?user_id=a&user_id=b", '{"text": "bees"}', 200),
        ("/v1/search?user_id=a&other=1", '{"text": "bees"}', 200),
        ("/v1/search?user_id=%1F", '{"text": "bees"}', 422),
        ("/v1/search?user_id=%FF&run_id=r%201", '{"text": "bees"}', 200),
        (f"/v1/search?agent_id={'a' * 257}", '{"text": "bees"}', 422),
        ("/v1/memories", '{"text": "  "}', 422),
        ("/v1/memories", '{"text": "a", "metadata": {"_x": 1}}', 422),
        ("/v1/memories", '{"text": "a", "ttl_s": 1, "expires_at": "2090-01-01T00:00:00Z"}', 422),
    ],
)
def test_what_is_odd_is_answered_alike(
    served: Served, path: str, body: bytes | str, status: int
) -> None:
    with served.http() as http:
        assert both(http, path, body)["status"] == status


def test_a_body_in_pieces_is_answered_alike(served: Served) -> None:
    def pieces() -> Iterator[bytes]:
        yield b'{"text": '
        time.sleep(0.1)
        yield b'"bees"}'

    with served.http() as http:
        whole = both(http, "/v1/search", '{"text": "bees"}')
        assert shown(http.post("/v1/search", content=pieces(), headers=SHORT)) == whole


def test_an_unknown_key_a_missing_scope_and_another_host_are_refused_alike() -> None:
    with serving() as running:
        with running.http() as http:
            assert (
                both(http, "/v1/search", '{"text": "bees"}', Host="evil.example")["status"] == 421
            )
            assert (
                both(http, "/v1/search", '{"text": "bees"}', **{"X-Forwarded-For": "1.2.3.4"})[
                    "status"
                ]
                == 401
            )
        reader = running.key("ana", "memory:read")
        with running.http(reader) as http:
            assert both(http, "/v1/search", '{"text": "bees"}')["status"] == 200
            assert both(http, "/v1/search?user_id=bo", '{"text": "bees"}')["status"] == 403
            assert both(http, "/v1/memories", '{"text": "bees"}')["status"] == 403
            assert both(http, "/v1/memories", "{", Authorization="Bearer nobody")["status"] == 401
        with running.http("ma_nobody") as http:
            assert both(http, "/v1/search", '{"text": "bees"}')["status"] == 401


def test_an_added_memory_is_answered_and_found_alike_and_counted_by_its_route(
    served: Served,
) -> None:
    with served.http() as http:
        for headers in (
            SHORT,
            LONG,
            {**SHORT, "Idempotency-Key": "once"},
            {**SHORT, "Idempotency-Key": "once"},
        ):
            made = http.post(
                "/v1/memories?user_id=cy", content='{"text": "a kite \\u00e9"}', headers=headers
            )
            assert made.status_code == 201
            assert made.headers["location"] == f"/v1/memories/{made.json()['id']}"
            assert made.headers["etag"].startswith('"1-')
        assert len(http.get("/v1/memories?user_id=cy").json()["items"]) == 3
        again = '{"text": "once more", "id": "mine"}'
        assert http.post("/v1/memories?user_id=cy", content=again, headers=SHORT).status_code == 201
        assert both(http, "/v1/memories?user_id=cy", again)["status"] in (409, 422)
        assert (
            http.post(
                "/v1/search?user_id=cy", content='{"text": "kite"}', headers=SHORT
            ).status_code
            == 200
        )
        figures = http.get("/metrics").text
        assert 'route="/v1/search",status="200"' in figures
        assert 'route="/v1/memories",status="201"' in figures
        assert 'route="unmatched",status="201"' not in figures


def test_a_body_in_pieces_is_read_whole(served: Served) -> None:
    def pieces() -> Generator[bytes]:
        yield b'{"text": '
        yield b'"bees", "k": 1}'

    with served.http() as http:
        found = http.post("/v1/search", content=pieces(), headers=SHORT).json()
        assert found == http.post("/v1/search", json={"text": "bees", "k": 1}).json()
        assert len(found["hits"]) == 1


def test_hits_without_reasons_are_written_as_the_record_would_be() -> None:
    items = [
        MemoryItem(
            id='m"1',
            text='tab\t, quote " and é 東京 \u2028',
            tags=("x",),
            metadata={"a": 1.5, "b": None},
        ),
        MemoryItem(id="m2", text="b", valid=TimeSpan(start=None), op_id="c1.0", speaker="Ana"),
    ]
    found = [(items[0], 0.1 + 0.2), (items[1], 1e-9)]
    hits = Hits(
        hits=tuple(
            Hit(id=item.id, score=score, item=item, why=Relevance()) for item, score in found
        )
    )
    assert hits_response(found).body == record(hits, exclude={"hits": {"__all__": {"why"}}}).body
    assert hits_response([]).body == record(Hits(hits=())).body


@pytest.mark.parametrize("when", ["2024-02-01", "2024-02-01T13:56", "2024-02-01T13:56+02:00"])
def test_a_plain_date_means_what_it_means_in_python(when: str) -> None:
    assert AsOf.model_validate(when) == as_point(when)
    assert SearchRequest.model_validate({"text": "x", "as_of": when}).as_of == as_point(when)

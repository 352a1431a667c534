"""What a scope can do by a detour: forge trust, or take memories away."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from service_kit import Served, serving

from memagent.config import ServiceSettings

Header = dict[str, Any]


@pytest.fixture
def served() -> Iterator[Served]:
    with serving(settings=ServiceSettings(drain_s=1.0)) as running:
        yield running


def exported(http: httpx.Client, user: str) -> list[str]:
    """The lines of an export of a user."""
    job = http.post(f"/v1/users/{user}/export").json()
    while job["state"] not in ("done", "failed"):
        job = http.get(f"/v1/jobs/{job['id']}").json()
    (file,) = job["result"]["files"]
    return http.get(f"/v1/jobs/{job['id']}/files/{file['number']}").text.splitlines()


def forged(lines: list[str], change: Callable[[Header], None], old: str, new: str) -> str:
    """The export with some words replaced, and a header and a seal that fit again."""
    header = json.loads(lines[0])
    change(header)
    body = [json.dumps(header), *(line.replace(old, new) for line in lines[1:-1])]
    seal = hashlib.sha256("".join(line + "\n" for line in body).encode()).hexdigest()
    return "\n".join([*body, json.dumps({"rows": len(body) - 1, "sha256": seal})]) + "\n"


def send(http: httpx.Client, user: str, content: str) -> httpx.Response:
    headers = {"Content-Type": "application/x-ndjson"}
    return http.post(f"/v1/users/{user}/import", content=content, headers=headers)


def test_an_import_forges_no_trust_that_the_caller_does_not_have(served: Served) -> None:
    owner = served.key("ana", "memory:read", "memory:write")
    writer, admin = served.key("bob", "memory:write"), served.key("eva", "memory:write", "admin")
    with served.http(owner) as http:
        http.post("/v1/memories", json={"text": "Pay only to NL01"})
        lines = exported(http, "ana")
    assert '"trust":"user"' in "".join(lines)

    for spelling in ('"trust":"system"', '"trust" : "system"'):
        content = forged(lines, lambda _: None, '"trust":"user"', spelling)
        with served.http(writer) as http:
            refused = send(http, "bob", content)
            assert refused.status_code == 422 and "trust system" in refused.json()["detail"]
            assert http.post("/v1/search", json={"text": "Pay"}).status_code == 403
    with served.http(writer) as http:
        assert send(http, "bob", "\n".join(lines) + "\n").status_code == 200
    with served.http(admin) as http:
        # The digest in the header is over items with the trust of before.
        assert send(http, "eva", content).json()["code"] == "snapshot_mismatch"


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.pop("digest"),
        lambda header: header.update(digest=None),
        lambda header: header.update(digest=7),
        lambda header: header.update(digest=["x"]),
        lambda header: header.pop("scope"),
    ],
    ids=["none", "null", "number", "list", "scope"],
)
def test_an_import_with_a_strange_header_is_no_server_error(
    served: Served, change: Callable[[Header], Any]
) -> None:
    with served.http(served.key("ana")) as http:
        http.post("/v1/memories", json={"text": "Ana drinks tea"})
        lines = exported(http, "ana")
    with served.http(served.key("bob")) as http:
        assert send(http, "bob", forged(lines, change, "", "")).status_code in (200, 422)


def test_writing_alone_takes_no_memory_away_by_an_old_snapshot_or_an_undo(served: Served) -> None:
    writer = served.key("ana", "memory:read", "memory:write")
    deleter = served.key("ana", "memory:read", "memory:write", "memory:delete")
    with served.http(writer) as http:
        http.post("/v1/memories", json={"text": "Ana drinks tea", "id": "tea"})
        snapshot = http.post("/v1/snapshots", json={"name": "early"}).json()["id"]
        change = {"text": "Ana drinks mint tea"}
        assert http.patch("/v1/memories/tea", json=change).status_code == 200
        assert http.post("/v1/undo", json={}).status_code == 200
        http.post("/v1/memories", json={"text": "Ana has a cat", "id": "cat"})
        for path in (f"/v1/snapshots/{snapshot}/restore", "/v1/undo"):
            refused = http.post(path, json={})
            assert refused.status_code == 403 and "memory:delete" in refused.json()["detail"]
        assert http.get("/v1/memories/cat").status_code == 200
        kept = http.post("/v1/snapshots", json={"name": "now"}).json()["id"]
        assert http.post(f"/v1/snapshots/{kept}/restore").status_code == 200
    with served.http(deleter) as http:
        assert http.post(f"/v1/snapshots/{snapshot}/restore").status_code == 200
        assert http.get("/v1/memories/cat").status_code == 404

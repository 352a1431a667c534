"""Who may do what over HTTP: keys, scopes, loopback, and that no user ever sees
another's rows, whatever is made up.
"""

from __future__ import annotations

import json
import random
import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from fuzz_kit import calls
from postgres_kit import rows_of
from service_kit import DATABASES, Served, place_on, serving

from memagent.build import open_store
from memagent.config import ServiceSettings, check_workers
from memagent.core.errors import ConfigError
from memagent.journal.open_database import DatabaseJournal
from memagent.journal.postgres import PostgresBackend
from memagent.service.serving import serve

CALLS = calls(750)
SECRETS = {"ann": "heliotrope", "bob": "chartreuse"}


@pytest.fixture(scope="module", params=DATABASES)
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    with (
        place_on(request.param, request, tmp_path_factory.mktemp("access")) as place,
        serving(place) as running,
    ):
        yield running


@pytest.fixture(scope="module")
def keys(served: Served) -> dict[str, str]:
    made = {user: served.key(user) for user in SECRETS}
    for user, word in SECRETS.items():
        with served.http(made[user]) as http:
            for number in range(5):
                body = {
                    "text": f"{word} fact {number}",
                    "id": f"{user}-{number}",
                    "metadata": {"word": word},
                }
                assert http.post("/v1/memories", json=body).status_code == 201
            turns = [{"speaker": user, "text": f"I like {word}", "id": f"{user}-turn"}]
            assert (
                http.post(
                    "/v1/sessions?wait=true", json={"id": f"{user}-ses", "turns": turns}
                ).status_code
                == 200
            )
            assert http.post("/v1/snapshots", json={"name": word}).status_code == 201
            assert http.post(f"/v1/users/{user}/export").status_code == 202
    return made


def test_thousands_of_made_up_calls_never_show_a_foreign_row(
    served: Served, keys: dict[str, str]
) -> None:
    chance = random.Random(7)
    ids: dict[str, list[str]] = {user: [] for user in SECRETS}
    cursors: dict[str, list[str]] = {user: [] for user in SECRETS}
    for user, key in keys.items():
        with served.http(key) as http:
            page = http.get("/v1/memories?limit=2").json()
            cursors[user] += [
                page["next_cursor"],
                http.get("/v1/oplog?limit=1").json()["next_cursor"],
            ]
            ids[user] += [item["id"] for item in http.get("/v1/memories").json()["items"]]
            ids[user] += [one["id"] for one in http.get("/v1/snapshots").json()["items"]]
            ids[user] += [
                f"{user}-ses",
                f"{user}-turn",
                http.post(f"/v1/users/{user}/export").json()["id"],
                "c1",
                "c2",
            ]
    with served.http() as http:
        for number in range(CALLS if served.service.path is not None else CALLS // 5):
            me, other = chance.sample(sorted(SECRETS), 2)
            method, path, body, params = _made_up(chance, me, other, ids, cursors)
            answer = http.request(
                method,
                path,
                params=params,
                json=body,
                headers={"Authorization": f"Bearer {keys[me]}"},
            )
            assert answer.status_code < 500, (method, path, body, answer.text)
            assert SECRETS[other] not in answer.text.replace(json.dumps(body or {}), ""), (
                number,
                method,
                path,
                body,
            )
    with served.http(keys["bob"]) as http:
        assert len(http.get("/v1/memories?limit=1000").json()["items"]) >= 5


def _made_up(
    chance: random.Random,
    me: str,
    other: str,
    ids: dict[str, list[str]],
    cursors: dict[str, list[str]],
) -> tuple[str, str, dict[str, Any] | None, dict[str, Any]]:
    """A call as `me` that reaches for what is `other`'s, by forged ids, cursors,
    filters and names of users.
    """
    foreign = chance.choice(ids[other])
    cursor = chance.choice(cursors[other])
    if chance.random() < 0.3:
        place = chance.randrange(len(cursor))
        cursor = cursor[:place] + chance.choice("AZaz09-_") + cursor[place + 1 :]
    params: dict[str, Any] = chance.choice(
        [
            {},
            {"user_id": other},
            {"user_id": me},
            {"cursor": cursor},
            {"run_id": other},
            {"id": foreign},
            {"limit": 3},
        ]
    )
    get = ["", "/history", "/neighbors", "/diff", "/files/1"]
    paths = ["memories", "snapshots", "events", "jobs", "sessions"]
    choices: list[tuple[str, str, dict[str, Any] | None]] = [
        ("GET", f"/v1/{chance.choice(paths)}/{foreign}{chance.choice(get)}", None),
        ("GET", f"/v1/{chance.choice([*paths, 'oplog', 'graph', 'graph/stats'])}", None),
        ("POST", "/v1/search", {"text": "facts", "k": 50, "where": {"ids": ids[other]}}),
        (
            "POST",
            "/v1/search",
            {"text": "facts", "k": 50, "where": {"session_ids": [f"{other}-ses"]}},
        ),
        (
            "POST",
            "/v1/search",
            {"text": "fact 1", "as_of": {"recorded": chance.randrange(20)}, "explain": True},
        ),
        ("POST", "/v1/context", {"text": "which fact is it"}),
        ("POST", "/v1/questions", {"text": f"What does {other} like?"}),
        ("POST", f"/v1/memories/{foreign}/restore", None),
        ("POST", f"/v1/snapshots/{foreign}/restore", None),
        ("POST", f"/v1/snapshots/{foreign}/fork", None),
        ("PATCH", f"/v1/memories/{foreign}", {"text": "overwritten"}),
        ("DELETE", f"/v1/memories/{foreign}", None),
        ("DELETE", "/v1/memories", None),
        ("POST", f"/v1/users/{other}/export", None),
        ("POST", f"/v1/users/{other}/erase", None),
        ("POST", f"/v1/jobs/{foreign}/retry", None),
    ]
    method, path, body = chance.choice(choices)
    if (method, path) == ("DELETE", "/v1/memories"):
        params = {**params, "confirm": other}
    return method, path, body, params


def test_a_foreign_id_and_a_missing_one_answer_alike(served: Served, keys: dict[str, str]) -> None:
    with served.http(keys["ann"]) as http:
        for method, path in (
            ("GET", "/v1/memories/{}"),
            ("DELETE", "/v1/memories/{}"),
            ("GET", "/v1/memories/{}/history"),
            ("GET", "/v1/snapshots/{}"),
            ("GET", "/v1/jobs/{}"),
        ):
            answers: list[dict[str, Any]] = []
            for one in ("bob-1", "zzz-1"):
                answer = http.request(method, path.format(one), headers={"X-Request-Id": "same"})
                assert answer.status_code == 404
                answers.append(
                    {**answer.json(), "detail": answer.json()["detail"].replace(one, "ID")}
                )
            assert answers[0] == answers[1]
        named = [
            http.get("/v1/memories", params={"user_id": one}).json()["detail"]
            for one in ("bob", "nobody")
        ]
        assert named[0] == named[1]


def test_scopes_are_kept_and_a_revoked_key_is_refused(served: Served, keys: dict[str, str]) -> None:
    reader = served.key("ann", "memory:read")
    with served.http(reader) as http:
        assert http.get("/v1/memories").status_code == 200
        assert http.post("/v1/memories", json={"text": "x"}).json()["code"] == "forbidden"
        assert http.post("/v1/questions", json={"text": "x"}).status_code == 403
        assert http.get("/metrics").status_code == 403
    admin = served.key(None, "memory:read", "admin")
    with served.http(admin) as http:
        assert http.get("/v1/memories").json()["code"] == "invalid_request"
        assert len(http.get("/v1/memories", params={"user_id": "ann"}).json()["items"]) >= 5
        assert "memagent_requests_total" in http.get("/metrics").text
    served.service.keys.revoke(reader.split("_")[1], at=served.service.store.clock())
    served.service.keys.read()
    with served.http(reader) as http:
        answer = http.get("/v1/memories")
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    for wrong in ("ma_000000000000_" + "x" * 43, "nonsense", keys["ann"][:-1] + "!"):
        with served.http(wrong) as http:
            assert http.get("/v1/memories").status_code == 401
    with served.http() as http:
        assert http.get("/v1/memories").status_code == 401


def test_keys_are_hashed_at_rest(served: Served, keys: dict[str, str]) -> None:
    if served.service.path is not None:
        folder = served.service.path.parent
        stored = b"".join(file.read_bytes() for file in folder.iterdir() if file.is_file())
    else:
        inner = served.service.journal.inner
        assert isinstance(inner, DatabaseJournal) and isinstance(inner.backend, PostgresBackend)
        stored = repr(rows_of(inner.backend.url, "SELECT * FROM service_keys")).encode()
        assert b"ann" in stored
    for key in keys.values():
        assert key.split("_", 2)[2].encode() not in stored


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Origin": "https://evil.example"},
        {"X-Forwarded-For": "10.0.0.1"},
        {"Via": "1.1 proxy"},
    ],
    ids=["host", "origin", "proxy", "via"],
)
def test_without_a_key_only_requests_of_this_machine_are_served(headers: dict[str, str]) -> None:
    with serving() as running, running.http() as http:
        assert http.get("/v1/memories").status_code == 200
        assert http.get("/v1/memories", headers=headers).status_code in (401, 421)


@pytest.mark.parametrize(("version", "status"), [("1.0", 401), ("1.1", 200)])
def test_without_a_key_a_proxy_in_its_plainest_setting_is_refused(
    version: str, status: int
) -> None:
    """It names the loopback address as the host, adds no header, and speaks HTTP/1.0."""
    with serving() as running:
        address = urlsplit(running.url)
        place = (str(address.hostname), int(address.port or 0))
        with socket.create_connection(place, timeout=30) as connection:
            head = f"GET /v1/memories HTTP/{version}\r\nHost: {address.netloc}\r\n"
            connection.sendall(f"{head}Connection: close\r\n\r\n".encode())
            assert int(connection.recv(4096).split()[1]) == status


def test_without_keys_any_token_is_welcome_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serving() as running:
        for token in ("sk-none", "not-needed", "ma_000000000000_" + "x" * 43):
            with running.http(token) as http:
                assert http.get("/v1/memories").status_code == 200
                assert http.get("/v1/models").status_code == 200
                foreign = {"Host": "evil.example"}
                assert http.get("/v1/memories", headers=foreign).status_code == 421
        warnings = [
            record
            for record in caplog.records
            if record.name.endswith("service.access") and record.levelname == "WARNING"
        ]
        assert len(warnings) == 1 and "sk-none" not in warnings[0].getMessage()
        assert "memagent keys create" in warnings[0].getMessage()
        running.key("ann")  # from the first key on, tokens count
        with running.http("sk-none") as http:
            assert http.get("/v1/memories").status_code == 401


def test_a_bind_beyond_loopback_without_keys_and_several_workers_are_refused(
    tmp_path: Path,
) -> None:
    with pytest.raises(ConfigError, match="memagent keys create"):
        serve(open_store(path=tmp_path / "memory.db", embedder="hashing"), host="0.0.0.0", port=0)
    with pytest.raises(ConfigError, match="one worker"):
        check_workers(2, shared=False)
    check_workers(1, shared=False)
    check_workers(2, shared=True)


def test_the_rate_and_the_size_of_requests_are_limited() -> None:
    limits = ServiceSettings(requests_per_minute=5, max_body_bytes=2_000, drain_s=1.0)
    with serving(settings=limits) as running, running.http() as http:
        codes = [http.get("/v1/memories").status_code for _ in range(7)]
        assert codes[:5] == [200] * 5 and 429 in codes[5:]
        assert http.post("/v1/memories", json={"text": "x" * 3_000}).status_code == 413

    def drip() -> Iterator[bytes]:
        for _ in range(50):
            yield b" " * 100

    with serving(settings=limits) as running, running.http() as http:
        answer = http.post(
            "/v1/memories", content=drip(), headers={"Content-Type": "application/json"}
        )
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


@pytest.mark.parametrize("deleted", [False, True], ids=["as it is", "all deleted before"])
def test_erasing_a_user_leaves_no_byte_of_theirs(tmp_path: Path, deleted: bool) -> None:
    marker = "xylophonist-in-quarantine"
    with serving(tmp_path / "memory.db") as running, running.http() as http:
        user = {"user_id": "gone"}
        assert http.post(
            "/v1/memories", params=user, json={"text": marker}, headers={"Idempotency-Key": "k"}
        ).is_success
        http.post(
            "/v1/sessions?wait=true", params=user, json={"turns": [{"text": f"I am a {marker}"}]}
        )
        http.post("/v1/chat", params=user, json={"text": f"What is a {marker}?"})
        http.post(
            "/v1/search", params=user, json={"text": marker}, headers={"Idempotency-Key": "s"}
        )
        export = _finished(http, http.post("/v1/users/gone/export").json(), user)
        assert marker in http.get(f"/v1/jobs/{export['id']}/files/1", params=user).text
        if deleted:
            answer = http.delete("/v1/memories", params=user | {"confirm": "gone"})
            assert answer.json()["deleted"] >= 1
        receipt = _finished(http, http.post("/v1/users/gone/erase").json(), user)
        assert receipt["result"]["memories"][0]["items"] >= 1 and receipt["result"]["scrubbed"]
        places = {place["name"]: place for place in receipt["result"]["places"]}
        assert receipt["result"]["needles"] >= 3
        assert {"memory.db", "memory.db-wal", "memory.service.db"} <= places.keys()
        assert receipt["result"]["unproven"] is None
        assert not [place for place in places.values() if place["found_after"]]
        assert http.get("/v1/memories", params=user).json()["items"] == []
    left = [
        file
        for file in tmp_path.rglob("*")
        if file.is_file() and marker.encode() in file.read_bytes()
    ]
    assert left == []
    with closing(sqlite3.connect(tmp_path / "memory.service.db")) as database, database:
        assert database.execute("SELECT count(*) FROM service_jobs").fetchone() == (1,)


def _finished(http: httpx.Client, job: dict[str, Any], params: dict[str, str]) -> dict[str, Any]:
    while job["state"] in ("queued", "running"):
        job = http.get(f"/v1/jobs/{job['id']}", params=params).json()
    assert job["state"] == "done", job
    return job

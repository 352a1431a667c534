"""The service's promises: a request repeated has one effect, what is acknowledged
survives, a failed model loses no turn.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from postgres_kit import rows_of
from service_kit import served_process, serving

from memagent import Client
from memagent.core.errors import ModelUnavailable
from memagent.core.exchange import ModelRequest, ModelResponse
from memagent.journal.postgres import is_postgres_url
from memagent.testing.models import FunctionModel

KILLS = int(os.environ.get("MEMAGENT_SERVICE_KILLS", "2"))


def test_the_same_request_again_has_one_effect_and_the_first_answer(place: str) -> None:
    with serving(place) as running, running.http() as http:
        key = {"Idempotency-Key": "one"}
        first = http.post("/v1/memories", json={"text": "only once"}, headers=key)
        for _ in range(40):
            again = http.post("/v1/memories", json={"text": "only once"}, headers=key)
            assert (again.status_code, again.content, again.headers["etag"]) == (
                201,
                first.content,
                first.headers["etag"],
            )
            assert again.headers["idempotent-replayed"] == "true"
        other = http.post("/v1/memories", json={"text": "another"}, headers=key)
        assert (other.status_code, other.json()["code"]) == (422, "key_reused")
    with serving(place) as running, running.http() as http:  # after a restart, from the journal
        again = http.post("/v1/memories", json={"text": "only once"}, headers=key)
        assert (again.status_code, again.content) == (201, first.content)
        assert http.post("/v1/memories", json={"text": "another"}, headers=key).status_code == 422
        assert len(http.get("/v1/memories").json()["items"]) == 1


def test_a_job_that_is_taken_up_at_once_is_told_alike_by_both_answers(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body, key = {"turns": [{"text": "I moved to Porto."}]}, {"Idempotency-Key": "quick"}
    with serving(place) as running, running.http() as http:
        jobs = running.service.jobs
        accept = jobs.accept_session

        async def taken_up(*args: Any, **options: Any) -> tuple[Any, bool]:
            job, fresh = await accept(*args, **options)
            return job.model_copy(update={"attempts": job.attempts + 1}), fresh

        monkeypatch.setattr(jobs, "accept_session", taken_up)
        first, again = (http.post("/v1/sessions", json=body, headers=key) for _ in range(2))
        assert (first.status_code, first.content) == (again.status_code, again.content)


def test_a_session_sent_again_is_answered_as_it_was_first(place: str) -> None:
    body = {"id": "s1", "turns": [{"speaker": "Ana", "text": "I moved to Porto."}]}
    key = {"Idempotency-Key": "session"}
    with serving(place) as running, running.http() as http:
        first = http.post("/v1/sessions", json=body, headers=key)
        assert (first.status_code, first.json()["state"]) == (202, "queued")
        job = f"/v1/jobs/{first.json()['id']}"
        deadline = time.monotonic() + 30
        while http.get(job).json()["state"] != "done" and time.monotonic() < deadline:
            time.sleep(0.05)
        again = http.post("/v1/sessions", json=body, headers=key)
        assert (again.status_code, again.content) == (202, first.content)
    with serving(place) as running, running.http() as http:  # from the journal
        again = http.post("/v1/sessions", json=body, headers=key)
        assert (again.status_code, again.content) == (202, first.content)
        assert again.headers["location"] == job
        assert http.get(job).json()["state"] == "done"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/memories", {"text": "new"}),
        ("POST", "/v1/memories/batch", {"texts": ["new", "newer"]}),
        ("PATCH", "/v1/memories/old", {"text": "changed"}),
        ("DELETE", "/v1/memories/old", None),
        ("DELETE", "/v1/memories?confirm=default", None),
        ("POST", "/v1/undo", {}),
        ("POST", "/v1/chat", {"text": "What is old?"}),
        (
            "POST",
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "What is old?"}]},
        ),
        ("POST", "/v1/sessions?wait=true", {"turns": [{"text": "I am new here"}]}),
        ("POST", "/v1/sessions", {"turns": [{"text": "I am new here"}]}),
        ("POST", "/v1/snapshots", {"name": "now"}),
    ],
)
async def test_sixteen_at_once_have_one_effect(
    place: str, method: str, path: str, body: dict[str, Any] | None
) -> None:
    async def sixteen(url: str) -> list[httpx.Response]:
        async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False) as http:
            one = (
                http.request(method, path, json=body, headers={"Idempotency-Key": "same"})
                for _ in range(16)
            )
            return list(await asyncio.gather(*one))

    with serving(place) as running, running.http() as http:
        http.post("/v1/memories", json={"text": "the old one", "id": "old"})
        answers = await sixteen(running.url)
        done = [answer for answer in answers if answer.is_success]
        assert done and len({answer.content for answer in done}) == 1
        refused = {answer.json()["code"] for answer in answers if not answer.is_success}
        assert refused <= {"request_in_progress"}
        rows = http.get("/v1/oplog").json()["items"]
        kinds = [
            row["entry"]["kind"]
            for row in rows
            if row["entry"].get("source", {}).get("actor") != "agent"
        ]
        chat = "chat" in path  # the message, then the reply
        assert len(kinds) == (1 if "snapshots" in path else 3 if chat else 2), kinds


def test_a_key_is_for_one_thread(place: str) -> None:
    body = {"messages": [{"role": "user", "content": "What is old?"}]}
    with serving(place) as running, running.http() as http:

        def say(thread: str | None) -> httpx.Response:
            named = {"X-Memagent-Thread": thread} if thread else {}
            headers = {"Idempotency-Key": "k", **named}
            return http.post("/v1/chat/completions", json=body, headers=headers)

        first = say("a")
        assert first.is_success and say("a").content == first.content
        for other in ("b", None):
            refused = say(other)
            assert (refused.status_code, refused.json()["code"]) == (400, "key_reused")


async def test_old_responses_are_pruned_and_new_ones_kept(place: str) -> None:
    with serving(place) as running, running.http() as http:
        for user in ("ann", "bob"):
            for key in ("old", "new"):
                added = http.post(
                    f"/v1/memories?user_id={user}",
                    json={"text": key},
                    headers={"Idempotency-Key": key},
                )
                assert added.is_success
        make_older(place, days=8)
        assert await running.service.prune() == 4
        assert http.post(
            "/v1/memories?user_id=ann", json={"text": "more"}, headers={"Idempotency-Key": "x"}
        ).is_success
        make_older(place, days=6)
        assert await running.service.prune() == 0
        assert len(kept_responses(place)) == 1


def make_older(place: str, *, days: int) -> None:
    """Have every kept response look as if it had been given so many days before."""
    shift = days * 86_400_000_000
    if is_postgres_url(place):
        import psycopg

        with psycopg.connect(place) as database:
            every = [digest for (digest,) in rows_of(place, "SELECT digest FROM scopes", "*")]
            database.execute("SELECT set_config('memagent.scopes', %s, true)", [",".join(every)])
            database.execute(f"UPDATE idempotency SET created_us = created_us - {shift}".encode())
    else:
        with closing(sqlite3.connect(place)) as database, database:
            database.execute(f"UPDATE idempotency SET created_us = created_us - {shift}")


def kept_responses(place: str) -> list[Any]:
    if is_postgres_url(place):
        every = [digest for (digest,) in rows_of(place, "SELECT digest FROM scopes", "*")]
        return rows_of(place, "SELECT key FROM idempotency", *every)
    with closing(sqlite3.connect(place)) as database, database:
        return database.execute("SELECT key FROM idempotency").fetchall()


class Flaky:
    """A model that fails until it is told to work."""

    def __init__(self) -> None:
        self.works = threading.Event()
        self.inner = FunctionModel(lambda _: '{"facts": [], "operations": []}')

    async def complete(self, request: ModelRequest) -> ModelResponse:
        if not self.works.is_set():
            raise ModelUnavailable("the provider is away")
        return await self.inner.complete(request)


def test_a_failed_model_loses_no_turn(place: str) -> None:
    model = Flaky()
    with serving(place, model=model) as running, running.http() as http:
        http.post(
            "/v1/memories", json={"text": "Somebody lives, has a dog and plays chess in Oslo"}
        )
        job = http.post(
            "/v1/sessions", json={"id": "s", "turns": [{"speaker": "Ana", "text": "I like tea"}]}
        ).json()
        assert (
            http.post(
                "/v1/sessions?wait=true", json={"turns": [{"text": "I like rain"}]}
            ).status_code
            == 200
        )
        for path, body in (
            ("/v1/chat", {"text": "I live in Oslo"}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "I have a dog"}]}),
        ):
            answer = http.post(path, json=body)
            assert (answer.status_code, answer.json()["code"]) == (503, "model_unavailable")
        streamed = http.post(
            "/v1/chat", json={"text": "I play chess"}, headers={"Accept": "text/event-stream"}
        ).text
        assert "event: problem" in streamed
        told = {
            turn["text"]
            for one in http.get("/v1/sessions").json()["items"]
            for turn in one["turns"]
        }
        assert told == {
            "I like tea",
            "I like rain",
            "I live in Oslo",
            "I have a dog",
            "I play chess",
        }
        assert (
            http.post("/v1/search", json={"text": "tea"}).status_code == 200
        )  # degraded, not down
        assert running.service.jobs.at_work > 0, "no idle time while jobs wait for the model"
        model.works.set()
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            states = running.service.jobs.table.counts()
            if states["done"] == 5 and not running.service.jobs.at_work:
                break
            time.sleep(0.05)
        assert http.get(f"/v1/jobs/{job['id']}").json()["state"] == "done"
        assert running.service.jobs.table.counts()["done"] == 5
        assert running.service.jobs.at_work == 0


def test_a_restart_in_the_middle_of_a_job_goes_on_with_it(place: str) -> None:
    model = Flaky()
    with serving(place, model=model) as running, running.http() as http:
        job = http.post(
            "/v1/sessions", json={"turns": [{"speaker": "Ana", "text": "I like tea"}]}
        ).json()
        erase = http.get(f"/v1/jobs/{job['id']}").json()
        assert erase["state"] in ("queued", "running")
    model.works.set()
    with serving(place, model=model) as running, Client(running.url) as client:
        assert client.finish(client.job(job["id"])).state.value == "done"


def test_kill_nine_loses_nothing_acknowledged(tmp_path: Path) -> None:
    kept: dict[str, str] = {}
    sessions: set[str] = set()
    for cycle in range(KILLS):
        with served_process(tmp_path / "memory.db", "--embedder", "hashing") as (process, url):
            with httpx.Client(base_url=url, timeout=30, trust_env=False) as http:
                for item_id, text in kept.items():
                    assert http.get(f"/v1/memories/{item_id}").json()["text"] == text
                stored = http.get("/v1/sessions?limit=1000").json()["items"]
                assert sessions <= {one["id"] for one in stored}
            killer = threading.Timer(0.4, process.send_signal, (signal.SIGKILL,))
            with httpx.Client(base_url=url, timeout=30, trust_env=False) as http:
                number = 0
                try:
                    while True:
                        number += 1
                        item_id = f"item-{cycle}-{number}"
                        if http.post(
                            "/v1/memories", json={"text": f"text {number}", "id": item_id}
                        ).is_success:
                            kept[item_id] = f"text {number}"
                        body = {
                            "id": f"ses-{cycle}-{number}",
                            "turns": [{"text": f"I said {number}"}],
                        }
                        if http.post("/v1/sessions", json=body).is_success:
                            sessions.add(body["id"])  # pyright: ignore[reportArgumentType]
                        if number == 1:  # both kinds were acknowledged, however slow the machine
                            assert f"item-{cycle}-1" in kept and f"ses-{cycle}-1" in sessions
                            killer.start()
                except httpx.TransportError:
                    pass
            process.wait(30)
    with serving(tmp_path / "memory.db") as running, running.http() as http:
        found = {
            item["id"]: item["text"]
            for item in http.get("/v1/memories?limit=1000&kind=fact").json()["items"]
        }
        assert kept.items() <= found.items()
        deadline = time.monotonic() + 60
        while (
            running.service.jobs.table.counts()["done"] < len(sessions)
            and time.monotonic() < deadline
        ):
            time.sleep(0.05)
        assert running.service.jobs.table.counts()["done"] >= len(sessions)


def test_asked_to_stop_it_finishes_what_runs_and_exits_cleanly(place: str) -> None:
    with (
        served_process(place, "--embedder", "hashing") as (process, url),
        httpx.Client(base_url=url, timeout=30, trust_env=False) as http,
    ):
        assert http.get("/healthz").status_code == 200  # connected, before the signal
        answers: list[int] = []

        def ask() -> None:
            answers.append(http.post("/v1/questions", json={"text": "What?"}).status_code)

        asking = threading.Thread(target=ask)
        asking.start()
        time.sleep(0.15)
        process.send_signal(signal.SIGTERM)
        asking.join(30)
        assert process.wait(30) == 0
        assert answers == [200]


def test_the_log_holds_no_words_of_anybody(place: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="memagent")
    with serving(place) as running, running.http() as http:
        http.post("/v1/memories", json={"text": "heliotrope"})
        http.get("/v1/memories/heliotrope?kind=heliotrope")
    lines = [
        record.getMessage() for record in caplog.records if record.name == "memagent.service.access"
    ]
    assert {json.loads(line)["route"] for line in lines} >= {
        "/v1/memories",
        "/v1/memories/{memory_id:path}",
    }
    assert all("heliotrope" not in line for line in lines)

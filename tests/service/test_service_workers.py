"""Several workers on one PostgreSQL store, over HTTP: they read each other's writes,
share keys and jobs, die, and outlive their server.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from fuzz_kit import calls
from patience import patience_s
from postgres_kit import PASSWORD, Postgres, rows_of, running_postgres
from service_kit import served_process, serving

from memagent import Client
from memagent.core.errors import ModelUnavailable, StoreError
from memagent.core.exchange import ModelRequest, ModelResponse
from memagent.core.records import Scope
from memagent.journal.postgres import PostgresJournal, connect
from memagent.journal.rows import scope_digest, scope_key
from memagent.memory.bank import system_clock
from memagent.service.data.database import REVISION, VERSION_TABLE, ServiceDatabase, owner_digest
from memagent.service.data.leases import KeyRing, LeaseTable
from memagent.testing.models import FunctionModel

pytest.importorskip("psycopg", reason="needs the postgres extra")
KILLS = int(os.environ.get("MEMAGENT_SERVICE_KILLS", "2"))
NO_FACTS = '{"facts": [], "operations": []}'


@pytest.fixture
def url(postgres: Postgres) -> Iterator[str]:
    """An empty schema of the session's server."""
    with postgres.schema() as made:
        yield made


@pytest.fixture(scope="module")
def pair(postgres: Postgres) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Two processes that serve the same store, each on an address of its own."""
    with postgres.schema() as place, ExitStack() as stack:
        addresses: list[str | None] = [None, None]

        def start(number: int) -> None:
            addresses[number] = stack.enter_context(served_process(place, "--embedder", "hashing"))[
                1
            ]

        threads = [threading.Thread(target=start, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(addresses)
        yield tuple(  # type: ignore[misc]
            stack.enter_context(httpx.Client(base_url=one or "", timeout=60, trust_env=False))
            for one in addresses
        )


def until(true: Callable[[], bool], *, seconds: float = 60.0) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + patience_s(seconds)
    while not true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.05)


# -- reading and keys ------------------------------------------------------------------


@pytest.mark.timeout(300)
def test_what_one_worker_acknowledged_the_other_reads_at_once(
    pair: tuple[httpx.Client, httpx.Client],
) -> None:
    """Four requests a round in turn, each read right after the write, by the worker that
    did not make it.
    """
    user = {"user_id": "alternating"}
    rounds = calls(60)
    for number in range(rounds):
        writer, reader = pair[number % 2], pair[(number + 1) % 2]
        item_id = f"item-{number}"
        assert writer.post(
            "/v1/memories", params=user, json={"id": item_id, "text": f"text {number}"}
        ).is_success
        assert reader.get(f"/v1/memories/{item_id}", params=user).json()["text"] == f"text {number}"
        changed = reader.patch(
            f"/v1/memories/{item_id}", params=user, json={"text": f"new {number}"}
        )
        assert changed.status_code == 200
        assert writer.get(f"/v1/memories/{item_id}", params=user).json()["text"] == f"new {number}"
    hits = [
        one.post("/v1/search", params=user, json={"text": f"new {rounds - 1}", "k": 3}).json()[
            "hits"
        ]
        for one in pair
    ]
    assert hits[0] == hits[1] and hits[0][0]["item"]["id"] == f"item-{rounds - 1}"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/memories", {"text": "one"}),
        ("/v1/search", {"text": "one"}),
        ("/v1/snapshots", {"name": "now"}),
        ("/v1/sessions", {"turns": [{"text": "I am new here"}]}),
        ("/v1/users/repeating/export", None),
    ],
)
def test_a_repetition_at_another_worker_gets_the_first_answer(
    pair: tuple[httpx.Client, httpx.Client], path: str, body: dict[str, Any] | None
) -> None:
    user = {} if "users" in path else {"user_id": "repeating"}
    key = {"Idempotency-Key": f"again {path}"}
    pair[0].post("/v1/memories", params={"user_id": "repeating"}, json={"text": "the first"})
    first = pair[0].post(path, params=user, json=body, headers=key)
    again = pair[1].post(path, params=user, json=body, headers=key)
    assert first.is_success and again.headers["idempotent-replayed"] == "true"
    assert (again.status_code, again.content) == (first.status_code, first.content)
    other = {"name": "other", "text": "other", "turns": [{"text": "other"}]}
    if body is not None:
        reused = pair[1].post(
            path, params=user, json={name: other[name] for name in body}, headers=key
        )
        assert (reused.status_code, reused.json()["code"]) == (422, "key_reused")


@pytest.mark.parametrize("method", ["made", "revoked"])
def test_a_key_of_another_process_counts_within_a_second(url: str, method: str) -> None:
    beside = ServiceDatabase(url)  # before there is a memory: the journal leaves these tables alone
    ring = KeyRing(beside)
    with closing(beside), serving(url) as running, running.http() as http:
        assert http.get("/v1/memories").status_code == 200
        time.sleep(0.3)
        key_id, key = ring.create(
            name="k", scopes=["memory:read"], user_id="ann", at=system_clock()
        )
        made_at = time.monotonic()
        until(lambda: http.get("/v1/memories").status_code == 401, seconds=1.5)
        with running.http(key) as mine:
            assert mine.get("/v1/memories").status_code == 200
            if method == "revoked":
                running.service.keys.revoke(key_id, at=system_clock())
                until(lambda: mine.get("/v1/memories").status_code == 401, seconds=1.5)
        assert time.monotonic() - made_at < patience_s(10)


# -- jobs ------------------------------------------------------------------------------


class Watched:
    """A model of several workers that sees who works on whose words at the same time."""

    def __init__(self, *, wait_s: float = 0.02) -> None:
        self.wait_s, self.works = wait_s, threading.Event()
        self.works.set()
        self.at_work: dict[str, int] = {}
        self.seen: list[str] = []
        self.most = 0
        self._lock = threading.Lock()

    async def complete(self, request: ModelRequest) -> ModelResponse:
        import asyncio

        if not self.works.is_set():
            raise ModelUnavailable("away")
        words = [
            word
            for message in request.messages
            for word in message.content.split()
            if word.startswith("SAID-")
        ]
        user = words[-1].split("-")[1] if words else ""
        with self._lock:
            self.at_work[user] = self.at_work.get(user, 0) + 1
            self.most = max(self.most, self.at_work[user])
            if words and words[-1] not in self.seen:
                self.seen.append(words[-1])
        try:
            await asyncio.sleep(self.wait_s)
            return await FunctionModel(lambda _: NO_FACTS).complete(request)
        finally:
            with self._lock:
                self.at_work[user] -= 1


def test_sessions_of_a_memory_are_remembered_once_and_in_order_whoever_took_them(url: str) -> None:
    model = Watched()
    with (
        serving(url, model=model) as one,
        serving(url, model=model) as two,
        one.http() as a,
        two.http() as b,
    ):
        for number in range(6):
            for user in ("ann", "bob"):
                body = {
                    "id": f"{user}-{number}",
                    "turns": [{"speaker": user, "text": f"SAID-{user}-{number}"}],
                }
                taken = (a, b)[number % 2].post("/v1/sessions", params={"user_id": user}, json=body)
                assert taken.status_code == 202
        until(lambda: one.service.jobs.table.counts()["done"] == 12)
        assert model.most == 1, "no memory is worked on twice at once"
        for user in ("ann", "bob"):
            mine = [word for word in model.seen if f"-{user}-" in word]
            assert mine == [f"SAID-{user}-{number}" for number in range(6)]
        done = [
            each.service.metrics.value("memagent_events_total", event="jobs_done")
            for each in (one, two)
        ]
        assert sum(done) == 12, "every job ran in one of them"
        assert (
            rows_of(url, "SELECT place FROM service_claims WHERE place NOT LIKE 'request/%'") == []
        )


def test_what_a_worker_left_is_taken_over_when_its_lease_ends(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memagent.service.data.leases.LEASE_S", 2.0)
    scope = Scope(user_id="ann")
    with serving(url, model=Watched()) as running, running.http() as http:
        for number in (1, 2):
            body = {"id": f"s{number}", "turns": [{"text": "tea"}]}
            http.post("/v1/sessions", params={"user_id": "ann"}, json=body)
        until(lambda: running.service.jobs.table.counts()["done"] == 2)
    left = rows_of(
        url, "UPDATE service_jobs SET state = 'running', attempts = 0, result = NULL RETURNING id"
    )
    dead = ServiceDatabase(url)
    leases = LeaseTable(dead)
    for (job_id,) in left:
        assert leases.acquire(f"job/{job_id}", "dead")
    assert leases.acquire(f"memory/{scope_digest(scope_key(scope))}", "dead")
    assert not leases.acquire(f"job/{left[0][0]}", "another"), "whoever holds it keeps it meanwhile"
    began = time.monotonic()
    with serving(url, model=Watched()) as running:
        until(lambda: running.service.jobs.table.counts()["done"] == 2)
    assert time.monotonic() - began > 1.0
    dead.close()


def test_a_worker_that_lost_its_claim_stops(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memagent.service.data.leases._BEAT_S", 0.2)
    model = Watched(wait_s=30)
    with serving(url, model=model) as running, running.http() as http:
        job = http.post("/v1/sessions", json={"turns": [{"text": "SAID-ann-1"}]}).json()
        until(lambda: bool(model.seen))
        taken = rows_of(
            url,
            "UPDATE service_claims SET worker = 'another' WHERE place LIKE 'job/%' RETURNING place",
        )
        assert len(taken) == 1
        until(lambda: not running.service.jobs._tasks)  # pyright: ignore[reportPrivateUsage]
        assert http.get(f"/v1/jobs/{job['id']}").json()["state"] == "running", (
            "as the other one wrote it"
        )
        assert rows_of(url, "SELECT worker FROM service_claims WHERE place LIKE 'job/%'") == [
            ("another",)
        ]


def test_a_job_is_cancelled_at_the_worker_that_runs_it(url: str) -> None:
    model = Watched(wait_s=30)
    with serving(url, model=model) as one, serving(url) as two, one.http() as a, two.http() as b:
        job = a.post("/v1/sessions", json={"turns": [{"text": "SAID-ann-1"}]}).json()
        until(lambda: bool(model.seen))
        assert b.post(f"/v1/jobs/{job['id']}/cancel").json()["error"] == "cancelled"
        until(lambda: not one.service.jobs._tasks)  # pyright: ignore[reportPrivateUsage]
        assert a.get(f"/v1/jobs/{job['id']}").json()["state"] == "failed"


def test_a_request_at_work_in_one_worker_is_at_work_for_all(url: str) -> None:
    model = Watched(wait_s=1.5)
    with serving(url, model=model) as one, serving(url) as two, one.http() as a, two.http() as b:
        a.post("/v1/memories", json={"text": "Tea is hot"})
        key = {"Idempotency-Key": "slow"}
        body = {"text": "SAID-ann-1 What is hot?"}
        answers: list[httpx.Response] = []
        asking = threading.Thread(
            target=lambda: answers.append(a.post("/v1/questions", json=body, headers=key))
        )
        asking.start()
        until(lambda: bool(model.seen))
        refused = b.post("/v1/questions", json=body, headers=key)
        assert (refused.status_code, refused.json()["code"]) == (409, "request_in_progress")
        asking.join()
        again = b.post("/v1/questions", json=body, headers=key)
        assert (
            again.content == answers[0].content and again.headers["idempotent-replayed"] == "true"
        )


def test_an_export_is_fetched_from_any_worker_and_not_after_an_erasure(url: str) -> None:
    with ExitStack() as stack:
        one, two = stack.enter_context(serving(url)), stack.enter_context(serving(url))
        client = stack.enter_context(Client(one.url, user_id="ann"))
        a, b = stack.enter_context(one.http()), stack.enter_context(two.http())
        client.memory.add_many([f"fact {number}" for number in range(300)])
        user = {"user_id": "ann"}
        job = _finished(b, b.post("/v1/users/ann/export").json(), user)
        client.memory.add("later")
        file = job["result"]["files"][0]
        fetched = [http.get(f"/v1/jobs/{job['id']}/files/1", params=user) for http in (b, a)]
        assert fetched[0].content == fetched[1].content and len(fetched[0].content) == file["bytes"]
        assert b.get(f"/v1/jobs/{job['id']}/files/2", params=user).status_code == 404
        loaded = b.post(
            "/v1/users/bob/import",
            content=fetched[0].content,
            headers={"Content-Type": "application/x-ndjson"},
        ).json()
        assert (loaded["items"], loaded["digest"]) == (300, file["digest"])
        _finished(b, b.post("/v1/users/ann/erase?memory_only=true").json(), user)
        assert b.get(f"/v1/jobs/{job['id']}/files/1", params=user).status_code == 404


def _finished(http: httpx.Client, job: dict[str, Any], params: dict[str, str]) -> dict[str, Any]:
    def over() -> bool:
        nonlocal job
        job = http.get(f"/v1/jobs/{job['id']}", params=params).json()
        return job["state"] not in ("queued", "running")

    until(over)
    assert job["state"] == "done", job
    return job


# -- walls -----------------------------------------------------------------------------


def test_the_walls_hold_on_the_services_own_connections(url: str) -> None:
    from sqlalchemy import text

    with serving(url) as running, running.http() as http:
        for user in ("ann", "bob"):
            http.post("/v1/memories", params={"user_id": user}, json={"text": f"{user} likes tea"})
            http.post(
                "/v1/search",
                params={"user_id": user},
                json={"text": "tea"},
                headers={"Idempotency-Key": "s"},
            )
        database = running.service.database

        def seen(table: str, *named: str) -> int:
            return len(
                database.run(
                    lambda db: db.execute(text(f"SELECT * FROM {table}")).all(), owners=named
                )
            )

        for table in ("scopes", "journal", "payloads", "idempotency", "service_responses"):
            assert seen(table) == 0, table
        assert [
            seen("service_responses", owner_digest(user)) for user in ("ann", "bob", "eve")
        ] == [1, 1, 0]
        assert seen("service_responses", "*") == 0, "only what is due to be deleted"
        intruding = text(
            f"INSERT INTO service_responses VALUES ('{owner_digest('bob')}', 'p', '', '', 0)"
        )
        with pytest.raises(StoreError, match="row-level security"):
            database.run(lambda db: db.execute(intruding), owners=(owner_digest("ann"),))
        job = _finished(http, http.post("/v1/users/ann/erase").json(), {"user_id": "ann"})
        assert job["result"]["scrubbed"]
        left = database.run(
            lambda db: (
                db.execute(text("SELECT response_json FROM service_responses")).scalars().all()
            ),
            owners=(owner_digest("ann"),),
        )
        assert "".join(left) == "", "a mark without words"
        assert seen("service_responses", owner_digest("bob")) == 1


def test_migrated_tables_equal_new_ones_and_newer_ones_are_refused(postgres: Postgres) -> None:
    def shape(place: str) -> list[str]:
        columns = "table_name, column_name, data_type, is_nullable, character_maximum_length"
        statements = (
            f"SELECT {columns} FROM information_schema.columns WHERE table_schema = current_schema() ORDER BY 1, 2",
            "SELECT tablename, indexdef FROM pg_indexes WHERE schemaname = current_schema() ORDER BY 1, 2",
            "SELECT tablename, policyname, cmd, qual FROM pg_policies WHERE schemaname = current_schema() ORDER BY 1",
        )
        schema = place.rpartition("%3D")[2]
        return [repr(rows_of(place, statement)).replace(schema, "") for statement in statements]

    with postgres.schema() as new, postgres.schema() as old:
        ServiceDatabase(new).close()
        with connect(old) as connection:
            connection.execute(
                f"CREATE TABLE {VERSION_TABLE} (version_num VARCHAR(32) NOT NULL, "
                f"CONSTRAINT {VERSION_TABLE}_pkc PRIMARY KEY (version_num))".encode()
            )
        ServiceDatabase(old).close()
        assert rows_of(old, f"SELECT version_num FROM {VERSION_TABLE}") == [(REVISION,)]
        assert shape(new) == shape(old)
        rows_of(new, f"UPDATE {VERSION_TABLE} SET version_num = '9999' RETURNING 1")
        with pytest.raises(StoreError, match="install the newer version"):
            ServiceDatabase(new)


# -- a supervisor and its workers ------------------------------------------------------


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    """Process ids of a supervisor's workers."""
    task = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    children = [int(pid) for pid in task.read_text().split()]
    return [pid for pid in children if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


needs_proc = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="finds workers in /proc"
)


@needs_proc
@pytest.mark.timeout(400 + 100 * KILLS)
def test_workers_killed_under_load_lose_nothing_acknowledged(url: str) -> None:
    """Clients write, repeat what got no answer with the same key, and one worker after
    another is killed at random points.
    """
    chance = random.Random(11)
    kept: dict[str, str] = {}
    sessions: set[str] = set()
    over = threading.Event()
    trouble: list[str] = []

    def ask(http: httpx.Client, path: str, body: dict[str, Any], key: str) -> bool:
        for _ in range(200):
            try:
                answer = http.post(path, json=body, headers={"Idempotency-Key": key})
            except httpx.TransportError:
                continue
            if answer.is_success:
                return True
            if answer.status_code not in (409, 503):
                trouble.append(f"{answer.status_code} {answer.text}")
                return False
            time.sleep(0.05)
        trouble.append(f"{path} was never answered")
        return False

    def load(name: str, address: str) -> None:
        number = 0
        limits = httpx.Limits(
            max_keepalive_connections=0
        )  # a connection each, so that requests go to all workers
        with httpx.Client(base_url=address, timeout=30, trust_env=False, limits=limits) as http:
            while not over.is_set():
                number += 1
                item_id = f"{name}-{number}"
                body = {"text": f"text {item_id}", "id": item_id}
                if ask(http, "/v1/memories", body, item_id):
                    kept[item_id] = f"text {item_id}"
                if ask(http, "/v1/memories", {"text": f"counted {item_id}"}, f"counted {item_id}"):
                    kept[f"counted {item_id}"] = f"counted {item_id}"
                if number % 3 == 1:
                    ses = f"ses-{item_id}"
                    if ask(
                        http, "/v1/sessions", {"id": ses, "turns": [{"text": f"I said {ses}"}]}, ses
                    ):
                        sessions.add(ses)

    with served_process(url, "--embedder", "hashing", "--workers", "2") as (process, address):
        assert len(workers_of(process)) == 2
        clients = [threading.Thread(target=load, args=(f"w{n}", address)) for n in range(3)]
        for client in clients:
            client.start()
        for _ in range(KILLS):
            more = len(kept) + chance.randrange(4, 24)
            until(lambda more=more: len(kept) >= more or bool(trouble), seconds=180)
            doomed = chance.choice(workers_of(process))
            os.kill(doomed, signal.SIGKILL)
            until(lambda doomed=doomed: doomed not in workers_of(process))
            until(lambda: len(workers_of(process)) == 2)
        more = len(kept) + 6
        until(lambda: len(kept) >= more or bool(trouble), seconds=180)
        over.set()
        for client in clients:
            client.join()
        with httpx.Client(base_url=address, timeout=30, trust_env=False) as http:
            until(lambda: _open_jobs(http) == 0)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert trouble == [] and sessions
    with serving(url) as running, running.http() as http:
        found = {item["id"]: item["text"] for item in _listed(http, "/v1/memories?kind=fact")}
        said = [text for text in found.values() if text.startswith("counted ")]
        assert len(said) == len(set(said)), "a repetition had no effect of its own"
        mine = {key: text for key, text in kept.items() if not key.startswith("counted ")}
        assert mine.items() <= found.items()
        assert {text for text in kept.values() if text.startswith("counted ")} <= set(said)
        assert sessions <= {one["id"] for one in _listed(http, "/v1/sessions")}
        counts = running.service.jobs.table.counts()
        assert [one for one in _listed(http, "/v1/jobs") if one["state"] == "failed"] == []
        assert (counts["done"], counts["failed"]) == (
            len({row["id"] for row in _listed(http, "/v1/sessions")}),
            0,
        )
    with PostgresJournal(url) as journal:
        assert journal.verify(Scope(user_id="default")) == []
        assert rows_of(url, "SELECT place FROM service_claims") == []


def _open_jobs(http: httpx.Client) -> int:
    figures = http.get("/metrics").text.splitlines()
    of_open = [
        line
        for line in figures
        if line.startswith("memagent_jobs{") and re.search('"(queued|running)"', line)
    ]
    assert len(of_open) == 2
    return sum(int(float(line.split()[-1])) for line in of_open)


def _listed(http: httpx.Client, path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        joint = "&" if "?" in path else "?"
        page = http.get(f"{path}{joint}limit=500" + (f"&cursor={cursor}" if cursor else "")).json()
        found += page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


@needs_proc
@pytest.mark.timeout(300)
def test_the_counters_of_several_workers_add_up_and_outlive_a_worker(url: str) -> None:
    """Every scrape takes a new connection, so either worker may answer it."""

    def fresh(path: str) -> httpx.Response:
        return httpx.get(address + path, timeout=30, trust_env=False)

    def series(name: str) -> dict[str, float]:
        lines = fresh("/metrics").text.splitlines()
        rows = [line.rpartition(" ") for line in lines if line.startswith(name)]
        return {labels: float(value) for labels, _, value in rows}

    listed = 'memagent_requests_total{method="GET",route="/v1/memories",status="200"}'
    with served_process(url, "--embedder", "hashing", "--workers", "2") as (process, address):
        for _ in range(40):
            assert fresh("/v1/memories?user_id=ann").status_code == 200
        seen = [series("memagent_") for _ in range(10)]
        assert [each[listed] for each in seen] == [40.0] * 10
        of_all = 'memagent_request_seconds_bucket{le="+Inf",route="/v1/memories"}'
        assert {each[of_all] for each in seen} == {40.0}
        opened = 'memagent_events_total{event="banks_opened"}'
        assert {(each[opened], each["memagent_banks_open"]) for each in seen} == {(2.0, 2.0)}
        scrapes = [each.get(listed.replace("/v1/memories", "/metrics"), 0.0) for each in seen]
        assert scrapes == [float(number) for number in range(10)], "no counter jumps back"
        assert all(each["memagent_requests_in_flight"] == 1.0 for each in seen), "the scrape itself"
        doomed = workers_of(process)[0]
        os.kill(doomed, signal.SIGKILL)
        until(lambda: doomed not in workers_of(process) and len(workers_of(process)) == 2)
        until(lambda: series("memagent_banks_open")["memagent_banks_open"] == 1.0)
        assert series(listed)[listed] == 40.0


@needs_proc
@pytest.mark.timeout(300)
def test_workers_end_with_their_supervisor(url: str) -> None:
    with served_process(url, "--embedder", "hashing", "--workers", "2") as (process, _):
        workers = workers_of(process)
        process.send_signal(signal.SIGKILL)
        until(lambda: not any(Path(f"/proc/{pid}").exists() and _runs(pid) for pid in workers))


def _runs(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2][:3]
    except OSError:
        return False


def test_workers_on_sqlite_are_refused_with_the_way_out(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "memagent.cli.app",
        "serve",
        "--db",
        str(tmp_path / "m.db"),
        "--workers",
        "2",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode != 0 and "keep the memory in PostgreSQL" in done.stderr
    assert list(tmp_path.iterdir()) == []


# -- a server that goes away -----------------------------------------------------------


def test_the_service_outlives_its_server() -> None:
    with running_postgres() as own:
        if own.folder is None:
            pytest.skip("the server is not ours to stop")
        with own.schema() as url, serving(url, model=Watched()) as running, running.http() as http:
            assert http.post("/v1/memories", json={"text": "before", "id": "before"}).is_success
            own.stop()
            asked = [
                ("POST", "/v1/memories", {"text": "meanwhile"}),
                ("GET", "/v1/memories/before", None),
                ("POST", "/v1/sessions", {"turns": [{"text": "I like tea"}]}),
                ("GET", "/v1/snapshots", None),
                ("GET", "/v1/jobs/job_1", None),
            ]
            for headers in ({}, {"Idempotency-Key": "k"}):
                for method, path, body in asked:
                    answer = http.request(method, path, json=body, headers=headers)
                    assert (answer.status_code, answer.json()["code"]) == (
                        503,
                        "store_unavailable",
                    ), answer.text
                    assert answer.json()["retryable"] and int(answer.headers["retry-after"]) >= 1
                    assert PASSWORD not in answer.text
            # also when the keys, which are read twice a second, have been unknown for a while
            for _ in range(30):
                assert http.get("/healthz").status_code == 200
                time.sleep(0.1)
            assert http.get("/readyz").status_code == 503
            own.start()
            until(lambda: http.get("/v1/memories/before").status_code == 200, seconds=10)
            after = http.post(
                "/v1/memories", json={"text": "after"}, headers={"Idempotency-Key": "k"}
            )
            assert after.status_code == 201
            job = http.post("/v1/sessions", json={"turns": [{"text": "I like tea"}]}).json()
            _finished(http, job, {})
            assert http.get("/readyz").status_code == 200

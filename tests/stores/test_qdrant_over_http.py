"""Qdrant over HTTP: the contract of an index, and what happens when the server fails,
lies, or is emptied.

The server is our own on loopback; with `MEMAGENT_TEST_QDRANT_URL` the contract also
runs against the one it names (`make test-qdrant`). Whatever goes wrong, a call of the
index ends in a result or in a typed error, and a memory that uses the index finds what
it would find without one.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from qdrant_server import (
    CONTRACTS,
    Kind,
    QdrantServer,
    Request,
    Route,
    running_qdrant,
    stored_checks,
    tenant_of,
)

from memagent.build import open_store
from memagent.config import AgentSettings, QdrantSettings
from memagent.core.answers import Query
from memagent.core.errors import ConfigError, EmbeddingError, StoreError, StoreUnavailable
from memagent.core.ops import Add, Delete, OpBatch, Update
from memagent.core.recipes import RECIPES
from memagent.core.records import Fact, Scope, SourceRef
from memagent.core.snapshot import Erased
from memagent.embed.static import HashEmbedder
from memagent.journal.in_memory import MemoryJournal
from memagent.memory.bank import MemoryBank
from memagent.protocols import IndexRow, Journal
from memagent.testing.kits import sample_items, unit_vectors
from memagent.vectors import projection as index_projection
from memagent.vectors.projection import Applied, IndexProjection, row_check
from memagent.vectors.qdrant_index import Patience, QdrantIndex

SERVER_URL = os.environ.get("MEMAGENT_TEST_QDRANT_URL")
HASTY = Patience(tries=3, timeout_s=5.0, total_s=30.0, first_pause_s=0.005)
"""Hasty to try again; a busy machine may still take its time to answer."""
ANA, BO = Scope(user_id="ana"), Scope(user_id="bo")
DIRECT = SourceRef(actor="user")
WORDS = "boat tea garden market cat train oslo bread river lamp".split()
PASSING: tuple[Kind, ...] = (
    "429",
    "500",
    "503",
    "silent",
    "dropped",
    "lost answer",
    "partial",
    "slow",
    "shape",
    "garbage",
)
"""Faults that another try gets over."""


@pytest.fixture
def server() -> Iterator[QdrantServer]:
    with running_qdrant() as running:
        yield running
        assert running.refused == []


@pytest.fixture(autouse=True)
def _no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_projection, "_REST_S", 0.0)


def index_on(
    server: QdrantServer | str,
    *,
    scope: Scope = ANA,
    dim: int | None = None,
    name: str = "memagent",
) -> QdrantIndex:
    url = server if isinstance(server, str) else server.url
    patience = HASTY if isinstance(server, QdrantServer) else None
    return QdrantIndex.connect(url, patience=patience, dim=dim, scope=scope, collection=name)


def some_rows(count: int = 6) -> list[IndexRow]:
    return [
        IndexRow(*pair)
        for pair in zip(sample_items(count), unit_vectors(count, 16, seed=5), strict=True)
    ]


def without_tenant(requests: list[Request], scope: Scope = ANA) -> list[Request]:
    """Requests about points that do not name the scope's tenant in every filter."""
    digest = hashlib.sha256(scope.key.encode()).hexdigest()
    found = [one for one in requests if any(tenant_of(asked) != digest for asked in one.filters())]
    for one in requests:
        if one.route == "upsert" and any(
            point["payload"]["tenant"] != digest for point in one.body["points"]
        ):
            found.append(one)
    return found


# -- the contract ----------------------------------------------------------------------


@pytest.mark.parametrize("name", CONTRACTS)
async def test_the_index_over_http_keeps(name: str, server: QdrantServer) -> None:
    await CONTRACTS[name](
        lambda dim, scope, made: index_on(server.url, scope=scope, dim=dim, name=made),
        "memagent",
    )


@pytest.mark.skipif(
    not SERVER_URL,
    reason="set MEMAGENT_TEST_QDRANT_URL to run against a server, or say make test-qdrant",
)
@pytest.mark.parametrize("name", CONTRACTS)
async def test_the_index_on_a_real_server_keeps(name: str) -> None:
    from qdrant_client import QdrantClient

    assert SERVER_URL is not None
    url, collection = SERVER_URL, f"memagent_test_{uuid.uuid4().hex}"
    try:
        await CONTRACTS[name](
            lambda dim, scope, made: index_on(url, scope=scope, dim=dim, name=made), collection
        )
    finally:
        QdrantClient(url=url, check_compatibility=False).delete_collection(collection)


async def test_writes_go_in_batches_bounded_in_number_and_in_bytes(server: QdrantServer) -> None:
    index = index_on(server)
    await index.upsert(some_rows(600))
    long = [
        IndexRow(one.item.model_copy(update={"text": "x" * 500_000}), one.vector)
        for one in some_rows(9)
    ]
    await index.upsert(long)
    await index.remove([one.item.id for one in some_rows(600)])
    sizes = [len(one.body["points"]) for one in server.requests if one.route == "upsert"]
    assert sizes[:3] == [256, 256, 88] and sum(sizes[3:]) == 9 and max(sizes[3:]) <= 4
    assert without_tenant(server.requests) == [] and server.points() == []


# -- faults, one call at a time --------------------------------------------------------

Call = Callable[[QdrantIndex], Awaitable[object]]
ROWS = some_rows()
QUERY = unit_vectors(1, 16, seed=9)[0]
AFTER = Applied(3, 5, "a" * 32)


async def _search(index: QdrantIndex) -> list[str]:
    return [hit.id for hit in await index.search(QUERY, k=4)]


CALLS: dict[str, tuple[Call, tuple[Route, ...]]] = {
    "upsert": (lambda index: index.upsert(ROWS), ("exists", "get", "index", "upsert")),
    "remove": (
        lambda index: index.remove([ROWS[0].item.id, ROWS[1].item.id]),
        ("exists", "get", "delete"),
    ),
    "search": (_search, ("exists", "get", "query")),
    "applied": (lambda index: index.applied(), ("exists", "get", "scroll", "count")),
    "rebuild": (
        lambda index: index.write(ROWS[:3], [], applied=AFTER, rebuild=True),
        ("index", "upsert", "delete"),
    ),
    "write": (
        lambda index: index.write(ROWS, [ROWS[0].item.id], applied=AFTER),
        ("index", "upsert", "delete"),
    ),
    "clear": (lambda index: index.clear(), ("exists", "get", "delete")),
}


def _left(server: QdrantServer) -> dict[str, Any]:
    """What the server holds, to be compared."""
    return {point.id: point.payload for point in server.points()}


@pytest.mark.parametrize("kind", PASSING)
async def test_a_passing_fault_at_any_call_ends_as_if_it_had_not_been(
    kind: Kind, server: QdrantServer
) -> None:
    silent = kind == "silent"
    patience = replace(HASTY, timeout_s=0.4, tries=8) if silent else HASTY

    def fresh() -> QdrantIndex:
        return QdrantIndex.connect(server.url, scope=ANA, patience=patience)

    steady = index_on(server)

    for name, (call, routes) in CALLS.items():
        await steady.upsert(ROWS)
        expected = await call(index_on(server))
        holds = _left(server)
        for route in routes[-1:] if silent else routes:
            await steady.upsert(ROWS)
            seen = len(server.requests)
            server.fail(kind, on=route, retry_after="0" if kind == "429" else None)
            assert await call(fresh()) == expected, f"{name} after {kind} of {route}"
            assert _left(server) == holds, f"{name} after {kind} of {route}"
            tries = sum(one.route == route for one in server.requests[seen:])
            assert tries >= 2 or kind == "slow", f"{name} never met {kind} of {route}"
        await steady.clear()
    assert without_tenant(server.requests) == []


@pytest.mark.parametrize("kind", [kind for kind in PASSING if kind != "slow"])
async def test_a_lasting_fault_at_any_call_is_a_retryable_error_without_words(
    kind: Kind, server: QdrantServer
) -> None:
    hasty = replace(HASTY, tries=2, timeout_s=0.1 if kind == "silent" else 5.0)

    await index_on(server).upsert(ROWS)
    for call, routes in CALLS.values():
        for route in routes[-1:] if kind == "silent" else routes:
            server.fail(kind, on=route, times=2)
            with pytest.raises(StoreUnavailable) as caught:
                await call(QdrantIndex.connect(server.url, scope=ANA, patience=hasty))
            assert caught.value.retryable and "2 tries" in str(caught.value)
            assert "words" not in str(caught.value) and "fact number" not in str(caught.value)
            server.heal()


async def test_a_collection_is_made_in_spite_of_faults_and_of_rivals(server: QdrantServer) -> None:
    for at, kind in enumerate(PASSING):
        server.fail(kind, on="create")
        index = index_on(server, name=f"c{at}")
        await index.upsert(ROWS)
        assert len(await _search(index)) == 4
    await asyncio.gather(*(index_on(server, name="contended").upsert(ROWS) for _ in range(8)))
    assert len(server.points("contended")) == len(ROWS)
    made = [one.body["vectors"]["hnsw_config"] for one in server.requests if one.route == "create"]
    assert all(asked["m"] == 0 for asked in made)  # no graph is built for searches that are exact


async def test_a_server_that_asks_to_wait_is_obeyed_up_to_a_bound(server: QdrantServer) -> None:
    index = index_on(server)
    await index.upsert(ROWS)
    server.fail("429", on="query", retry_after="1")
    began = time.monotonic()
    assert len(await _search(index)) == 4
    assert time.monotonic() - began >= 1.0
    server.fail("503", on="query", retry_after="600")
    with pytest.raises(StoreUnavailable, match="asks to wait 600 s"):
        await _search(index)


async def test_what_another_try_cannot_mend_is_told_at_once(server: QdrantServer) -> None:
    await index_on(server).upsert(ROWS)
    server.fail("400", on="query")
    with pytest.raises(StoreError, match="refused with status 400") as caught:
        await _search(index_on(server))
    assert not caught.value.retryable
    server.api_key = "right"
    with pytest.raises(ConfigError, match=r"set index\.api_key"):
        await _search(index_on(server))
    server.api_key = None
    with pytest.raises(EmbeddingError, match="memagent reembed"):
        await index_on(server).upsert([IndexRow(ROWS[0].item, ROWS[0].vector[:8])])
    before = len(server.requests)
    with pytest.raises(StoreUnavailable, match="no connection"):
        await _search(QdrantIndex.connect("http://127.0.0.1:9", patience=HASTY))
    assert len(server.requests) == before


async def test_a_collection_of_somebody_else_is_not_written_to(server: QdrantServer) -> None:
    from qdrant_client import models

    server.store.create_collection(
        "memagent", models.VectorParams(size=16, distance=models.Distance.COSINE)
    )
    with pytest.raises(ConfigError, match="holds other data"):
        await index_on(server).upsert(ROWS)
    assert server.points() == []


async def test_a_foreign_row_is_dropped_counted_and_logged(
    server: QdrantServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        secret = ROWS[0].item.model_copy(update={"text": "what Bo said in confidence"})
        await index_on(server, scope=BO).upsert([IndexRow(secret, QUERY)])
        [theirs] = server.points()
        index = index_on(server)
        await index.upsert(ROWS)
        plain = await index.search(QUERY, k=4)
        server.foreign.append(theirs)
        assert await index.search(QUERY, k=4) == plain
        assert index.dropped == 1

    with caplog.at_level(logging.WARNING):
        await run()
    assert (
        "returned 1 points that were not asked for" in caplog.text
        and "confidence" not in caplog.text
    )


# -- a memory that uses the index ------------------------------------------------------


class Twins:
    """One memory with the networked index and one without, written alike through two journals."""

    def __init__(self, server: QdrantServer, *, journal: Journal | None = None) -> None:
        self.server = server
        self.journal = journal or MemoryJournal()
        self.plain = MemoryBank(embedder=HashEmbedder(dim=32), scope=ANA)
        self.open()

    def open(self) -> None:
        """As a new process would."""
        self.index = index_on(self.server)
        self.bank = MemoryBank(
            embedder=HashEmbedder(dim=32),
            scope=ANA,
            journal=self.journal,
            index=IndexProjection(self.index),
        )

    async def add(self, count: int, dice: random.Random) -> None:
        texts = [" ".join(dice.choices(WORDS, k=4)) for _ in range(count)]
        await self.both(
            OpBatch(accepted=tuple(Add(fact=Fact(text=text, subject="Ana")) for text in texts))
        )

    async def both(self, batch: OpBatch) -> None:
        for bank in (self.plain, self.bank):
            assert not (await bank.commit(batch, source=DIRECT)).rejected

    async def agree(self) -> None:
        """Both find the same, whatever state the server is in."""
        queries = [
            Query(text=text, recipe=RECIPES["balanced"])
            for text in ("a boat on the river", "Ana's tea", "oslo")
        ]
        assert await self.bank.search_many(queries, k=5) == await self.plain.search_many(
            queries, k=5
        )

    async def level(self) -> None:
        """After settling, the rows on the server are those of the journal, to the last
        digit of the digest.
        """
        await self.bank.settle()
        state = await self.bank.sync()
        want: dict[str, int] = {}
        for item in state.active():
            vector = (
                await self.plain.embedder.embed(
                    [f"{item.speaker}: {item.text}" if item.speaker else item.text]
                )
            )[0]
            want[item.id] = row_check(IndexRow(item, vector))
        fresh = index_on(self.server)
        mark, count = await fresh.applied()
        assert stored_checks(self.server.points(), ANA) == want and count == len(want)
        if want:
            assert mark is not None and mark.count == count and mark.seq <= state.seq
            assert mark.digest == f"{sum(want.values()) % (1 << 128):032x}"

    def writes(self) -> int:
        return sum(one.route in ("upsert", "delete") for one in self.server.requests)


async def test_a_memory_really_asks_the_index_and_reopens_it_without_writing(
    server: QdrantServer,
) -> None:
    twins = Twins(server)
    await twins.add(40, random.Random(1))
    await twins.agree()
    await twins.level()
    assert sum(one.route == "query" for one in server.requests) == 3
    wrote = twins.writes()
    twins.open()
    await twins.agree()
    assert sum(one.route == "query" for one in server.requests) == 6
    assert twins.writes() == wrote
    await twins.add(1, random.Random(2))
    await twins.agree()
    assert twins.writes() == wrote + 2  # the row and the mark
    assert without_tenant(server.requests) == []


@pytest.mark.parametrize("kind", ["partial", "lost answer", "500", "dropped"])
@pytest.mark.parametrize("open_anew", [True, False], ids=["the next open", "the next search"])
async def test_what_a_fault_left_half_done_is_repaired_by(
    open_anew: bool, kind: Kind, server: QdrantServer
) -> None:
    twins, dice = Twins(server), random.Random(3)
    await twins.add(30, dice)
    await twins.agree()
    ids = sorted(twins.bank.state.items)
    await twins.both(OpBatch(accepted=tuple(Delete(id=one) for one in ids[:8])))
    await twins.both(OpBatch(accepted=(Update(id=ids[9], text="a boat in oslo"),)))
    await twins.add(20, dice)
    server.fail(kind, on="upsert", times=3)
    await twins.agree()
    assert twins.bank.state.digest() == twins.plain.state.digest()
    server.heal()
    if open_anew:
        twins.open()
    await twins.agree()
    await twins.level()


async def test_an_index_that_is_emptied_lost_or_rolled_back_is_noticed_before_it_is_believed(
    server: QdrantServer,
) -> None:
    twins, dice = Twins(server), random.Random(4)
    await twins.add(20, dice)
    await twins.agree()
    backup = server.points()
    await twins.add(20, dice)
    await twins.agree()
    server.lose()
    await twins.agree()
    await twins.agree()
    await twins.level()
    from qdrant_client import models

    server.store.delete("memagent", models.FilterSelector(filter=models.Filter()))
    server.store.upsert(
        "memagent",
        [
            models.PointStruct(**point.model_dump(include={"id", "vector", "payload"}))
            for point in backup
        ],
    )
    await twins.agree()
    await twins.level()
    server.store.delete(
        "memagent", models.PointIdsList(points=[server.points()[0].id, server.points()[5].id])
    )
    twins.open()  # the mark says nothing of it, the server's own count does
    await twins.agree()
    await twins.level()
    server.store.set_payload("memagent", {"item_id": 7}, points=[backup[0].id])
    server.store.set_payload(
        "memagent",
        {"digest": "0" * 32},
        points=models.Filter(
            must=[models.FieldCondition(key="row", match=models.MatchValue(value="mark"))]
        ),
    )
    await twins.agree()
    await twins.level()


async def test_a_journal_restored_from_a_backup_takes_the_index_back_with_it(
    server: QdrantServer,
) -> None:
    twins, dice = Twins(server), random.Random(5)
    await twins.add(10, dice)
    rows = [row async for row in twins.bank.rows()]
    await twins.add(10, dice)
    await twins.agree()
    older = MemoryJournal()
    await older.append_many(
        ANA,
        [row.entry for row in rows],
        expect=0,
        recorded_at=[row.recorded_at for row in rows],
    )
    bank = MemoryBank(
        embedder=HashEmbedder(dim=32),
        scope=ANA,
        journal=older,
        index=IndexProjection(index_on(server)),
    )
    await bank.settle()
    assert set(stored_checks(server.points(), ANA)) == set(bank.state.items)


async def test_erasing_empties_the_index_and_says_so_when_it_cannot(server: QdrantServer) -> None:
    from memagent.memory.facade import Memory

    twins = Twins(server)
    await twins.add(10, random.Random(6))
    await twins.agree()
    await index_on(server, scope=BO).upsert(
        [IndexRow(ROWS[0].item, unit_vectors(1, 32, seed=1)[0])]
    )
    memory = Memory(twins.bank)
    server.fail("503", times=50)
    with pytest.raises(StoreUnavailable):
        await memory.reset(user_id="ana")
    server.heal()
    assert len(server.points()) == 12  # ten rows and the mark of Ana, a row of Bo
    await memory.reset(user_id="ana")
    for _ in range(2):
        await twins.plain.append(lambda _: Erased(reason="reset"))
    texts = [point.payload.get("item", "") for point in server.points()]
    assert len([text for text in texts if text]) == 1
    await twins.add(3, random.Random(7))
    await twins.agree()
    await twins.level()


async def test_a_process_killed_between_erasing_and_emptying_is_made_good_by_the_next_open(
    server: QdrantServer,
) -> None:
    twins = Twins(server)
    await twins.add(10, random.Random(6))
    await twins.agree()
    await twins.journal.append(ANA, Erased(reason="reset"), expect=twins.bank.state.seq)
    twins.open()
    await twins.bank.settle()
    assert stored_checks(server.points(), ANA) == {}


async def test_a_foreign_row_never_reaches_a_memory(server: QdrantServer) -> None:
    twins = Twins(server)
    await index_on(server, scope=BO).upsert(
        [IndexRow(ROWS[0].item, unit_vectors(1, 32, seed=1)[0])]
    )
    server.foreign += server.points()
    await twins.add(20, random.Random(8))
    await twins.agree()
    assert twins.index.dropped > 0


async def test_two_processes_of_one_user_leave_the_index_right(server: QdrantServer) -> None:
    journal = MemoryJournal()
    one, other = Twins(server, journal=journal), Twins(server, journal=journal)
    dice = random.Random(9)
    for turn in range(8):
        writer = one if turn % 2 else other
        text = " ".join(dice.choices(WORDS, k=4))
        await writer.bank.commit(
            OpBatch(accepted=(Add(fact=Fact(text=text, subject="Ana")),)), source=DIRECT
        )
        queries = [Query(text=word) for word in WORDS[:3]]
        found = await asyncio.gather(
            one.bank.search_many(queries, k=5), other.bank.search_many(queries, k=5)
        )
        assert found[0] == found[1]
    await one.level()


async def test_a_long_run_of_random_faults_never_gives_a_wrong_answer(server: QdrantServer) -> None:
    kinds: list[Kind] = [
        "500",
        "503",
        "429",
        "dropped",
        "lost answer",
        "partial",
        "shape",
        "garbage",
    ]

    twins, dice = Twins(server), random.Random(10)
    for _ in range(40):
        if dice.random() < 0.5:
            server.fail(
                dice.choice(kinds),
                times=dice.randint(1, 5),
                retry_after=dice.choice([None, "0"]),
            )
        what = dice.random()
        ids = sorted(one.id for one in twins.plain.state.active())
        if what < 0.6 or not ids:
            await twins.add(dice.randint(1, 6), dice)
        elif what < 0.8:
            await twins.both(OpBatch(accepted=(Delete(id=dice.choice(ids)),)))
        else:
            await twins.both(
                OpBatch(
                    accepted=(Update(id=dice.choice(ids), text=" ".join(dice.choices(WORDS, k=3))),)
                )
            )
        if dice.random() < 0.1:
            server.lose() if server.points() else None
        if dice.random() < 0.15:
            twins.open()
        await twins.agree()
    server.heal()
    await twins.level()
    await twins.agree()
    assert without_tenant(server.requests) == []
    assert sum(one.route == "query" for one in server.requests) > 20


async def test_an_agent_opened_by_settings_uses_one_client_for_all_its_users(
    server: QdrantServer, tmp_path: Path
) -> None:
    settings = AgentSettings(index=QdrantSettings(url=server.url))

    store = open_store(settings, path=tmp_path / "memory.db", embedder="hashing")
    try:
        for scope in (ANA, BO):
            bank = store.bank(scope)
            await bank.commit(
                OpBatch(accepted=(Add(fact=Fact(text=f"a boat of {scope.user_id}")),)),
                source=DIRECT,
            )
            [hit] = await bank.search(Query(text="boat"), k=5)
            assert hit.text == f"a boat of {scope.user_id}"
    finally:
        store.close()
    assert {tenant_of(asked) for one in server.requests for asked in one.filters()} == {
        hashlib.sha256(scope.key.encode()).hexdigest() for scope in (ANA, BO)
    }

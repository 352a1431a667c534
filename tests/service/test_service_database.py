"""The service's own database: closed beside a transaction, and without row-level security."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from postgres_kit import Postgres, in_schema, rows_of

from memagent.core.errors import StoreUnavailable
from memagent.core.records import Scope
from memagent.journal.postgres import connect
from memagent.service.data.database import ServiceDatabase, owner_digest
from memagent.service.data.idempotency import CachedResponse, SharedResponseCache


@pytest.mark.parametrize("in_memory", [True, False])
def test_closing_waits_for_the_transaction_of_another_thread(
    tmp_path: Path, in_memory: bool
) -> None:
    """In memory there is one connection; SQLite crashes when it is closed in use."""
    database = ServiceDatabase(None if in_memory else tmp_path / "s.db")
    begun, goes_on, found = Event(), Event(), list[Any]()

    def work(db: Any) -> int:
        begun.set()
        assert goes_on.wait(20)
        return db.exec_driver_sql("SELECT 7").scalar_one()

    reader = Thread(target=lambda: found.append(database.run(work)))
    closer = Thread(target=database.close)
    reader.start()
    assert begun.wait(20)
    closer.start()
    closer.join(0.2)
    assert closer.is_alive(), "it waits"
    goes_on.set()
    reader.join(20)
    closer.join(20)
    assert found == [7] and not closer.is_alive()


def test_a_database_in_memory_is_gone_when_it_is_closed() -> None:
    database = ServiceDatabase(None)
    assert len(database.secret()) == 32
    database.close()
    with pytest.raises(StoreUnavailable, match=r"service's database at memory failed"):
        database.secret()


async def test_responses_of_others_stay_where_row_level_security_does_not_hold(
    postgres: Postgres,
) -> None:
    """As a superuser, whom PostgreSQL holds to no policy; only what is due is pruned."""
    if postgres.admin_url is None:
        pytest.skip("needs a server of its own")

    def places(user: str) -> list[str]:
        rows = rows_of(url, f"SELECT owner, place FROM {name}.service_responses ORDER BY place")
        return [place for owner, place in rows if owner == owner_digest(user)]

    with postgres.schema() as own:
        name = own.rpartition("%3D")[2]
        url = in_schema(postgres.admin_url, name)
        with closing(ServiceDatabase(url)) as database:
            cache = SharedResponseCache(database)
            for user in ("ann", "bob"):
                await cache.put(Scope(user_id=user), "k", "digest", CachedResponse(status=200))
            await cache.prune()
            assert [len(places(user)) for user in ("ann", "bob")] == [1, 1], "neither is due"
            await cache.forget("ann")
            assert places("ann") == ["erased"] and len(places("bob")) == 1
            due = "UPDATE service_responses SET until_us = 0 WHERE place <> 'erased'"
            with closing(connect(url)) as connection:
                connection.execute(due)
                connection.commit()
            await cache.prune()
            assert places("ann") == ["erased"] and places("bob") == []

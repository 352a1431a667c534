"""The service's own database when it is closed beside a transaction."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from memagent.core.errors import StoreUnavailable
from memagent.service.data.database import ServiceDatabase


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

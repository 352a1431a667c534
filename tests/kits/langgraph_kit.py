"""`check_langgraph_store`: whether an object keeps the promises of LangGraph's `BaseStore`.

Promises are those of LangGraph's documentation and source. Each is one function over a
fresh, empty store, so a report names every broken one and not only the first. What
LangGraph leaves open (the order of documents without a query, whether a label may hold
a dot) is left open here; mixing up two documents is not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from langgraph_documents import DOCUMENT_PROMISES
from langgraph_searches import (
    QUERY_PROMISES,
    SEARCH_PROMISES,
    lifetime_promises,
)

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore

    MakeStore = Callable[[], BaseStore | Awaitable[BaseStore]]
    Elapse = Callable[[BaseStore, float], None]


async def check_langgraph_store(
    make_store: MakeStore, *, searches: bool = True, elapse: Elapse | None = None
) -> None:
    """Check stores made by `make_store`, called once a promise for an empty store.

    `searches=False` leaves out what needs an index for `query`. `elapse(store,
    seconds)` lets time pass for the store (by a clock of its own, or by sleeping), and
    sweeps if the store needs it; without it, times to live are not checked.

    Raises `AssertionError` with all faults.
    """
    faults = await langgraph_store_faults(make_store, searches=searches, elapse=elapse)
    broken = [f"{name}: {fault}" for name, fault in faults.items() if fault is not None]
    assert not broken, f"{len(broken)} of {len(faults)} promises are broken:\n" + "\n".join(broken)


async def langgraph_store_faults(
    make_store: MakeStore, *, searches: bool = True, elapse: Elapse | None = None
) -> dict[str, str | None]:
    """Return every promise in words, with what breaks it; None where it is kept."""
    promises = {
        **DOCUMENT_PROMISES,
        **SEARCH_PROMISES,
        **(QUERY_PROMISES if searches else {}),
        **(lifetime_promises(elapse) if elapse is not None else {}),
    }
    faults: dict[str, str | None] = dict.fromkeys(promises)
    for words, promise in promises.items():
        opened = make_store()
        store = await opened if isinstance(opened, Awaitable) else opened
        try:
            await promise(store)
        except AssertionError as fault:
            faults[words] = str(fault) or "does not hold"
        except Exception as fault:
            faults[words] = f"{type(fault).__name__}: {fault}"
    return faults

"""Every built-in keeps the promises of its protocol.

Qdrant is driven through its client's in-memory mode, and on a server when `MEMAGENT_TEST_QDRANT_URL` names one.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from typing import Any

import pytest

from memagent.build import NoModel
from memagent.core.records import Scope
from memagent.designs.verbatim import DESIGN as VERBATIM
from memagent.protocols import IndexRow, VectorIndex
from memagent.stores.memory_index import NumpyIndex
from memagent.stores.networkx_graph import NetworkxGraph
from memagent.testing import check_design, check_event_graph, check_vector_index
from memagent.testing.index_kit import FILTERS, sample_items, unit_vectors

pytestmark = pytest.mark.filterwarnings("ignore:Payload indexes have no effect in the local Qdrant")
QDRANT_URL = os.environ.get("MEMAGENT_TEST_QDRANT_URL")


def qdrant_index(dim: int, *, scope: Scope | None = None, client: Any = None) -> VectorIndex:
    client_module = pytest.importorskip("qdrant_client", reason='needs the extra: pip install "memagent[qdrant]"')
    from memagent.stores.qdrant_index import QdrantIndex

    made = client or client_module.AsyncQdrantClient(location=":memory:")
    return QdrantIndex(made, dim=dim, scope=scope)


def test_numpy_index_keeps_the_contract() -> None:
    asyncio.run(check_vector_index(NumpyIndex))


def test_numpy_index_keeps_the_contract_over_many_segments() -> None:
    asyncio.run(check_vector_index(NumpyIndex, count=1_500, dim=8))


def test_qdrant_index_keeps_the_contract_in_memory() -> None:
    asyncio.run(check_vector_index(qdrant_index))


@pytest.mark.skipif(not QDRANT_URL, reason="set MEMAGENT_TEST_QDRANT_URL to run against a server")
def test_qdrant_index_keeps_the_contract_on_a_server() -> None:
    from memagent.stores.qdrant_index import QdrantIndex

    assert QDRANT_URL is not None
    url = QDRANT_URL
    asyncio.run(
        check_vector_index(lambda dim: QdrantIndex.connect(url, collection=f"memagent_test_{uuid.uuid4().hex}"))
    )


def test_qdrant_and_numpy_give_the_same_order() -> None:
    async def compare() -> None:
        items, vectors = sample_items(300), unit_vectors(300, 16, seed=5)
        vectors[100:140] = vectors[100]
        rows = [IndexRow(item, vector) for item, vector in zip(items, vectors, strict=True)]
        ours, theirs = NumpyIndex(16), qdrant_index(16)
        await ours.upsert(rows)
        await theirs.upsert(rows)
        queries = [*unit_vectors(20, 16, seed=6), vectors[100]]
        for query in queries:
            for where in FILTERS.values():
                a = [(hit.id, hit.score) for hit in await ours.search(query, k=10, where=where)]
                b = [(hit.id, hit.score) for hit in await theirs.search(query, k=10, where=where)]
                assert [one[0] for one in a] == [one[0] for one in b]
                assert [one[1] for one in a] == pytest.approx([one[1] for one in b], abs=2e-6)

    asyncio.run(compare())


def test_two_tenants_of_one_qdrant_collection_never_see_each_other() -> None:
    client_module = pytest.importorskip("qdrant_client", reason='needs the extra: pip install "memagent[qdrant]"')

    async def compare() -> None:
        client = client_module.AsyncQdrantClient(location=":memory:")
        ana = qdrant_index(16, scope=Scope(user_id="ana"), client=client)
        bo = qdrant_index(16, scope=Scope(user_id="bo"), client=client)
        items, vectors = sample_items(20), unit_vectors(20, 16, seed=5)
        await ana.upsert([IndexRow(item, vector) for item, vector in zip(items, vectors, strict=True)])
        assert await bo.search(vectors[0], k=5) == []
        await bo.upsert([IndexRow(items[0], vectors[0])])
        await bo.remove([item.id for item in items])
        assert len(await ana.search(vectors[0], k=50)) == 20

    asyncio.run(compare())


def test_verbatim_keeps_the_laws_of_a_design() -> None:
    asyncio.run(check_design(VERBATIM, NoModel))


def test_networkx_graph_keeps_the_contract() -> None:
    asyncio.run(check_event_graph(NetworkxGraph))

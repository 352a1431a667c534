"""Every built-in keeps the promises of its protocol.

Qdrant is driven through its client's in-memory mode; `test_qdrant_over_http.py` has it
over HTTP.
"""

from __future__ import annotations

import pytest
from qdrant_server import CONTRACTS
from view_index import ViewIndex

from memagent.build import NoModel
from memagent.designs.verbatim import DESIGN as VERBATIM
from memagent.testing import check_design, check_vector_index

pytestmark = pytest.mark.filterwarnings("ignore:Payload indexes have no effect in the local Qdrant")


async def test_the_search_view_keeps_the_contract() -> None:
    await check_vector_index(ViewIndex)


async def test_the_search_view_keeps_the_contract_over_many_segments() -> None:
    await check_vector_index(ViewIndex, count=1_500, dim=8)


@pytest.mark.parametrize("name", CONTRACTS)
async def test_qdrant_in_memory_keeps(name: str) -> None:
    client_module = pytest.importorskip(
        "qdrant_client", reason='needs the extra: pip install "memagent[qdrant]"'
    )
    from memagent.vectors.qdrant_index import QdrantIndex

    client = client_module.AsyncQdrantClient(location=":memory:")
    await CONTRACTS[name](
        lambda dim, scope, collection: QdrantIndex(
            client, dim=dim, scope=scope, collection=collection
        ),
        "memagent",
    )


async def test_verbatim_keeps_the_laws_of_a_design() -> None:
    await check_design(VERBATIM, NoModel)

"""The ceiling: FastAPI with one endpoint that searches and one that adds.

Both check the same bodies, do nothing, and answer with as many bytes as the service
does (`BARE_BYTES` says how many, `search,add`).
"""

from __future__ import annotations

import os

from fastapi import FastAPI, Response

from memagent.client.wire import NewMemory, SearchRequest

_FOUND, _ADDED = (
    b'{"hits":"' + b"x" * (int(size) - 11) + b'"}' for size in os.environ["BARE_BYTES"].split(",")
)
app = FastAPI()


@app.post("/v1/search")
async def search(body: SearchRequest, user_id: str) -> Response:  # noqa: ARG001 (FastAPI reads them)
    """Nothing, at length."""
    return Response(_FOUND, media_type="application/json")


@app.post("/v1/memories", status_code=201)
async def add(body: NewMemory, user_id: str) -> Response:  # noqa: ARG001 (FastAPI reads them)
    """Nothing, at length."""
    return Response(_ADDED, 201, media_type="application/json")

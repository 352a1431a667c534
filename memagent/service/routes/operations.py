"""Operations: health, readiness, figures, the journal, and the documentation of the API."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Annotated, Final

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

import memagent
from memagent.client.faults import ServiceError
from memagent.client.wire import MAX_PAGE, Health, LogPage
from memagent.core.long_work import aside
from memagent.core.snapshot import JournalRow
from memagent.service.access import caller_of, service_of
from memagent.service.routes.memories import Reader
from memagent.service.routes.responses import openapi_responses, record

router = APIRouter(tags=["operations"])
API_PAGE: Final = Path(__file__).parent / "templates" / "docs.html"
"""The page `/docs`; `scripts/api_page.py` writes it."""
API_ADDRESS: Final = "http://127.0.0.1:8377"
"""The address in the page's lines for a shell, in place of the service's own."""
_PLAIN_ADDRESS: Final = re.compile(r"https?://[\w.:\[\]-]+", re.ASCII)
_PAGE_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)


@router.get("/healthz", responses={200: {"model": Health, "description": "The process is alive"}})
async def health(request: Request) -> Response:
    """Report that the process answers."""
    return record(
        Health(
            status="stopping" if service_of(request).stopping else "ok",
            version=memagent.__version__,
        )
    )


@router.get(
    "/readyz",
    responses={
        200: {"model": Health, "description": "Ready"},
        503: {"model": Health, "description": "Not (any more)"},
    },
)
async def readiness(request: Request) -> Response:
    """Report whether requests are served: the store answers, the service is not stopping."""
    service = service_of(request)
    notes: list[str] = []
    if not service.has_model:
        notes.append("no language model is configured: answers quote the best evidence")
    try:
        await run_in_threadpool(service.jobs.table.counts)
    except Exception as exc:
        notes.append(f"the service's database does not answer ({type(exc).__name__})")
        return record(
            Health(status="degraded", version=memagent.__version__, notes=tuple(notes)), 503
        )
    if not service.ready:
        return record(Health(status="stopping", version=memagent.__version__), 503)
    return record(Health(status="ok", version=memagent.__version__, notes=tuple(notes)))


@router.get(
    "/metrics",
    response_class=Response,
    responses=openapi_responses(
        None,
        description="Prometheus' text format",
        content={"text/plain": {"schema": {"type": "string"}}},
    ),
)
async def metrics(request: Request) -> Response:
    """Return figures for Prometheus; needs the scope admin."""
    if "admin" not in caller_of(request).scopes:
        raise ServiceError("figures need a key with the scope admin", code="forbidden")
    service = service_of(request)
    counts = await run_in_threadpool(service.jobs.table.counts)
    text = service.metrics.text(counts)
    return Response(text.encode(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/v1/oplog", responses=openapi_responses(LogPage, description="A page of the journal"))
async def oplog(
    call: Reader,
    cursor: Annotated[str | None, Query(max_length=2_000)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
) -> Response:
    """List the journal of a memory, oldest first: what was stored, decided, refused and why.

    Erased entries are left out.
    """
    cursors = call.service.cursors
    after = cursors.read(cursor, listing="oplog", scope=call.scope) if cursor is not None else 0
    rows: list[JournalRow] = []
    with call.agent() as agent:
        async for row in agent.bank.rows(after=int(after)):
            rows.append(row)
            if len(rows) > limit:
                break
    further = None
    if len(rows) > limit:
        further = cursors.make(str(rows[limit - 1].seq), listing="oplog", scope=call.scope)
    return await aside(lambda: record(LogPage(items=tuple(rows[:limit]), next_cursor=further)))


@router.get("/docs", include_in_schema=False)
async def docs(request: Request) -> Response:
    """Return the API on one page, which loads nothing but its own style sheet and script."""
    page, base = _asset("docs.html"), str(request.base_url).rstrip("/")
    if _PLAIN_ADDRESS.fullmatch(base):
        page = page.replace(API_ADDRESS.encode(), base.encode())
    return HTMLResponse(page, headers={"Content-Security-Policy": _PAGE_POLICY})


@router.get("/openapi.json", include_in_schema=False)
async def openapi(request: Request) -> Response:
    """Return the document of the API, which takes seconds to make: once, in a thread."""
    return Response(
        await run_in_threadpool(request.app.state.document), media_type="application/json"
    )


@router.get("/docs/style.css", include_in_schema=False)
async def docs_style() -> Response:
    """Return the style sheet of `/docs`."""
    return Response(_asset("api.css"), media_type="text/css")


@router.get("/docs/try.js", include_in_schema=False)
async def docs_script() -> Response:
    """Return the script of `/docs`, which sends the calls that are tried."""
    return Response(_asset("api.js"), media_type="text/javascript")


@cache
def _asset(name: str) -> bytes:
    return API_PAGE.with_name(name).read_bytes()

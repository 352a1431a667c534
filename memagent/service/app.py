"""The ASGI app: routers, errors, lifespan, and its OpenAPI document.

`create_app` knows no store, so the document can be made without one; `serve_app` puts a
service behind it and the gate before it. The dashboard registers its pages itself; they
are no part of the document.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from starlette.types import ASGIApp

import memagent
from memagent.client.http import FieldFault, Problem
from memagent.service import dashboard, gate as problems
from memagent.service.gate import Gate
from memagent.service.hosting import Service
from memagent.service.mcp_mount import McpMount
from memagent.service.routes import (
    memories,
    memories as operations,
    openai_chat as chat,
    openai_responses as responses,
    snapshots,
    snapshots as graph,
    talk,
    users,
    users as care,
    users as trials,
)
from memagent.service.routes.fast import FastRoutes

_DESCRIPTION: Final = (
    "Long-term memory for language-model agents: cited answers, auditable writes, one memory a "
    "user."
)
# The framework's own telemetry records paths, queries and messages of errors; the
# gate's spans take its place (`memagent.tracing`).
_NO_TELEMETRY: Final[Any] = dict.fromkeys(
    ("tracing", "metrics", "logs", "operation_spans", "auto_configure"), False
)
ROUTERS: Final[tuple[APIRouter, ...]] = (
    memories.router,
    care.care_router,
    talk.router,
    snapshots.router,
    trials.trials_router,
    graph.graph_router,
    users.router,
    chat.router,
    responses.router,
    operations.operations_router,
)
"""Every part of the API, in the order of the documentation."""


def create_app() -> FastAPI:
    """Make the app without a service: `serve_app` sets `app.state.service`."""
    app = FastAPI(
        title="memagent",
        version=memagent.__version__,
        description=_DESCRIPTION,
        docs_url=None,
        openapi_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan,
        generate_unique_id_function=lambda route: route.name,
        telemetry=_NO_TELEMETRY,
    )
    for router in ROUTERS:
        app.include_router(router)
    dashboard.register(app)
    app.state.mcp = McpMount()
    app.router.routes.append(app.state.mcp.route)
    app.router.routes.insert(0, FastRoutes(memories.router.routes))
    problems.install(app)
    plain = app.openapi

    def openapi() -> dict[str, Any]:
        return app.openapi_schema or _completed(plain())

    app.openapi = openapi
    return app


def serve_app(service: Service) -> ASGIApp:
    """Put the app on a service and behind the gate, for a server to run."""
    app = create_app()
    app.state.service = service
    return Gate(app, service)


def build_routes(app: FastAPI) -> None:
    """Let the framework build its routes, which it does when a request first passes them.

    In a thread once the service listens: it takes most of a second, and whoever is served
    meanwhile would wait for all of it.
    """
    nowhere: dict[str, Any] = {
        "type": "http",
        "method": "GET",
        "path": "/-",
        "root_path": "",
        "headers": [],
    }
    for route in app.router.routes:
        route.matches(nowhere)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncGenerator[None]:
    service: Service = app.state.service
    await service.start()
    building = asyncio.create_task(asyncio.to_thread(build_routes, app))
    try:
        yield
    finally:
        await building
        await app.state.mcp.close()
        await service.stop()
        service.close()


def _completed(document: dict[str, Any]) -> dict[str, Any]:
    """Add the schema of problems and bearer keys; remove the framework's error bodies."""
    schemas = document["components"]["schemas"]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for model in (FieldFault, Problem):
        schema = model.model_json_schema(
            ref_template="#/components/schemas/{model}", mode="serialization"
        )
        schema.pop("$defs", None)
        schemas[model.__name__] = schema
    document["components"]["schemas"] = dict(sorted(schemas.items()))
    document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"key": []}, {}]
    return document

"""The pages of the dashboard, in the order in which an address finds them."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, FastAPI

from memagent.service.ui import (
    ask,
    frame,
    graph,
    health,
    jobs,
    overview,
    runs,
    sign_in,
    snapshots,
    turns,
    users,
)
from memagent.service.ui.memories import listing, memory, review

PAGES: Final[tuple[APIRouter, ...]] = (
    frame.router,
    overview.router,
    ask.router,
    listing.router,
    memory.router,
    review.router,
    graph.router,
    turns.router,
    snapshots.router,
    users.router,
    jobs.router,
    runs.router,
    health.router,
    sign_in.router,
)
"""Every part of the dashboard; `sign_in` stays last, it answers what no other page does."""


def register(app: FastAPI) -> None:
    """Add the dashboard to an app."""
    for router in PAGES:
        app.include_router(router)

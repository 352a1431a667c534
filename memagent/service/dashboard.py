"""The pages of the dashboard, in the order in which an address finds them."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, FastAPI

from memagent.service.ui import (
    ask,
    frame,
    graph,
    health,
    health as jobs,
    memories as listing,
    memories as memory,
    memories as review,
    overview,
    overview as users,
    runs,
    sign_in,
    snapshots,
    turns,
)

PAGES: Final[tuple[APIRouter, ...]] = (
    frame.router,
    overview.overview_router,
    ask.router,
    listing.listing_router,
    memory.memory_router,
    review.review_router,
    graph.router,
    turns.router,
    snapshots.router,
    users.users_router,
    jobs.jobs_router,
    runs.router,
    health.health_router,
    sign_in.router,
)
"""Every part of the dashboard; `sign_in` stays last, it answers what no other page does."""


def register(app: FastAPI) -> None:
    """Add the dashboard to an app."""
    for router in PAGES:
        app.include_router(router)

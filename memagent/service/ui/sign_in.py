"""Signing in with an API key, signing out, and what is at no page's address."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import unquote

from fastapi import Depends, Query
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from memagent.service.access import service_of
from memagent.service.ui.frame import leave_note, page, page_router
from memagent.service.ui.session_auth import Viewer, check_origin, door_of, read_form, viewer

router = page_router()
Next = Annotated[str, Query(max_length=4_000)]


@router.get("/ui/sign-in")
async def sign_in_page(request: Request, next: Next = "") -> Response:
    """Where a key is pasted."""
    if not service_of(request).keys.ever:
        return RedirectResponse("/ui", 303)
    return page(request, "sign_in.html", title="Sign in", active="", next=_own_page(next), fault="")


@router.post("/ui/sign-in")
async def sign_in(request: Request) -> Response:
    """Begin a session, when the key is one."""
    form = await read_form(request)
    check_origin(request)
    keys, onward = service_of(request).keys, _own_page(form["next"])
    caller = keys.caller(form["key"].strip())
    if caller is None:
        fault = "This key is not known, or it was revoked."
        return page(
            request,
            "sign_in.html",
            title="Sign in",
            active="",
            status=401,
            next=onward,
            fault=fault,
        )
    response = RedirectResponse(onward, 303)
    door_of(request).let_in(request, response, caller)
    return response


@router.post("/ui/sign-out")
async def sign_out(
    request: Request, seen: Annotated[Viewer, Depends(viewer(about_memory=False))]
) -> Response:
    """End the session."""
    response = RedirectResponse("/ui/sign-in", 303)
    door_of(request).let_out(request, response)
    leave_note(request, response, "You are signed out.", kind="plain")
    return response


@router.get("/ui/{_rest:path}")
async def nowhere(
    _rest: str, seen: Annotated[Viewer, Depends(viewer(about_memory=False))]
) -> Response:
    """The page for addresses where there is none."""
    if not _rest:
        return RedirectResponse("/ui", 303)
    raise HTTPException(404, "there is no such page")


def _own_page(path: str) -> str:
    """A path to go on to: one of these pages, or the first of them."""
    inside = path == "/ui" or path.startswith(("/ui/", "/ui?"))
    steps = {".", ".."} & set(unquote(path.partition("?")[0]).split("/"))
    return path if inside and not steps and path.isprintable() and "\\" not in path else "/ui"

"""Signing in with an API key, signing out, and addresses without a page."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import unquote

from fastapi import Depends, Query
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from memagent.service.access import service_of
from memagent.service.ui.frame import leave_note, page, page_router
from memagent.service.ui.session_auth import auth_of, check_origin, read_form, require_viewer

router = page_router()
_SIGNED_IN = [Depends(require_viewer(about_memory=False))]


@router.get("/ui/sign-in")
async def sign_in_page(
    request: Request, next: Annotated[str, Query(max_length=4_000)] = ""
) -> Response:
    """Show the form that takes a key."""
    if not service_of(request).keys.ever:
        return RedirectResponse("/ui", 303)
    return _form(request, onward=_own_page(next))


@router.post("/ui/sign-in")
async def sign_in(request: Request) -> Response:
    """Begin a session when the key is known."""
    form = await read_form(request)
    check_origin(request)
    onward = _own_page(form["next"])
    caller = service_of(request).keys.caller(form["key"].strip())
    if caller is None:
        fault = "This key is not known, or it was revoked."
        return _form(request, status=401, onward=onward, fault=fault)
    response = RedirectResponse(onward, 303)
    auth_of(request).sign_in(request, response, caller)
    return response


@router.post("/ui/sign-out", dependencies=_SIGNED_IN)
async def sign_out(request: Request) -> Response:
    """End the session."""
    response = RedirectResponse("/ui/sign-in", 303)
    auth_of(request).sign_out(request, response)
    leave_note(request, response, "You are signed out.", kind="plain")
    return response


@router.get("/ui/{rest:path}", dependencies=_SIGNED_IN)
async def no_page(rest: str) -> Response:
    """Refuse an address where there is no page."""
    if not rest:
        return RedirectResponse("/ui", 303)
    raise HTTPException(404, "there is no such page")


def _form(request: Request, *, onward: str, status: int = 200, fault: str = "") -> Response:
    return page(
        request,
        "sign_in.html",
        title="Sign in",
        active="",
        status=status,
        next=onward,
        fault=fault,
    )


def _own_page(path: str) -> str:
    """Return a path to go on to: one of these pages, or the first of them."""
    inside = path == "/ui" or path.startswith(("/ui/", "/ui?"))
    steps = {".", ".."} & set(unquote(path.partition("?")[0]).split("/"))
    return path if inside and not steps and path.isprintable() and "\\" not in path else "/ui"

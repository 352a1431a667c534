"""Users: the list, choosing one, and a user's rights to an export and to erasure."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Query
from starlette.responses import Response

from memagent.client.wire import JobKind
from memagent.core.errors import InputError
from memagent.core.records import Scope
from memagent.service.routes.responses import PageRequest, page_of
from memagent.service.routes.users import reachable
from memagent.service.ui.frame import go, page, page_router
from memagent.service.ui.session_auth import Reader, Viewer, require_viewer

router = page_router()
_PAGE: Final = 50
_AnyReader = Annotated[Viewer, Depends(require_viewer("memory:read", about_memory=False))]


@dataclass(slots=True)
class User:
    """A user and its memories."""

    id: str
    narrowed: list[Scope]
    """Its memories of one agent or one run."""


@router.get("/ui/users")
async def list_users(
    viewer: _AnyReader,
    find: Annotated[str, Query(max_length=256)] = "",
    cursor: Annotated[str, Query(max_length=2_000)] = "",
) -> Response:
    """Show the users, and the forms about the one that is chosen."""
    return await _show(viewer, find=find, cursor=cursor)


@router.post("/ui/users")
async def act(viewer: Reader) -> Response:
    """Do what the field `do` names: `export`, or `erase` with the user's id typed again."""
    form, scope = viewer.form, viewer.scope
    match form["do"]:
        case "export":
            kind = JobKind.EXPORT
        case "erase":
            viewer.need("memory:delete")
            kind = JobKind.RESET if form["only"] else JobKind.ERASE
            if form["confirm"] != scope.user_id:
                fault = "This is not the user's id; nothing was erased."
                return await _show(viewer, status=422, fault=fault)
        case _:
            raise InputError("the form names nothing to do")
    job = await viewer.service.jobs.accept(scope, kind, request_key=uuid.uuid4().hex)
    note = "The export has begun." if kind is JobKind.EXPORT else "The erasure has begun."
    return go(viewer, f"/ui/jobs/{job.id}", note=note)


async def _show(
    viewer: Viewer, *, find: str = "", cursor: str = "", status: int = 200, fault: str = ""
) -> Response:
    scopes = await reachable(viewer.call)
    users = _by_user(scopes)
    letters = find.strip().casefold()
    listed, further = page_of(
        viewer.call,
        users,
        PageRequest("ui/users", cursor or None, _PAGE, letters),
        id_of=lambda user: user.id,
        visible=lambda user: letters in user.id.casefold(),
    )
    return page(
        viewer.request,
        "users.html",
        title="Users" if viewer.free else "This user",
        active="users",
        status=status,
        users=listed,
        total=len(users),
        further=further,
        find=find,
        fault=fault,
        known=any(user.id == viewer.scope.user_id for user in users),
        narrowed=viewer.scope.agent_id is not None or viewer.scope.run_id is not None,
    )


def _by_user(scopes: Iterable[Scope]) -> list[User]:
    users: dict[str, User] = {}
    for scope in scopes:
        user = users.setdefault(scope.user_id, User(scope.user_id, []))
        if scope.agent_id is not None or scope.run_id is not None:
            user.narrowed.append(scope)
    return list(users.values())

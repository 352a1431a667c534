"""Whose memories there are, choosing one, and the rights of a user: everything as
files, everything gone.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Final

from fastapi import Depends, Query
from starlette.responses import Response

from memagent.client.wire import JobKind
from memagent.core.errors import InputError
from memagent.core.records import Scope
from memagent.service.routes.responses import page as cut
from memagent.service.routes.users import reachable
from memagent.service.ui.frame import go, page, page_router
from memagent.service.ui.session_auth import Viewer, viewer

router = page_router()
_PAGE: Final = 50
Reader = Annotated[Viewer, Depends(viewer("memory:read", about_memory=False))]


@dataclass(slots=True)
class User:
    """A user and the memories there are."""

    id: str
    whole: bool = False
    """Whether there is a memory that is narrowed to no agent and no run."""
    narrowed: list[Scope] = field(default_factory=list[Scope])


@router.get("/ui/users")
async def list_users(
    seen: Reader,
    find: Annotated[str, Query(max_length=256)] = "",
    cursor: Annotated[str, Query(max_length=2_000)] = "",
) -> Response:
    """The users, and what may be done about the one that is chosen."""
    return await _show(seen, find=find, cursor=cursor)


@router.post("/ui/users")
async def act(seen: Annotated[Viewer, Depends(viewer("memory:read"))]) -> Response:
    """What the field `do` names: `export`, or `erase` with the user's id typed once more."""
    form, scope = seen.form, seen.scope
    match form["do"]:
        case "export":
            kind = JobKind.EXPORT
        case "erase":
            seen.need("memory:delete")
            kind = JobKind.RESET if form["only"] else JobKind.ERASE
            if form["confirm"] != scope.user_id:
                fault = "This is not the user's id; nothing was erased."
                return await _show(seen, status=422, fault=fault)
        case _:
            raise InputError("the form names nothing to do")
    job = await seen.service.jobs.accept(scope, kind, request_key=uuid.uuid4().hex)
    note = "The export has begun." if kind is JobKind.EXPORT else "The erasure has begun."
    return go(seen, f"/ui/jobs/{job.id}", note=note)


async def _show(
    seen: Viewer, *, find: str = "", cursor: str = "", status: int = 200, fault: str = ""
) -> Response:
    scopes = await reachable(seen.call)
    users = _by_user(scopes)
    wanted = find.strip().casefold()
    listed, further = cut(
        seen.call,
        users,
        id_of=lambda user: user.id,
        limit=_PAGE,
        cursor=cursor or None,
        listing="ui/users",
        terms=wanted,
        shown=lambda user: wanted in user.id.casefold(),
    )
    return page(
        seen.request,
        "users.html",
        title="Users" if seen.free else "This user",
        active="users",
        status=status,
        users=listed,
        total=len(users),
        further=further,
        find=find,
        fault=fault,
        known=any(user.id == seen.scope.user_id for user in users),
        narrowed=seen.scope.agent_id is not None or seen.scope.run_id is not None,
    )


def _by_user(scopes: Iterable[Scope]) -> list[User]:
    found: dict[str, User] = {}
    for scope in scopes:
        user = found.setdefault(scope.user_id, User(scope.user_id))
        if scope.agent_id is None and scope.run_id is None:
            user.whole = True
        else:
            user.narrowed.append(scope)
    return list(found.values())

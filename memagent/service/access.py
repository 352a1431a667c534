"""The caller of a request and the memory it is about, as a dependency of the routes.

The user comes from the key. A request may name another (`user_id`) only with a key that
is bound to none; which memory of a user, is said by `agent_id` and `run_id`. Without
any key in the service, loopback requests are served as the local user, whatever token
they send: stock OpenAI and MCP clients cannot leave it out. Their Host and Origin must
be loopback names, or a page in the browser could reach the service through a name that
it points here.
"""

from __future__ import annotations

import hashlib
import ipaddress
import logging
import secrets
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from functools import lru_cache, wraps
from inspect import signature
from typing import Annotated, Any, Final, ParamSpec
from urllib.parse import urlsplit
from weakref import WeakSet

from fastapi import Header, Query
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from memagent.async_agent import AsyncAgent
from memagent.client.http import ServiceError
from memagent.core.errors import InputError, input_errors
from memagent.core.records import Scope
from memagent.core.snapshot import Entry
from memagent.service.data.idempotency import MAX_KEY_CHARS, request_digest
from memagent.service.data.leases import LOCAL, LOCAL_USER, Caller
from memagent.service.hosting import Service
from memagent.service.programs import Asker
from memagent.state.fold import BankState

P = ParamSpec("P")
_log = logging.getLogger(__name__)
_WARNED: Final[WeakSet[Service]] = WeakSet()
_LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})
# The sender of a request where no program names one.
_NOBODY: Final = Asker()
CALLER: Final = "memagent.caller"
"""Key of the scope under which the gate keeps the caller of a request."""
PROXIED: Final = (
    *(b"forwarded", b"via", b"x-forwarded", b"x-original-", b"x-real-", b"x-client-", b"client-ip"),
    *(b"x-cluster-client-", b"true-client-", b"x-proxy", b"proxy-", b"x-envoy-", b"x-haproxy-"),
    *(b"cf-", b"cdn-", b"fastly-", b"fly-", b"akamai-", b"x-akamai-", b"x-vercel-", b"x-nf-"),
    *(b"x-amzn-", b"x-amz-cf-", b"x-azure-", b"x-arr-", b"x-appengine-", b"x-goog-", b"x-cloud-"),
    *(b"x-varnish", b"x-forward-", b"x-host", b"x-remote-", b"remote-addr", b"do-connecting-"),
)
"""How the names of headers begin that proxies and their clouds add."""

UserId = Annotated[
    str | None, Query(min_length=1, max_length=256, description="Whose memory; the key's user.")
]
AgentId = Annotated[
    str | None, Query(min_length=1, max_length=256, description="The memory of one agent.")
]
RunId = Annotated[
    str | None, Query(min_length=1, max_length=256, description="The memory of one run, or a fork.")
]
RequestKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=MAX_KEY_CHARS,
        description=(
            "The same key and request again gives the first response and has no further effect."
        ),
    ),
]


def service_of(connection: HTTPConnection) -> Service:
    """Return the service a connection belongs to."""
    return connection.scope["app"].state.service


def caller_of(connection: HTTPConnection) -> Caller:
    """Return the caller of a request.

    Raises `ServiceError` (`unauthorized`, `misdirected`, `too_many_requests`).
    """
    service = service_of(connection)
    return metered(service, connection.scope.get(CALLER) or identify(connection, service))


def identify(connection: HTTPConnection, service: Service) -> Caller:
    """Return the caller that the headers of a request name.

    Raises `ServiceError` (`unauthorized`, `misdirected`).
    """
    # of a header that comes twice the first; `connection.headers` would look six times
    pairs = reversed(connection.scope["headers"])
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in pairs}
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if not key and (key := headers.get("x-api-key", "")):  # as Anthropic's clients send it
        scheme = "bearer"
    if not service.keys.ever:
        _check_local(connection, headers, service)
        if key and service not in _WARNED:  # a token that nobody checks
            _WARNED.add(service)
            _log.warning(
                "a request carries a token, but this service has no API keys: any token of this "
                "machine is served as the local user; make a key:  memagent keys create"
            )
        caller = LOCAL
    elif key:
        caller = service.keys.caller(key.strip()) if scheme.lower() == "bearer" else None
        if caller is None:
            raise ServiceError(
                "the API key is not known, or was revoked", status=401, code="unauthorized"
            )
    else:
        raise ServiceError(
            "this service wants an API key: Authorization: Bearer ma_...",
            status=401,
            code="unauthorized",
        )
    return caller


def metered(service: Service, caller: Caller) -> Caller:
    """Count this request of the caller.

    Raises `ServiceError` (`too_many_requests`).
    """
    wait_s = service.wait_s(caller.name)
    if wait_s:
        service.metrics.refuse("rate")
        raise ServiceError(
            f"too many requests; come back in {wait_s:.1f} s",
            code="too_many_requests",
            retryable=True,
        )
    return caller


def _check_local(connection: HTTPConnection, headers: Mapping[str, str], service: Service) -> None:
    peer = (connection.scope.get("client") or ("", 0))[0]
    # a proxy that was only told where to send requests speaks the oldest HTTP and hides the rest
    proxied = connection.scope.get("http_version") == "1.0"
    added = [
        name
        for name, _ in connection.scope["headers"]
        if name.startswith(PROXIED) and name != b"x-client-request-id"  # OpenAI's programs send it
    ]
    if not is_loopback(peer) or proxied or added:
        raise ServiceError(
            "without any API key only requests of this machine are served; make one:  memagent "
            "keys create",
            status=401,
            code="unauthorized",
        )
    own_names = _LOOPBACK_NAMES | set(service.settings.hosts)
    host, port = _place_in(f"{connection.scope['scheme']}://{headers.get('host', '')}")
    origin = headers.get("origin")
    origin_host, origin_port = (host, port) if origin is None else _place_in(origin)
    if host not in own_names or origin_host not in own_names or origin_port != port:
        raise ServiceError(
            "the request names another host than this one; add it to service.hosts, or use an "
            "API key",
            code="misdirected",
        )
    # another port of this machine is another origin; a link that leads here is followed
    followed = headers.get("sec-fetch-mode") == "navigate" and connection.scope["method"] == "GET"
    if headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not followed:
        raise ServiceError(
            "the request comes from a page of another origin; use an API key", code="misdirected"
        )


@lru_cache(maxsize=256)
def _place_in(url: str) -> tuple[str | None, int | None]:
    """Return the host and the port of a URL; (None, None) for one that cannot be read."""
    try:
        parts = urlsplit(url)
        return parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:
        return None, None


@lru_cache(maxsize=256)
def is_loopback(host: str) -> bool:
    """Tell whether an address is this machine alone."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


@lru_cache(maxsize=8_192)
def memory_named(user_id: str, agent_id: str | None, run_id: str | None) -> Scope:
    """Return a memory's name, checked once for those who come again. Raises `InputError`."""
    with input_errors("the memory named cannot be one"):
        return Scope(user_id=user_id, agent_id=agent_id, run_id=run_id)


class Call:
    """One allowed request about one memory."""

    __slots__ = ("asker", "caller", "key", "request", "scope", "service")

    def __init__(
        self, request: Request, service: Service, caller: Caller, scope: Scope, key: str | None
    ) -> None:
        self.asker = _NOBODY
        """Who asks, on the paths of chat programs."""
        self.request, self.service, self.caller, self.scope, self.key = (
            request,
            service,
            caller,
            scope,
            key,
        )

    def need(self, scope: str, why: str) -> None:
        """Raise `ServiceError` (`forbidden`) unless the caller has a scope; `why` it needs it."""
        if scope not in self.caller.scopes:
            raise ServiceError(f"the API key lacks the scope {scope}: this {why}", code="forbidden")

    def require(self, *needed: str) -> None:
        """Raise `ServiceError` (`forbidden`) unless the caller has all of these scopes."""
        lacking = sorted(set(needed) - self.caller.scopes)
        if lacking:
            raise ServiceError(
                f"the API key lacks the scope {', '.join(lacking)}", code="forbidden"
            )

    def agent(self) -> AbstractContextManager[AsyncAgent]:
        """Open the agent on this memory and keep it open meanwhile.

        Raises `ServiceError` (`too_many_requests`) when many requests wait for it: the
        places of all are not for one memory.
        """
        if self.service.banks.users_of(self.scope) >= self.service.settings.max_per_memory:
            self.service.metrics.refuse("memory")
            raise ServiceError(
                "this memory is at work on as many requests as it may be; come back in a second",
                code="too_many_requests",
                retryable=True,
            )
        return self.service.banks.agent(self.scope)

    async def state(self) -> BankState:
        """Return the state of this memory as it is now."""
        with self.agent() as agent:
            return await agent.bank.sync()

    @property
    def journal_key(self) -> str:
        """The idempotency key as the journal keeps it, apart for every API key.

        A request without one has a new one each time.
        """
        key = self.key or secrets.token_hex(16)
        return hashlib.sha256(f"{self.caller.name}\x00{key}".encode()).hexdigest()

    async def once(
        self,
        work: Callable[[], Awaitable[Response]],
        *,
        keep: Callable[[Entry], Response | None] | None = None,
    ) -> Response:
        """Return the response of `work`, or the stored response to the same request.

        `keep` makes the response out of the journal entry that the work appends; it is
        written along with that entry. Raises `ServiceError` when the key was used for
        another request (`key_reused`) or is at work (`request_in_progress`).
        """
        if self.key is None:
            return await work()
        return await self.service.requests.once(
            self.scope, self.journal_key, await request_digest(self.request), work, keep
        )


def once(
    *, keep: Callable[[Entry], Response | None] | None = None
) -> Callable[[Callable[P, Awaitable[Response]]], Callable[P, Coroutine[Any, Any, Response]]]:
    """Make the decorator of a route that does its work as `Call.once` does."""

    def decorated(
        route: Callable[P, Awaitable[Response]],
    ) -> Callable[P, Coroutine[Any, Any, Response]]:
        @wraps(route)
        async def answer(*args: P.args, **named: P.kwargs) -> Response:
            call = next(each for each in (*args, *named.values()) if isinstance(each, Call))
            return await call.once(lambda: route(*args, **named), keep=keep)

        # read here, where the names of the route's own module are known
        vars(answer)["__signature__"] = signature(route, eval_str=True)
        return answer

    return decorated


def may(
    *needed: str, for_programs: bool = False, userless: bool = False
) -> Callable[..., Awaitable[Call]]:
    """Make the dependency of a route whose caller must be allowed all of `needed`.

    With `for_programs` the headers and the JSON body may name the user, as the table of
    programs says. A key that is bound to a user is about that one, whatever they say. A
    `userless` route is about no memory.
    """
    scopes = frozenset(needed)

    async def call(
        request: Request,
        user_id: UserId = None,
        agent_id: AgentId = None,
        run_id: RunId = None,
        key: RequestKey = None,
    ) -> Call:
        asker = await _asker_of(request) if for_programs else _NOBODY
        caller: Caller = request.scope.get(CALLER) or identify(request, service_of(request))
        if caller.user_id is None:
            if user_id is not None and asker.user not in (None, user_id):
                raise ServiceError("`user` and ?user_id= name two users", code="invalid_request")
            user_id = user_id or asker.user or (LOCAL_USER if userless else None)
        allowed = named_call(
            request, scopes, user_id=user_id, agent_id=agent_id, run_id=run_id, key=key
        )
        allowed.asker = asker
        return allowed

    return call


async def _asker_of(request: Request) -> Asker:
    try:
        body: object = await request.json()
    except (ValueError, RecursionError):  # the framework words the refusal
        body = None
    return Asker.of(service_of(request).programs, request.headers, body)


def may_for_user(*needed: str) -> Callable[..., Awaitable[Call]]:
    """Make the dependency of a route that names the user in its path; see `may`."""
    scopes = frozenset(needed)

    async def call(
        request: Request,
        user_id: str,
        agent_id: AgentId = None,
        run_id: RunId = None,
        key: RequestKey = None,
    ) -> Call:
        return named_call(
            request, scopes, user_id=user_id, agent_id=agent_id, run_id=run_id, key=key
        )

    return call


def named_call(
    request: Request,
    needed: frozenset[str] = frozenset(),
    /,
    *,
    user_id: str | None,
    agent_id: str | None,
    run_id: str | None,
    key: str | None = None,
) -> Call:
    """Make the call about a memory, for a caller who has all the `needed` scopes.

    Raises `ServiceError`, `InputError`.
    """
    caller = caller_of(request)
    if not needed <= caller.scopes:
        raise ServiceError(
            f"the API key lacks the scope {', '.join(sorted(needed - caller.scopes))}",
            code="forbidden",
        )
    if caller.user_id is not None and user_id not in (None, caller.user_id):
        raise ServiceError("the API key is bound to another user", code="forbidden")
    if caller.user_id is None and caller is not LOCAL and user_id is None:
        raise ServiceError(
            "the API key is bound to no user: name one, ?user_id=", code="invalid_request"
        )
    if user_id is None and not request.query_params.keys().isdisjoint(("user", "userid")):
        raise InputError("the user is named by ?user_id=")
    return Call(
        request,
        service_of(request),
        caller,
        memory_named(caller.user_id or user_id or LOCAL_USER, agent_id, run_id),
        key,
    )

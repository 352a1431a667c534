"""A Qdrant server for the tests: HTTP on loopback, the routes our index uses, bodies
checked by the client's own models.

Behind it is the client's in-memory mode. Faults are told beforehand:
`server.fail("503", on="upsert", times=2)`. Every request is kept, with the route it
took and its body, so that a test can ask whether each one named its tenant. The
surprise: writes that do not wait, searches that are not exact, and routes that the
index has no business with are refused, as no real server would. `CONTRACTS` is what is
asked of every way to reach Qdrant: in memory, over this server, over a real one.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
import warnings
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from view_index import ViewIndex

from memagent.core.records import MemoryItem, Scope
from memagent.protocols import IndexRow
from memagent.testing import check_vector_index
from memagent.testing.kits import FILTERS, sample_items, unit_vectors
from memagent.vectors.projection import Applied, row_check

Kind = Literal[
    "429",
    "500",
    "503",
    "401",
    "400",
    "silent",
    "dropped",
    "lost answer",
    "partial",
    "slow",
    "shape",
    "garbage",
]
Route = Literal[
    "exists", "get", "create", "drop", "index", "upsert", "delete", "query", "scroll", "count"
]
WRITES: tuple[Route, ...] = ("create", "index", "upsert", "delete")
SLOW_S = 0.05
_NAME = r"/collections/(?P<name>[^/]+)"
_ROUTES: dict[tuple[str, str], Route] = {
    ("GET", "/exists"): "exists",
    ("GET", ""): "get",
    ("PUT", ""): "create",
    ("DELETE", ""): "drop",
    ("PUT", "/index"): "index",
    ("PUT", "/points"): "upsert",
    ("POST", "/points/delete"): "delete",
    ("POST", "/points/query/batch"): "query",
    ("POST", "/points/scroll"): "scroll",
    ("POST", "/points/count"): "count",
}


@dataclass
class Fault:
    """What goes wrong with the next `times` requests of a route, or of any."""

    kind: Kind
    on: Route | None
    times: int
    retry_after: str | None


@dataclass(frozen=True)
class Request:
    """A request that arrived."""

    route: Route
    collection: str
    body: Any
    api_key: str | None

    def filters(self) -> list[dict[str, Any] | None]:
        """Every filter that says which points it is about; None where it has none."""
        if self.route == "query":
            return [one.get("filter") for one in self.body["searches"]]
        if self.route in ("scroll", "count", "delete"):
            return [self.body.get("filter")]
        return []


def tenant_of(asked: dict[str, Any] | None) -> str | None:
    """The tenant that a filter demands, wherever else it leads."""
    for condition in (asked or {}).get("must") or []:
        if condition.get("key") == "tenant":
            return (condition.get("match") or {}).get("value")
    return None


@dataclass
class QdrantServer:
    """A running server."""

    url: str = ""
    requests: list[Request] = field(default_factory=list[Request])
    refused: list[str] = field(default_factory=list[str])
    """Requests that no real server would refuse and we do, in words."""
    foreign: list[Any] = field(default_factory=list[Any])
    """Points that every search returns besides its own, whoever they belong to."""
    api_key: str | None = None
    faults: list[Fault] = field(default_factory=list[Fault])
    released: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)
    store: Any = None

    def fail(
        self, kind: Kind, *, on: Route | None = None, times: int = 1, retry_after: str | None = None
    ) -> None:
        """Let the next `times` requests of a route go wrong."""
        self.faults.append(Fault(kind, on, times, retry_after))

    def heal(self) -> None:
        """Forget the faults that have not happened."""
        with self.lock:
            self.faults.clear()

    def lose(self, collection: str = "memagent") -> None:
        """Delete a collection behind everybody's back."""
        with self.lock:
            self.store.delete_collection(collection)

    def points(self, collection: str = "memagent") -> list[Any]:
        """All points of a collection; [] when there is none."""
        with self.lock:
            if not self.store.collection_exists(collection):
                return []
            return self.store.scroll(
                collection, limit=100_000, with_payload=True, with_vectors=True
            )[0]

    def taken(self, route: Route) -> Fault | None:
        """The fault that a request of a route meets."""
        with self.lock:
            for fault in self.faults:
                if fault.on in (None, route) and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None

    # -- what the routes do ------------------------------------------------------------

    def answer(self, request: Request, *, part: float = 1.0) -> Any:
        """Carry a request out, writes of points only in part if told so.

        Raises what the client's models and local mode raise.
        """
        from qdrant_client.http import models

        name, body, store = request.collection, request.body, self.store
        with self.lock, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if request.route == "exists":
                return {"exists": store.collection_exists(name)}
            if request.route == "create":
                asked = models.CreateCollection.model_validate(body)
                return store.create_collection(
                    name, vectors_config=asked.vectors, hnsw_config=asked.hnsw_config
                )
            if not store.collection_exists(name):
                raise LookupError(name)
            match request.route:
                case "drop":
                    return store.delete_collection(name)
                case "get":
                    return store.get_collection(name).model_dump(mode="json")
                case "index":
                    asked = models.CreateFieldIndex.model_validate(body)
                    assert asked.field_schema is not None
                    return _done()
                case "upsert":
                    asked = models.PointsList.model_validate(body)
                    points = asked.points[: int(len(asked.points) * part)]
                    if points:
                        store.upsert(name, points, update_filter=asked.update_filter)
                    return _done()
                case "delete":
                    asked = models.FilterSelector.model_validate(body)
                    doomed = store.scroll(name, scroll_filter=asked.filter, limit=100_000)[0]
                    doomed = doomed[: int(len(doomed) * part)]
                    if doomed:
                        store.delete(
                            name, models.PointIdsList(points=[point.id for point in doomed])
                        )
                    return _done()
                case "count":
                    asked = models.CountRequest.model_validate(body)
                    assert asked.exact, "counts are exact"
                    return store.count(name, count_filter=asked.filter, exact=True).model_dump()
                case "scroll":
                    asked = models.ScrollRequest.model_validate(body)
                    found, following = store.scroll(
                        name,
                        scroll_filter=asked.filter,
                        limit=asked.limit,
                        offset=asked.offset,
                        with_payload=asked.with_payload,
                        with_vectors=asked.with_vector,
                    )
                    return {"points": [_point(one) for one in found], "next_page_offset": following}
                case "query":
                    return [
                        self._searched(name, one)
                        for one in models.QueryRequestBatch.model_validate(body).searches
                    ]

    def _searched(self, name: str, asked: Any) -> Any:
        if asked.query is not None:
            assert asked.params is not None and asked.params.exact, "searches are exact"
        found = self.store.query_points(
            name,
            query=asked.query,
            query_filter=asked.filter,
            limit=asked.limit,
            with_payload=asked.with_payload,
            with_vectors=asked.with_vector or False,
        )
        return {
            "points": [
                _point(one)
                for one in [*(self.foreign if asked.query is not None else ()), *found.points]
            ]
        }


def _done() -> dict[str, Any]:
    return {"operation_id": 1, "status": "completed"}


def _point(point: Any) -> dict[str, Any]:
    shown = {"id": point.id, "version": 1, "score": getattr(point, "score", 1.0)}
    return {**shown, "payload": point.payload, "vector": point.vector}


def _handler(server: QdrantServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            parts = urlsplit(self.path)
            found = re.fullmatch(_NAME + r"(?P<rest>.*)", parts.path)
            route = _ROUTES.get((self.command, found["rest"])) if found else None
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if found is None or route is None:
                server.refused.append(f"{self.command} {parts.path} is no route of ours")
                self.reply(404, {"status": {"error": "no such route"}})
                return
            request = Request(
                route, found["name"], json.loads(raw) if raw else None, self.headers.get("api-key")
            )
            server.requests.append(request)
            if route in ("upsert", "delete", "index") and parse_qs(parts.query).get("wait") != [
                "true"
            ]:
                server.refused.append(f"{route} does not wait")
                self.reply(400, {"status": {"error": "writes wait"}})
            elif server.api_key is not None and request.api_key != server.api_key:
                self.reply(401, {"status": {"error": "wrong key"}})
            else:
                self.meet(server.taken(route), request)

        def meet(self, fault: Fault | None, request: Request) -> None:
            match fault.kind if fault is not None else None:
                case "silent":
                    server.released.wait(5.0)
                    self.close_connection = True
                case "dropped":
                    self.close_connection = True
                case "lost answer":
                    self.carry_out(request)
                    self.close_connection = True
                case "partial":
                    with suppress(LookupError):
                        server.answer(request, part=0.5)
                    self.reply(500, {"status": {"error": "half of it"}})
                case "slow":
                    time.sleep(SLOW_S)
                    self.reply(*self.carry_out(request))
                case "shape":
                    self.reply(200, {"result": {"surprise": [1, 2]}, "status": "ok", "time": 0.0})
                case "garbage":
                    self.send(200, b"<html>a proxy</html>")
                case None:
                    self.reply(*self.carry_out(request))
                case status:
                    after = fault.retry_after if fault is not None else None
                    self.reply(int(status), {"status": {"error": "words of a request"}}, after)

        def carry_out(self, request: Request) -> tuple[int, Any]:
            try:
                return 200, {"result": server.answer(request), "status": "ok", "time": 0.0}
            except LookupError as gone:
                return 404, {"status": {"error": f"Not found: Collection `{gone}` doesn't exist!"}}
            except Exception as exc:
                already = request.route == "create" and "already exists" in str(exc)
                if not already:
                    server.refused.append(f"{request.route}: {type(exc).__name__}: {exc}")
                return 409 if already else 400, {"status": {"error": str(exc)}}

        def reply(self, status: int, body: Any, retry_after: str | None = None) -> None:
            self.send(status, json.dumps(body).encode(), retry_after)

        def send(self, status: int, body: bytes, retry_after: str | None = None) -> None:
            with suppress(OSError):  # the client may be gone by now
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                if retry_after is not None:
                    self.send_header("Retry-After", retry_after)
                self.end_headers()
                self.wfile.write(body)

        do_GET = do_PUT = do_POST = do_DELETE = handle_any

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    return Handler


@contextmanager
def running_qdrant() -> Generator[QdrantServer]:
    """A server on loopback for as long as the block lasts.

    Skips the test without the extra `qdrant`.
    """
    client_module = pytest.importorskip(
        "qdrant_client", reason='needs the extra: pip install "memagent[qdrant]"'
    )
    server = QdrantServer(
        store=client_module.QdrantClient(location=":memory:", force_disable_check_same_thread=True)
    )
    http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(server))
    http.daemon_threads = True
    server.url = f"http://127.0.0.1:{http.server_address[1]}"
    thread = threading.Thread(
        target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        http.shutdown()
        http.server_close()
        thread.join(5.0)
        server.store.close()


def stored_checks(points: list[Any], scope: Scope) -> dict[str, int]:
    """Return the checks of a scope's rows by item id; each has the row's true check."""
    tenant = hashlib.sha256(scope.key.encode()).hexdigest()
    checks: dict[str, int] = {}
    for point in points:
        payload = point.payload
        if payload["tenant"] == tenant and payload["row"] == "item":
            item = MemoryItem.model_validate_json(payload["item"])
            vector = np.asarray(point.vector, dtype=np.float32)
            checks[payload["item_id"]] = int(payload["check"], 16)
            assert checks[item.id] == row_check(IndexRow(item, vector))
    return checks


# -- what is asked of every way to reach Qdrant ----------------------------------------

MakeIndex = Callable[[int, Scope, str], Any]
"""An index of a width for a scope in a collection."""


async def keeps_the_contract(make: MakeIndex, collection: str) -> None:
    """`check_vector_index`."""
    await check_vector_index(lambda dim: make(dim, Scope(), collection))


async def orders_as_numpy_does(make: MakeIndex, collection: str) -> None:
    """Same hits in the same order under every filter, equal vectors included."""
    items, vectors = sample_items(300), unit_vectors(300, 16, seed=5)
    vectors[100:140] = vectors[100]
    rows = [IndexRow(item, vector) for item, vector in zip(items, vectors, strict=True)]
    ours, theirs = ViewIndex(16), make(16, Scope(), collection)
    await ours.upsert(rows)
    await theirs.upsert(rows)
    for query in [*unit_vectors(6, 16, seed=6), vectors[100]]:
        for where in FILTERS.values():
            a = [(hit.id, hit.score) for hit in await ours.search(query, k=10, where=where)]
            b = [(hit.id, hit.score) for hit in await theirs.search(query, k=10, where=where)]
            assert [one[0] for one in a] == [one[0] for one in b]
            assert [one[1] for one in a] == pytest.approx([one[1] for one in b], abs=2e-6)


async def keeps_tenants_apart(make: MakeIndex, collection: str) -> None:
    """Two users of one collection: neither sees, overwrites nor removes what is the other's."""
    ana, bo = make(16, Scope(user_id="ana"), collection), make(16, Scope(user_id="bo"), collection)
    items, vectors = sample_items(20), unit_vectors(20, 16, seed=5)
    await ana.upsert([IndexRow(item, vector) for item, vector in zip(items, vectors, strict=True)])
    assert await bo.search(vectors[0], k=5) == []
    await bo.upsert([IndexRow(items[0], vectors[0])])
    await bo.remove([item.id for item in items])
    await bo.clear()
    assert await bo.search(vectors[0], k=5) == []
    assert len(await ana.search(vectors[0], k=50)) == 20
    await ana.clear()


async def knows_what_is_applied(make: MakeIndex, collection: str) -> None:
    """The mark, the rows, and that nothing replaces or removes what came from a
    later sequence, a rebuild neither.
    """
    index = make(16, Scope(user_id="ana"), collection)
    items, vectors = sample_items(4), unit_vectors(4, 16, seed=5)
    rows = [IndexRow(item, vector) for item, vector in zip(items, vectors, strict=True)]

    async def stored() -> dict[str, Any]:
        return {hit.id: hit.item for hit in await index.search(vectors[0], k=9)}

    assert await index.applied() == (None, 0)
    first = Applied(5, 3, "0" * 32)
    await index.write(rows[:3], [], applied=first)
    assert await index.applied() == (first, 3)
    found = await index.candidates(vectors[0], k=3, where=None)
    assert (found.hits[0].id, len(found.hits), found.applied) == (items[0].id, 3, first)
    changed = IndexRow(items[0].model_copy(update={"text": "changed", "version": 2}), vectors[3])
    later = Applied(9, 2, "1" * 32)
    await index.write([changed], [items[1].id], applied=later)
    await index.write(
        [rows[0], rows[3]], [items[2].id, items[0].id], applied=Applied(7, 4, "2" * 32)
    )
    assert await index.applied() == (
        later,
        2,
    )  # the older writer added one and took one out, and that was all
    assert await stored() == {items[0].id: changed.item, items[3].id: items[3]}
    await index.write(rows[2:3], [], applied=Applied(8, 1, "3" * 32), rebuild=True)
    assert await stored() == {items[0].id: changed.item, items[2].id: items[2]}
    await index.write(rows, [], applied=Applied(9, 4, "4" * 32), rebuild=True)
    assert await stored() == {item.id: item for item in items}
    await index.clear()
    assert (await index.applied(), await stored()) == ((None, 0), {})


CONTRACTS: dict[str, Callable[[MakeIndex, str], Coroutine[Any, Any, None]]] = {
    "the index contract": keeps_the_contract,
    "the order of numpy": orders_as_numpy_does,
    "tenants apart": keeps_tenants_apart,
    "what is applied": knows_what_is_applied,
}

"""Import of the memories that another program keeps.

They are mem0's, from the folder of its qdrant store (local mode) or a JSON export,
Letta's blocks and passages, and the facts of Zep's graph. Ids, texts, owners, dates and
metadata are kept; vectors are made anew when they are needed. Memories imported before
are skipped, so an import can be repeated. No vendor's library is needed.

Qdrant's local mode keeps each point as a pickle, and unpickling a file that someone else
wrote may run anything. The reader at the end unpickles nothing: it goes through the
opcodes as data and builds dicts, lists, texts and numbers; what a stream names (a class,
a function) stays a name and is never imported or called. An opcode that plain points do
not need is refused.
"""

from __future__ import annotations

import hashlib
import json
import pickletools
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from memagent.build import Store
from memagent.integrations.access import (
    Add,
    Fact,
    InputError,
    OpBatch,
    Record,
    Scope,
    SourceRef,
    Text,
)
from memagent.integrations.mem0_calls import (
    Note,
    Owner,
    end_of,
    expiration_of,
    moment_of,
    owner_of,
)
from memagent.readers.files import list_in, object_in, text_in

_AT_ONCE = 500
# How the names of collections end in which mem0 keeps entities or its own notes.
_NOT_MEMORIES = ("_entities", "mem0migrations")
# The user of a row whose program keeps none beside it.
_ANYBODY = ""
_NOT_METADATA = frozenset(
    "id user_id agent_id run_id actor_id role data hash created_at updated_at text_lemmatized "
    "expiration_date attributed_to embedding embedding_config ends_at".split()
)


class ImportReport(Record):
    """The counts of an import."""

    found: int
    imported: int
    skipped: int
    """There already, or an id that the input gives again: the last one is kept."""
    refused: int
    """Without text or owner, or too long."""
    users: tuple[Text, ...]


Row = Mapping[str, Any]
"""One memory as mem0 keeps it: `id`, and the payload with `data` as its text."""


def read_memories(path: Path) -> list[Row]:
    """Read the memories of a qdrant folder, one of its `storage.sqlite` files, or a JSON export.

    A JSON export is mem0's, an agent file or passages of Letta, or edges of Zep's graph.

    Raises `InputError` for anything else.
    """
    if path.is_dir():
        files = sorted(
            file
            for file in path.rglob("storage.sqlite")
            if not file.parent.name.endswith(_NOT_MEMORIES)
        )
        if not files:
            raise InputError(
                f"{path} holds no collection of qdrant's local mode "
                "(collection/NAME/storage.sqlite)"
            )
        return [row for file in files for row in _points(file)]
    if not path.is_file():
        raise InputError(f"there is no {path}")
    if path.suffix == ".sqlite":
        return list(_points(path))
    return _exported(path)


async def import_memories(
    store: Store, rows: Iterable[Row], *, user_id: str | None = None
) -> ImportReport:
    """Add rows to the memories of their owners, several hundred in a commit.

    With `user_id` only rows of that user are added; others are not counted. Those of
    Letta and Zep, which name nobody, are that user's.
    """
    parts: dict[Scope, dict[str, Add]] = {}
    found = refused = 0
    for row in rows:
        named = user_id if row.get("user_id") == _ANYBODY else row.get("user_id")
        if user_id is not None and str(named) != user_id:
            continue
        found += 1
        try:
            owner, op = _add({**row, "user_id": named})
        except (InputError, ValidationError):
            refused += 1
            continue
        parts.setdefault(owner.scope, {})[op.id or ""] = op
    imported = 0
    for scope, ops in parts.items():
        bank = store.bank(scope)
        known = (await bank.sync()).items
        fresh = [op for op in ops.values() if op.id not in known]
        for start in range(0, len(fresh), _AT_ONCE):
            batch = OpBatch(accepted=tuple(fresh[start : start + _AT_ONCE]))
            imported += len((await bank.commit(batch, source=SourceRef(actor="import"))).changes)
    return ImportReport(
        found=found,
        imported=imported,
        skipped=found - refused - imported,
        refused=refused,
        users=tuple(
            sorted({scope.user_id for scope in parts if not scope.agent_id and not scope.run_id})
        ),
    )


def _add(row: Row) -> tuple[Owner, Add]:
    owner = owner_of(row, needed_for="a memory")
    text = row.get("data")
    if not isinstance(text, str) or not text.strip():
        raise InputError("a memory without text")
    created_at = moment_of(row.get("created_at"))
    last_day = expiration_of(row.get("expiration_date"))
    others = {key: value for key, value in row.items() if key not in _NOT_METADATA}
    metadata = Note(owner, others, last_day).reserved(
        actor_id=row.get("actor_id"),
        role=row.get("role"),
        updated_at=moment_of(row.get("updated_at")),
    )
    speaker = row.get("actor_id") or row.get("role")
    fact = Fact(
        text=text,
        speaker=str(speaker) if speaker else None,
        said_at=created_at,
        expires_at=end_of(last_day) or moment_of(row.get("ends_at")),
    )
    return owner, Add(fact=fact, id=str(row["id"]), metadata=metadata)


# -- a JSON export ---------------------------------------------------------------------


def _exported(path: Path) -> list[Row]:
    """Read the rows of `{"results": [...]}` (from `get_all`), of a list, or one object a line."""
    try:
        text = path.read_text(encoding="utf-8")
        try:
            document: object = json.loads(text)
        except json.JSONDecodeError:
            document = [json.loads(line) for line in text.splitlines() if line.strip()]
    except (OSError, ValueError, RecursionError) as exc:
        raise InputError(f"{path} is no JSON export: {exc}") from exc
    if isinstance(document, dict):
        table = cast("dict[str, object]", document)
        if "blocks" in table and "agents" in table:
            return list(_blocks(table["blocks"]))
        names = ("results", "memories", "edges", "passages")
        document = next((table[name] for name in names if name in table), [table])
    rows = cast("list[Any]", document if isinstance(document, list) else [None])
    if not rows:
        raise InputError(f"{path} holds no memories")
    if not all(isinstance(row, dict) and ("id" in row or "uuid" in row) for row in rows):
        raise InputError(
            f"{path} is no export of mem0, Letta or Zep: it must hold memories with ids"
        )
    return [_edge(row) if "fact" in row else _flat(row) for row in rows]


def _blocks(blocks: object) -> Iterator[Row]:
    """Yield the lines of Letta's blocks that tell of people and things, not of the agent."""
    for block in map(object_in, list_in(blocks)):
        name = text_in(block.get("label"))
        lines = map(str.strip, text_in(block.get("value")).splitlines())
        for text in (line for line in lines if name != "persona" and line):
            if not text.endswith(": ?"):  # Letta's template, nothing is known yet
                digest = hashlib.sha256(text.encode()).hexdigest()[:16]
                yield {
                    "id": f"{name}-{digest}",
                    "data": text,
                    "block": name,
                    "user_id": _ANYBODY,
                }


def _edge(row: Mapping[str, Any]) -> Row:
    """Turn an edge of Zep's graph into a row: a fact, from when it held and until when."""
    ended = row.get("invalid_at") or row.get("expired_at")
    said = row.get("valid_at") or row.get("created_at")
    return {
        "id": _id_of(row),
        "data": row["fact"],
        "created_at": said,
        "ends_at": ended,
        "user_id": _ANYBODY,
    }


def _flat(row: Mapping[str, Any]) -> Row:
    """Turn a memory as `get_all` shows it into a row of the store."""
    text = row.get("memory", row.get("data", row.get("text")))
    payload = {key: row[key] for key in row if key not in ("memory", "metadata", "score", "text")}
    # only Letta's passages carry their embedding; they name no user
    owner = {"user_id": _ANYBODY} if "embedding" in row else {}
    return {**object_in(row.get("metadata")), **owner, **payload, "id": _id_of(row), "data": text}


def _id_of(row: Mapping[str, Any]) -> Any:
    return row.get("uuid") or row.get("id")


# -- qdrant's local mode ---------------------------------------------------------------


def _points(file: Path) -> Iterator[Row]:
    """Yield the points of a database of qdrant's local mode; nothing is written."""
    try:
        with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as connection:
            blobs = [
                row[0] for row in connection.execute("SELECT point FROM points ORDER BY rowid")
            ]
    except sqlite3.Error as exc:
        raise InputError(f"{file} cannot be read: {exc}") from exc
    for blob in blobs:
        try:
            point = read_point(blob)
        except ValueError as exc:
            raise InputError(f"{file} holds a point that is not qdrant's: {exc}") from exc
        payload: object = point.get("payload")
        if isinstance(payload, dict) and "linked_memory_ids" not in payload:
            yield {**cast("dict[str, Any]", payload), "id": str(point.get("id"))}


_MARK = object()
_VALUES = frozenset(
    "INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT UNICODE BINUNICODE "
    "SHORT_BINUNICODE BINUNICODE8 BINBYTES SHORT_BINBYTES BINBYTES8".split()
)
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None, "NEWTRUE": lambda: True, "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_SET": list,
}  # fmt: skip


class _Object:
    """An object that a stream makes by a class or function: its name and its state."""

    def __init__(self, name: object) -> None:
        self.name = name
        self.state: dict[str, Any] = {}


def read_point(blob: bytes) -> dict[str, Any]:
    """Return the fields of a point (`id`, `vector`, `payload`).

    Raises `ValueError` for a stream that is no point.
    """
    point = _read(blob)
    if not isinstance(point, _Object) or "PointStruct" not in str(point.name):
        raise ValueError("it holds no PointStruct")
    fields: object = point.state.get("__dict__", point.state)
    return cast("dict[str, Any]", fields) if isinstance(fields, dict) else {}


def _read(blob: bytes) -> object:
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    try:
        for opcode, argument, _ in pickletools.genops(blob):
            if opcode.name == "STOP":
                return stack.pop()
            _step(opcode.name, argument, stack, memo)
    except (IndexError, KeyError, TypeError, AttributeError, UnicodeError) as exc:
        raise ValueError(f"its opcodes do not fit together: {type(exc).__name__}") from exc
    raise ValueError("it ends early")


def _step(name: str, argument: Any, stack: list[Any], memo: dict[int, Any]) -> None:
    """Run one opcode of a pickle on the stack, as data."""
    match name:
        case "PROTO" | "FRAME":
            pass
        case _ if name in _VALUES:
            stack.append(argument)
        case _ if name in _CONSTANTS:
            stack.append(_CONSTANTS[name]())
        case "MEMOIZE":
            memo[len(memo)] = stack[-1]
        case "PUT" | "BINPUT" | "LONG_BINPUT":
            memo[int(argument)] = stack[-1]
        case "GET" | "BINGET" | "LONG_BINGET":
            stack.append(memo[int(argument)])
        case "MARK":
            stack.append(_MARK)
        case "GLOBAL":
            stack.append(_Object(argument))
        case _:
            _combine(name, stack)


def _combine(name: str, stack: list[Any]) -> None:
    """Run an opcode that makes one value of several."""
    match name:
        case "SETITEM" | "SETITEMS":
            parts = _take(stack, 2 if name == "SETITEM" else None)
            stack[-1].update(zip(parts[::2], parts[1::2], strict=True))
        case "APPEND" | "APPENDS" | "ADDITEMS":
            parts = _take(stack, 1 if name == "APPEND" else None)
            stack[-1].extend(parts)
        case "TUPLE1" | "TUPLE2" | "TUPLE3" | "TUPLE" | "LIST":
            parts = _take(stack, int(name[-1]) if name[-1].isdigit() else None)
            stack.append(tuple(parts) if name != "LIST" else parts)
        case "DICT":
            parts = _take(stack, None)
            stack.append(dict(zip(parts[::2], parts[1::2], strict=True)))
        case "STACK_GLOBAL":
            stack.append(_Object(" ".join(map(str, _take(stack, 2)))))
        case "NEWOBJ" | "REDUCE":
            maker, _ = _take(stack, 2)
            stack.append(_Object(maker.name))
        case "BUILD":
            stack[-1].state = dict(stack.pop())
        case _:
            raise ValueError(f"it uses the opcode {name}, which no plain point needs")


def _take(stack: list[Any], count: int | None) -> list[Any]:
    """Take the topmost values off; without a count all down to the mark, and the mark."""
    marks = int(count is None)
    if count is None:
        depths = (depth for depth, value in enumerate(reversed(stack)) if value is _MARK)
        count = next(depths, len(stack))
    start = len(stack) - count
    if start < marks:
        raise IndexError
    values = stack[start:]
    del stack[start - marks :]
    return values

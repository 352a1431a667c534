"""Import of mem0's memories from the folder of its qdrant store (local mode) or a JSON export.

Ids, texts, owners, dates and metadata are kept; vectors are made anew when they are
needed. Memories imported before are skipped, so an import can be repeated. No vendor's
library is needed, and nothing that a file names is ever run (see `point_reader`).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from memagent.build import Store
from memagent.core.errors import InputError
from memagent.core.ops import Add, OpBatch
from memagent.core.records import Fact, Record, Scope, SourceRef, Text
from memagent.integrations import mem0_records as records
from memagent.integrations.mem0_records import Owner, owner_of
from memagent.integrations.point_reader import read_point

_AT_ONCE = 500
_NOT_METADATA = frozenset(
    "id user_id agent_id run_id actor_id role data hash created_at updated_at text_lemmatized "
    "expiration_date attributed_to".split()
)


class ImportReport(Record):
    """The counts of an import."""

    found: int
    imported: int
    skipped: int
    """There already."""
    refused: int
    """Without text or owner, or too long."""
    users: tuple[Text, ...]


Row = Mapping[str, Any]
"""One memory as mem0 keeps it: `id`, and the payload with `data` as its text."""


def read_mem0(path: Path) -> list[Row]:
    """Read the memories of a qdrant folder, one of its `storage.sqlite` files, or a JSON export.

    Raises `InputError` for anything else.
    """
    if path.is_dir():
        files = sorted(
            file for file in path.rglob("storage.sqlite") if not _other_collection(file.parent.name)
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


def _other_collection(name: str) -> bool:
    """Tell whether mem0 keeps its entities or its own notes in a collection, not memories."""
    return name.endswith("_entities") or name == "mem0migrations"


async def import_mem0(
    store: Store, rows: Iterable[Row], *, user_id: str | None = None
) -> ImportReport:
    """Add rows to the memories of their owners, several hundred in a commit.

    With `user_id` only rows of that user are added.
    """
    parts: dict[Scope, dict[str, Add]] = {}
    found = refused = 0
    for row in rows:
        if user_id is not None and str(row.get("user_id")) != user_id:
            continue
        found += 1
        try:
            owner, op = _add(row)
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
    created_at = records.moment_of(row.get("created_at"))
    last_day = records.expiration_of(row.get("expiration_date"))
    metadata = records.reserved_metadata(
        owner,
        {key: value for key, value in row.items() if key not in _NOT_METADATA},
        actor_id=row.get("actor_id"),
        role=row.get("role"),
        last_day=last_day,
        updated_at=records.moment_of(row.get("updated_at")),
    )
    speaker = row.get("actor_id") or row.get("role")
    fact = Fact(
        text=text,
        speaker=str(speaker) if speaker else None,
        said_at=created_at,
        expires_at=records.end_of(last_day),
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
        document = table.get("results", table.get("memories", [table]))
    rows = cast("list[Any]", document if isinstance(document, list) else [])
    if not rows or not all(isinstance(row, dict) and "id" in row for row in rows):
        raise InputError(f"{path} is no export of mem0: it must hold memories with ids")
    return [_flat(row) for row in rows]


def _flat(row: Mapping[str, Any]) -> Row:
    """Turn a memory as `get_all` shows it into a row of the store."""
    text = row.get("memory", row.get("data", row.get("text")))
    payload = {key: row[key] for key in row if key not in ("memory", "metadata", "score")}
    return {**(row.get("metadata") or {}), **payload, "data": text}


# -- qdrant's local mode ---------------------------------------------------------------


def _points(file: Path) -> Iterator[Row]:
    try:
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as connection:
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

"""Memories of mem0 taken over: from the folder of its qdrant store (local mode) or from
a JSON export.

Ids, texts, owners, dates and metadata are kept; vectors are made anew when they are
needed. What was taken over before is skipped, so an import can be repeated. No vendor's
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
from memagent.integrations.mem0_records import OWNERS, Owner, owner_of
from memagent.integrations.point_reader import read_point

_AT_ONCE = 500
_NOT_METADATA = frozenset(
    (
        *OWNERS,
        "actor_id",
        "role",
        "data",
        "hash",
        "created_at",
        "updated_at",
        "text_lemmatized",
        "expiration_date",
        "attributed_to",
    )
)


class ImportReport(Record):
    """What an import did."""

    found: int
    """Memories in the source, of the user asked for."""
    imported: int
    skipped: int
    """There already."""
    refused: int
    """Without text or owner, or too long."""
    users: tuple[Text, ...]


Row = Mapping[str, Any]
"""One memory as mem0 keeps it: `id`, and the payload with `data` as its text."""


def read_mem0(path: Path) -> list[Row]:
    """Memories in a qdrant folder, one of its `storage.sqlite` files, or a JSON (lines) export.

    Raises `InputError` for anything else.
    """
    if path.is_dir():
        files = sorted(
            file for file in path.rglob("storage.sqlite") if not _other_collection(file.parent.name)
        )
        if not files:
            raise InputError(
                f"{path} holds no collection of qdrant's local mode (collection/NAME/storage.sqlite)"
            )
        return [row for file in files for row in _points(file)]
    if not path.is_file():
        raise InputError(f"there is no {path}")
    if path.suffix == ".sqlite":
        return list(_points(path))
    return _exported(path)


def _other_collection(name: str) -> bool:
    """Collections in which mem0 keeps no memories: of named entities, and its own notes."""
    return name.endswith("_entities") or name == "mem0migrations"


async def import_mem0(
    store: Store, rows: Iterable[Row], *, user_id: str | None = None
) -> ImportReport:
    """Add rows to the memories of their owners, several hundred a commit; with
    `user_id` only those of that user.
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
            sorted(
                {
                    scope.user_id
                    for scope in parts
                    if scope.agent_id is None and scope.run_id is None
                }
            )
        ),
    )


def _add(row: Row) -> tuple[Owner, Add]:
    owner = owner_of(row, needed_for="a memory")
    text = row.get("data")
    if not isinstance(text, str) or not text.strip():
        raise InputError("a memory without text")
    created, day = (
        records.moment_of(row.get("created_at")),
        records.expiration_of(row.get("expiration_date")),
    )
    updated = records.moment_of(row.get("updated_at"))
    kept = records.kept_metadata(
        owner,
        {key: value for key, value in row.items() if key not in _NOT_METADATA and key != "id"},
        actor_id=row.get("actor_id"),
        role=row.get("role"),
        expiration=day,
        dates={"updated_at": updated} if updated is not None else None,
    )
    speaker = row.get("actor_id") or row.get("role")
    fact = Fact(
        text=text,
        speaker=str(speaker) if speaker else None,
        said_at=created,
        expires_at=records.end_of(day),
    )
    return owner, Add(fact=fact, id=str(row["id"]), metadata=kept)


# -- a JSON export ---------------------------------------------------------------------


def _exported(path: Path) -> list[Row]:
    """Rows of `{"results": [...]}` (what `get_all` gave), of a list, or of one object a line."""
    try:
        text = path.read_text(encoding="utf-8")
        try:
            told: object = json.loads(text)
        except json.JSONDecodeError:
            told = [json.loads(line) for line in text.splitlines() if line.strip()]
    except (OSError, ValueError, RecursionError) as exc:
        raise InputError(f"{path} is no JSON export: {exc}") from exc
    if isinstance(told, dict):
        table = cast("dict[str, object]", told)
        told = table.get("results", table.get("memories", [table]))
    if (
        not told
        or not isinstance(told, list)
        or not all(isinstance(one, dict) and "id" in one for one in cast("list[object]", told))
    ):
        raise InputError(f"{path} is no export of mem0: it must hold memories with ids")
    return [_flat(one) for one in cast("list[dict[str, Any]]", told)]


def _flat(shown: Mapping[str, Any]) -> Row:
    """A memory as `get_all` shows it, as the store keeps it."""
    payload = {
        key: value for key, value in shown.items() if key not in ("memory", "metadata", "score")
    }
    return {
        **(shown.get("metadata") or {}),
        **payload,
        "data": shown.get("memory", shown.get("data", shown.get("text"))),
    }


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

"""One portable, lossless file of a memory: a header, every journal row, and a seal.

Importing replays the rows with their dates, so history, undo and `as_of` work as before
and the digest is the same. No pickle, no vectors: they are a cache and are made again.
A file that was cut short or altered is refused before anything is written.
"""

from __future__ import annotations

import errno
import hashlib
import json
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from memagent.core.crash_points import reach
from memagent.core.errors import InputError, SnapshotMismatch, StoreUnavailable
from memagent.core.long_work import Slices, aside, is_large, let_go
from memagent.core.records import MemoryItem, Record, Session, Text, Trust
from memagent.core.snapshot import Commit, JournalRow, Restored
from memagent.memory.bank import MemoryBank
from memagent.memory.timetravel import restoring_entry
from memagent.state.fold import EMPTY_STATE, BankState, apply

FORMAT = "memagent-export/1"
_NAME = re.compile(r"c(\d+)((?:\.\d+)?)")
# What the fold raises for a row that no bank would have written.
_UNFIT = (LookupError, ValueError, TypeError, AttributeError, ArithmeticError)
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


class ExportReport(Record):
    """The content of an export."""

    path: Text
    rows: int
    items: int
    sessions: int
    digest: Text


async def export_bank(bank: MemoryBank, path: Path) -> ExportReport:
    """Write the memory to a file, replacing it only when all is written."""
    if not path.name:
        raise InputError(f"{str(path)!r} names no file to export to")
    state = await bank.sync()
    partial = path.with_name(path.name + ".partial")
    rows = -2  # a header and a footer are no rows
    try:
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            async for line in export_lines(bank, seq=state.seq, digest=state.digest()):
                file.write(line)
                rows += 1
        reach("export.written")
        partial.replace(path)
    except OSError as exc:
        kind = StoreUnavailable if exc.errno in _NO_ROOM else InputError
        raise kind(f"{path} cannot be written: {exc.strerror}; nothing was exported") from exc
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
    return _report(path, rows, state)


def _report(path: Path, rows: int, state: BankState) -> ExportReport:
    return ExportReport(
        path=str(path),
        rows=rows,
        items=state.live,
        sessions=len(state.sessions),
        digest=state.digest(),
    )


async def export_lines(bank: MemoryBank, *, seq: int, digest: str) -> AsyncGenerator[str]:
    """Yield the lines of an export of the memory at a sequence; the same ones every time.

    `digest` is that of the state there.
    """
    seal = hashlib.sha256()
    rows, slices = 0, Slices()

    def sealed(line: str) -> str:
        seal.update(line.encode() + b"\n")
        return line + "\n"

    yield sealed(
        json.dumps(
            {"format": FORMAT, "scope": bank.scope.model_dump(), "digest": digest, "seq": seq}
        )
    )
    if bank.log.base.seq:
        entry = await aside(restoring_entry, EMPTY_STATE, await bank.log.state_at(seq))
        yield sealed(JournalRow(seq=1, recorded_at=bank.now(), entry=entry).model_dump_json())
        rows = 1
    else:
        async for row in bank.rows():
            if row.seq > seq:
                break
            large = is_large((row.entry,))
            yield sealed(await aside(row.model_dump_json) if large else row.model_dump_json())
            rows += 1
            await slices.rest()
    yield json.dumps({"rows": rows, "sha256": seal.hexdigest()}) + "\n"


async def import_bank(
    bank: MemoryBank, path: Path, *, most_trust: Trust = Trust.SYSTEM
) -> ExportReport:
    """Replay an export into an empty memory, all or nothing.

    A seal shows damage, not who made the file: nothing in it may be trusted more than
    `most_trust`. Raises `SnapshotMismatch` when the memory is not empty or the file does
    not hold what it says, `InputError` when it is no export or claims more trust.
    """
    present = await bank.sync()
    if len(present.items) or len(present.sessions) or present.cleared:
        raise SnapshotMismatch(
            f"the memory of user {bank.scope.user_id!r} is not empty; "
            "import into a new user, or erase this one first with reset()"
        )
    rows, state = await aside(_read, path, most_trust)
    report = await aside(_report, path, len(rows), state)
    let_go(state)
    del state  # the memory makes its own from the rows
    moved = await aside(
        lambda: [_moved(row, seq - row.seq) for seq, row in enumerate(rows, present.seq + 1)]
    )
    rows.clear()
    await bank.log.replay(moved)
    let_go(moved)
    return report


def _read(path: Path, most_trust: Trust) -> tuple[list[JournalRow], BankState]:
    """Return the rows of an export and the state that they give; raise as `import_bank`."""
    header, rows = _checked(path)
    _refuse_trust_above(path, rows, most_trust)
    changes = (change for row in rows for change in getattr(row.entry, "changes", ()))
    if any(change.after is not None and change.after.id != change.id for change in changes):
        raise InputError(f"{path}: a change gives an item another id; nothing was imported")
    state = EMPTY_STATE
    for number, row in enumerate(rows, 1):
        try:
            state = apply(state, row.model_copy(update={"seq": number}))
        except _UNFIT as exc:
            raise InputError(
                f"{path}, line {number + 1}: the row does not follow from those before it; "
                "nothing was imported"
            ) from exc
    for session in state.sessions.values():  # the fold puts turns to turns and asks nothing
        try:
            if session.grown_at:
                Session.model_validate(session.model_dump())
        except ValidationError as exc:
            raise InputError(
                f"{path}: the rows make no session of {session.id!r}: {exc.errors()[0]['msg']}; "
                "nothing was imported"
            ) from exc
    if state.digest() != header["digest"]:
        raise SnapshotMismatch(
            f"{path}: the header says digest {str(header['digest'])[:12]}, "
            f"the rows give {state.digest()[:12]}"
        )
    return rows, state


def _checked(path: Path) -> tuple[dict[str, Any], list[JournalRow]]:
    try:
        with path.open(encoding="utf-8", newline="\n") as file:
            lines = [line.removesuffix("\n") for line in file]
    except (OSError, UnicodeDecodeError) as exc:
        raise InputError(f"{path}: cannot be read: {exc}") from exc
    if len(lines) < 2:
        raise InputError(
            f"{path}: not a memagent export: it has {len(lines)} lines, "
            "a header and a footer are the least"
        )
    header = _object(path, 1, lines[0])
    if header.get("format") != FORMAT:
        raise InputError(f"{path}: format {header.get('format')!r} is not {FORMAT!r}")
    if not isinstance(header.get("digest"), str):
        raise InputError(f"{path}, line 1: the header names no digest")
    seal = hashlib.sha256()
    for line in lines[:-1]:
        seal.update(line.encode() + b"\n")
    try:
        footer = _object(path, len(lines), lines[-1])
    except InputError:  # another line, as in a file cut short
        footer = {}
    if footer.get("sha256") != seal.hexdigest():
        raise SnapshotMismatch(
            f"{path}: the file was cut short or altered (its seal does not fit its content); "
            "nothing was imported"
        )
    rows: list[JournalRow] = []
    for number, line in enumerate(lines[1:-1], 2):
        try:
            rows.append(JournalRow.model_validate_json(line))
        except ValidationError as exc:
            raise InputError(
                f"{path}, line {number}: not a journal row: {exc.errors()[0]['msg']}"
            ) from exc
    return header, rows


def _refuse_trust_above(path: Path, rows: list[JournalRow], most: Trust) -> None:
    levels = {level for level in Trust if level.rank < most.rank}
    if not levels:
        return
    for number, row in enumerate(rows, 2):
        claimed = levels.intersection(_trusts_in(row.model_dump(mode="json")))
        if claimed:
            raise InputError(
                f"{path}, line {number}: it claims the trust {min(claimed)!s}; "
                f"here at most {most} is taken from a file"
            )


def _trusts_in(value: object) -> Iterator[str]:
    """Yield every level of trust that a JSON value names."""
    if isinstance(value, dict):
        for key, inner in value.items():  # pyright: ignore[reportUnknownVariableType]
            if key == "trust" and isinstance(inner, str):
                yield inner
            else:
                yield from _trusts_in(inner)  # pyright: ignore[reportUnknownArgumentType]
    elif isinstance(value, list):
        for inner in value:  # pyright: ignore[reportUnknownVariableType]
            yield from _trusts_in(inner)  # pyright: ignore[reportUnknownArgumentType]


def _moved(row: JournalRow, distance: int) -> JournalRow:
    """Return the row for another place of a log.

    Commits and ops are named by their sequence, so no two of one memory share a name.
    """
    entry = row.entry
    if not distance or not isinstance(entry, Commit | Restored):
        return row
    changes = tuple(
        change.model_copy(
            update={
                "after": None if change.after is None else _renamed(change.after, distance),
                "archive": None
                if change.archive is None
                else tuple(_renamed(item, distance) for item in change.archive),
            }
        )
        for change in entry.changes
    )
    update: dict[str, object] = {"changes": changes}
    if isinstance(entry, Commit):
        ops = (op.model_copy(update={"op_id": _shifted(op.op_id, distance)}) for op in entry.ops)
        undoes = None if entry.undoes is None else _shifted(entry.undoes, distance)
        update |= {"id": _shifted(entry.id, distance), "ops": tuple(ops), "undoes": undoes}
    return row.model_copy(update={"entry": entry.model_copy(update=update)})


def _renamed(item: MemoryItem, distance: int) -> MemoryItem:
    return item.model_copy(update={"op_id": _shifted(item.op_id, distance)})


def _shifted(name: str, distance: int) -> str:
    """Return `c7` or `c7.0` moved on; any other name stays."""
    match = _NAME.fullmatch(name)
    return name if match is None else f"c{int(match[1]) + distance}{match[2]}"


def _object(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError as exc:
        raise InputError(f"{path}, line {number}: not JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise InputError(f"{path}, line {number}: a JSON object was expected")
    return {str(key): item for key, item in value.items()}  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]

"""Checking a scope's log against its own hashes: order, headers, payloads and tip.

Finds any change to a row, a row taken out or put in, and a log cut short (the tip is
kept apart). Someone who may rewrite the whole database can also recompute every hash;
against that, `compare_tips` compares it with the ends noted elsewhere (`tips`).

Searching the files of a store for bytes, from a process of its own.

A database file must not be opened and closed by other means in a process that has it
open: that would drop SQLite's locks. So a child reads the files (`file_scan`).
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from memagent.core.errors import StoreError
from memagent.journal.proof import file_scan
from memagent.journal.proof.tips import Noted, Redactions, TipBook
from memagent.journal.rows import (
    ERASED,
    NAMELESS,
    ReadConnection,
    ScopeKey,
    first_chain,
    fits,
    follows,
    nameless,
    scope_digest,
)

_ROWS_AT_ONCE: Final = 256
_MOST_REPORTED: Final = 20
_SCOPE: Final = "SELECT id, digest, user_id, agent_id, run_id, head, chain, recorded_us FROM scopes"
_STRAYS: Final = (
    "SELECT min(rows.seq), count(*) FROM {table} rows "
    "LEFT JOIN scopes ON scopes.id = rows.scope_id WHERE scopes.id IS NULL"
)
_ERASED_BEFORE: Final = (
    f"SELECT coalesce(max(seq), 0) FROM journal WHERE scope_id = ? AND kind = '{ERASED}'"
)
_ROWS: Final = (
    "SELECT journal.seq, journal.kind, journal.recorded_us, journal.payload_digest, "
    "journal.chain, payloads.salt, payloads.body FROM journal LEFT JOIN payloads "
    "ON payloads.scope_id = journal.scope_id AND payloads.seq = journal.seq "
    "WHERE journal.scope_id = ? AND journal.seq > ? "
    f"ORDER BY journal.seq LIMIT {_ROWS_AT_ONCE}"
)
_HEADLESS: Final = (
    "SELECT payloads.seq FROM payloads LEFT JOIN journal "
    "ON payloads.scope_id = journal.scope_id AND payloads.seq = journal.seq "
    "WHERE payloads.scope_id = ? AND journal.seq IS NULL "
    f"ORDER BY payloads.seq LIMIT {_MOST_REPORTED}"
)
_END: Final = (
    "SELECT scopes.user_id, scopes.head, journal.chain FROM scopes LEFT JOIN journal "
    "ON journal.scope_id = scopes.id AND journal.seq = ? WHERE scopes.digest = ?"
)


class _Scope(NamedTuple):
    """A row of `scopes`."""

    id: int
    digest: str
    user_id: str
    agent_id: str | None
    run_id: str | None
    head: int
    chain: bytes
    recorded_us: int


def audit_scope(connection: ReadConnection, scope: ScopeKey) -> list[str]:
    """Return what is wrong with the scope's log, the first bad sequence first.

    Each line names a sequence; [] when nothing is wrong.

    A scope that was never written to is in order. At most 20 lines.
    """
    digest = scope_digest(scope)
    user_id, *rest = scope
    pairs = zip(("agent_id", "run_id"), rest, strict=True)
    same = [f"{name} IS NULL" if value is None else f"{name} = ?" for name, value in pairs]
    asked = f"{_SCOPE} WHERE digest = ? OR (user_id = ? AND {' AND '.join(same)}) ORDER BY id"
    values = (digest, user_id, *(value for value in rest if value is not None))
    tips = [_Scope(*row) for row in connection.execute(asked, values).fetchall()]
    problems: list[str] = []
    if tips:
        tip = tips[0]
        known = (tip.user_id, tip.agent_id, tip.run_id)
        if len(tips) > 1 or tip.digest != digest or known not in (scope, nameless(scope)):
            problems.append(f"seq 0: the scope's row does not name it ({known}, {tip.digest})")
        problems += _audit_log(connection, tip, digest)
    # Rows that belong to no scope, as a removed row of a scope leaves behind.
    for table in ("journal", "payloads"):
        first, count = connection.execute(_STRAYS.format(table=table)).fetchone()
        if count:
            problems.append(f"seq {first}: {count} rows of {table} belong to no scope")
    return problems[:_MOST_REPORTED]


def audit_erased(connection: ReadConnection, digest: str) -> list[str]:
    """Return what is wrong with the log of an erased scope, known by its digest alone."""
    row = connection.execute(f"{_SCOPE} WHERE digest = ?", (digest,)).fetchone()
    if row is None:
        return [f"seq 0: the scope {digest[:12]} is gone"]
    tip = _Scope(*row)
    problems = _audit_log(connection, tip, digest)
    if tip.user_id != f"{NAMELESS}{digest}":
        problems.insert(0, "seq 0: the scope's row has another name than its digest")
    return problems


def _audit_log(connection: ReadConnection, tip: _Scope, digest: str) -> list[str]:
    """Walk one log, and compare its last header with its tip."""
    redactions = Redactions(connection, digest)
    (erased_before,) = connection.execute(_ERASED_BEFORE, (tip.id,)).fetchone()
    headless = connection.execute(_HEADLESS, (tip.id,)).fetchall()
    problems = [f"seq {seq}: a payload without a header" for (seq,) in headless]
    last, before, said = 0, first_chain(digest), 0
    after, more = -(1 << 62), True
    while more and len(problems) < _MOST_REPORTED:
        rows = connection.execute(_ROWS, (tip.id, after)).fetchall()
        for seq, kind, recorded_us, payload, chain, salt, body in rows:
            if seq != last + 1:
                problems.append(f"seq {seq}: expected {last + 1} here: the log has a gap")
            header = {"seq": seq, "kind": kind, "recorded_us": recorded_us, "digest": payload}
            if not follows(before, chain, **header):
                problems.append(f"seq {seq}: the header does not follow from the one before")
            if recorded_us < said:
                problems.append(f"seq {seq}: it was recorded before the row before it")
            if (body is not None) == (seq < erased_before):
                what = "is missing" if body is None else "should have been erased"
                problems.append(f"seq {seq}: its payload {what}")
            elif body is not None and not fits(salt, body, payload, seq, redactions.digest):
                problems.append(f"seq {seq}: its payload is not the one that was written")
            last, before, said = seq, chain, recorded_us
        after, more = last, len(rows) == _ROWS_AT_ONCE
    if tip.head != last:
        problems.append(
            f"seq {min(tip.head, last) + 1}: the log ends at {last}, its tip says {tip.head}"
        )
    elif tip.chain != before or tip.recorded_us != said:
        problems.append(f"seq {tip.head}: the tip does not match the last header")
    return problems[:_MOST_REPORTED]


def compare_tips(connection: ReadConnection, book: TipBook) -> list[str]:
    """Return where a store and the noted ends of its logs disagree; at most 20 lines.

    A log may have grown since its end was noted; it may not be shorter, missing, or have
    another chain hash at that place.
    """
    ends, problems = book.sound()
    for end in ends:
        problems += compare_noted(connection, end)
        if len(problems) >= _MOST_REPORTED:
            break
    if book.keyed and not book.shared:
        known = {digest for (digest,) in connection.execute("SELECT digest FROM scopes").fetchall()}
        problems += [
            f"a log that was never noted appeared (scope {digest[:12]})"
            for digest in sorted(known - {end.digest for end in ends})
        ]
    return problems[:_MOST_REPORTED]


def compare_noted(connection: ReadConnection, end: Noted) -> list[str]:
    """Return how a log differs from its noted end; [] when it goes on from there."""
    row = connection.execute(_END, (end.seq, end.digest)).fetchone()
    if row is None:
        return [f"a whole log of {end.seq} rows is missing (scope {end.digest[:12]})"]
    user_id, head, chain = row
    who = repr(user_id) if user_id[:1] != NAMELESS else f"scope {end.digest[:12]}"
    if head < end.seq:
        return [f"the log of {who} ends at {head}; {end.seq} rows were written"]
    if chain is None or bytes(chain) != end.chain:
        return [f"the log of {who} was written anew: row {end.seq} has another chain"]
    return []


_TIMEOUT_S: Final = 600.0


def files_of(path: Path) -> list[Path]:
    """Return the files of a store, in order.

    These are the database, what lies beside it under its name, and the service's database.
    """
    beside = {*path.parent.glob(f"{path.name}*"), *path.parent.glob(f"{path.stem}.service.db*")}
    found = {file for name in beside for file in (name.rglob("*") if name.is_dir() else (name,))}
    return sorted(file for file in found if file.is_file())


def count_in_files(files: Sequence[Path], needles: Sequence[bytes]) -> dict[str, tuple[int, int]]:
    """Return (size in bytes, number of needles in it) of each file, by its name.

    Needles have at least eight bytes. Raises `StoreError` when the files cannot be read,
    or not in time.
    """
    task = {
        "files": [str(file) for file in files],
        "needles": [base64.b64encode(needle).decode() for needle in needles],
        "packages": str(Path(np.__file__).parents[1]),
    }
    try:
        child = subprocess.run(
            [sys.executable, "-I", "-S", file_scan.__file__],
            input=json.dumps(task),
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=True,
        )
    except subprocess.TimeoutExpired as exc:
        raise StoreError(f"the files could not be searched within {_TIMEOUT_S:g} seconds") from exc
    except (OSError, subprocess.CalledProcessError) as exc:
        told = str(getattr(exc, "stderr", None) or exc).strip()[-200:]
        raise StoreError(f"the files could not be searched: {told}") from exc
    answers: dict[str, list[int]] = json.loads(child.stdout)
    return {Path(name).name: (size, found) for name, (size, found) in answers.items()}

"""Checking a scope's log against its own hashes: order, headers, payloads and tip.

Finds any change to a row, a row taken out or put in, and a log cut short (the tip is
kept apart). Someone who may rewrite the whole database can also recompute every hash;
against that, `compare_tips` compares it with the ends noted elsewhere (`TipBook`).

Searching the files of a store for bytes, from a process of its own.

A database file must not be opened and closed by other means in a process that has it
open: that would drop SQLite's locks. So a child reads the files (`file_scan`).

The ends of the logs, kept in a file of their own, so that a loss of the last rows shows.

SQLite drops a damaged write-ahead log without a word, and whoever may write a database
can write its hash chain anew. So the writer notes after each commit where every log
ended: a record has the scope's digest, the sequence, the chain hash there, and a MAC
over them. A chain hash stands for all rows before it; with a key, which lies outside of
the store, nobody else can write a record. Where one process writes, a keyed record's MAC
also covers the one before, so that none can be taken out; and a log is compared with its
note before it grows, so that nobody's forgery is signed. The surprise: records are not
synced one by one, but for the first of a log in a chain. After a power cut the file may
lag behind the store, which only weakens the check; it is never ahead, for it is written
after the commit.

Whoever can put back an older store together with its older tips is not found out: keep
the file where they cannot write.

Payloads that were rewritten because words in them were erased.

A header keeps the digest of the first payload, so the chain stays whole. The digest of
the new one stands in a later `Redacted` entry, whose own digest is in the chain.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from pydantic_core import ValidationError

from memagent.core.errors import ConfigError, StoreCorrupt, StoreError, StoreReadOnly
from memagent.core.snapshot import Redacted
from memagent.journal.proof import file_scan
from memagent.journal.rows import (
    ERASED,
    NAMELESS,
    REDACTED,
    ReadConnection,
    ScopeKey,
    Tip,
    decode_entry,
    first_chain,
    fits,
    follows,
    nameless,
    payload_digest,
    scope_digest,
)

_PLAIN: Final = b"memagent-tips/1 plain\n\n"
# Records signed one by one: those of several processes, and of older releases.
_SIGNED: Final = b"memagent-tips/1 keyed\n\n"
_CHAINED: Final = b"memagent-tips/2 keyed\n\n"
_NEWER: Final = b"memagent-tips/"
_HEAD_BYTES: Final = 23
_BODY_BYTES: Final = 72
_RECORD_BYTES: Final = 104
_MAC_BYTES: Final = 32
_NEXT: Final = b"memagent/tip/2/"
_FIRST: Final = bytes(_MAC_BYTES)
_LONG_BYTES: Final = 1024 * 1024
_LAST_READ: Final = 64
_REDACTIONS: Final = (
    "SELECT payloads.body, payloads.salt, journal.payload_digest FROM journal "
    "JOIN scopes ON scopes.id = journal.scope_id "
    "JOIN payloads ON payloads.scope_id = journal.scope_id AND payloads.seq = journal.seq "
    f"WHERE scopes.digest = ? AND journal.kind = '{REDACTED}' ORDER BY journal.seq"
)


class Noted(NamedTuple):
    """The end of a log as it was noted."""

    digest: str
    seq: int
    chain: bytes


class Seal(NamedTuple):
    """The place where the ends of logs are noted, and the key of the notes."""

    tips: Path | None = None
    """None is beside the store."""
    key: bytes | None = None


NO_SEAL: Final = Seal()


class TipBook:
    """The file of the ends. Used by the writer's thread alone; `read` by anybody."""

    def __init__(self, path: Path, key: bytes | None = None, *, shared: bool = False) -> None:
        """Never shorten the file while it is `shared` with other processes."""
        self.path = path
        # Whether other processes write it too, and whether records are signed with a key.
        self.shared, self.keyed = shared, key is not None
        self._key = key
        self._fd: int | None = None
        self._size = 0
        self._long = _LONG_BYTES
        self._head = _PLAIN if key is None else _SIGNED if shared else _CHAINED
        # MAC of the last record, and the ends as noted, of a chained file that is open.
        self._before = _FIRST
        self._latest: dict[str, Noted] = {}

    # -- writing -----------------------------------------------------------------------

    def open(self, known: Iterable[Noted]) -> None:
        """Open the file for appending; make it of the ends in `known` if there is none.

        Raises `ConfigError` when it was begun with another choice of key, and
        `StoreCorrupt` for a keyed file that is damaged, or missing though the store has
        logs: whatever stands there now would be signed.
        """
        ends = list(known)
        if not self.path.exists():
            if ends and self._head == _CHAINED:
                raise StoreCorrupt(
                    f"{self.path} is missing, though the store has a key; put it back, or run  "
                    "memagent doctor --seal  to sign the logs as they stand now"
                )
            self.rewrite(ends)
        self._check_head()
        if self._head == _CHAINED:
            self._take_chain()
        self.close()
        self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0))
        size = os.fstat(self._fd).st_size
        self._size = size - (size - _HEAD_BYTES) % _RECORD_BYTES
        if self._size != size:  # a record that a crash cut off
            os.ftruncate(self._fd, self._size)

    def _check_head(self) -> None:
        with self.path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        if head == self._head or (head == _SIGNED and self._head == _CHAINED):
            return
        if head.startswith(_NEWER) and head not in (_PLAIN, _SIGNED, _CHAINED):
            raise ConfigError(f"{self.path} was begun by a newer memagent: install that version")
        raise ConfigError(
            f"{self.path} was begun {'without' if self._key else 'with'} a key: "
            + (
                "run  memagent doctor --seal  to begin it anew with the key"
                if self._key
                else "name the file of the key as `key_file` of the store's settings"
            )
        )

    def _take_chain(self) -> None:
        """Read a chained file; write one of an older release anew as a chain.

        What a power cut left at its end is taken away; the rest has to be sound.
        """
        content = self.path.read_bytes()
        records = self._records(content)
        written = len(records)
        while records and records[-1] is None:
            records.pop()
        if None in records or (written and not records):
            raise StoreCorrupt(
                f"records of {self.path} are damaged, were taken out, or are not signed by the "
                "key; put an undamaged file back, or run  memagent doctor --seal  to sign the "
                "logs as they stand now"
            )
        self._latest = _highest(records)
        size = _HEAD_BYTES + len(records) * _RECORD_BYTES
        if content[:_HEAD_BYTES] != self._head:
            self.rewrite(self._latest.values())
        else:
            if size < len(content):
                os.truncate(self.path, size)
            self._before = content[size - _MAC_BYTES : size] if records else _FIRST

    def noted(self, digest: str) -> Noted | None:
        """Return the noted end of a log that must be so before it grows; None if there is none.

        Only a chained file knows it.
        """
        return self._latest.get(digest)

    def note(self, tips: Mapping[ScopeKey, Tip]) -> None:
        """Append the ends that a commit left; a failure leaves the file behind the store."""
        if self._fd is None or not tips:
            return
        if self.shared and self._replaced():
            with suppress(OSError, ConfigError):
                self.open(())
        ends = [Noted(scope_digest(key), tip.head, tip.chain) for key, tip in tips.items()]
        self._append(ends)
        if self._size > self._long and not self.shared:
            latest, _ = self.read()
            self.close()
            self.rewrite(latest.values())
            self._long = max(_LONG_BYTES, 2 * self.path.stat().st_size)
            self.open(())

    def _append(self, ends: Sequence[Noted]) -> None:
        assert self._fd is not None
        records = self._signed(ends, self._before)
        data, written = b"".join(records), 0
        with suppress(OSError):
            written = os.write(self._fd, data)
            if 0 < written < len(data):  # a full disk: the rest, or nothing of the last record
                with suppress(OSError):
                    written += os.write(self._fd, data[written:])
        whole = written // _RECORD_BYTES
        if written % _RECORD_BYTES and not self.shared:
            with suppress(OSError):
                os.ftruncate(self._fd, self._size + whole * _RECORD_BYTES)
        self._size += whole * _RECORD_BYTES
        if self._head == _CHAINED:
            if any(noted.digest not in self._latest for noted in ends):
                # A log without a note could not be told from one that somebody put there.
                os.fsync(self._fd)
            self._latest |= {noted.digest: noted for noted in ends}
            self._before = records[whole - 1][-_MAC_BYTES:] if whole else self._before

    def _replaced(self) -> bool:
        """Tell whether another process wrote the file anew; one that is gone stays gone."""
        try:
            return self._fd is None or not os.path.samestat(os.fstat(self._fd), self.path.stat())
        except OSError:
            return False

    def rewrite(self, ends: Iterable[Noted]) -> None:
        """Write the file anew with these ends."""
        fresh, records = self.path.with_name(f"{self.path.name}.new"), self._signed(ends, _FIRST)
        try:
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(self._head + b"".join(records))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self.path)
            self._before = records[-1][-_MAC_BYTES:] if records else _FIRST
        except OSError as exc:
            raise StoreReadOnly(f"cannot write {self.path}: {exc.strerror}") from exc

    def close(self) -> None:
        """Close the file; harmless when repeated."""
        if self._fd is not None:
            with suppress(OSError):
                os.fsync(self._fd)
            os.close(self._fd)
            self._fd = None

    # -- reading -----------------------------------------------------------------------

    def last(self) -> Noted | None:
        """Return the last sound record; None when there is none."""
        with suppress(OSError), self.path.open("rb") as file:
            head, size = file.read(_HEAD_BYTES), file.seek(0, os.SEEK_END)
            count = max(0, size - _HEAD_BYTES) // _RECORD_BYTES
            first = max(0, count - 1 - _LAST_READ)
            file.seek(_HEAD_BYTES + first * _RECORD_BYTES)
            # One more than is looked at: each record of a chain needs the one before it.
            records = self._records(head + file.read(), first=first)[1 if first else 0 :]
            return next((noted for noted in reversed(records) if noted is not None), None)
        return None

    def read(self) -> tuple[dict[str, Noted], int]:
        """Return the highest end of each scope, by digest, and the number of bad records."""
        content = self.path.read_bytes()
        records = self._records(content)
        known = (self._head,) if self._head != _CHAINED else (_CHAINED, _SIGNED)
        odd = bool((len(content) - _HEAD_BYTES) % _RECORD_BYTES)
        return _highest(records), records.count(None) + odd + (content[:_HEAD_BYTES] not in known)

    def _records(self, content: bytes, *, first: int = 0) -> list[Noted | None]:
        """Return the whole records after a head, None for each bad one.

        The first of them is bad in a chain unless it is the `first` of the file. Where a
        short write of another process left a piece, reading goes on behind it.
        """
        chained = content[:_HEAD_BYTES] == _CHAINED
        odd = (len(content) - _HEAD_BYTES) % _RECORD_BYTES if not chained else 0
        before, at = (_FIRST if not first else b""), _HEAD_BYTES
        records: list[Noted | None] = []
        while at + _RECORD_BYTES <= len(content):
            record = content[at : at + _RECORD_BYTES]
            noted = self._read(record, before if chained else None)
            if noted is None and odd and self._read(content[at + odd : at + odd + _RECORD_BYTES]):
                at, odd = at + odd, 0
                continue
            records.append(noted)
            before, at = record[-_MAC_BYTES:], at + _RECORD_BYTES
        return records

    def sound(self) -> tuple[list[Noted], list[str]]:
        """Return the highest end of each scope, and what is wrong with the file."""
        latest, bad = self.read()
        wrong = f"{bad} records of {self.path} are damaged or not signed by the key"
        return list(latest.values()), [wrong] if bad else []

    def _signed(self, ends: Iterable[Noted], before: bytes) -> list[bytes]:
        """Make the records of ends, in a chain after the MAC `before`."""
        records: list[bytes] = []
        for digest, seq, chain in ends:
            body = bytes.fromhex(digest) + seq.to_bytes(8, "big") + bytes(chain)
            records.append(body + self._mac(body, before if self._head == _CHAINED else None))
            before = records[-1][-_MAC_BYTES:]
        return records

    def _read(self, record: bytes, before: bytes | None = None) -> Noted | None:
        body, mac = record[:_BODY_BYTES], record[_BODY_BYTES:]
        if not hmac.compare_digest(mac, self._mac(body, before)):
            return None
        return Noted(body[:32].hex(), int.from_bytes(body[32:40], "big"), body[40:])

    def _mac(self, body: bytes, before: bytes | None) -> bytes:
        """Sign a record; in a chain with the MAC of the one `before` it."""
        message = b"memagent/tip/1/" + body if before is None else _NEXT + before + body
        if self._key is None:
            return hashlib.sha256(message).digest()
        return hmac.digest(self._key, message, "sha256")


def _highest(records: Iterable[Noted | None]) -> dict[str, Noted]:
    latest: dict[str, Noted] = {}
    for noted in records:
        known = None if noted is None else latest.get(noted.digest)
        if noted is not None and (known is None or known.seq <= noted.seq):
            latest[noted.digest] = noted
    return latest


def read_key(path: Path) -> bytes:
    """Return the key in a file. Raises `ConfigError` for one that is missing or short."""
    try:
        key = path.expanduser().read_bytes().strip()
    except OSError as exc:
        raise ConfigError(f"the key of the store at {path} cannot be read: {exc.strerror}") from exc
    if len(key) < 16:
        raise ConfigError(f"the key of the store at {path} has {len(key)} bytes; give 16 at least")
    return key


class Redactions:
    """The digests of a scope's rewritten payloads, read when one is first asked for."""

    def __init__(self, connection: ReadConnection, digest: str) -> None:
        self._connection, self._scope = connection, digest
        self._digests: dict[int, bytes] | None = None

    def digest(self, seq: int) -> bytes | None:
        """Return the digest of the last rewritten payload of a row; None if there is none."""
        if self._digests is None:
            self._digests = {}
            for body, salt, digest in self._connection.execute(_REDACTIONS, (self._scope,)):
                with suppress(ValidationError, TypeError):
                    entry = decode_entry(body) if payload_digest(salt, body) == digest else None
                    if isinstance(entry, Redacted):
                        self._digests |= {at: bytes.fromhex(text) for at, text in entry.rewritten}
        return self._digests.get(seq)


_ROWS_AT_ONCE: Final = 256
_MOST_REPORTED: Final = 20
_SCOPE: Final = "SELECT digest, user_id, agent_id, run_id, id, head, chain, recorded_us FROM scopes"
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
    rows = connection.execute(asked, values).fetchall()
    problems: list[str] = []
    if rows:
        named, owner, agent_id, run_id, *tip = rows[0]
        known = (owner, agent_id, run_id)
        if len(rows) > 1 or named != digest or known not in (scope, nameless(scope)):
            problems.append(f"seq 0: the scope's row does not name it ({known}, {named})")
        problems += _audit_log(connection, Tip(*tip), digest)
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
    _, user_id, _, _, *tip = row
    problems = _audit_log(connection, Tip(*tip), digest)
    if user_id != f"{NAMELESS}{digest}":
        problems.insert(0, "seq 0: the scope's row has another name than its digest")
    return problems


def _audit_log(connection: ReadConnection, tip: Tip, digest: str) -> list[str]:
    """Walk one log, and compare its last header with its tip."""
    redactions = Redactions(connection, digest)
    (erased_before,) = connection.execute(_ERASED_BEFORE, (tip.scope_id,)).fetchone()
    headless = connection.execute(_HEADLESS, (tip.scope_id,)).fetchall()
    problems = [f"seq {seq}: a payload without a header" for (seq,) in headless]
    last, before, said = 0, first_chain(digest), 0
    after, more = -(1 << 62), True
    while more and len(problems) < _MOST_REPORTED:
        rows = connection.execute(_ROWS, (tip.scope_id, after)).fetchall()
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

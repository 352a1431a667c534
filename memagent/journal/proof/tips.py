"""The ends of the logs, kept in a file of their own, so that a loss of the last rows shows.

SQLite drops a damaged write-ahead log without a word, and whoever may write a database
can write its hash chain anew. So the writer notes after each commit where every log
ended: a record has the scope's digest, the sequence, the chain hash there, and a MAC
over them. A chain hash stands for all rows before it; with a key, which lies outside of
the store, nobody else can write a record. The surprise: records are not synced one by
one. After a power cut the file may lag behind the store, which only weakens the check;
it is never ahead, for it is written after the commit.

Whoever can put back an older store together with its older tips is not found out: keep
the file where they cannot write.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from memagent.core.errors import ConfigError, StoreReadOnly
from memagent.journal.backend import Tip
from memagent.journal.rows import ScopeKey, scope_digest

_HEADS: Final = {False: b"memagent-tips/1 plain\n\n", True: b"memagent-tips/1 keyed\n\n"}
_HEAD_BYTES: Final = 23
_BODY_BYTES: Final = 72
_RECORD_BYTES: Final = 104
_LONG_BYTES: Final = 16 * 1024 * 1024
_LAST_READ: Final = 64


class Noted(NamedTuple):
    """The end of a log as it was noted."""

    digest: str
    seq: int
    chain: bytes


def ends_of(connection: Any) -> list[Noted]:
    """Return where all logs of a database end now."""
    rows = connection.execute("SELECT digest, head, chain FROM scopes WHERE head > 0").fetchall()
    return [Noted(digest, head, bytes(chain)) for digest, head, chain in rows]


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
        self._shared = shared
        self._key = key
        self._fd: int | None = None
        self._size = 0
        self._long = _LONG_BYTES

    @property
    def keyed(self) -> bool:
        """Whether records are signed with a key."""
        return self._key is not None

    # -- writing -----------------------------------------------------------------------

    def open(self, known: Iterable[Noted]) -> None:
        """Open the file for appending; make it of the ends in `known` if there is none.

        Raises `ConfigError` when it was begun with another choice of key.
        """
        if not self.path.exists():
            self.rewrite(known)
        with self.path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        if head != _HEADS[self._key is not None]:
            raise ConfigError(
                f"{self.path} was begun {'without' if self._key else 'with'} a key: "
                + (
                    "run  memagent doctor --seal  to begin it anew with the key"
                    if self._key
                    else "name the file of the key as `key_file` of the store's settings"
                )
            )
        self.close()
        self._fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_BINARY", 0))
        size = os.fstat(self._fd).st_size
        self._size = size - (size - _HEAD_BYTES) % _RECORD_BYTES
        if self._size != size:  # a record that a crash cut off
            os.ftruncate(self._fd, self._size)

    def note(self, tips: Mapping[ScopeKey, Tip]) -> None:
        """Append the ends that a commit left; a failure leaves the file behind the store."""
        if self._fd is None or not tips:
            return
        if self._shared and self._replaced():
            with suppress(OSError, ConfigError):
                self.open(())
        noted = (Noted(scope_digest(key), tip.head, tip.chain) for key, tip in tips.items())
        with suppress(OSError):
            self._size += os.write(self._fd, b"".join(map(self._record, noted)))
        if self._size > self._long and not self._shared:
            latest, _ = self.read()
            self.close()
            self.rewrite(latest.values())
            self._long = max(_LONG_BYTES, 2 * self.path.stat().st_size)
            self.open(())

    def _replaced(self) -> bool:
        """Tell whether another process wrote the file anew; one that is gone stays gone."""
        try:
            return self._fd is None or not os.path.samestat(os.fstat(self._fd), self.path.stat())
        except OSError:
            return False

    def rewrite(self, ends: Iterable[Noted]) -> None:
        """Write the file anew with these ends."""
        fresh = self.path.with_name(f"{self.path.name}.new")
        try:
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(_HEADS[self._key is not None])
                for noted in ends:
                    file.write(self._record(noted))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self.path)
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
            size = file.seek(0, os.SEEK_END)
            count = max(0, size - _HEAD_BYTES) // _RECORD_BYTES
            for at in range(count - 1, max(-1, count - 1 - _LAST_READ), -1):
                file.seek(_HEAD_BYTES + at * _RECORD_BYTES)
                noted = self._read(file.read(_RECORD_BYTES))
                if noted is not None:
                    return noted
        return None

    def read(self) -> tuple[dict[str, Noted], int]:
        """Return the highest end of each scope, by digest, and the number of bad records."""
        latest: dict[str, Noted] = {}
        bad = 0
        with self.path.open("rb") as file:
            bad += file.read(_HEAD_BYTES) != _HEADS[self._key is not None]
            while len(record := file.read(_RECORD_BYTES)) == _RECORD_BYTES:
                noted = self._read(record)
                if noted is None:
                    bad += 1
                elif noted.digest not in latest or latest[noted.digest].seq <= noted.seq:
                    latest[noted.digest] = noted
        return latest, bad + bool(record)

    def sound(self) -> tuple[list[Noted], list[str]]:
        """Return the highest end of each scope, and what is wrong with the file."""
        latest, bad = self.read()
        wrong = f"{bad} records of {self.path} are damaged or not signed by the key"
        return list(latest.values()), [wrong] if bad else []

    def _record(self, noted: Noted) -> bytes:
        body = bytes.fromhex(noted.digest) + noted.seq.to_bytes(8, "big") + bytes(noted.chain)
        return body + self._mac(body)

    def _read(self, record: bytes) -> Noted | None:
        body, mac = record[:_BODY_BYTES], record[_BODY_BYTES:]
        if not hmac.compare_digest(mac, self._mac(body)):
            return None
        return Noted(body[:32].hex(), int.from_bytes(body[32:40], "big"), body[40:])

    def _mac(self, body: bytes) -> bytes:
        message = b"memagent/tip/1/" + body
        if self._key is None:
            return hashlib.sha256(message).digest()
        return hmac.digest(self._key, message, "sha256")


def read_key(path: Path) -> bytes:
    """Return the key in a file. Raises `ConfigError` for one that is missing or short."""
    try:
        key = path.expanduser().read_bytes().strip()
    except OSError as exc:
        raise ConfigError(f"the key of the store at {path} cannot be read: {exc.strerror}") from exc
    if len(key) < 16:
        raise ConfigError(f"the key of the store at {path} has {len(key)} bytes; give 16 at least")
    return key

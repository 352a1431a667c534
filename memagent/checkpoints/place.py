"""The places that checkpoints lie in: a folder beside a file, or tables on a server."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from memagent.checkpoints.file import CheckpointFile, sync_folder
from memagent.core.errors import StoreError
from memagent.core.records import Scope

SUFFIX: Final = ".ckpt"
Replacing = Callable[[], AbstractContextManager[None]]
"""Entered while a new checkpoint takes its place; may raise to prevent it."""


class Begun(NamedTuple):
    """A checkpoint to be made."""

    scope: Scope
    seq: int
    chain: bytes
    """Chain hash of the journal's row at `seq`."""
    make: Callable[[Path, Replacing], object]
    """Writes it to a path, and puts it there inside the second argument."""


class Place(Protocol):
    """Keeps one checkpoint a memory. Everything blocks, and may raise `OSError`."""

    @property
    def key(self) -> bytes | None:
        """The key that signs checkpoints; None where the store has none."""
        ...

    def path_of(self, scope: Scope) -> Path:
        """Return the path of a memory's checkpoint; on a server a name for messages only."""
        ...

    def open(self, scope: Scope) -> CheckpointFile:
        """Return a memory's checkpoint.

        Raises `FileNotFoundError` where there is none, `CheckpointUnusable`.
        """
        ...

    def size_of(self, scope: Scope) -> int | None:
        """Return the bytes of a memory's checkpoint, None where there is none."""
        ...

    def used(self, scope: Scope) -> None:
        """Note that a memory's checkpoint was used."""
        ...

    def put(self, begun: Begun, replacing: Replacing) -> None:
        """Make a checkpoint and replace the old one. Raises `CheckpointUnusable`."""
        ...

    def trim(self, most_bytes: int) -> None:
        """Delete the checkpoints used longest ago while all take more."""
        ...

    def drop(self, scope: Scope) -> None:
        """Delete a checkpoint that is of no use."""
        ...

    def erase(self, scope: Scope) -> None:
        """Delete a memory's checkpoint durably before the memory is erased.

        Raises `StoreError` when it cannot be deleted.
        """
        ...


class FolderPlace:
    """A file a memory, in a folder beside the journal."""

    def __init__(self, folder: Path, *, writes: bool, key: bytes | None = None) -> None:
        self._folder, self.key = folder, key
        if writes:
            for left in folder.glob(f"*{SUFFIX}.*.tmp"):
                left.unlink(missing_ok=True)

    def path_of(self, scope: Scope) -> Path:
        """Return the path of a memory's checkpoint, whether there is one or not."""
        return self._folder / f"{name_of(scope)}{SUFFIX}"

    def open(self, scope: Scope) -> CheckpointFile:
        """Read a memory's file and check it."""
        return CheckpointFile.open(self.path_of(scope), self.key)

    def size_of(self, scope: Scope) -> int | None:
        """Return the bytes of a memory's file."""
        path = self.path_of(scope)
        return path.stat().st_size if path.exists() else None

    def used(self, scope: Scope) -> None:
        """Set the time of a memory's file."""
        os.utime(self.path_of(scope))

    def put(self, begun: Begun, replacing: Replacing) -> None:
        """Write the file beside the old one, and rename it."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        begun.make(self.path_of(begun.scope), replacing)

    def trim(self, most_bytes: int) -> None:
        """Delete the files used longest ago."""
        files = [(entry, entry.stat()) for entry in os.scandir(self._folder)]
        files = [pair for pair in files if pair[0].name.endswith(SUFFIX)]
        total = sum(stat.st_size for _, stat in files)
        for entry, stat in sorted(files, key=lambda pair: pair[1].st_mtime):
            if total <= most_bytes:
                return
            Path(entry.path).unlink(missing_ok=True)
            total -= stat.st_size

    def drop(self, scope: Scope) -> None:
        """Delete a memory's file."""
        with suppress(OSError):
            self.path_of(scope).unlink(missing_ok=True)

    def erase(self, scope: Scope) -> None:
        """Delete a memory's file, and make that durable."""
        path = self.path_of(scope)
        if not self._folder.exists():
            return
        try:
            path.unlink(missing_ok=True)
            sync_folder(self._folder)
        except OSError as exc:
            raise StoreError(
                f"the checkpoint {path} holds words of this memory and cannot be deleted "
                f"({exc}); nothing was erased. Delete it, or let memagent do so, and ask again"
            ) from exc


def name_of(scope: Scope) -> str:
    """Return the name of a memory's checkpoint: 64 hex digits that tell nobody whose it is."""
    return hashlib.sha256(b"memagent/checkpoint/" + scope.key.encode()).hexdigest()

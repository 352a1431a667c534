"""A user's own copy of a benchmark: one file or a folder, identified by its digest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from environments.errors import EnvironmentFault
from memagent.core.errors import InputError
from memagent.readers import Conversation

_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Source:
    """The place of a benchmark's files, their reader and their origin."""

    path: Path
    read: Callable[[Path], Iterable[Conversation]]
    origin: str
    """The hint for a user who has no copy."""

    def files(self) -> list[Path]:
        """Return the file, or the folder's `*.json` files by name.

        Raises `EnvironmentFault` when there is none.
        """
        if self.path.is_file():
            return [self.path]
        files = sorted(self.path.glob("*.json")) if self.path.is_dir() else []
        if not files:
            what = "holds no .json file" if self.path.is_dir() else "is not there"
            raise EnvironmentFault(f"{self.path} {what}. {self.origin}")
        return files

    def conversations(self) -> Iterator[Conversation]:
        """Every conversation in order of files.

        Raises `EnvironmentFault` for a file that is none of this benchmark, or an id
        that comes twice.
        """
        homes: dict[str, Path] = {}
        for file in self.files():
            try:
                for conversation in self.read(file):
                    first = homes.setdefault(conversation.id, file)
                    if first is not file:
                        raise EnvironmentFault(
                            f"{conversation.id!r} is in {first} and in {file}; name one file, or "
                            "take the double out"
                        )
                    yield conversation
            except InputError as error:
                raise EnvironmentFault(f"{error} {self.origin}") from error

    def digest(self) -> str:
        """Return the SHA-256 over the files' contents in order, as 64 hex digits.

        Names and places do not count.
        """
        whole = hashlib.sha256()
        for file in self.files():
            part = hashlib.sha256()
            with file.open("rb") as stream:
                while block := stream.read(_BLOCK_BYTES):
                    part.update(block)
            whole.update(part.digest())
        return whole.hexdigest()

"""The part of a journal that erases: it rewrites payloads and searches its files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from memagent.core.errors import StoreReadOnly
from memagent.core.records import Scope
from memagent.core.snapshot import Entry, JournalRow, Redacted
from memagent.journal.proof.file_search import count_in_files, files_of
from memagent.journal.rows import dates_of, from_microseconds, prepare_entry, scope_key
from memagent.journal.transaction import AppendRequest
from memagent.journal.writer import JournalWriter
from memagent.protocols import Clock


class RewritableJournal:
    """The eraser of `DatabaseJournal`."""

    place: str
    erasing: Callable[[Scope], AbstractContextManager[object]]
    _clock: Clock
    _writer: JournalWriter | None

    def _check(self) -> None:
        raise NotImplementedError

    async def redact(
        self, scope: Scope, rewritten: Mapping[int, Entry], *, expect: int, reason: str = ""
    ) -> JournalRow:
        """Replace earlier entries durably, and append a `Redacted` that names them.

        The headers and their chain stay; the new entry, itself in the chain, vouches for
        the new payloads. Responses of the scope and every cached vector go too, as with
        an `Erased`, and it is acknowledged when the old bytes are gone from the files, or
        else `scrub_due` tells. Raises as `append_many`.
        """
        self._check()
        if self._writer is None:
            raise StoreReadOnly(f"{self.place} was opened with read_only=True; nothing was written")
        now = dates_of((Redacted(),), None, self._clock)[0]
        payloads = {seq: prepare_entry(entry, now) for seq, entry in sorted(rewritten.items())}
        digests = tuple((seq, payload.digest.hex()) for seq, payload in payloads.items())
        entry = Redacted(rewritten=digests, reason=reason)
        request = AppendRequest(
            scope_key(scope), (prepare_entry(entry, now),), expect, rewrites=payloads
        )
        with self.erasing(scope):
            appended = await self._writer.append(request)
        recorded_at = from_microseconds(appended.recorded_us[0])
        return JournalRow(seq=appended.first_seq, recorded_at=recorded_at, entry=entry)

    def search_files(self, needles: Sequence[bytes]) -> dict[str, tuple[int, int]]:
        """Return (size in bytes, number of needles in it) of each file of a SQLite store.

        {} for a server. Another process reads the files: closing one here would drop
        SQLite's locks on it. Blocks.
        """
        path: Path | None = getattr(self, "path", None)
        return {} if path is None else count_in_files(files_of(path), needles)

    @property
    def scrub_due(self) -> bool:
        """Whether erased bytes may still lie in the files.

        The disk or a long reader was in the way.
        """
        return self._writer is not None and self._writer.committer.scrub_due

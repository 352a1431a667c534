"""The seams: structural protocols of one to four methods.

Nothing to inherit; `memagent.testing` ships a checker for what
outsiders plug in.

Shapes: N texts, D dimensions. Vectors are float32 and of unit length, so a dot product
is a cosine.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np

from memagent.core.answers import Filter, Hit
from memagent.core.exchange import Delta, ModelRequest, ModelResponse
from memagent.core.records import MemoryItem, Scope
from memagent.core.snapshot import Entry, JournalRow

Vector = np.typing.NDArray[np.float32]
"""(D,) float32."""
Matrix = np.typing.NDArray[np.float32]
"""(N, D) float32."""
Clock = Callable[[], datetime]
"""Returns the present moment as an aware UTC datetime."""


@runtime_checkable
class ChatModel(Protocol):
    """A model that answers one request."""

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer the request.

        Raises a `ModelError`; malformed text is an answer, not an error.
        """
        ...


@runtime_checkable
class StreamingChatModel(ChatModel, Protocol):
    """A model that can also stream its text."""

    def stream(self, request: ModelRequest) -> AsyncIterator[Delta]:
        """Yield pieces of text; the last piece carries the whole `ModelResponse`."""
        ...


@runtime_checkable
class NamedModel(Protocol):
    """A model that tells its name, for traces and figures; optional."""

    def name_for(self, request: ModelRequest) -> str:
        """Return the name of the model for a request, `provider/model` with a provider."""
        ...


@runtime_checkable
class OptionsModel(Protocol):
    """A model that says whether it heeds `ModelRequest.options`; optional."""

    def takes_options(self, request: ModelRequest) -> bool:
        """Return whether the options of a request have their effect."""
        ...


@runtime_checkable
class ChoosingModel(Protocol):
    """A model whose provider has others: `ModelRequest.options` may name one; optional."""

    async def model_names(self) -> tuple[str, ...] | None:
        """Return their names, () where the provider tells none; None where none can be named."""
        ...


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into unit vectors."""

    @property
    def id(self) -> str:
        """Stable name of weights and recipe; part of every cache key."""
        ...

    @property
    def dim(self) -> int:
        """D."""
        ...

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """Vectors (N, D) in the order of the texts.

        Raises `EmbeddingError`; never answers with a zero row.
        """
        ...


@runtime_checkable
class Reranker(Protocol):
    """Judges how well texts answer a query, reading query and text together."""

    @property
    def id(self) -> str:
        """Stable name of weights and recipe."""
        ...

    async def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """One finite number a text, higher is better, in the order of the texts; [] for none.

        Raises a `ModelError`.
        """
        ...


class EmbeddingCache(Protocol):
    """Vectors kept by (embedder id, text digest). Thread-safe."""

    def get_many(self, embedder_id: str, digests: Sequence[str]) -> dict[str, Vector]:
        """Known vectors (D,) by digest; unknown digests are left out."""
        ...

    def put_many(self, embedder_id: str, rows: Mapping[str, Vector]) -> None:
        """Keep vectors; writing one again is harmless."""


class IndexRow(NamedTuple):
    """One item version with its vector, for a vector index."""

    item: MemoryItem
    vector: Vector


class VectorIndex(Protocol):
    """A nearest-neighbour index over active items of one scope."""

    async def upsert(self, rows: Sequence[IndexRow]) -> None:
        """Write rows; idempotent by (item id, version).

        Raises `EmbeddingError` on a wrong width.
        """

    async def remove(self, ids: Sequence[str]) -> None:
        """Take items out; unknown ids are ignored."""

    async def search(self, vector: Vector, *, k: int, where: Filter | None = None) -> list[Hit]:
        """Return the k best by cosine, ties by id; fewer when fewer match, [] when none."""
        ...


@runtime_checkable
class SearchesFiles(Protocol):
    """A journal whose files can be searched, as a proof that words are gone."""

    def search_files(self, needles: Sequence[bytes]) -> dict[str, tuple[int, int]]:
        """Return (size in bytes, number of needles in it) of each file, by its name.

        Needles have at least eight bytes. Raises `StoreError` when the files cannot be
        searched. Blocks.
        """
        ...


@runtime_checkable
class FindsRows(Protocol):
    """A journal that can look for words without reading every row."""

    def naming(self, scope: Scope, named: Callable[[bytes], bool]) -> AsyncIterator[JournalRow]:
        """Rows in order whose encoded entries (UTF-8 JSON) `named` says yes to."""
        ...


class Journal(Protocol):
    """The append-only truth, one log a scope, sequences from 1 without gaps.

    Thread-safe.
    """

    async def append(self, scope: Scope, entry: Entry, *, expect: int) -> JournalRow:
        """Append durably as `expect + 1`.

        Raises `VersionConflict` when the head is not `expect`; `StoreError` otherwise.
        """
        ...

    async def append_many(
        self,
        scope: Scope,
        entries: Sequence[Entry],
        *,
        expect: int,
        recorded_at: Sequence[datetime] | None = None,
    ) -> list[JournalRow]:
        """Append several entries as one, all or nothing.

        `recorded_at` keeps the dates of an import. Raises as `append`.
        """
        ...

    async def redact(
        self, scope: Scope, rewritten: Mapping[int, Entry], *, expect: int, reason: str = ""
    ) -> JournalRow:
        """Replace earlier entries by sequence, and append a `Redacted` that names them.

        Both happen or neither; what the entries said before is gone then. Raises as
        `append`.
        """
        ...

    @property
    def scrub_due(self) -> bool:
        """Whether erased bytes may still lie in files."""
        ...

    def since(self, scope: Scope, seq: int) -> AsyncIterator[JournalRow]:
        """Rows after `seq` in order. Rows whose payload was erased are left out."""
        ...

    async def head(self, scope: Scope) -> int:
        """Sequence of the last row, 0 when the scope is empty.

        Cheap: called before every read.
        """
        ...

    async def scopes(self) -> list[Scope]:
        """Every scope that holds something, in order of key; erased ones are nameless."""
        ...

"""The search projection of a state: the texts of an item, and the view that follows.

A view is brought up to date lazily, before a search or at the end of an ingest, so a
durable write waits for the journal only. The texts of an item follow from the state
alone, so a replay builds the same view. When the embedder fails, items stay findable by
keyword and carry `embedding_missing`; no vector is ever made up.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Protocol

from memagent.core.answers import Filter
from memagent.core.errors import EmbeddingError, boundary
from memagent.core.long_work import Slices, aside
from memagent.core.records import MemoryItem, Scope, Session, Turn
from memagent.embed.vectors import off_unit
from memagent.protocols import Embedder, IndexRow, Matrix, Vector
from memagent.search.arena import NO_ROW, Arena
from memagent.search.index import IndexView
from memagent.search.segments import Doc, make_doc
from memagent.search.weights import ITEM_RULES
from memagent.state.fold import BankState
from memagent.state.tokens import tokenize

_MAX_INDEX_CHARS = 8_000
_NEIGHBOURS = 2
_LARGE = 256
"""Documents from which on the new view is made in a thread."""
_TEXTS_AT_ONCE = 512
"""Texts that are embedded in one call."""


class Projection(NamedTuple):
    """A state and the index of it; the content of a checkpoint."""

    state: BankState
    view: IndexView
    pending: frozenset[str]
    """Items that the view has yet to catch up with."""


class Projected(Protocol):
    """A memory that can tell its projection; see `MemoryBank`."""

    @property
    def scope(self) -> Scope:
        """The owner of the memory."""
        ...

    @property
    def embedder(self) -> Embedder:
        """The embedder of its vectors."""
        ...

    def projection(self) -> Projection:
        """Return the present state and view as a value."""
        ...


@dataclass(frozen=True, slots=True)
class Level:
    """The state that a networked index is brought level with."""

    seq: int
    ids: Iterable[str]
    """All items, whether they belong in the index or not."""
    row: Callable[[str], IndexRow | None]
    """The row of an item; None for one that is gone, out of sight or without a vector."""
    head: Callable[[], Awaitable[int]]
    """The end of the journal now."""


class NetworkedIndex(Protocol):
    """A vector index outside of the process that follows a memory."""

    def changed(self, ids: Iterable[str]) -> None:
        """Note items that the index has yet to follow."""
        ...

    def erased(self) -> None:
        """Note that everything so far was erased."""
        ...

    async def catch_up(self, present: Callable[[], Level], *, insist: bool = False) -> None:
        """Bring the index level with a state; only with `insist` a failure is raised."""
        ...

    async def propose(
        self, vector: Vector, *, k: int, where: Filter | None, seq: int
    ) -> frozenset[str] | None:
        """Return the ids of the k nearest; None where the memory has to search itself."""
        ...


def index_texts(state: BankState, item: MemoryItem) -> tuple[str, str]:
    """Return an item's own text and its text in context.

    The own text has the speaker; the context has the date and the source turns with two
    neighbours either way.
    """
    own = (
        item.text
        if not item.speaker or item.text.startswith(item.speaker)
        else f"{item.speaker}: {item.text}"
    )
    own = own[:_MAX_INDEX_CHARS]
    lines: dict[str, None] = {}
    date = ""
    for turn_id in item.source_turn_ids:
        place = state.turns.get(turn_id)
        if place is None:
            continue
        session = state.sessions[place[0]]
        date = date or _date(session, session.turns[place[1]])
        for turn in session.turns[max(0, place[1] - _NEIGHBOURS) : place[1] + _NEIGHBOURS + 1]:
            if not turn.recalled:
                lines[f"{turn.speaker}: {turn.said}"] = None
    if not lines:
        return own, own
    if own not in lines:
        lines = {own: None, **lines}
    return own, " \n".join((*([date] if date else []), *lines))[:_MAX_INDEX_CHARS]


def _date(session: Session, turn: Turn) -> str:
    moment = session.date_of(turn)
    return f"{moment.day} {moment:%B %Y}" if moment else ""


@dataclass(slots=True)
class Projector:
    """Makes index documents of items, with an embedder and a shared arena."""

    embedder: Embedder
    arena: Arena = field(default_factory=lambda: Arena(0))
    """Vectors and vocabulary; a new one unless one is given."""
    failure: EmbeddingError | None = None
    """The last embedding failure, None after a success; search is lexical meanwhile."""

    def __post_init__(self) -> None:
        if not self.arena.dim:
            self.arena = Arena(self.embedder.dim)

    async def embed(self, texts: Sequence[str]) -> Matrix:
        """Return checked vectors (N, D). Raises `EmbeddingError`."""
        with boundary(EmbeddingError, f"embedder {self.embedder.id!r}"):
            vectors = await self.embedder.embed(texts)
        if vectors.shape != (len(texts), self.arena.dim):
            raise EmbeddingError(
                f"embedder {self.embedder.id!r} gave shape {vectors.shape} for {len(texts)} texts, "
                f"this memory holds width {self.arena.dim}; "
                "run `memagent reembed` after changing the embedder"
            )
        if off_unit(vectors):
            raise EmbeddingError(
                f"embedder {self.embedder.id!r} gave vectors that are not finite and of unit length"
            )
        return vectors

    async def query_vectors(self, texts: Sequence[str]) -> list[Vector | None]:
        """Return a vector (D,) for each text; all None when the embedder fails."""
        try:
            vectors = await self.embed(texts)
        except EmbeddingError as failure:
            self.failure = failure
            return [None] * len(texts)
        self.failure = None
        return list(vectors)

    async def catch_up(
        self,
        view: IndexView,
        state: BankState,
        changed: Iterable[str],
        *,
        expired: Container[str] = frozenset[str](),
    ) -> IndexView:
        """Return the view brought up to date for the changed items, without expired ones."""
        gone: list[str] = []
        fresh: list[MemoryItem] = []
        texts: list[tuple[str, str]] = []
        slices = Slices()
        for item_id in sorted(set(changed)):
            item = state.items.get(item_id)
            if item is not None and item.active and item_id not in expired:
                fresh.append(item)
                texts.append(index_texts(state, item))
            else:
                gone.append(item_id)
            await slices.rest()
        await self._fill_arena(texts, slices)
        docs: list[Doc] = []
        for item, pair in zip(fresh, texts, strict=True):
            docs.append(self._doc(item, pair))
            await slices.rest()
        if len(gone) + len(docs) < _LARGE:
            return _changed(view, gone, docs)
        return await aside(_changed, view, gone, docs)

    def row_of(self, state: BankState, item: MemoryItem) -> int:
        """Return the arena row of an item's own text, `NO_ROW` without a vector."""
        return self.arena.row(index_texts(state, item)[0])

    def _doc(self, item: MemoryItem, texts: tuple[str, str]) -> Doc:
        doc = make_doc(item, texts, (tokenize(texts[0]), tokenize(texts[1])), self.arena)
        if NO_ROW in doc.rows:
            return replace(doc, item=item.model_copy(update={"embedding_missing": True}))
        return doc

    async def _fill_arena(self, texts: Sequence[tuple[str, str]], slices: Slices) -> None:
        # Own texts first: the rows of one field then lie side by side, and a scan of
        # one does not pass through the other's.
        ordered = dict.fromkeys((*(own for own, _ in texts), *(context for _, context in texts)))
        missing: list[str] = []
        for text in ordered:
            if self.arena.row(text) == NO_ROW:
                missing.append(text)
            await slices.rest()
        for at in range(0, len(missing), _TEXTS_AT_ONCE):
            some = missing[at : at + _TEXTS_AT_ONCE]
            try:
                vectors = await self.embed(some)
            except EmbeddingError as failure:
                self.failure = failure
                return
            self.failure = None
            self.arena.put(some, vectors)
            await slices.rest()


def _changed(view: IndexView, gone: Sequence[str], docs: Sequence[Doc]) -> IndexView:
    """Return the view without some items and with these documents."""
    view = view.drop(gone) if gone else view
    if not docs:
        return view
    view = view.put(docs)
    if len(docs) >= _LARGE:
        view.prepare(ITEM_RULES.values())
    return view

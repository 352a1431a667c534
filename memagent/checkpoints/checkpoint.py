"""A whole checkpoint: state and search view of one memory at one journal sequence.

What `read_checkpoint` returns is what a replay up to that sequence gives: the same
digest, the same items, turns and graph, the same search. It is checked in three ways:
every byte against its checksum, and the key of the store where there is one (by the
file), the digest of the roots against the manifest's, and a random sample of records and
documents against what this memagent makes of them, so that a checkpoint of other rules is
noticed. Anything amiss raises `CheckpointUnusable`, and the journal is replayed.

The event graph in a checkpoint: nodes, edges by source and target, and both directions.

Legend: n nodes, m edges, p pairs (a source and a target with at least one edge).
Sections: the table `nodes`; `edges` (m blobs, ordered by source, target and key) with
`edge_ends` (m + 1); `pair_edges` (p + 1, the first edge of each pair), `pair_targets`
and `pair_sources` (p), `leaving` (n + 1, the first pair of each source), and for the
other direction `entering` (n + 1) over `entering_pairs` (p), ordered by target and
source. A node's neighbours are a map over its run of pairs; an edge is decoded when it
is touched, once for both of its ends. So the neighbours of a hub are counted without
being read, and one is added without reading the others.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
from rpds import HashTrieMap

from memagent.checkpoints.file import CheckpointFile, CheckpointUnusable, SectionWriter
from memagent.checkpoints.tables import (
    ABSENT,
    FORMS,
    Form,
    LayeredMap,
    Pause,
    RecordTable,
    Table,
    encoded,
    ends_of,
    firsts_of,
    joined,
    layers_of,
    maps_of,
    paced,
    put_map,
    read_map,
    record_form,
)
from memagent.checkpoints.view import put_view, read_view
from memagent.core.records import Event, EventEdge
from memagent.core.snapshot import edge_hash, item_hash, node_hash
from memagent.search.fusion import ITEM_RULES
from memagent.search.index import IndexView
from memagent.search.pipeline import Projection, index_texts
from memagent.search.segments import OWN, Arena
from memagent.state.adjacency import EdgeData, GraphState, NodeData, pairs
from memagent.state.effects import tokenize
from memagent.state.fold import BankState

if TYPE_CHECKING:
    from memagent.state.adjacency import Keyed


_EVENT: Final = record_form(Event)
_EDGE: Final = record_form(EventEdge)
NODES: Final = Form(
    lambda data: _EVENT.encode(data["event"]), lambda raw: NodeData(event=_EVENT.decode(raw))
)
"""The form of a node of the graph."""


_NO_EDGES: Keyed = HashTrieMap()


class _Edges:
    """The nodes and edges of a checkpoint, decoded on demand."""

    def __init__(self, file: CheckpointFile) -> None:
        self.nodes: RecordTable[NodeData] = RecordTable(file, "nodes", NODES.decode)
        self.blobs = file.bytes("edges")
        self.edge_ends = file.numbers("edge_ends", "i8").data
        self.pair_edges = file.numbers("pair_edges", "u4").data
        self.sources = file.numbers("pair_sources", "u4").data
        self.targets = file.numbers("pair_targets", "u4").data
        self.leaving = file.numbers("leaving", "u4").data
        self.entering = file.numbers("entering", "u4").data
        self.entering_pairs = file.numbers("entering_pairs", "u4").data
        self._known: dict[int, Keyed] = {}
        pairs = len(self.targets)
        if not (
            len(self.leaving) == len(self.entering) == len(self.nodes) + 1
            and len(self.sources) == len(self.entering_pairs) == pairs
            and len(self.pair_edges) == pairs + 1
            and self.leaving[-1] == self.entering[-1] == pairs
            and self.pair_edges[-1] == len(self.edge_ends) - 1
            and self.edge_ends[-1] == len(self.blobs)
        ):
            raise CheckpointUnusable("the sections of the graph do not fit together")

    def raw_edge(self, at: int) -> memoryview:
        return self.blobs[self.edge_ends[at] : self.edge_ends[at + 1]]

    def keyed(self, pair: int) -> Keyed:
        """Return the edges of a pair; the same object from both of its ends."""
        known = self._known.get(pair)
        if known is None:
            known = _NO_EDGES
            for at in range(self.pair_edges[pair], self.pair_edges[pair + 1]):
                edge: EventEdge = _EDGE.decode(self.raw_edge(at))
                relation = edge.key.partition(":")[0]
                data = EdgeData(edge=edge, relation=relation, weight=edge.confidence)
                known = known.insert(edge.key, data)
            known = self._known.setdefault(pair, known)
        return known


class _Row:
    """A node's neighbours on one side: a run of pairs, ordered by neighbour."""

    __slots__ = ("_edges", "_first", "_leaving", "_size")

    def __init__(self, edges: _Edges, node: int, *, leaving: bool) -> None:
        bounds = edges.leaving if leaving else edges.entering
        self._edges, self._leaving = edges, leaving
        self._first, self._size = bounds[node], bounds[node + 1] - bounds[node]

    def __len__(self) -> int:
        return self._size

    def find(self, key: str) -> int:
        edges, other = self._edges, self._edges.nodes.find(key)
        first, end = self._first, self._first + self._size
        if other == ABSENT or not self._size:
            return ABSENT
        if self._leaving:
            at = bisect_left(edges.targets, other, first, end)
        else:
            at = bisect_left(edges.entering_pairs, other, first, end, key=self._source)
        return at if at < end and self._other(at) == other else ABSENT

    def value(self, at: int) -> Keyed:
        return self._edges.keyed(at if self._leaving else self._edges.entering_pairs[at])

    def entries(self) -> Iterator[tuple[str, int]]:
        key = self._edges.nodes.key
        places = range(self._first, self._first + self._size)
        return ((key(self._other(at)), at) for at in places)

    def raw(self) -> Iterator[tuple[bytes, list[bytes | memoryview]]]:
        """Yield (target, encoded edges) of a row of leaving edges."""
        edges = self._edges
        for pair in range(self._first, self._first + self._size):
            run = range(edges.pair_edges[pair], edges.pair_edges[pair + 1])
            yield edges.nodes.raw_key(edges.targets[pair]), [edges.raw_edge(at) for at in run]

    def _source(self, pair: int) -> int:
        return self._edges.sources[pair]

    def _other(self, at: int) -> int:
        edges = self._edges
        return edges.targets[at] if self._leaving else edges.sources[edges.entering_pairs[at]]


def read_graph(file: CheckpointFile, root: int) -> GraphState:
    """Return the graph of a checkpoint, nothing of it decoded."""
    if "nodes" not in file:
        return GraphState(root=root)
    edges = _Edges(file)

    def side(*, leaving: bool) -> Any:
        def row(node: int) -> LayeredMap[Keyed]:
            return LayeredMap(_Row(edges, node, leaving=leaving))

        return LayeredMap(Table(file, "nodes", row))

    nodes: Any = LayeredMap(edges.nodes)
    succ, pred = side(leaving=True), side(leaving=False)
    return GraphState(nodes, succ, pred, len(edges.edge_ends) - 1, root)


# -- writing ---------------------------------------------------------------------------


def put_graph(writer: SectionWriter, graph: GraphState, pause: Pause) -> list[bytes]:
    """Write a graph; return the ids of its nodes."""
    keys = put_map(writer, "nodes", cast("Mapping[str, Any]", graph.nodes), NODES, pause)
    numbers = {key: at for at, key in enumerate(keys)}
    of, targets_of, counts = list[int](), list[int](), list[int]()
    edges: list[bytes | memoryview] = []
    for source, key in enumerate(paced(keys, pause)):
        row = _blobs_of(key.decode("utf-8", "surrogatepass"), graph.succ)
        numbered = [(numbers[other], blobs) for other, blobs in row]
        for target, blobs in sorted(numbered, key=lambda pair: pair[0]):
            of.append(source)
            targets_of.append(target)
            counts.append(len(blobs))
            edges += blobs
    sources, targets = np.asarray(of, np.uint32), np.asarray(targets_of, np.uint32)
    writer.put("edges", joined(edges))
    writer.put_array("edge_ends", ends_of(map(len, edges)))
    writer.put_array("pair_edges", ends_of(counts).astype(np.uint32))
    writer.put_array("pair_sources", sources)
    writer.put_array("pair_targets", targets)
    writer.put_array("leaving", firsts_of(sources, len(keys)))
    writer.put_array("entering", firsts_of(targets, len(keys)))
    writer.put_array("entering_pairs", np.lexsort((sources, targets)).astype(np.uint32))
    return keys


def _blobs_of(key: str, succ: Any) -> Iterator[tuple[bytes, list[bytes | memoryview]]]:
    """Yield (neighbour, encoded edges) of the edges that leave a node."""
    layers = layers_of(succ)
    if layers is not None and not layers.touched(key):
        yield from cast("_Row", layers.base.value(layers.base.find(key)).base).raw()
        return
    for other, keyed in pairs(succ[key]):
        blobs: list[bytes | memoryview] = [
            _EDGE.encode(data["edge"]) for _, data in sorted(pairs(keyed))
        ]
        yield other.encode("utf-8", "surrogatepass"), blobs


# Most records of each kind whose hashes a checkpoint carries, and documents looked at.
_SAMPLE: Final = 8
# One of so many is in the sample, and one more.
_SHARE: Final = 128
_SAMPLE_BITS: Final = (1 << 128) - 1
_ROOTS: Final = ("item_root", "stats_root", "ordinal_root", "trial_root")


@dataclass(frozen=True, slots=True)
class Origin:
    """The place that a checkpoint belongs to; it is used for no other."""

    scope: str
    """Digest of the scope."""
    chain: str
    """Chain hash of the journal's row at the checkpoint's sequence, in hex."""
    embedder: str
    dim: int


# -- writing ---------------------------------------------------------------------------


def write_checkpoint(
    writer: SectionWriter, content: Projection, origin: Origin, *, most_bytes: int, pause: Pause
) -> None:
    """Write a checkpoint.

    Raises `CheckpointUnusable` when it would have more than `most_bytes`, and `OSError`.
    """
    state = content.state
    keys: dict[str, list[bytes]] = {}
    for name, content_of in maps_of(state).items():
        keys[name] = put_map(writer, name, content_of, FORMS[name], pause)
        _check_size(writer, most_bytes)
    nodes = put_graph(writer, state.graph, pause)
    stale = {encoded(item_id) for item_id in content.pending}
    places = {key: at for at, key in enumerate(keys["items"])}
    one_text, left_out = put_view(writer, content.view, places=places, stale=stale, pause=pause)
    _check_size(writer, most_bytes)
    pending = content.pending.union(_names(left_out))
    roots = [getattr(state, name) for name in _ROOTS]
    writer.finish(
        {
            "scope": origin.scope,
            "chain": origin.chain,
            "embedder": [origin.embedder, origin.dim],
            "seq": state.seq,
            "digest": state.digest(),
            "cleared": state.cleared,
            "live": state.live,
            "roots": [f"{root:x}" for root in [roots[0], state.graph.root, *roots[1:]]],
            "one_text": one_text,
            "pending": sorted(pending),
            "sample": {
                "items": [(key, _item_seal(state, key)) for key in _names(_some(keys["items"]))],
                "nodes": [(key, _node_seal(state, key)) for key in _names(_some(nodes))],
            },
        }
    )


def _check_size(writer: SectionWriter, most_bytes: int) -> None:
    if writer.size_bytes > most_bytes:
        raise CheckpointUnusable(f"it would have more than {most_bytes} bytes")


def _names(keys: Iterable[bytes]) -> list[str]:
    return [key.decode("utf-8", "surrogatepass") for key in keys]


def _some(values: Sequence[Any]) -> list[Any]:
    return random.sample(values, min(_SAMPLE, len(values), 1 + len(values) // _SHARE))


def _item_seal(state: BankState, key: str) -> str:
    return f"{item_hash(state.items[key], state.archive.get(key, ())) & _SAMPLE_BITS:x}"


def _node_seal(state: BankState, key: str) -> str:
    graph = state.graph
    total = node_hash(graph.nodes[key]["event"])
    out = graph.succ[key]
    keyed = [out[end] for end in sorted(out)[:_SAMPLE]]
    total += sum(edge_hash(data["edge"]) for edges in keyed for data in edges.values())
    return f"{total & _SAMPLE_BITS:x}"


# -- reading ---------------------------------------------------------------------------


def read_checkpoint(file: CheckpointFile, origin: Origin) -> Projection:
    """Return the content of a checked file. Raises `CheckpointUnusable`."""
    facts = file.facts
    try:
        if facts["scope"] != origin.scope:
            raise CheckpointUnusable("it belongs to another memory")
        if facts["chain"] != origin.chain:
            raise CheckpointUnusable("the journal is not the one that it was made from")
        state = _read_state(file, facts)
        if facts["embedder"] != [origin.embedder, origin.dim]:  # its vectors say nothing here
            empty = IndexView(Arena(origin.dim))
            content = Projection(state, empty, frozenset(state.items))
        else:
            view = read_view(file, state.items, origin.dim)
            content = Projection(state, view, frozenset(facts["pending"]))
        _check_sample(content, facts["sample"])
    except CheckpointUnusable:
        raise
    except Exception as exc:  # a bug in a writer, say; the journal has it all
        raise CheckpointUnusable(f"its content does not fit: {exc!r}") from exc
    return content


def _read_state(file: CheckpointFile, facts: Mapping[str, Any]) -> BankState:
    items, graph, *others = (int(root, 16) for root in facts["roots"])
    state = BankState(
        **{name: read_map(file, name, form) for name, form in FORMS.items() if name in file},
        **dict(zip(_ROOTS, (items, *others), strict=True)),
        graph=read_graph(file, graph),
        cleared=tuple(facts["cleared"]),
        live=int(facts["live"]),
        seq=int(facts["seq"]),
    )
    if state.digest() != facts["digest"]:
        raise CheckpointUnusable("its roots do not give its digest")
    return state


def _check_sample(content: Projection, sample: Mapping[str, Iterable[tuple[str, str]]]) -> None:
    state = content.state
    for kind, seal_of in (("item", _item_seal), ("node", _node_seal)):
        for key, seal in sample[f"{kind}s"]:
            if seal_of(state, key) != seal:
                raise CheckpointUnusable(f"{kind} {key} is not the one that was written")
    if isinstance(content.view.places, LayeredMap):
        places = cast("LayeredMap[Any]", content.view.places)
        for at in _some(range(len(places))):
            check_document(content, at)


def check_document(content: Projection, at: int) -> None:
    """Compare a document's own text with what would be indexed now.

    The text in context is that of the day when the item was indexed: its neighbours may
    have grown since.
    """
    arena, segment = content.view.arena, content.view.parts[0].segment
    item, postings = segment.items[at], segment.postings[OWN]
    text = index_texts(content.state, item)[OWN]
    words = tokenize(text)
    terms = np.asarray(sorted(set(arena.known_terms(words).values())), np.int32)
    docs, tfs, _ = postings.gathered(terms)
    fits = int(tfs[docs == at].sum()) == len(words) == int(postings.lengths[at])
    fits &= arena.row(text) == int(segment.rows[OWN].rows[at])
    fits &= all(float(rule(item)) == segment.column(rule)[at] for rule in ITEM_RULES.values())
    if not fits:
        raise CheckpointUnusable(f"item {item.id} would be indexed otherwise now")

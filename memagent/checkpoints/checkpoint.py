"""A whole checkpoint: state and search view of one memory at one journal sequence.

What `read_checkpoint` returns is what a replay up to that sequence gives: the same
digest, the same items, turns and graph, the same search. It is checked in three ways:
every byte against its checksum, and the key of the store where there is one (by the
file), the digest of the roots against the manifest's, and a random sample of records and
documents against what this memagent makes of them, so that a checkpoint of other rules is
noticed. Anything amiss raises `CheckpointUnusable`, and the journal is replayed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from memagent.checkpoints.file import CheckpointFile, CheckpointUnusable, SectionWriter
from memagent.checkpoints.graph import put_graph, read_graph
from memagent.checkpoints.layered import LayeredMap
from memagent.checkpoints.records import FORMS, maps_of, put_map, read_map
from memagent.checkpoints.tables import Pause, encoded
from memagent.checkpoints.view import put_view, read_view
from memagent.core.snapshot import edge_hash, item_hash, node_hash
from memagent.search.arena import Arena
from memagent.search.index import IndexView
from memagent.search.projection import Projection, index_texts
from memagent.search.segments import OWN
from memagent.search.weights import ITEM_RULES
from memagent.state.fold import BankState
from memagent.state.tokens import tokenize

_SAMPLE: Final = 8
"""Records of each kind whose hashes a checkpoint carries, and documents looked at."""
_SAMPLE_BITS: Final = (1 << 128) - 1


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


def write_checkpoint(  # noqa: PLR0913  # keyword-only, each of another kind
    path: Path,
    content: Projection,
    origin: Origin,
    *,
    key: bytes | None,
    most_bytes: int,
    pause: Pause,
    replacing: Callable[[], AbstractContextManager[None]],
) -> int:
    """Write a checkpoint in the place of an older one, inside `replacing`; return its bytes.

    Raises `CheckpointUnusable` when it would have more than `most_bytes`, and `OSError`.
    """
    state = content.state
    with SectionWriter(path, key) as writer:
        keys: dict[str, list[bytes]] = {}
        for name, content_of in maps_of(state).items():
            keys[name] = put_map(writer, name, content_of, FORMS[name], pause)
            _check_size(writer, most_bytes)
        put_graph(writer, state.graph, pause)
        stale = {encoded(item_id) for item_id in content.pending}
        places = {key: at for at, key in enumerate(keys["items"])}
        one_text, left_out = put_view(writer, content.view, places=places, stale=stale, pause=pause)
        _check_size(writer, most_bytes)
        pending = content.pending | {key.decode("utf-8", "surrogatepass") for key in left_out}
        writer.finish(
            {
                "scope": origin.scope,
                "chain": origin.chain,
                "embedder": [origin.embedder, origin.dim],
                "seq": state.seq,
                "digest": state.digest(),
                "roots": [f"{root:x}" for root in _roots(state)],
                "one_text": one_text,
                "pending": sorted(pending),
                "sample": _sample(state),
            },
            replacing=replacing,
        )
        return writer.size_bytes


def _check_size(writer: SectionWriter, most_bytes: int) -> None:
    if writer.size_bytes > most_bytes:
        raise CheckpointUnusable(f"it would have more than {most_bytes} bytes")


def _roots(state: BankState) -> tuple[int, ...]:
    return (
        state.item_root,
        state.graph.root,
        state.stats_root,
        state.ordinal_root,
        state.trial_root,
    )


def _sample(state: BankState) -> dict[str, list[tuple[str, str]]]:
    """Return the hashes of some items and of some nodes with the edges that leave them."""
    return {
        "items": [(key, _item_seal(state, key)) for key in _some(list(state.items))],
        "nodes": [(key, _node_seal(state, key)) for key in _some(list(state.graph.nodes))],
    }


def _some(values: Sequence[Any]) -> list[Any]:
    return random.sample(values, min(_SAMPLE, len(values)))


def _item_seal(state: BankState, key: str) -> str:
    return f"{item_hash(state.items[key], state.archive.get(key, ())) & _SAMPLE_BITS:x}"


def _node_seal(state: BankState, key: str) -> str:
    graph = state.graph
    total = node_hash(graph.nodes[key]["event"])
    keyed = [edges for _, edges in sorted(graph.succ[key].items())[:_SAMPLE]]
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
    items, graph, stats, ordinals, trials = (int(root, 16) for root in facts["roots"])
    state = BankState(
        **{name: read_map(file, name, form) for name, form in FORMS.items()},
        graph=read_graph(file, graph),
        seq=int(facts["seq"]),
        item_root=items,
        stats_root=stats,
        ordinal_root=ordinals,
        trial_root=trials,
    )
    if state.digest() != facts["digest"]:
        raise CheckpointUnusable("its roots do not give its digest")
    return state


def _check_sample(content: Projection, sample: Mapping[str, Iterable[tuple[str, str]]]) -> None:
    state = content.state
    for key, seal in sample["items"]:
        if _item_seal(state, key) != seal:
            raise CheckpointUnusable(f"item {key} is not the one that was written")
    for key, seal in sample["nodes"]:
        if _node_seal(state, key) != seal:
            raise CheckpointUnusable(f"node {key} is not the one that was written")
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
    terms = np.asarray(sorted(set(arena.known_terms(words))), np.int32)
    docs, tfs, _ = postings.gathered(terms)
    fits = int(tfs[docs == at].sum()) == len(words) == int(postings.lengths[at])
    fits &= arena.row(text) == int(segment.rows[OWN].rows[at])
    fits &= all(float(rule(item)) == segment.column(rule)[at] for rule in ITEM_RULES.values())
    if not fits:
        raise CheckpointUnusable(f"item {item.id} would be indexed otherwise now")

"""The event graph as a file, read back without loss: node-link JSON and GraphML.

JSON is networkx's node-link form with our fields: `nx.node_link_graph(document,
edges="edges")` reads it as it is, the `graph` part holds format, scope, digest and the
turns. In GraphML every attribute is a plain text or number: a list or span is its JSON,
what is empty is left out, and edges carry ids of their own (`e0`, ...) because other
programs drop edges with equal ids. The surprise: XML cannot hold most control
characters, so GraphML has U+FFFD in their place and a line feed for a carriage return.

`FrozenEventGraph` is the graph in memory for networkx: a frozen `MultiDiGraph` laid
over persistent maps. Laying the view costs microseconds at any size (a copy of 20,000
nodes costs most of a second), and networkx's own algorithms run on it. The maps enter
by the dict factories that networkx documents for subclasses.
"""

from __future__ import annotations

import json
import re
from io import BytesIO
from pathlib import Path
from typing import Any, NoReturn, cast
from xml.etree.ElementTree import ParseError

import networkx as nx
from pydantic import BaseModel

from memagent.core.answers import GraphDocument, GraphEdge, GraphNode
from memagent.core.errors import InputError, input_errors
from memagent.state.adjacency import GraphState

_MUTATORS = (
    "add_node add_nodes_from remove_node remove_nodes_from add_edge add_edges_from"
    " add_weighted_edges_from remove_edge remove_edges_from clear clear_edges update"
).split()


def _refuse(*_: object, **__: object) -> NoReturn:
    raise nx.NetworkXError(
        "this graph is a frozen view of memory; change it through the bank,"
        " or take a copy with .copy()"
    )


class FrozenEventGraph(nx.MultiDiGraph):  # pyright: ignore[reportMissingTypeArgument]  # generic in the stubs only
    """A read-only `MultiDiGraph`.

    Nodes carry `event`, edges `edge`, `relation` and `weight` (the confidence).
    """

    frozen = True

    def __init__(self, memory: GraphState | None = None) -> None:  # pyright: ignore[reportInconsistentConstructor]  # `__new__` takes anything
        """Lay the graph over the maps of a memory; without one it is empty."""
        if memory is None:  # networkx makes one for a view of a part
            super().__init__()  # pyright: ignore[reportUnknownMemberType]
            return
        # networkx asks twice for an outer map: successors first, then predecessors
        outer = iter((memory.succ, memory.pred))
        factories = ("node_dict_factory", "adjlist_outer_dict_factory")
        vars(self).update(zip(factories, (lambda: memory.nodes, lambda: next(outer)), strict=True))
        super().__init__()  # pyright: ignore[reportUnknownMemberType]
        for factory in factories:
            del vars(self)[factory]

    def copy(self, as_view: bool = False) -> nx.MultiDiGraph[str]:  # noqa: ARG002  # interface
        """Return an ordinary, mutable `MultiDiGraph` with the same nodes and edges."""
        plain: Any = cast("Any", nx.MultiDiGraph)()
        view: Any = self
        plain.add_nodes_from((node, dict(data)) for node, data in view.nodes(data=True))
        plain.add_edges_from(
            (u, v, key, dict(data)) for u, v, key, data in view.edges(keys=True, data=True)
        )
        return cast("nx.MultiDiGraph[str]", plain)

    def reverse(self, copy: bool = True) -> nx.MultiDiGraph[str]:
        """Return a mutable graph with every edge turned round."""
        return self.copy().reverse(copy=copy)

    def to_directed_class(self) -> type[nx.MultiDiGraph[Any]]:
        """Return the class of graphs that networkx derives: the plain, mutable one."""
        return nx.MultiDiGraph

    def to_undirected_class(self) -> type[nx.MultiGraph[Any]]:
        """Return the class of undirected graphs that networkx derives."""
        return nx.MultiGraph


for _name in _MUTATORS:
    setattr(FrozenEventGraph, _name, _refuse)


FORMAT = "memagent-graph/1"
_RETURNS = re.compile("\r\n?")
_NOT_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_HEAD = ("scope", "digest", "seq", "as_of", "turns")
_STRUCTURES = {
    "people",
    "aliases",
    "valid",
    "source_turn_ids",
    "evidence_turn_ids",
    "scope",
    "as_of",
    "turns",
}


def graph_to_json(document: GraphDocument) -> str:
    """Write the document as node-link JSON with the format's name and a final line feed."""
    whole = document.model_dump(mode="json")
    linked: dict[str, Any] = {
        "directed": True,
        "multigraph": True,
        "graph": {"format": FORMAT, **{name: whole[name] for name in _HEAD}},
        "nodes": whole["nodes"],
        "edges": [
            {**edge, "key": ":".join(filter(None, (edge["relation"], edge["label"])))}
            for edge in whole["edges"]
        ],
    }
    return json.dumps(linked, ensure_ascii=False, indent=1) + "\n"


def graph_from_json(text: str) -> GraphDocument:
    """Read the document that `graph_to_json` wrote.

    Raises `InputError` for anything else.
    """
    try:
        linked: Any = json.loads(text)
        head = dict(linked["graph"])
        if head.pop("format") != FORMAT:
            raise ValueError(f"its format is {linked['graph']['format']!r}, not {FORMAT!r}")
        edges = [
            {name: value for name, value in edge.items() if name != "key"}
            for edge in linked["edges"]
        ]
        values = {**head, "nodes": linked["nodes"], "edges": edges}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise InputError(f"this is no event graph in JSON: {exc}") from exc
    return _document(values)


def graph_to_graphml(document: GraphDocument) -> str:
    """Write the document as GraphML, through networkx."""
    graph: Any = cast("Any", nx.MultiDiGraph)(
        format=FORMAT, **_flat(document.model_dump(mode="json", include={*_HEAD}))
    )
    names = _xml_ids(document)
    for node in document.nodes:
        flat = _flat(node.model_dump(mode="json", exclude={"id"}))
        flat["label"] = _as_xml(node.text[:60])  # the name that other programs show
        for name in ("start", "end"):
            if (bound := getattr(node.valid, name, None)) is not None:
                flat[name] = bound.isoformat()
        graph.add_node(names[node.id], **flat)
    for number, edge in enumerate(document.edges):
        flat = _flat(edge.model_dump(mode="json", exclude={"source", "target"}))
        graph.add_edge(
            names[edge.source], names[edge.target], key=f"e{number}", **flat, weight=edge.confidence
        )
    file = BytesIO()
    nx.write_graphml_xml(graph, file, encoding="utf-8", prettyprint=True)
    return file.getvalue().decode("utf-8").rstrip() + "\n"


def graph_from_graphml(text: str) -> GraphDocument:
    """Read the document that `graph_to_graphml` wrote, but for characters XML cannot hold.

    Raises `InputError` for anything else.
    """
    try:
        graph: Any = nx.read_graphml(BytesIO(text.encode("utf-8")), force_multigraph=True)
        head = dict(graph.graph)
        if head.get("format") != FORMAT:
            raise ValueError(f"its format is {head.get('format')!r}, not {FORMAT!r}")
        nodes = [_nested({**data, "id": name}, GraphNode) for name, data in graph.nodes(data=True)]
        linked = sorted(graph.edges(keys=True, data=True), key=lambda edge: int(str(edge[2])[1:]))
        edges = [
            _nested({**data, "source": source, "target": target}, GraphEdge)
            for source, target, _, data in linked
        ]
        values = {**_nested(head, GraphDocument), "nodes": nodes, "edges": edges}
    except (ParseError, ValueError, KeyError, TypeError, nx.NetworkXError) as exc:
        raise InputError(f"this is no event graph in GraphML: {exc}") from exc
    return _document(values)


def read_graph(path: str | Path) -> GraphDocument:
    """Read a graph from a JSON or GraphML file; the first character tells which.

    Raises `InputError`.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise InputError(f"{path} cannot be read: {exc}") from exc
    return graph_from_graphml(text) if text.lstrip().startswith("<") else graph_from_json(text)


def _document(values: dict[str, Any]) -> GraphDocument:
    with input_errors("this is no event graph"):
        return GraphDocument.model_validate(values)


def _flat(values: dict[str, Any]) -> dict[str, str | int | float]:
    """Return the values as GraphML can hold them, without None and empty ones."""
    flat: dict[str, str | int | float] = {}
    for name, value in values.items():
        if value is None or value in ("", [], {}):
            continue
        plain = json.dumps(value, ensure_ascii=False) if name in _STRUCTURES else value
        flat[name] = _as_xml(plain) if isinstance(plain, str) else plain
    return flat


def _as_xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", _RETURNS.sub("\n", text))


def _nested(flat: dict[str, Any], record: type[BaseModel]) -> dict[str, Any]:
    """Return the record's own fields of flat attributes, with lists and spans read again.

    The rest is for other programs.
    """
    return {
        name: json.loads(value) if name in _STRUCTURES else value
        for name, value in flat.items()
        if name in record.model_fields
    }


def _xml_ids(document: GraphDocument) -> dict[str, str]:
    """Node id to its id in XML, which differs only where XML cannot hold it."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for node in document.nodes:
        name = clean = _as_xml(node.id)
        number = 1
        while name in taken:
            number += 1
            name = f"{clean}~{number}"
        names[node.id] = name
        taken.add(name)
    return names

"""A model manager over vectors and the event graph, both read and both written.

Facts are extracted and decided about as in `memory_r2`, and an indexer builds the event
graph of CompassMem beside them. The manager sees, with the memories near a fact, the
events that the graph links to these, and ends or rewrites either by ADD, UPDATE and
DELETE. The indexer relates the events of a session to those of earlier ones and names
the relations that no longer hold; these leave the graph, and an older state still shows
them. Answers rest on the hits of `memory_r2` and on what the graph links to them, at
any number of steps, without a call. `WALKED` has a model steer the walk instead.

    Agent(design="memory_graph", model=...)
    Agent(design="memory_graph_walk", model=...)
"""

from dataclasses import replace
from typing import Final

from memagent.designs.memory_r2 import DESIGN as MEMORY_R2
from memagent.designs.parts.event_indexer import EventIndexer
from memagent.designs.parts.graph_walk import GraphExpansionRetriever, GraphWalkRetriever
from memagent.designs.parts.retrieval import SpeakerRetriever, VersionedRetriever

DESIGN: Final = replace(
    MEMORY_R2,
    name="memory_graph",
    indexer=EventIndexer(earlier=12),
    retriever=VersionedRetriever(
        base=GraphExpansionRetriever(base=SpeakerRetriever(per_speaker=30, others=15))
    ),
)
WALKED: Final = replace(
    DESIGN,
    name="memory_graph_walk",
    retriever=VersionedRetriever(base=GraphWalkRetriever(fill=30)),
)
"""The same with a planner and an explorer, which may be trained too."""

"""CompassMem (arXiv 2601.04726): a graph of events and logical relations, searched by walks.

Claimed: events segmented from dialogue and related by cause, motive and time, explored
along several paths under a check-list of subgoals, answer multi-hop and temporal
questions better than flat retrieval (LoCoMo, NarrativeQA). Here: two model calls a
session build the graph (segment, relate), one plans a question, one is made for each
visited event, and one answers; steps carry their response ids, so planner and explorer
can be trained. Changed: turns are kept verbatim as memories beside the events, so
updates and deletions have something to act on and hide the events that tell what no
longer holds; time must not run in a circle; events at known times apart are never
merged; topics are computed when needed, not stored; the whole queue is scored anew when
a subgoal is satisfied; hits of ordinary search fill up what the walk kept. `MODEL_FREE`
asks no model: events are runs of turns, relations come from time, names and topic, the
walk is personalised PageRank, and answers are quotations.

    Agent(design="compass_mem", model=...)
    Agent(design="compass_rules")
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from memagent.designs.parts.event_indexer import EventIndexer
from memagent.designs.parts.graph_walk import GraphExpansionRetriever, GraphWalkRetriever
from memagent.designs.parts.model_answerer import ModelAnswerer
from memagent.designs.parts.retrieval import VersionedRetriever
from memagent.designs.parts.rule_indexer import RuleIndexer
from memagent.designs.verbatim import DESIGN as VERBATIM

DESIGN: Final = replace(
    VERBATIM,
    name="compass_mem",
    indexer=EventIndexer(),
    retriever=VersionedRetriever(base=GraphWalkRetriever()),
    answerer=ModelAnswerer(),
    needs_model=True,
)

MODEL_FREE: Final = replace(
    VERBATIM, name="compass_rules", indexer=RuleIndexer(), retriever=GraphExpansionRetriever()
)
"""The event graph by rules alone."""

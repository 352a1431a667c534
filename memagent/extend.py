"""Everything that an outside design needs, in one import.

Slots and records, the parts that our own designs are made of, and the bank's queries.
Names here keep their meaning from release to release; other modules may move.

    from memagent.extend import Lesson, MemoryDesign, SlotContext, Trial
"""

from __future__ import annotations

from typing import Final

from memagent.core.answers import Answer as Answer
from memagent.core.answers import Filter as Filter
from memagent.core.answers import Hit as Hit
from memagent.core.answers import Query as Query
from memagent.core.answers import Question as Question
from memagent.core.answers import Verdict as Verdict
from memagent.core.exchange import Message as Message
from memagent.core.exchange import ModelRequest as ModelRequest
from memagent.core.exchange import ModelResponse as ModelResponse
from memagent.core.exchange import Role as Role
from memagent.core.ops import Add as Add
from memagent.core.ops import Delete as Delete
from memagent.core.ops import MemoryOp as MemoryOp
from memagent.core.ops import Noop as Noop
from memagent.core.ops import OpLimits as OpLimits
from memagent.core.ops import Rejected as Rejected
from memagent.core.ops import Update as Update
from memagent.core.recipes import Recipe as Recipe
from memagent.core.records import Chunk as Chunk
from memagent.core.records import Fact as Fact
from memagent.core.records import ItemStats as ItemStats
from memagent.core.records import MemoryItem as MemoryItem
from memagent.core.records import Record as Record
from memagent.core.records import Session as Session
from memagent.core.records import TimeSpan as TimeSpan
from memagent.core.records import Trust as Trust
from memagent.core.records import Turn as Turn
from memagent.core.snapshot import Commit as Commit
from memagent.core.snapshot import GraphDelta as GraphDelta
from memagent.core.trials import Credit as Credit
from memagent.core.trials import Edit as Edit
from memagent.core.trials import Outcome as Outcome
from memagent.core.trials import Trial as Trial
from memagent.core.trials import TrialStep as TrialStep
from memagent.core.workspace import Segment as Segment
from memagent.core.workspace import Workspace as Workspace
from memagent.core.workspace import credit_segments as credit_segments
from memagent.core.workspace import workspace_of as workspace_of
from memagent.designs.add_only import AppendManager as AppendManager
from memagent.designs.base import Answerer as Answerer
from memagent.designs.base import Compactor as Compactor
from memagent.designs.base import Extractor as Extractor
from memagent.designs.base import Feedback as Feedback
from memagent.designs.base import Indexer as Indexer
from memagent.designs.base import Keeper as Keeper
from memagent.designs.base import Learner as Learner
from memagent.designs.base import Lesson as Lesson
from memagent.designs.base import Manager as Manager
from memagent.designs.base import MemoryDesign as MemoryDesign
from memagent.designs.base import Prompt as Prompt
from memagent.designs.base import Proposal as Proposal
from memagent.designs.base import Related as Related
from memagent.designs.base import RelateSettings as RelateSettings
from memagent.designs.base import Retriever as Retriever
from memagent.designs.base import RunningValue as RunningValue
from memagent.designs.base import SlotContext as SlotContext
from memagent.designs.base import parse_prompt as parse_prompt
from memagent.designs.parts.lessons import CaseLearner as CaseLearner
from memagent.designs.parts.lessons import KindRetriever as KindRetriever
from memagent.designs.parts.lessons import RefiningLearner as RefiningLearner
from memagent.designs.parts.lessons import no_worse as no_worse
from memagent.designs.parts.retrieval import HybridRetriever as HybridRetriever
from memagent.designs.parts.retrieval import TimedRetriever as TimedRetriever
from memagent.designs.parts.rewriting import no_indexer as no_indexer
from memagent.designs.parts.rules.answerer import EvidenceAnswerer as EvidenceAnswerer
from memagent.designs.parts.rules.manager import VerbatimExtractor as VerbatimExtractor
from memagent.designs.parts.rules.manager import VerbatimManager as VerbatimManager
from memagent.designs.verbatim import DESIGN as _VERBATIM
from memagent.experience import Learned as Learned
from memagent.experience import Recall as Recall

VERBATIM: Final[MemoryDesign] = _VERBATIM
"""The design `verbatim`, to fill some of its slots anew with `dataclasses.replace`."""

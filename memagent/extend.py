"""Everything that an outside design needs, in one import.

Slots and records, the parts that our own designs are made of, and the bank's queries.
Names here keep their meaning from release to release; other modules may move.

    from memagent.extend import Lesson, MemoryDesign, SlotContext, Trial
"""

from __future__ import annotations

from typing import Final

from memagent.core.answers import (
    Answer as Answer,
    Filter as Filter,
    Hit as Hit,
    Query as Query,
    Question as Question,
    Verdict as Verdict,
)
from memagent.core.exchange import (
    Message as Message,
    ModelRequest as ModelRequest,
    ModelResponse as ModelResponse,
    Role as Role,
)
from memagent.core.ops import (
    Add as Add,
    Delete as Delete,
    MemoryOp as MemoryOp,
    Noop as Noop,
    OpLimits as OpLimits,
    Rejected as Rejected,
    Update as Update,
)
from memagent.core.recipes import Recipe as Recipe
from memagent.core.records import (
    Chunk as Chunk,
    Fact as Fact,
    ItemStats as ItemStats,
    MemoryItem as MemoryItem,
    Record as Record,
    Session as Session,
    TimeSpan as TimeSpan,
    Trust as Trust,
    Turn as Turn,
)
from memagent.core.snapshot import Commit as Commit, GraphDelta as GraphDelta
from memagent.core.trials import (
    Credit as Credit,
    Edit as Edit,
    Outcome as Outcome,
    Trial as Trial,
    TrialStep as TrialStep,
)
from memagent.core.workspace import (
    Segment as Segment,
    Workspace as Workspace,
    credit_segments as credit_segments,
    workspace_of as workspace_of,
)
from memagent.designs.add_only import AppendManager as AppendManager
from memagent.designs.base import (
    Answerer as Answerer,
    Compactor as Compactor,
    Extractor as Extractor,
    Feedback as Feedback,
    Indexer as Indexer,
    Keeper as Keeper,
    Learner as Learner,
    Lesson as Lesson,
    Manager as Manager,
    MemoryDesign as MemoryDesign,
    Prompt as Prompt,
    Proposal as Proposal,
    Related as Related,
    RelateSettings as RelateSettings,
    Retriever as Retriever,
    RunningValue as RunningValue,
    SlotContext as SlotContext,
    no_indexer as no_indexer,
    parse_prompt as parse_prompt,
)
from memagent.designs.parts.lessons import (
    CaseLearner as CaseLearner,
    KindRetriever as KindRetriever,
    RefiningLearner as RefiningLearner,
    no_worse as no_worse,
)
from memagent.designs.parts.retrieval import (
    HybridRetriever as HybridRetriever,
    TimedRetriever as TimedRetriever,
)
from memagent.designs.parts.rules.answerer import EvidenceAnswerer as EvidenceAnswerer
from memagent.designs.parts.rules.manager import (
    VerbatimExtractor as VerbatimExtractor,
    VerbatimManager as VerbatimManager,
)
from memagent.designs.verbatim import DESIGN as _VERBATIM
from memagent.experience import Learned as Learned, Recall as Recall

VERBATIM: Final[MemoryDesign] = _VERBATIM
"""The design `verbatim`, to fill some of its slots anew with `dataclasses.replace`."""

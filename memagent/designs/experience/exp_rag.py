"""ExpRAG and ReMem (Evo-Memory, arXiv 2511.20857): retrieve what was tried before.

Claim: an agent that retrieves its own past trials for the task at hand improves over a
stream of tasks (ExpRAG); one that also refines its memory, by pruning, merging and
rewriting what it retrieved, improves more (ReMem).
Changed: a case holds task and actions, its outcome is a tag that no search reads; the
refinement is ops that are validated, journalled and undone like any other, and may
change only memories that it was shown or names, never against evidence of more trust.

    Agent(design="exp_rag")
    Agent(design="re_mem", model=...)
"""

from dataclasses import replace
from typing import Final

from memagent.core.ops import OpLimits
from memagent.designs.parts.lessons import CaseLearner, KindRetriever, RefiningLearner
from memagent.designs.verbatim import DESIGN as VERBATIM

DESIGN: Final = replace(
    VERBATIM,
    name="exp_rag",
    retriever=KindRetriever(kinds=frozenset({"case"})),
    learner=CaseLearner(),
)
RE_MEM: Final = replace(
    DESIGN, name="re_mem", learner=RefiningLearner(), limits=OpLimits(max_ops=2_000)
)

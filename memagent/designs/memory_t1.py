"""Memory-T1 (arXiv 2512.20092): time and sessions first, then evidence, then the answer.

Claimed: over long multi-session dialogues, pruning candidate sessions by the question's
time window and by relevance, and then having the model name the sessions it rests on
before it answers, trained with rewards for accuracy, evidence grounding and temporal
consistency, answers temporal questions better than reading everything (Time-Dialog,
LoCoMo). Here: one planner call gives the window and rules read it from the question
where that call says nothing of use; up to 10 sessions are kept, three of them for
relevant ones outside the window; the answerer names its evidence sessions first, and
only memories of these may be cited. Changed: memories are turns kept word for word with
their resolved times, so a session is shown by its best six memories instead of whole;
corrections update what they correct, and the wording that held at the time asked about
is shown with the one that replaced it. The sessions named are on the answer
(`evidence_sessions`), for a grounding reward to read.

    Agent(design="memory_t1", model=...)
"""

from dataclasses import replace
from typing import Final

from memagent.designs.parts.model_answerer import SessionAnswerer, SessionRetriever
from memagent.designs.parts.retrieval import VersionedRetriever
from memagent.designs.verbatim import DESIGN as VERBATIM

DESIGN: Final = replace(
    VERBATIM,
    name="memory_t1",
    retriever=VersionedRetriever(base=SessionRetriever()),
    answerer=SessionAnswerer(),
    needs_model=True,
)

"""The answer graph: retrieve, answer, cite; the answerer may ask for tools in between.

retrieve -> answer -> cite
             ^   |
             tools
"""

from __future__ import annotations

from typing import Final, Literal

from memagent.core.answers import Answer, Question
from memagent.core.errors import ModelError, boundary
from memagent.core.exchange import Message, Usage
from memagent.designs.base import ToolsWanted
from memagent.graphs.state import AnswerState, Flow, NodeRuntime, Step
from memagent.memory.judging.certainty import read_search
from memagent.memory.judging.evidence import CEILING, cite as checked_citations
from memagent.tracing import operation_span, put_search


async def retrieve(state: AnswerState, runtime: NodeRuntime) -> AnswerState:
    """Find the hits for the question."""
    context = runtime.context
    with (
        operation_span("search_memory") as span,
        boundary(ModelError, f"retriever of {context.design.name}"),
    ):
        slot, question = context.slot(), _question(state)
        hits = await context.design.retriever(question, slot)
        if span.recording:
            put_search(span, question, hits)
    trail = slot.trail
    return {
        "hits": hits,
        "transcript": (),
        "pending": None,
        "rounds": 0,
        "usage": trail.usage,
        "notes": tuple(trail.notes),
        "response_ids": tuple(response.id for response in trail.responses),
    }


async def answer(state: AnswerState, runtime: NodeRuntime) -> AnswerState:
    """Answer from the hits, or ask for tools."""
    context = runtime.context
    rounds = state.get("rounds", 0)
    slot = context.slot(tools=rounds < context.tool_rounds, transcript=state.get("transcript", ()))
    with boundary(ModelError, f"answerer of {context.design.name}"):
        try:
            hits = state.get("hits", [])
            drafted = await context.design.answerer(_question(state), hits, slot)
            return {"answer": drafted, "pending": None}
        except ToolsWanted as request:
            asked = request.response
    return {
        "pending": Message(role="assistant", content=asked.text, tool_calls=asked.tool_calls),
        "rounds": rounds + 1,
        "usage": state.get("usage", Usage()) + asked.usage,
    }


async def tools(state: AnswerState, runtime: NodeRuntime) -> AnswerState:
    """Run the requested tools through LangGraph's `ToolNode`.

    The result of a tool that fails is the text of its error. A tool that acts is not run
    where the prompt shows text that is not trusted.
    """
    from memagent.graphs import approval

    request = state.get("pending")
    assert request is not None  # `_after_answer` leads here with a request only
    context, transcript = runtime.context, state.get("transcript", ())
    shown = approval.lowest_shown(state.get("hits", ()), (), transcript)
    held = () if context.approve else approval.held_calls(request, context.tools, shown)
    results = await context.run_tools(request, held)
    return {"transcript": (*transcript, request, *results), "pending": None}


async def cite(state: AnswerState, runtime: NodeRuntime) -> AnswerState:
    """Drop citations to hits that were not shown, and add what the retriever left."""
    draft = state.get("answer")
    if draft is None:
        raise ModelError("the answer graph reached cite without an answer")
    question, bank = _question(state), runtime.context.bank
    hits = list({hit.id: hit for hit in (*state.get("hits", []), *draft.hits)}.values())
    cited: Answer = checked_citations(draft, hits, bank.state, question=question.text)
    additions: dict[str, object] = {
        "question": question,
        "usage": cited.usage + state.get("usage", Usage()),
        "notes": (*state.get("notes", ()), *cited.notes),
        "response_ids": (*state.get("response_ids", ()), *cited.response_ids),
    }
    if cited.probability is None and not cited.abstained and hits:
        asked_at = question.asked_at or runtime.context.clock()
        reading = read_search(question.text, hits, bank.state, bank.view.index, asked_at=asked_at)
        additions["probability"] = min(reading.sure, CEILING.get(cited.verdict, 1.0))
    return {"answer": cited.model_copy(update=additions)}


def _after_answer(
    state: AnswerState,
    runtime: NodeRuntime,  # noqa: ARG001 (given by name)
) -> Literal["tools", "cite"]:
    return "tools" if state.get("pending") is not None else "cite"


def _question(state: AnswerState) -> Question:
    question = state.get("question")
    if question is None:
        raise ModelError("the answer graph needs a `question` in its input state")
    return question


ANSWER: Final = Flow(
    "memagent.answer",
    AnswerState,
    {
        "retrieve": Step(retrieve, "answer", traced=False),
        "answer": Step(answer, _after_answer),
        "tools": Step(tools, "answer"),
        "cite": Step(cite, traced=False),
    },
)
"""The graph: input `{"question"}`, context `AgentContext`."""

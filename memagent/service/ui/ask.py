"""Ask: a question, its answer first, why below, and the thread so far.

`_reply` is the only place that calls the agent. The thread travels sealed in the form:
asking stores nothing, so the earlier exchanges are nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Annotated, Any, Final

from fastapi import Depends
from starlette.responses import HTMLResponse

from memagent.core.answers import MAX_QUESTION_CHARS, Answer, AsOf, Hit, Question
from memagent.core.errors import MemAgentError
from memagent.core.recipes import RECIPES, recipe_of
from memagent.service.ui.explaining import explain_hits, verdict_words
from memagent.service.ui.frame import failure, page, page_router
from memagent.service.ui.session_auth import Viewer, auth_of, require_viewer
from memagent.service.ui.turns import QuestionQuery

router = page_router()
Asker = Annotated[Viewer, Depends(require_viewer("chat"))]
_MOST_EXCHANGES: Final = 12
_THREAD_CHARS: Final = 1_000
"""Characters of a question or an answer that a thread carries on."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question of the thread and its answer, in short."""

    question: str
    answer: str
    verdict: str


@router.get("/ui/ask")
async def ask_page(viewer: Asker, query: Annotated[QuestionQuery, Depends()]) -> HTMLResponse:
    """Show the form, with what the address fills in."""
    return await _show(viewer, query, ())


@router.post("/ui/ask")
async def ask(viewer: Asker) -> HTMLResponse:
    """Ask the agent, and show the answer above what it rests on."""
    form = viewer.form
    thread = _opened(viewer, form["thread"])
    recipe = form["recipe"] if form["recipe"] in RECIPES else ""
    text = form["text"].strip()[:MAX_QUESTION_CHARS]
    query = QuestionQuery(text=text, recipe=recipe, seq=form["seq"])
    if not text:
        return await _show(viewer, query, thread)
    try:
        answer, hits = await _reply(viewer, query)
    except MemAgentError as exc:
        status, fault = failure(viewer.request, exc)
        return await _show(viewer, query, thread, status=status, fault=fault)
    cited = {citation.hit_id for citation in answer.citations}
    taken = {hit.id for hit in answer.hits} if answer.response_ids else ()
    kind, words = verdict_words(answer.verdict.value)
    return await _show(
        viewer,
        query,
        thread,
        answer=answer,
        verdict_kind=kind,
        verdict_words=words,
        candidates=explain_hits(hits, taken=taken, cited=cited),
        following=_sealed(viewer, [*thread, Exchange(text, answer.text, answer.verdict.value)]),
    )


async def _reply(viewer: Viewer, query: QuestionQuery) -> tuple[Answer, list[Hit]]:
    """Return the agent's answer, and what was retrieved for it, best first."""
    question = Question(
        text=query.text,
        recipe=recipe_of(query.recipe) if query.recipe else None,
        as_of=AsOf(recorded=query.recorded),
    )
    values: dict[str, Any] = {}
    hits: list[Hit] = []
    with viewer.agent() as agent:
        async for node, update in agent.stream(question):
            values |= update
            hits = list(update.get("hits", ())) if node == "retrieve" else hits
    return values["answer"], hits


async def _show(
    viewer: Viewer,
    query: QuestionQuery,
    thread: Sequence[Exchange],
    *,
    status: int = 200,
    following: str = "",
    **values: Any,
) -> HTMLResponse:
    nothing: dict[str, Any] = {"answer": None, "candidates": None, "fault": ""}
    with viewer.agent() as agent:
        state = await agent.bank.sync()
    return page(
        viewer.request,
        "ask.html",
        title="Ask",
        active="ask",
        status=status,
        query=query,
        earlier=list(reversed(thread)),
        thread=following or _sealed(viewer, thread),
        recipes=list(RECIPES),
        has_model=viewer.service.has_model,
        empty=not state.items and not state.sessions,
        **(nothing | values),
    )


# -- the thread ------------------------------------------------------------------------


def _sealed(viewer: Viewer, thread: Sequence[Exchange]) -> str:
    """Return the last exchanges for a field of the form; "" for none."""
    rows = [
        [words[:_THREAD_CHARS] for words in astuple(exchange)]
        for exchange in thread[-_MOST_EXCHANGES:]
    ]
    return auth_of(viewer.request).seal(json.dumps([viewer.scope.key, rows])) if rows else ""


def _opened(viewer: Viewer, sealed: str) -> list[Exchange]:
    """Return the exchanges of the field; none where the seal or the memory is another."""
    text = auth_of(viewer.request).unseal(sealed) if sealed else None
    if text is None:
        return []
    scope, rows = json.loads(text)
    return [Exchange(*row) for row in rows] if scope == viewer.scope.key else []

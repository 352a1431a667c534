"""Trials: recall memories for a task, report what came of it, tidy the memory."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from memagent.client.wire import (
    MAX_PAGE,
    NewTrial,
    Tidied,
    TidyRequest,
    TrialOutcome,
    TrialPage,
)
from memagent.core.answers import Question
from memagent.core.records import Id
from memagent.core.trials import Trial
from memagent.experience import Learned, Recall
from memagent.memory.trials.reporting import get_trial, newest_trials
from memagent.service.access import Call
from memagent.service.routes.memories import Deleter, Reader, Writer
from memagent.service.routes.responses import PageRequest, openapi_responses, page_of, record

router = APIRouter(tags=["trials"])


@router.post(
    "/v1/trials", status_code=201, responses=openapi_responses(Recall, 201, "The trial, with hits")
)
async def start_trial(body: NewTrial, call: Writer) -> Response:
    """Recall memories for a task and start a trial with what was shown."""

    async def work() -> Response:
        with call.agent() as agent:
            question = Question(text=body.task, k=body.k, recipe=body.recipe)
            return record(await agent.recall(question), 201)

    return await call.once(work)


@router.get("/v1/trials", responses=openapi_responses(TrialPage, description="A page of trials"))
async def list_trials(
    call: Reader,
    cursor: Annotated[str | None, Query(max_length=2_000)] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
) -> Response:
    """List trials, newest first."""
    items, further = page_of(
        call,
        await trials_of(call),
        PageRequest("trials", cursor, limit),
        id_of=lambda trial: trial.id,
    )
    return record(TrialPage(items=tuple(items), next_cursor=further))


async def trials_of(call: Call) -> list[Trial]:
    """Return the trials of the call's memory, newest first."""
    with call.agent() as agent:
        return newest_trials(await agent.bank.sync())


@router.get("/v1/trials/{trial_id}", responses=openapi_responses(Trial, description="The trial"))
async def read_trial(trial_id: Id, call: Reader) -> Response:
    """Return one trial."""
    with call.agent() as agent:
        return record(await get_trial(agent.bank, trial_id))


@router.post(
    "/v1/trials/{trial_id}/report",
    responses=openapi_responses(Learned, description="The trial and its lesson"),
)
async def report_trial(trial_id: Id, body: TrialOutcome, call: Writer) -> Response:
    """Report what came of a trial; the same report again changes nothing."""

    async def work() -> Response:
        with call.agent() as agent:
            return record(await agent.report(trial_id, body.reward, **body.arguments()))

    return await call.once(work)


@router.post("/v1/tidy", responses=openapi_responses(Tidied, description="What was changed"))
async def tidy(body: TidyRequest, call: Deleter) -> Response:
    """Let the design's keeper prune, merge or rewrite memories; undo takes it back."""

    async def work() -> Response:
        with call.agent() as agent:
            return record(Tidied(commit=await agent.tidy(body.budget)))

    return await call.once(work)

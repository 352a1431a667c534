"""The commands that look into a memory: `ask`, `search`, `list`, `show`, `trials`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from typer import Argument, Option

import memagent
from memagent.cli import views
from memagent.cli.arguments import (
    FilterOptions,
    ItemId,
    LeastTrust,
    RecipeName,
    TimeOptions,
    Why,
    find_id,
    parse_moment,
    trusted,
)
from memagent.cli.frame import Options, emit
from memagent.cli.stores import counts_of, opened, opened_memory, reading_memory, tell_if_empty
from memagent.core.errors import InputError


@dataclass(frozen=True, kw_only=True)
class AskOptions:
    """The options of `memagent ask`."""

    k: Annotated[
        int, Option("--k", "-k", min=1, max=1000, metavar="N", help="How many memories to look at.")
    ] = 30
    recipe: RecipeName = None
    at: Annotated[
        str | None, Option(metavar="DATE", help="When it is asked; 'last week' is read from there.")
    ] = None
    time: TimeOptions
    min_trust: LeastTrust = None
    why: Why = False


async def ask(
    options: Options,
    question: Annotated[str, Argument(metavar="QUESTION", help="The question.")],
    choices: AskOptions,
) -> None:
    """Answer a question from memory, with citations."""
    from memagent.core.recipes import recipe_of

    if not question.strip():
        raise InputError("the question is empty")
    at, recipe = choices.at, choices.recipe
    request = memagent.Question(
        text=question,
        k=choices.k,
        recipe=recipe_of(recipe) if recipe is not None else None,
        asked_at=parse_moment(at, option="--at") if at is not None else None,
        as_of=choices.time.as_of(),
        where=trusted(memagent.Filter(), choices.min_trust),
    )
    with opened(options, vectors=True) as store:
        agent = store.agent(options.scope, model=options.model)
        await tell_if_empty(agent.bank, store)
        answer = await agent.ask(request)
    document = answer.model_dump(mode="json", exclude=None if choices.why else {"hits"})
    emit(options, document, lambda: views.answer_view(answer, why=choices.why))


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """The options of `memagent search`."""

    k: Annotated[int, Option("--k", "-k", min=1, max=1000, metavar="N", help="How many.")] = 10
    only: FilterOptions
    recipe: RecipeName = None
    max_tokens: Annotated[
        int | None, Option(min=1, metavar="N", help="At most this many tokens (estimated) in all.")
    ] = None
    time: TimeOptions
    why: Why = False


async def search(
    options: Options,
    text: Annotated[str, Argument(metavar="TEXT", help="What to look for.")],
    choices: SearchOptions,
) -> None:
    """Find the best memories for a text, best first."""
    as_of = choices.time.as_of()
    async with reading_memory(options, vectors=True) as memory:
        hits = await memory.search(
            text,
            k=choices.k,
            where=choices.only.where(),
            as_of=as_of,
            recipe=choices.recipe,
            max_tokens=choices.max_tokens,
        )
    emit(options, hits, lambda: views.hits_table(hits, why=choices.why))


async def list_(
    options: Options,
    *,
    deleted: Annotated[bool, Option("--deleted", help="Show deleted memories too.")] = False,
    limit: Annotated[int | None, Option(min=1, metavar="N", help="At most this many.")] = None,
    only: FilterOptions,
) -> None:
    """List what is remembered, oldest first."""
    async with reading_memory(options) as memory:
        items = await memory.get_all(where=only.where(), include_deleted=deleted, limit=limit)
    emit(options, items, lambda: views.items_table(items))


async def show(options: Options, item_id: ItemId) -> None:
    """Show one memory: all its versions and the turns it rests on."""
    with opened_memory(options) as memory:
        state = await memory.bank.sync()
        item = state.items[find_id(state.items, item_id, user_id=options.user_id)]
        versions, stats = state.versions(item.id), state.stats.get(item.id)
        found = (memory.bank.turn_with_session(turn_id) for turn_id in item.source_turn_ids)
        turns = [pair for pair in found if pair is not None]
    sources = [
        {"session_id": session.id, "said_at": session.date_of(turn), "turn": turn}
        for turn, session in turns
    ]
    document = {"item": item, "versions": versions, "sources": sources, "stats": stats}
    emit(options, document, lambda: views.item_view(versions, turns, stats))


async def trials(
    options: Options,
    trial_id: Annotated[
        str | None, Argument(metavar="TRIAL", help="A trial; without it, all, newest first.")
    ] = None,
    limit: Annotated[int | None, Option(min=1, metavar="N", help="At most this many.")] = None,
) -> None:
    """List the trials of tasks, or show one with its steps and outcome."""
    from memagent.memory.trials.reporting import get_trial, newest_trials

    async with reading_memory(options) as memory:
        if trial_id is None:
            listed = newest_trials(await memory.bank.sync())[:limit]
            emit(options, listed, lambda: views.trials_table(listed))
        else:
            trial = await get_trial(memory.bank, trial_id)
            emit(options, trial, lambda: views.trial_view(trial))


async def stats(
    options: Options,
    graph: Annotated[
        bool, Option("--graph", help="Count the nodes and edges of the event graph too.")
    ] = False,
) -> None:
    """Count the memories, and with --graph the nodes and edges of the event graph."""
    async with reading_memory(options) as memory:
        counts = counts_of(await memory.bank.sync())
        figures = await memory.graph_stats() if graph else None
    emit(options, {**counts, "graph": figures}, lambda: views.stats_view(counts, figures))

"""The commands that change a memory, teach it or show changes: from `edit` to `tidy`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

import memagent
from memagent.cli import views
from memagent.cli.arguments import ItemId, exactly_one, find_id, parse_point, read_outcome
from memagent.cli.frame import Options, emit
from memagent.cli.stores import opened, opened_memory, reading_memory
from memagent.core.errors import InputError, StoreError


async def edit(
    options: Options,
    item_id: ItemId,
    new_text: Annotated[str | None, Argument(metavar="TEXT", help="The new text.")] = None,
    text: Annotated[str | None, Option(metavar="TEXT", help="The new text, as an option.")] = None,
    version: Annotated[
        int | None, Option(min=1, metavar="N", help="Only if this is still the latest version.")
    ] = None,
) -> None:
    """Write a new version of a memory; the old one stays readable."""
    content = exactly_one(new_text, text, choices="TEXT or --text TEXT")
    with opened_memory(options, write=True) as memory:
        known = (await memory.bank.sync()).items
        full_id = find_id(known, item_id, user_id=options.user_id)
        item = await memory.update(full_id, content, version=version)
    emit(options, item, lambda: views.items_table([item]))


async def rm(
    options: Options,
    item_ids: Annotated[
        list[str] | None, Argument(metavar="[ID]...", help="Memories to delete.")
    ] = None,
    all_: Annotated[
        bool, Option("--all", help="Delete everything --user remembers; asks first.")
    ] = False,
    yes: Annotated[bool, Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Delete memories. They can be brought back with `memagent undo`."""
    _check_removal(options, item_ids, everything=all_, confirmed=yes)
    from memagent.core.ops import Delete, OpBatch
    from memagent.core.records import SourceRef

    with opened_memory(options, write=True) as memory:
        bank = memory.bank
        active = {item.id: item for item in (await bank.sync()).active()}
        chosen = (find_id(active, item_id, user_id=options.user_id) for item_id in item_ids or ())
        doomed = tuple(sorted(active) if all_ else dict.fromkeys(chosen))
        batch = OpBatch(accepted=tuple(Delete(id=item_id) for item_id in doomed))
        commit = await bank.commit(batch, source=SourceRef(actor="user")) if doomed else None
    if commit is not None and commit.rejected:
        raise StoreError(f"{len(commit.rejected)} not deleted: {commit.rejected[0].detail}")
    items = [active[item_id] for item_id in doomed]
    document = {"commit": commit.id if commit is not None else None, "deleted": items}
    emit(options, document, lambda: views.deleted_view(items))


def _check_removal(
    options: Options, item_ids: list[str] | None, *, everything: bool, confirmed: bool
) -> None:
    if bool(item_ids) == everything:
        raise typer.BadParameter("give the ids of memories, or --all with --user")
    if not everything:
        return
    if options.user is None:
        raise typer.BadParameter("--all needs --user: say whose memories")
    question = f"Delete everything that user {options.user_id!r} remembers?"
    if not confirmed and not (sys.stdin.isatty() and typer.confirm(question, err=True)):
        raise InputError("nothing was deleted; --yes answers the question beforehand")


async def history(
    options: Options,
    item_id: Annotated[
        str | None, Argument(metavar="ID", help="A memory; without it, all that was done.")
    ] = None,
    limit: Annotated[
        int | None, Option(min=1, metavar="N", help="Only the last N entries.")
    ] = None,
) -> None:
    """Show the changes of one memory, or the log of all changes and refused ones, with reasons."""
    latest = slice(-(limit or 0), None)
    async with reading_memory(options) as memory:
        if item_id is None:
            rows = [row async for row in memory.bank.rows()][latest]
            emit(options, rows, lambda: views.log_table(rows))
        else:
            full_id = find_id(memory.bank.state.touched, item_id, user_id=options.user_id)
            entries = (await memory.history(full_id))[latest]
            emit(options, entries, lambda: views.history_table(entries))


async def undo(
    options: Options,
    commit_id: Annotated[
        str | None, Argument(metavar="COMMIT", help="A commit; the last one when left out.")
    ] = None,
) -> None:
    """Take back a change. An undo can be undone too."""
    with opened_memory(options, write=True) as memory:
        commit = await memory.undo(commit_id)
    emit(options, commit, lambda: views.commit_view(commit))


async def recall(
    options: Options,
    task: Annotated[str, Argument(metavar="TASK", help="The task at hand.")],
    k: Annotated[int, Option("--k", "-k", min=1, max=1000, metavar="N", help="How many.")] = 10,
) -> None:
    """Find memories for a task and start a trial; `memagent report` ends it."""
    with opened(options, write=True, vectors=True) as store:
        recalled = await store.agent(options.scope, model=options.model).recall(task, k=k)
    emit(options, recalled, lambda: views.recall_view(recalled))


async def report(
    options: Options,
    trial_id: Annotated[str, Argument(metavar="TRIAL", help="Id of the trial.")],
    reward: Annotated[float, Argument(metavar="REWARD", help="1 for done, 0 or less for failed.")],
    detail: Annotated[str, Option(metavar="TEXT", help="Why; no search reads it.")] = "",
    outcome: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="JSON with success, steps, credit and edits, as REST takes them.",
        ),
    ] = None,
) -> None:
    """Report what came of a trial: its memories are counted, and the design may learn."""
    rest = read_outcome(outcome)
    if detail:
        rest["detail"] = detail
    with opened(options, write=True, vectors=True) as store:
        agent = store.agent(options.scope, model=options.model)
        learned = await agent.report(trial_id, reward, **rest)
    emit(options, learned, lambda: views.learned_view(learned))


async def tidy(
    options: Options,
    budget: Annotated[
        int | None, Option(min=0, metavar="N", help="Keep at most N memories, the most useful.")
    ] = None,
) -> None:
    """Let the design prune, merge or rewrite memories; `memagent undo` takes it back."""
    with opened(options, write=True) as store:
        commit = await store.agent(options.scope, model=options.model).tidy(budget)
    emit(options, {"commit": commit}, lambda: views.tidied_view(commit))


async def diff(
    options: Options,
    start: Annotated[
        str, Option("--from", metavar="DATE|SEQ", help="The earlier point; of a day its beginning.")
    ],
    end: Annotated[
        str | None, Option("--to", metavar="DATE|SEQ", help="The later point; now when left out.")
    ] = None,
) -> None:
    """Show what changed in memory between two points of its recording."""
    points = (
        parse_point(start, option="--from", end=False),
        parse_point(end, option="--to") if end is not None else None,
    )
    with opened_memory(options) as memory:
        then = [await memory.as_of(memagent.AsOf(recorded=point)) for point in points]
        before, after = [await past.snapshot() for past in then]
        changes = await memory.diff(before, after)
    document = {
        "from": {"seq": before.seq, "digest": before.digest},
        "to": {"seq": after.seq, "digest": after.digest},
    }
    labels = [f"entry {snapshot.seq} ({snapshot.digest[:12]})" for snapshot in (before, after)]
    emit(
        options,
        document | changes.model_dump(mode="json"),
        lambda: views.diff_view(changes, title=f"from {labels[0]} to {labels[1]}"),
    )

"""The commands that change a memory, teach it, show changes and care for it.

From `edit` to `erase` they work on one memory; `backup` and `restore` copy a whole
store.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

from rich.console import Group
from typer import Argument, BadParameter, Option, confirm

import memagent
from memagent.cli import views
from memagent.cli.frame import Options, emit, line, pairs, plain, table
from memagent.cli.stores import (
    Force,
    ItemId,
    exactly_one,
    find_id,
    opened,
    opened_memory,
    parse_point,
    read_outcome,
    reading_memory,
    store_file,
)
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
        full_id = find_id((await memory.bank.sync()).items, item_id, user_id=options.user_id)
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
    if bool(item_ids) == all_:
        raise BadParameter("give the ids of memories, or --all with --user")
    if all_:
        if options.user is None:
            raise BadParameter("--all needs --user: say whose memories")
        question = f"Delete everything that user {options.user_id!r} remembers?"
        if not yes and not (sys.stdin.isatty() and confirm(question, err=True)):
            raise InputError("nothing was deleted; --yes answers the question beforehand")
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
    lines = [line(("deleted ", "red"), f"{item.id}  {item.text}") for item in items]
    emit(options, document, lambda: Group(*(lines or [plain("nothing to delete")])))


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
    emit(
        options,
        recalled,
        lambda: Group(plain(f"trial {recalled.id}"), views.hits_table(recalled.hits)),
    )


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
    emit(
        options,
        {"commit": commit},
        lambda: views.commit_view(commit, "nothing to tidy"),
    )


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


Names = list[str] | None


async def quarantine(
    options: Options,
    change_id: Annotated[
        str | None, Argument(metavar="ID", help="A change; without it, all that wait.")
    ] = None,
    accept: Annotated[bool, Option("--accept", help="Carry it out.")] = False,
    refuse: Annotated[bool, Option("--refuse", help="Settle it without carrying it out.")] = False,
) -> None:
    """List the changes kept aside because of low trust, and accept or refuse one."""
    if (change_id is not None) != (accept or refuse) or (accept and refuse):
        raise BadParameter("give an ID with --accept or --refuse, or neither")
    if change_id is None:
        async with reading_memory(options) as memory:
            waiting = await memory.quarantine()
        rows = (
            (
                one.id,
                one.op.op,
                getattr(one.op, "id", "") or "",
                str(getattr(one.op, "text", "")),
                one.detail,
            )
            for one in waiting
        )
        columns = ("id", "op", "memory", "new text", "why")
        emit(
            options,
            waiting,
            lambda: table(columns, rows, fixed=columns[:2], nothing="nothing waits"),
        )
        return
    with opened_memory(options, write=True) as memory:
        commit = await (memory.accept(change_id) if accept else memory.refuse(change_id))
    emit(options, commit, lambda: views.commit_view(commit))


async def touched(
    options: Options,
    *,
    session: Annotated[
        Names, Option("--session", metavar="ID", help="Turns of this session; repeatable.")
    ] = None,
    turn: Annotated[Names, Option(metavar="ID", help="This turn; repeatable.")] = None,
    speaker: Annotated[
        Names, Option(metavar="NAME", help="What this speaker or tool said; repeatable.")
    ] = None,
    trust: Annotated[
        Names,
        Option(metavar="TRUST", help="Turns of this trust, such as tool; repeatable."),
    ] = None,
    do: Annotated[
        Literal["list", "exclude", "roll-back"],
        Option(help="List, delete, or set back to before; both can be undone."),
    ] = "list",
) -> None:
    """List what rests on one source, delete it, or set it back to before the source."""
    from memagent.core.snapshot import SourceFilter
    from memagent.memory.options import trusting

    levels = (trusting(memagent.Filter(), name).min_trust for name in trust or ())
    source = SourceFilter(
        session_ids=frozenset(session or ()),
        turn_ids=frozenset(turn or ()),
        speakers=frozenset(speaker or ()),
        trusts=frozenset(filter(None, levels)),
    )
    if do == "list":
        async with reading_memory(options) as memory:
            found = await memory.touched_by(source)
        rows = (
            (
                one.item.id,
                ", ".join(map(str, one.versions)),
                str(one.clean or "-"),
                one.item.trust.value,
                plain(one.item.text, "" if one.item.active else "dim strike"),
            )
            for one in found
        )
        columns = ("id", "touched versions", "last before", "trust", "text")
        emit(
            options,
            found,
            lambda: table(columns, rows, fixed=("id",), nothing="nothing rests on it"),
        )
        return
    with opened_memory(options, write=True) as memory:
        commit = await (memory.exclude(source) if do == "exclude" else memory.roll_back(source))
    emit(
        options,
        {"commit": commit},
        lambda: views.commit_view(commit, "nothing to do"),
    )


async def erase(
    options: Options,
    item_id: Annotated[str | None, Argument(metavar="ID", help="A memory to erase.")] = None,
    session: Annotated[
        str | None, Option("--session", metavar="ID", help="A session to erase instead.")
    ] = None,
    keep_turns: Annotated[
        bool, Option("--keep-turns", help="Leave the turns that the memory rests on.")
    ] = False,
    yes: Annotated[bool, Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Erase one memory or one session beyond recovery, and show the receipt."""
    if (item_id is None) == (session is None):
        raise BadParameter("give the id of a memory, or --session with that of a session")
    question = "Erase it beyond recovery, from every file of the store?"
    if not yes and not (sys.stdin.isatty() and confirm(question, err=True)):
        raise InputError("nothing was erased; --yes answers the question beforehand")
    with opened_memory(options, write=True) as memory:
        if session is not None:
            receipt = await memory.erase_session(session)
        else:
            items = (await memory.bank.sync()).items
            full_id = find_id(items, item_id or "", user_id=options.user_id)
            receipt = await memory.erase(full_id, keep_turns=keep_turns)
    figures = receipt.model_dump(mode="json", exclude={"places"})
    figures["searched"] = "\n".join(
        f"{place.name}: {place.size_bytes} bytes, {place.found_after} found after it"
        for place in receipt.places
    )
    verdict = line(("gone" if receipt.gone else "something is left", "bold"))
    emit(options, receipt, lambda: Group(pairs(figures), verdict))


def backup(
    options: Options,
    file: Annotated[Path, Argument(metavar="FILE", help="The file to write; it must be new.")],
) -> int:
    """Copy the whole store to a file while others use it, and verify the copy."""
    from memagent.journal.sqlite import backup_store

    path, seal = store_file(options)
    if not path.exists():
        raise StoreError(f"there is no memory at {path}")
    report = backup_store(path, file, seal=seal)
    emit(options, report, lambda: pairs(report.model_dump(mode="json")))
    return int(bool(report.problems))


def restore(
    options: Options,
    file: Annotated[Path, Argument(metavar="FILE", help="What `memagent backup` wrote.")],
    verify: Annotated[
        bool, Option("--verify", help="Check every hash of the backup, and write nothing.")
    ] = False,
    force: Force = False,
) -> int:
    """Verify a backup and put it in the place of the store."""
    from memagent.journal.proof.audit import Seal
    from memagent.journal.sqlite import restore_store, verify_store

    if not file.exists():
        raise StoreError(f"there is no backup at {file}")
    path, seal = store_file(options)
    if verify:
        report = verify_store(file, seal=Seal(key=seal.key))
    else:
        report = restore_store(file, path, seal=seal, force=force)
    emit(options, report, lambda: pairs(report.model_dump(mode="json")))
    return int(bool(report.problems))

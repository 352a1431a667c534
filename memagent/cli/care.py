"""The commands for the care of a memory and of its store.

`quarantine`, `touched` and `erase` work on one memory; `backup` and `restore` copy a
whole store.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Group
from typer import Argument, Option

import memagent
from memagent.cli import views
from memagent.cli.arguments import Force, find_id
from memagent.cli.frame import Options, emit, line, pairs, plain, table
from memagent.cli.stores import opened_memory, read_settings, reading_memory, store_path
from memagent.core.errors import InputError, StoreError

if TYPE_CHECKING:
    from memagent.core.records import Trust
    from memagent.journal.proof.tips import Seal


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
        raise typer.BadParameter("give an ID with --accept or --refuse, or neither")
    if change_id is None:
        async with reading_memory(options) as memory:
            waiting = await memory.quarantine()
        rows = (
            (one.id, one.op.op, getattr(one.op, "id", "") or "", _words(one.op), one.detail)
            for one in waiting
        )
        columns = ("id", "op", "memory", "new text", "why")
        emit(
            options,
            waiting,
            lambda: table(columns, rows, fixed=columns[:2]) if waiting else plain("nothing waits"),
        )
        return
    with opened_memory(options, write=True) as memory:
        commit = await (memory.accept(change_id) if accept else memory.refuse(change_id))
    emit(options, commit, lambda: views.commit_view(commit))


def _words(op: object) -> str:
    return str(getattr(op, "text", ""))


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
    from memagent.core.reports import SourceFilter

    source = SourceFilter(
        session_ids=frozenset(session or ()),
        turn_ids=frozenset(turn or ()),
        speakers=frozenset(speaker or ()),
        trusts=frozenset(_trust(name) for name in trust or ()),
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
            lambda: table(columns, rows, fixed=("id",)) if found else plain("nothing rests on it"),
        )
        return
    with opened_memory(options, write=True) as memory:
        commit = await (memory.exclude(source) if do == "exclude" else memory.roll_back(source))
    emit(
        options,
        {"commit": commit},
        lambda: views.commit_view(commit) if commit is not None else plain("nothing to do"),
    )


def _trust(name: str) -> Trust:
    from memagent.memory.options import trusting

    level = trusting(memagent.Filter(), name).min_trust
    assert level is not None
    return level


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
        raise typer.BadParameter("give the id of a memory, or --session with that of a session")
    question = "Erase it beyond recovery, from every file of the store?"
    if not yes and not (sys.stdin.isatty() and typer.confirm(question, err=True)):
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

    path, seal = _place(options)
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
    from memagent.journal.proof.tips import Seal
    from memagent.journal.sqlite import restore_store, verify_store

    if not file.exists():
        raise StoreError(f"there is no backup at {file}")
    path, seal = _place(options)
    if verify:
        report = verify_store(file, seal=Seal(key=seal.key))
    else:
        report = restore_store(file, path, seal=seal, force=force)
    emit(options, report, lambda: pairs(report.model_dump(mode="json")))
    return int(bool(report.problems))


def _place(options: Options) -> tuple[Path, Seal]:
    from memagent.config import SqliteSettings
    from memagent.open_store import seal_of

    settings = read_settings(options)
    path, store = store_path(options, settings), settings.store
    if not isinstance(path, Path):
        raise StoreError(
            "a server is copied by its own tools: pg_dump, then pg_restore, and verify with  "
            "memagent doctor --db URL"
        )
    return path, seal_of(store if isinstance(store, SqliteSettings) else SqliteSettings())

"""`memagent-eval replay`: a past session with another model, design or forced ops.

    memagent-eval replay --session 3 --as NOOP --ask "Where does Ana live?"
    memagent-eval replay --session 3 --model openai/gpt-4o-mini --design memory_r2
    memagent-eval replay --session 3 --as ops.json

`ops.json` is a list with one list of ops for each chunk, as in `[[{"op": "DELETE",
"id": "mem_..."}], []]`. The store is opened for reading.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.table import Table
from rich.text import Text

from environments.auditing.forcing import Forced
from environments.auditing.past_session import past_session
from environments.auditing.replay import ReplayReport, Reply, replay
from environments.auditing.user_stores import (
    Db,
    SettingsOption,
    User,
    clean,
    output,
    reading,
    scope_of,
)
from environments.errors import EnvironmentFault
from environments.options import command
from memagent.build import load_settings
from memagent.core.ops import MemoryOp

_OPS: TypeAdapter[tuple[tuple[MemoryOp, ...], ...]] = TypeAdapter(tuple[tuple[MemoryOp, ...], ...])


@dataclass(frozen=True, kw_only=True)
class ReplayOptions:
    """The options of the verb."""

    session: Annotated[
        str,
        typer.Option(
            metavar="ID|N",
            help="The session: its id, or its number from 1 in the order heard.",
            show_default=False,
        ),
    ]
    forced: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="NOOP|ADD|FILE",
            help="What every decision becomes, or a JSON file of ops per chunk.",
        ),
    ] = None
    ask: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="A question to compare; repeatable.")
    ] = None
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="The model that hears and answers.")
    ] = None
    design: Annotated[
        str | None, typer.Option(metavar="NAME", help="The design that hears and answers.")
    ] = None
    db: Db = None
    user: User = "default"
    settings: SettingsOption = None
    embedder: Annotated[
        str | None, typer.Option(metavar="NAME", help="The embedder that the store goes by.")
    ] = None
    show: Annotated[
        int, typer.Option(min=0, help="Items and edges shown of each kind of change.")
    ] = 20
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole report as JSON.")] = False


def replay_store(options: ReplayOptions) -> None:
    """Replay a past session of a stored memory otherwise, and compare memory and answers.

    Changes nothing.
    """
    report = asyncio.run(_replay(options))
    if options.as_json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        print_replay(report, show=options.show)
    if report.failure is not None:
        typer.echo(f"memagent-eval: the rerun ended early: {clean(report.failure)}", err=True)
        raise typer.Exit(1)


replay_command = command(ReplayOptions, replay_store)


async def _replay(options: ReplayOptions) -> ReplayReport:
    settings = load_settings(options.settings)
    forced = forced_of(options.forced) if options.forced is not None else None
    questions = options.ask or []
    if any(not question.strip() for question in questions):
        raise typer.BadParameter("the question is empty", param_hint="--ask")
    with reading(options.db, settings, embedder=options.embedder) as store:
        scope = await scope_of(store, options.user)
        agent = store.agent(scope, model=options.model, design=options.design, keep_unreadable=True)
        session = await past_session(agent, options.session)
        return await replay(session, forced=forced, questions=questions)


def forced_of(text: str) -> Forced:
    """Read `--as`: NOOP, ADD, or a file of ops per chunk.

    Raises `EnvironmentFault`.
    """
    if text.upper() == "NOOP":
        return "NOOP"
    if text.upper() == "ADD":
        return "ADD"
    try:
        return _OPS.validate_json(Path(text).read_bytes())
    except OSError as error:
        raise EnvironmentFault(
            f"--as takes NOOP, ADD or a JSON file of ops; {text} cannot be read: "
            f"{error.strerror or error}"
        ) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise EnvironmentFault(
            f"{text} holds no ops: {place}: {first['msg']}; write one list for each chunk, as in "
            f'[[{{"op": "NOOP"}}], []]'
        ) from error


# -- what a person reads ---------------------------------------------------------------


def print_replay(report: ReplayReport, *, show: int = 20) -> None:
    """Print the report for people, on standard output."""
    console = output()
    day = f", {report.at:%Y-%m-%d}" if report.at else ""
    how = "forced ops" if report.forced else "its own decisions"
    console.print(
        f"session {report.number} ({clean(report.session_id)}{day}), from the memory at sequence "
        f"{report.seq}"
    )
    console.print(f"replayed by design {report.design}, {how}")
    table = Table("ops", *report.ops_replayed, box=None, pad_edge=False, header_style="bold")
    for name, counts in (("as it was", report.ops_as_it_was), ("replayed", report.ops_replayed)):
        table.add_row(name, *(str(counts.get(kind, 0)) for kind in report.ops_replayed))
    console.print(table)
    for rejected in report.rejected[:show]:
        console.print(
            Text(f"rejected  {rejected.reason.value}  {clean(rejected.detail)}", style="yellow"),
            soft_wrap=True,
        )
    _print_difference(console, report, show)
    for compared in report.answers:
        answers = Table(
            "", "as it was", "replayed", title=Text(clean(compared.question)), title_justify="left"
        )
        answers.add_row("answer", _answer(compared.as_it_was), _answer(compared.replayed))
        answers.add_row("evidence", _evidence(compared.as_it_was), _evidence(compared.replayed))
        console.print(answers)
    for note in report.notes:
        console.print(f"note: {note}")


def _print_difference(console: Console, report: ReplayReport, show: int) -> None:
    change = report.difference
    console.print(
        f"memory: {len(change.added)} items more, {len(change.removed)} fewer, "
        f"{len(change.changed)} changed; "
        f"{len(change.edges_added)} edges more, {len(change.edges_removed)} fewer"
    )
    lines = [
        [Text(f"+ {item.id}  {clean(item.text)}", style="green") for item in change.added],
        [Text(f"- {item.id}  {clean(item.text)}", style="red") for item in change.removed],
        [
            Text(f"~ {old.id}  {clean(old.text)}  ->  {clean(new.text)}", style="yellow")
            for old, new in change.changed
        ],
        [
            Text(f"+ {clean(f'{edge.source} -{edge.key}-> {edge.target}')}", style="dim")
            for edge in change.edges_added
        ],
        [
            Text(f"- {clean(f'{edge.source} -{edge.key}-> {edge.target}')}", style="dim")
            for edge in change.edges_removed
        ],
    ]
    for kind in lines:
        for line in kind[:show]:
            console.print(line, soft_wrap=True)
        if len(kind) > show > 0:
            console.print(f"  ... and {len(kind) - show:,} more; --show or --json lists them")


def _answer(reply: Reply) -> Text:
    if reply.failure is not None:
        return Text(f"failed: {clean(reply.failure)}", style="red")
    return Text(f"{clean(reply.text) or '(none)'}  [{reply.verdict}]")


def _evidence(reply: Reply) -> Text:
    return Text(
        "\n".join(
            f"{cited.turn_id or cited.hit_id}  {clean(cited.quote)}" for cited in reply.evidence
        )
        or "-"
    )

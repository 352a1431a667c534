"""`memagent-eval replay`: what a past session would have left behind had another model,
another design or a forced op decided.

    memagent-eval replay --session 3 --as NOOP --ask "Where does Ana live?"
    memagent-eval replay --session 3 --model openai/gpt-4o-mini --design memory_r2
    memagent-eval replay --session 3 --as ops.json

`ops.json` is a list with one list of ops for each chunk, as in `[[{"op": "DELETE",
"id": "mem_..."}], []]`. The store is opened for reading.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.table import Table
from rich.text import Text

from environments.auditing.replay import Forced, ReplayReport, Reply, past_session, replay
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
from memagent.build import AgentSettings, load_settings
from memagent.core.ops import MemoryOp

_OPS: TypeAdapter[tuple[tuple[MemoryOp, ...], ...]] = TypeAdapter(tuple[tuple[MemoryOp, ...], ...])


def replay_command(
    session: Annotated[
        str,
        typer.Option(
            metavar="ID|N",
            help="The session: its id, or its number from 1 in the order heard.",
            show_default=False,
        ),
    ],
    forced: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="NOOP|ADD|FILE",
            help="What every decision becomes, or a JSON file of ops per chunk.",
        ),
    ] = None,
    ask: Annotated[
        list[str] | None, typer.Option(metavar="TEXT", help="A question to compare; repeatable.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="The model that hears and answers.")
    ] = None,
    design: Annotated[
        str | None, typer.Option(metavar="NAME", help="The design that hears and answers.")
    ] = None,
    db: Db = None,
    user: User = "default",
    settings: SettingsOption = None,
    embedder: Annotated[
        str | None, typer.Option(metavar="NAME", help="The embedder that the store goes by.")
    ] = None,
    show: Annotated[
        int, typer.Option(min=0, help="Items and edges shown of each kind of change.")
    ] = 20,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the whole report as JSON.")
    ] = False,
) -> None:
    """Replay a past session of a stored memory otherwise, and compare memory and answers.

    Changes nothing.
    """
    report = asyncio.run(
        _replayed(
            db,
            user,
            load_settings(settings),
            embedder=embedder,
            model=model,
            design=design,
            session=session,
            forced=forced_of(forced) if forced is not None else None,
            questions=ask or [],
        )
    )
    if as_json:
        typer.echo(report.model_dump_json(indent=2))
    else:
        print_replay(report, show=show)
    if report.failure is not None:
        typer.echo(f"memagent-eval: the rerun ended early: {clean(report.failure)}", err=True)
        raise typer.Exit(1)


async def _replayed(
    db: Path | None,
    user: str,
    settings: AgentSettings,
    *,
    embedder: str | None,
    model: str | None,
    design: str | None,
    session: str,
    forced: Forced | None,
    questions: Sequence[str],
) -> ReplayReport:
    if any(not question.strip() for question in questions):
        raise typer.BadParameter("the question is empty", param_hint="--ask")
    with reading(db, settings, embedder=embedder) as store:
        agent = store.agent(await scope_of(store, user), model=model, design=design)
        return await replay(await past_session(agent, session), forced=forced, questions=questions)


def forced_of(text: str) -> Forced:
    """What `--as` names: NOOP, ADD, or a file of ops per chunk.

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
            f"--as takes NOOP, ADD or a JSON file of ops; {text} cannot be read: {error.strerror or error}"
        ) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise EnvironmentFault(
            f'{text} holds no ops: {place}: {first["msg"]}; write one list for each chunk, as in [[{{"op": "NOOP"}}], []]'
        ) from error


# -- what a person reads ---------------------------------------------------------------


def print_replay(report: ReplayReport, *, show: int = 20) -> None:
    """The report for people, on standard output."""
    console = output()
    day = f", {report.at:%Y-%m-%d}" if report.at else ""
    how = "forced ops" if report.forced else "its own decisions"
    console.print(
        f"session {report.number} ({clean(report.session_id)}{day}), from the memory at sequence {report.seq}"
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
        f"memory: {len(change.added)} items more, {len(change.removed)} fewer, {len(change.changed)} changed; "
        f"{len(change.edges_added)} edges more, {len(change.edges_removed)} fewer"
    )
    lines = [
        [Text(f"+ {one.id}  {clean(one.text)}", style="green") for one in change.added],
        [Text(f"- {one.id}  {clean(one.text)}", style="red") for one in change.removed],
        [
            Text(f"~ {old.id}  {clean(old.text)}  ->  {clean(new.text)}", style="yellow")
            for old, new in change.changed
        ],
        [
            Text(f"+ {clean(f'{one.source} -{one.key}-> {one.target}')}", style="dim")
            for one in change.edges_added
        ],
        [
            Text(f"- {clean(f'{one.source} -{one.key}-> {one.target}')}", style="dim")
            for one in change.edges_removed
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
        "\n".join(f"{one.turn_id or one.hit_id}  {clean(one.quote)}" for one in reply.evidence)
        or "-"
    )

"""The command line: one Typer app, one function a command.

A command reads its arguments, calls a verb of the library and hands the result to
`emit`. What all of them share is in `cli_frame`, what a person sees in `cli_views`.
Commands that only read open the store for reading, so they work while another process
writes. The surprise: nearly everything is imported inside the commands, so that
`memagent --help` starts at once and `list` never loads a graph.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from memagent.cli import views
from memagent.cli.frame import (
    SETTINGS_FILE,
    CommandGroup,
    Options,
    command,
    emit,
    find_id,
    moment_of,
    opened,
    opened_bank,
    point_of,
    tell_if_empty,
)
from memagent.core.errors import InputError, StoreError

if TYPE_CHECKING:
    from memagent.core.answers import AsOf, Filter
    from memagent.core.snapshot import MemorySnapshot
    from memagent.memory.bank import MemoryBank

app = typer.Typer(
    name="memagent",
    cls=CommandGroup,
    help="A language-model agent with a long-term memory that is cited and auditable.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Format = Literal["auto", "locomo", "longmemeval", "messages", "text"]
GraphFile = Literal["auto", "html", "json", "graphml"]
ItemId = Annotated[
    str, Argument(metavar="ID", help="Id of a memory, or the first 8 characters of it or more.")
]
AsOfSaid = Annotated[
    str | None, Option(metavar="DATE", help="Use only what had been said by then.")
]
AsOfValid = Annotated[str | None, Option(metavar="DATE", help="Use what held at that time.")]
AsOfRecorded = Annotated[
    str | None, Option(metavar="DATE|SEQ", help="Use the memory as it was recorded then.")
]
Why = Annotated[
    bool,
    Option(
        "--why",
        "--explain",
        help="Show with every hit what its score is made of and what led to it.",
    ),
]
RecipeName = Annotated[
    str | None,
    Option("--recipe", metavar="NAME", help="How to search: fast, balanced, deep or plain."),
]
Speaker = Annotated[
    list[str] | None, Option(metavar="NAME", help="Only of this speaker; repeatable.")
]
Kind = Annotated[list[str] | None, Option(metavar="KIND", help="Only of this kind; repeatable.")]
InSession = Annotated[
    list[str] | None, Option("--session", metavar="ID", help="Only of this session; repeatable.")
]
Limit = Annotated[int | None, Option(min=1, metavar="N", help="At most this many.")]


def main() -> None:
    """Run the command line and exit."""
    app()


@app.callback(invoke_without_command=True)
def _root(  # pyright: ignore[reportUnusedFunction]
    context: typer.Context,
    version: Annotated[bool, Option("--version", help="Print the version and exit.")] = False,
) -> None:  # the version is printed by the group
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


# -- setting up ------------------------------------------------------------------------


@command(app)
def init(
    options: Options,
    force: Annotated[
        bool, Option("--force", help="Replace a settings file that is there.")
    ] = False,
) -> None:
    """Write a commented settings file (./memagent.toml, or --config) and make the store."""
    from memagent.cli.setup import make_settings

    file = options.config or SETTINGS_FILE
    if file.exists() and not force:
        raise InputError(f"{file} is there already; --force replaces it")
    done = make_settings(options, file)
    emit(options, done, lambda: views.pairs(done))


# -- talking ---------------------------------------------------------------------------


@command(app)
def chat(options: Options) -> int:
    """Talk with the agent: it answers from memory and remembers what you say.

    Also reads messages from a pipe, one a line.
    """
    from memagent.cli.chat import talk

    return talk(options)


@command(app)
async def ingest(
    options: Options,
    file: Annotated[
        Path,
        Argument(
            metavar="FILE", help="Conversations: LoCoMo, LongMemEval, message JSONL, or text."
        ),
    ],
    format: Annotated[Format, Option(help="How to read the file.")] = "auto",
    conversation: Annotated[
        str | None, Option(metavar="ID", help="Of several conversations, only this one.")
    ] = None,
    limit_sessions: Annotated[
        int | None, Option(min=1, metavar="N", help="Only the first N sessions.")
    ] = None,
    prefix: Annotated[
        str, Option(metavar="TEXT", help="Put before session and turn ids, against clashes.")
    ] = "",
    keep_going: Annotated[
        bool, Option("--keep-going", help="Go on after a chunk that failed.")
    ] = False,
) -> int:
    """Remember conversations from a file.

    What was remembered before is skipped, so a stopped run can be made again.
    """
    from memagent.cli.ingest import ingest_file

    return await ingest_file(
        options,
        file,
        format=format,
        conversation=conversation,
        limit=limit_sessions,
        prefix=prefix,
        keep_going=keep_going,
    )


@command(app)
async def ask(
    options: Options,
    question: Annotated[str, Argument(metavar="QUESTION", help="The question.")],
    k: Annotated[
        int, Option("--k", "-k", min=1, max=1000, metavar="N", help="How many memories to look at.")
    ] = 30,
    recipe: RecipeName = None,
    at: Annotated[
        str | None, Option(metavar="DATE", help="When it is asked; 'last week' is read from there.")
    ] = None,
    as_of_said: AsOfSaid = None,
    as_of_valid: AsOfValid = None,
    as_of_recorded: AsOfRecorded = None,
    why: Why = False,
) -> None:
    """Answer a question from memory, with citations."""
    from memagent.core.answers import Question
    from memagent.core.recipes import recipe_of

    if not question.strip():
        raise InputError("the question is empty")
    asked = Question(
        text=question,
        k=k,
        recipe=recipe_of(recipe) if recipe is not None else None,
        asked_at=moment_of(at, option="--at") if at is not None else None,
        as_of=_as_of(as_of_said, as_of_valid, as_of_recorded),
    )
    with opened(options, vectors=True) as store:
        agent = store.agent(options.scope, model=options.model)
        await tell_if_empty(agent.bank, store)
        answer = await agent.ask(asked)
    shown = answer.model_dump(mode="json", exclude=None if why else {"hits"})
    emit(options, shown, lambda: views.answer_view(answer, why=why))


def _as_of(said: str | None, valid: str | None, recorded: str | None) -> AsOf:
    from memagent.core.answers import AsOf

    return AsOf(
        said=moment_of(said, option="--as-of-said", end=True) if said is not None else None,
        valid=moment_of(valid, option="--as-of-valid", end=True) if valid is not None else None,
        recorded=point_of(recorded, option="--as-of-recorded") if recorded is not None else None,
    )


# -- looking ---------------------------------------------------------------------------


@command(app)
async def search(
    options: Options,
    text: Annotated[str, Argument(metavar="TEXT", help="What to look for.")],
    k: Annotated[int, Option("--k", "-k", min=1, max=1000, metavar="N", help="How many.")] = 10,
    speaker: Speaker = None,
    kind: Kind = None,
    session: InSession = None,
    recipe: RecipeName = None,
    max_tokens: Annotated[
        int | None, Option(min=1, metavar="N", help="At most this many tokens (estimated) in all.")
    ] = None,
    as_of_said: AsOfSaid = None,
    as_of_valid: AsOfValid = None,
    as_of_recorded: AsOfRecorded = None,
    why: Why = False,
) -> None:
    """The best memories for a text, best first."""
    from memagent.core.recipes import BALANCED, recipe_of
    from memagent.memory.facade import Memory

    when = _as_of(as_of_said, as_of_valid, as_of_recorded)
    chosen = recipe_of(recipe) if recipe is not None else None
    with opened(options, vectors=True) as store:
        bank = store.bank(options.scope)
        await tell_if_empty(bank, store)
        memory = Memory(bank, recipe=store.settings.recipe or BALANCED)
        where = _where(speaker, kind, session)
        hits = await memory.search(
            text, k=k, where=where, as_of=when, recipe=chosen, max_tokens=max_tokens
        )
    emit(options, hits, lambda: views.hits_table(hits, why=why))


@command(app, "list")
async def list_(
    options: Options,
    deleted: Annotated[bool, Option("--deleted", help="Show deleted memories too.")] = False,
    limit: Limit = None,
    speaker: Speaker = None,
    kind: Kind = None,
    session: InSession = None,
) -> None:
    """What is remembered, oldest first."""
    from memagent.memory.facade import Memory

    with opened(options) as store:
        bank = store.bank(options.scope)
        await tell_if_empty(bank, store)
        items = await Memory(bank).get_all(
            where=_where(speaker, kind, session), include_deleted=deleted, limit=limit
        )
    emit(options, items, lambda: views.items_table(items))


def _where(
    speakers: list[str] | None, kinds: list[str] | None, sessions: list[str] | None
) -> Filter:
    from memagent.core.answers import Filter

    return Filter(
        speakers=frozenset(speakers or ()),
        kinds=frozenset(kinds or ()),
        session_ids=frozenset(sessions or ()),
    )


@command(app)
async def show(options: Options, item_id: ItemId) -> None:
    """One memory: all its versions and the turns it rests on."""
    with opened_bank(options) as bank:
        state = await bank.sync()
        item = state.items[find_id(state.items, item_id, user_id=options.user_id)]
        versions, stats = state.versions(item.id), state.stats.get(item.id)
        turns = [
            found
            for turn_id in item.source_turn_ids
            if (found := bank.turn_with_session(turn_id)) is not None
        ]
    sources = [
        {"session_id": session.id, "said_at": session.date_of(turn), "turn": turn}
        for turn, session in turns
    ]
    document = {"item": item, "versions": versions, "sources": sources, "stats": stats}
    emit(options, document, lambda: views.item_view(versions, turns, stats))


@command(app)
async def stats(
    options: Options,
    graph: Annotated[
        bool, Option("--graph", help="Count the nodes and edges of the event graph too.")
    ] = False,
) -> None:
    """How much is remembered, and with --graph what the event graph holds and how it
    hangs together.
    """
    from memagent.events.stats import graph_stats

    with opened(options) as store:
        bank = store.bank(options.scope)
        await tell_if_empty(bank, store)
        state = await bank.sync()
    active = sum(1 for _ in state.active())
    counts = {
        "memories": active,
        "deleted": len(state.items) - active,
        "sessions": len(state.sessions),
    }
    counts |= {"turns": len(state.turns), "entries": state.seq}
    found = graph_stats(state) if graph else None
    emit(options, {**counts, "graph": found}, lambda: views.stats_view(counts, found))


# -- changing and looking back ---------------------------------------------------------


@command(app)
async def edit(
    options: Options,
    item_id: ItemId,
    text: Annotated[str, Option(metavar="TEXT", help="The new text.")],
    version: Annotated[
        int | None, Option(min=1, metavar="N", help="Only if this is still the latest version.")
    ] = None,
) -> None:
    """Write a new version of a memory; the old one stays readable."""
    from memagent.memory.facade import Memory

    with opened_bank(options, write=True) as bank:
        found = find_id((await bank.sync()).items, item_id, user_id=options.user_id)
        changed = await Memory(bank).update(found, text, version=version)
    emit(options, changed, lambda: views.items_table([changed]))


@command(app)
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
        raise typer.BadParameter("give the ids of memories, or --all with --user")
    if all_ and options.user is None:
        raise typer.BadParameter("--all needs --user: say whose memories")
    if (
        all_
        and not yes
        and not _confirmed(f"Delete everything that user {options.user_id!r} remembers?")
    ):
        raise InputError("nothing was deleted; --yes answers the question beforehand")
    from memagent.core.ops import Delete, OpBatch
    from memagent.core.records import SourceRef

    with opened_bank(options, write=True) as bank:
        active = {item.id: item for item in (await bank.sync()).active()}
        doomed = (
            sorted(active)
            if all_
            else [find_id(active, one, user_id=options.user_id) for one in item_ids or ()]
        )
        batch = OpBatch(accepted=tuple(Delete(id=one) for one in dict.fromkeys(doomed)))
        commit = (
            await bank.commit(batch, source=SourceRef(actor="user")) if batch.accepted else None
        )
    if commit is not None and commit.rejected:
        raise StoreError(f"{len(commit.rejected)} not deleted: {commit.rejected[0].detail}")
    gone = [active[one] for one in dict.fromkeys(doomed)]
    emit(
        options,
        {"commit": commit.id if commit is not None else None, "deleted": gone},
        lambda: views.deleted(gone),
    )


def _confirmed(question: str) -> bool:
    return sys.stdin.isatty() and typer.confirm(question, err=True)


@command(app)
async def history(
    options: Options,
    item_id: Annotated[
        str | None, Argument(metavar="ID", help="A memory; without it, all that was done.")
    ] = None,
    limit: Annotated[
        int | None, Option(min=1, metavar="N", help="Only the last N entries.")
    ] = None,
) -> None:
    """Every change of one memory, or the log of all changes with what was refused and why."""
    from memagent.memory import timetravel

    with opened(options) as store:
        bank = store.bank(options.scope)
        await tell_if_empty(bank, store)
        if item_id is None:
            rows = [row async for row in bank.rows()][-(limit or 0) :]
            emit(options, rows, lambda: views.log_table(rows))
        else:
            found = find_id(bank.state.touched, item_id, user_id=options.user_id)
            entries = (await timetravel.history(bank, found))[-(limit or 0) :]
            emit(options, entries, lambda: views.history_table(entries))


@command(app)
async def undo(
    options: Options,
    commit_id: Annotated[
        str | None, Argument(metavar="COMMIT", help="A commit; the last one when left out.")
    ] = None,
) -> None:
    """Take back a change. An undo can be undone too."""
    from memagent.memory import timetravel

    with opened_bank(options, write=True) as bank:
        commit = await timetravel.undo(bank, commit_id)
    emit(options, commit, lambda: views.stack(views.commit_lines(commit)))


@command(app)
async def diff(
    options: Options,
    start: Annotated[
        str, Option("--from", metavar="DATE|SEQ", help="The earlier point; of a day its beginning.")
    ],
    end: Annotated[
        str | None, Option("--to", metavar="DATE|SEQ", help="The later point; now when left out.")
    ] = None,
) -> None:
    """What changed in memory between two points of its recording."""
    from memagent.memory import timetravel

    with opened_bank(options) as bank:
        before = await _recorded(bank, point_of(start, option="--from", end=False))
        after = await _recorded(bank, point_of(end, option="--to") if end is not None else None)
    found = timetravel.diff(before, after)
    document = {
        "from": {"seq": before.seq, "digest": before.digest},
        "to": {"seq": after.seq, "digest": after.digest},
    }
    title = (
        f"from entry {before.seq} ({before.digest[:12]}) to entry {after.seq} ({after.digest[:12]})"
    )
    emit(
        options,
        document | found.model_dump(mode="json"),
        lambda: views.diff_view(found, title=title),
    )


async def _recorded(bank: MemoryBank, point: object) -> MemorySnapshot:
    from memagent.core.answers import AsOf
    from memagent.memory import timetravel

    return (await timetravel.as_of(bank, AsOf.model_validate({"recorded": point}))).snapshot()


# -- moving ----------------------------------------------------------------------------


@command(app)
async def export(
    options: Options,
    file: Annotated[Path, Argument(metavar="FILE", help="The file to write.")],
    force: Annotated[bool, Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write everything a user remembers, history included, to one portable file."""
    from memagent.memory.transfer import export_bank

    if file.exists() and not force:
        raise InputError(f"{file} is there already; --force replaces it")
    with opened(options) as store:
        bank = store.bank(options.scope)
        await tell_if_empty(bank, store)
        report = await export_bank(bank, file)
    emit(options, report, lambda: views.pairs(report.model_dump()))


@command(app)
async def graph(
    options: Options,
    output: Annotated[Path, Option("--output", "-o", metavar="FILE", help="The file to write.")],
    format: Annotated[
        GraphFile, Option(help="A page, node-link JSON, or GraphML; auto goes by the file's name.")
    ] = "auto",
    as_of_said: AsOfSaid = None,
    as_of_valid: AsOfValid = None,
    as_of_recorded: AsOfRecorded = None,
    without_hidden: Annotated[
        bool, Option("--without-hidden", help="Leave out what was deleted or rewritten.")
    ] = False,
    force: Annotated[bool, Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write the event graph with the turns it rests on: a page for the browser, JSON,
    or GraphML for other programs.
    """
    from memagent.cli.graph import write_graph

    when = _as_of(as_of_said, as_of_valid, as_of_recorded)
    written = await write_graph(
        options, output, format=format, as_of=when, include_hidden=not without_hidden, force=force
    )
    emit(options, written, lambda: views.pairs(written))


@command(app, "import")
async def import_(
    options: Options,
    file: Annotated[Path, Argument(metavar="FILE", help="What `memagent export` wrote.")],
) -> None:
    """Read an export into the memory of a user who has none yet."""
    from memagent.memory.transfer import import_bank

    with opened_bank(options, write=True, make=True) as bank:
        report = await import_bank(bank, file)
    emit(options, report, lambda: views.pairs(report.model_dump()))


@command(app, "import-mem0")
async def import_mem0(
    options: Options,
    source: Annotated[
        Path, Argument(metavar="PATH", help="A folder of qdrant's local mode, or a JSON export.")
    ],
) -> None:
    """Read the memories of a mem0 store, each into the memory of its user; what was
    read before is skipped.
    """
    from memagent.cli.integrations import take_over_mem0

    report = await take_over_mem0(options, source)
    emit(options, report, lambda: views.pairs(report.model_dump()))


@command(app)
async def reembed(options: Options) -> None:
    """Embed every memory of the store anew, with the embedder of --embedder or the
    settings, and use that one from now on.
    """
    from memagent.cli.setup import embed_again

    done = await embed_again(options)
    emit(options, done, lambda: views.pairs(done))


# -- serving ---------------------------------------------------------------------------


@command(app)
async def mcp(
    options: Options,
    http: Annotated[
        str | None,
        Option(metavar="HOST:PORT", help="Serve HTTP on this machine; port 0 takes a free one."),
    ] = None,
    read_only: Annotated[
        bool, Option("--read-only", help="Offer only the tools that read.")
    ] = False,
) -> None:
    """Serve the memory to MCP clients, over standard input and output or over HTTP.

    The user is --user, whatever a client asks for.
    """
    from memagent.cli.integrations import serve_mcp

    await serve_mcp(options, http=http, read_only=read_only)


@command(app)
async def doctor(options: Options) -> int:
    """Look for what is wrong with the installation, the settings and the store; exit
    code 1 if something is.
    """
    from memagent.cli.doctor import examine

    found = await examine(options)
    emit(options, found.document(), found.view)
    return int(bool(found.problems))


# -- serving ---------------------------------------------------------------------------


@command(app)
def serve(
    options: Options,
    host: Annotated[
        str,
        Option(metavar="ADDRESS", help="Where to listen; beyond loopback an API key is needed."),
    ] = ("127.0.0.1"),
    port: Annotated[
        int, Option(min=0, max=65535, metavar="N", help="Port; 0 takes a free one.")
    ] = 8377,
    db: Annotated[str | None, Option(metavar="FILE", help="The store; the same as --path.")] = None,
    workers: Annotated[
        int, Option(min=1, metavar="N", help="Processes; a SQLite store takes one.")
    ] = 1,
) -> None:
    """Serve the memory over HTTP, for any number of users; made when it is not there."""
    from dataclasses import replace

    from memagent.cli.serve import run_service

    run_service(
        options if db is None else replace(options, path=db), host=host, port=port, workers=workers
    )


keys = typer.Typer(cls=CommandGroup, help="The API keys of the service.", no_args_is_help=True)
app.add_typer(keys, name="keys")


@command(keys, "create")
def create_key(
    options: Options,
    bound_to: Annotated[
        str | None,
        Option("--for", metavar="USER", help="Bind it to one user; it reaches no other."),
    ] = None,
    name: Annotated[str, Option(metavar="TEXT", help="What it is for.")] = "",
    scope: Annotated[
        list[str] | None,
        Option(metavar="SCOPE", help="memory:read, memory:write, memory:delete, chat or admin."),
    ] = None,
) -> None:
    """Make a key and show it, this once; without --scope it may do everything but admin."""
    from memagent.cli.serve import create_key as create

    made = create(options, name=name, scopes=scope, bound_to=bound_to)
    emit(options, made, lambda: views.pairs(made))


@command(keys, "list")
def list_keys(options: Options) -> None:
    """Every key, without its secret."""
    from memagent.cli.serve import list_keys as listed

    found = listed(options)
    emit(
        options, found, lambda: views.stack([views.pairs(one) for one in found] or ["no API keys"])
    )


@command(keys, "revoke")
def revoke_key(
    options: Options, key_id: Annotated[str, Argument(metavar="ID", help="The key's id.")]
) -> None:
    """Make a key useless, at once."""
    from memagent.cli.serve import revoke_key as revoke

    done = revoke(options, key_id)
    emit(options, done, lambda: views.pairs(done))


if __name__ == "__main__":
    main()

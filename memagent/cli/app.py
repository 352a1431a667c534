"""The command line: one Typer app and the table of its commands.

A command is a function in one of the modules beside this one: it reads its arguments,
calls a verb of the library and hands the result to `emit`. What all commands share is
in `frame`, `arguments` and `stores`; `views` shows records to a person. Commands that
only read open the store for reading, so they work while another process writes. The
surprise: the commands import nearly everything inside their bodies, so that
`memagent --help` starts at once and `list` never loads a graph.
"""

from __future__ import annotations

from typing import Annotated, Final

import typer
from typer import Option

from memagent.cli.change import diff, edit, history, recall, report, rm, tidy, undo
from memagent.cli.chat import chat
from memagent.cli.frame import Body, CommandGroup, add_command
from memagent.cli.ingest import ingest
from memagent.cli.lookup import ask, list_, search, show, stats, trials
from memagent.cli.serve import create_key, list_keys, mcp, revoke_key, serve
from memagent.cli.setup import init, reembed, trust
from memagent.cli.transfer import export, graph, import_, import_mem0
from memagent.cli.upkeep.care import erase, quarantine, touched
from memagent.cli.upkeep.copies import backup, restore
from memagent.cli.upkeep.doctor import doctor

app = typer.Typer(
    name="memagent",
    cls=CommandGroup,
    help="A language-model agent with a long-term memory that is cited and auditable.",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
keys = typer.Typer(cls=CommandGroup, help="The API keys of the service.", no_args_is_help=True)

COMMANDS: Final[dict[str, Body]] = {
    "init": init,
    "trust": trust,
    "chat": chat,
    "ingest": ingest,
    "ask": ask,
    "search": search,
    "list": list_,
    "show": show,
    "stats": stats,
    "edit": edit,
    "rm": rm,
    "history": history,
    "undo": undo,
    "quarantine": quarantine,
    "touched": touched,
    "erase": erase,
    "diff": diff,
    "recall": recall,
    "report": report,
    "trials": trials,
    "tidy": tidy,
    "export": export,
    "graph": graph,
    "import": import_,
    "import-mem0": import_mem0,
    "backup": backup,
    "restore": restore,
    "reembed": reembed,
    "mcp": mcp,
    "doctor": doctor,
    "serve": serve,
}
KEY_COMMANDS: Final[dict[str, Body]] = {
    "create": create_key,
    "list": list_keys,
    "revoke": revoke_key,
}
for group, commands in ((app, COMMANDS), (keys, KEY_COMMANDS)):
    for name, body in commands.items():
        add_command(group, name, body)
app.add_typer(keys, name="keys")


@app.callback(invoke_without_command=True)
def _root(  # pyright: ignore[reportUnusedFunction]
    context: typer.Context,
    version: Annotated[bool, Option("--version", help="Print the version and exit.")] = False,  # noqa: ARG001 (printed by the group)
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


def main() -> None:
    """Run the command line and exit."""
    app()


if __name__ == "__main__":
    main()

"""The command line: one Typer app and the table of its commands.

A command is a function in one of the modules beside this one: it reads its arguments,
calls a verb of the library and hands the result to `emit`. What all commands share is
in `frame`, `arguments` and `stores`; `views` shows records to a person. Commands that
only read open the store for reading, so they work while another process writes. The
surprise: `main` registers only the command that is called, for Typer inspects every
option of each one it is given; `app`, made when somebody asks for it, has all. The
commands import nearly everything inside their bodies, so `list` never loads a graph.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Final

import typer

from memagent.cli.frame import CommandGroup, add_command

if TYPE_CHECKING:
    app: typer.Typer

COMMANDS: Final = {
    "init": "setup:init",
    "trust": "setup:trust",
    "chat": "ingest:chat",
    "ingest": "ingest:ingest",
    "ask": "views:ask",
    "search": "views:search",
    "list": "views:list_",
    "show": "views:show",
    "stats": "views:stats",
    "edit": "change:edit",
    "rm": "change:rm",
    "history": "change:history",
    "undo": "change:undo",
    "quarantine": "change:quarantine",
    "touched": "change:touched",
    "erase": "change:erase",
    "diff": "change:diff",
    "recall": "change:recall",
    "report": "change:report",
    "trials": "views:trials",
    "tidy": "change:tidy",
    "export": "setup:export",
    "graph": "setup:graph",
    "import": "setup:import_",
    "import-from": "setup:import_from",
    "backup": "change:backup",
    "restore": "change:restore",
    "reembed": "setup:reembed",
    "mcp": "setup:mcp",
    "doctor": "doctor:doctor",
    "serve": "setup:serve",
}
"""The commands in the order of the help: the module beside this one, and its function."""
# The commands of each panel of the help.
_PANELS: Final = {
    "Start": "init trust doctor serve mcp",
    "Remember and ask": "chat ingest ask search list show stats",
    "Change and look back": "edit rm history diff undo quarantine touched erase",
    "Learn from tasks": "recall report trials tidy",
    "Move and keep": "export import import-from graph backup restore reembed",
}
KEY_COMMANDS: Final = {
    "create": "setup:create_key",
    "list": "setup:list_keys",
    "revoke": "setup:revoke_key",
}


@cache
def command_line(only: str | None = None) -> typer.Typer:
    """Return the Typer app with every command, or with only the named one."""
    line = typer.Typer(
        name="memagent",
        cls=CommandGroup,
        help="A language-model agent with a long-term memory that is cited and auditable.",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    line.callback(invoke_without_command=True)(_root)
    _register(line, COMMANDS if only is None else {only: COMMANDS[only]})
    if only is None:
        keys = typer.Typer(
            cls=CommandGroup, help="The API keys of the service.", no_args_is_help=True
        )
        _register(keys, KEY_COMMANDS)
        line.add_typer(keys, name="keys", rich_help_panel="Start")
    return line


def _register(group: typer.Typer, commands: dict[str, str]) -> None:
    for name, home in commands.items():
        module, _, function = home.partition(":")
        panel = next((title for title, names in _PANELS.items() if name in names.split()), None)
        body = getattr(import_module(f"memagent.cli.{module}"), function)
        add_command(group, name, body, panel=panel if commands is not KEY_COMMANDS else None)


def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,  # noqa: ARG001 (printed by the group)
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit


def __getattr__(name: str) -> object:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return command_line()


def main() -> None:
    """Run the command line and exit."""
    word = sys.argv[1] if len(sys.argv) > 1 else None
    completing = "_MEMAGENT_COMPLETE" in os.environ
    command_line(word if word in COMMANDS and not completing else None)()


if __name__ == "__main__":
    main()
